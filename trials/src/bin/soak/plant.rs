//! Damage to blocks that the server does not have in memory, and its undoing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_format::{ForkNumber, RelFileLocator, RelationFork};
use pgtoll_wire::Connection;

/// A block that was damaged.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) fork: RelationFork,
    pub(crate) block: u32,
    pub(crate) kind: &'static str,
    path: PathBuf,
    before: Vec<u8>,
}

impl Planted {
    /// Puts the block right again; the server does not write it meanwhile.
    pub(crate) fn undo(&self) -> anyhow::Result<()> {
        write(&self.path, self.block, &self.before)
    }
}

/// What is damaged: of tables that pgbench changes only the last part, which it leaves alone.
const TARGETS: [(&str, f64); 5] = [
    ("still", 0.0),
    ("still_i", 0.1),
    ("not_logged", 0.0),
    ("pgbench_accounts", 0.82),
    ("pgbench_accounts_pkey", 0.85),
];
const KINDS: [&str; 7] = ["bit", "garbage", "ones", "upper", "half", "zeros", "other block"];
/// Nothing but a checksum protects an unlogged table, and zeros have none.
const NOT_LOGGED: &str = "not_logged";
/// pgbench's table gets longer while it works.
const ACCOUNTS: &str = "pgbench_accounts";
const PAGE: usize = 8192;

/// Damages one block of each target.
pub(crate) fn damage(
    session: &mut Connection,
    data: &Path,
    random: &mut Random,
) -> anyhow::Result<Vec<Planted>> {
    let mut planted = Vec::new();
    for (relation, from) in TARGETS {
        let kind = match KINDS[random.below(KINDS.len())] {
            "zeros" if relation == NOT_LOGGED => "bit",
            kind => kind,
        };
        if let Some(damage) = damage_one(session, data, relation, from, kind, random)? {
            planted.push(damage);
        }
    }
    Ok(planted)
}

/// `None`: the server has the block in memory.
fn damage_one(
    session: &mut Connection,
    data: &Path,
    relation: &str,
    from: f64,
    kind: &'static str,
    random: &mut Random,
) -> anyhow::Result<Option<Planted>> {
    let row = session.query_one(&format!(
        "SELECT pg_relation_filepath(c.oid) AS path, pg_relation_filenode(c.oid) AS number,
            d.oid AS database, d.dattablespace AS tablespace, greatest(c.relpages, 1) AS blocks
         FROM pg_class c, pg_database d
         WHERE c.oid = '{relation}'::regclass AND d.datname = current_database()"
    ))?;
    let files = RelFileLocator {
        tablespace: row.parse("tablespace")?,
        database: row.parse("database")?,
        rel_number: row.parse("number")?,
    };
    let blocks =
        if relation == ACCOUNTS { accounts_blocks(session)? } else { row.parse("blocks")? };
    let first = part(blocks, from);
    let block = first + u32::try_from(random.below((blocks - first) as usize))?;
    let resident = session.query(&format!(
        "SELECT 1 FROM pg_buffercache WHERE relfilenode = {} AND relforknumber = 0
         AND relblocknumber = {block} AND reldatabase = {}",
        files.rel_number, files.database
    ))?;
    if !resident.is_empty() {
        return Ok(None);
    }
    let path = data.join(row.text("path")?);
    let before = read(&path, block)?;
    let mut after = before.clone();
    match kind {
        "bit" => after[24 + random.below(PAGE - 24)] ^= 1 << random.below(8),
        "garbage" => after.fill_with(|| random.byte()),
        "ones" => after.fill(0xFF),
        "upper" => after[14..16].fill(0),
        "half" => after[..PAGE / 2].fill(0),
        "zeros" => after.fill(0),
        _ => after = read(&path, if block == first { block + 1 } else { block - 1 })?,
    }
    write(&path, block, &after)?;
    let fork = RelationFork { relation: files, number: ForkNumber::MAIN };
    Ok(Some(Planted { fork, block, kind, path, before }))
}

/// As many as there were before pgbench made more.
fn accounts_blocks(session: &mut Connection) -> anyhow::Result<u32> {
    let row = session.query_one(
        "SELECT (ctid::text::point)[0]::bigint + 1 AS blocks FROM pgbench_accounts
         WHERE aid = (SELECT max(aid) FROM pgbench_accounts)",
    )?;
    Ok(row.parse("blocks")?)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a number is smaller"
)]
fn part(blocks: u32, share: f64) -> u32 {
    (f64::from(blocks) * share) as u32
}

fn read(path: &Path, block: u32) -> anyhow::Result<Vec<u8>> {
    let mut page = vec![0; PAGE];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut page, place(block)));
    read.with_context(|| format!("read {}", path.display()))?;
    Ok(page)
}

fn write(path: &Path, block: u32, page: &[u8]) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path);
    let written = file.and_then(|file| file.write_all_at(page, place(block)));
    written.with_context(|| format!("write {}", path.display()))
}

fn place(block: u32) -> u64 {
    u64::from(block) * PAGE as u64
}

/// Steele's and Vigna's `SplitMix64`.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }
}
