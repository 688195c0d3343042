//! Kinds of damage to a page.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use pgtoll_format::{LinePointerState, PAGE_CHECKSUM, line_pointers};

use crate::site::{BLOCK_BYTES, Site};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One that `pgtoll corrupt` does.
    Corrupt(&'static str),
    /// Every bit of the page is set.
    AllOnes,
    /// The header says that the page was never used, and the rest is as it was.
    UnusedHeader,
    /// The table's visibility map is the one from before, as in a backup that was put together wrongly.
    MapStale,
    /// A row of a page that says that all of its rows are visible is marked as deleted.
    PageVisible,
}

/// A kind of damage, done to a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) relation: &'static str,
    pub(crate) kind: Kind,
}

const KINDS: [Kind; 12] = [
    Kind::Corrupt("bit"),
    Kind::Corrupt("garbage"),
    Kind::AllOnes,
    Kind::UnusedHeader,
    Kind::Corrupt("torn"),
    Kind::Corrupt("transposed"),
    Kind::Corrupt("zero-half"),
    Kind::Corrupt("zero"),
    Kind::Corrupt("stale"),
    Kind::Corrupt("cut"),
    Kind::Corrupt("cut-at-block"),
    Kind::Corrupt("missing-segment"),
];

/// Those of a visibility map.
const OF_MAPS: [Kind; 3] = [Kind::Corrupt("bit"), Kind::Corrupt("garbage"), Kind::Corrupt("zero")];

/// Those that tables alone can have.
const OF_TABLES: [Kind; 2] = [Kind::MapStale, Kind::PageVisible];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Corrupt(name) => name,
            Self::AllOnes => "all-ones",
            Self::UnusedHeader => "unused-header",
            Self::MapStale => "map-stale",
            Self::PageVisible => "page-visible",
        }
    }
}

impl Case {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let relations = ["table", "index"].into_iter();
        let of_both = relations.flat_map(|relation| KINDS.map(|kind| Self { relation, kind }));
        let of_tables = OF_TABLES.map(|kind| Self { relation: "table", kind });
        of_both.chain(of_tables).chain(OF_MAPS.map(|kind| Self { relation: "map", kind }))
    }

    pub(crate) fn name(self) -> String {
        format!("{} {}", self.relation, self.kind.name())
    }

    /// Damages the stopped cluster in this directory.
    pub(crate) fn apply(self, site: &Site, data: &Path) -> anyhow::Result<()> {
        let (file, block) = site.target(self.relation);
        match self.kind {
            Kind::AllOnes => overwrite(&data.join(file), block, 0, &[0xFF; BLOCK_BYTES]),
            // pd_upper
            Kind::UnusedHeader => overwrite(&data.join(file), block, 14, &[0; 2]),
            Kind::MapStale => {
                let (map, _) = site.target("map");
                std::fs::write(data.join(map), std::fs::read(site.older("map"))?)
                    .context("put a map back")
            }
            Kind::PageVisible => delete_row(&data.join(file), block),
            Kind::Corrupt(kind) => {
                let undo = site.new_file("undo");
                let mut pgtoll = program(&site.pgtoll);
                pgtoll
                    .args(["--quiet", "corrupt", "--yes", "--seed", "1", "--kind", kind])
                    .args(["--block", &block.to_string(), "--file", file])
                    .arg("--undo-file")
                    .arg(&undo)
                    .arg(data);
                match kind {
                    "transposed" => _ = pgtoll.args(["--with", &(block + 2).to_string()]),
                    "torn" | "stale" => {
                        _ = pgtoll.arg("--older").arg(site.older(self.relation));
                    }
                    _ => {}
                }
                let output = pgtoll.output().context("run pgtoll corrupt")?;
                if !output.status.success() {
                    bail!("pgtoll corrupt: {}", String::from_utf8_lossy(&output.stderr));
                }
                Ok(())
            }
        }
    }
}

/// Marks the first row of a page as deleted, with a right checksum.
fn delete_row(path: &Path, block: u64) -> anyhow::Result<()> {
    let mut page = vec![0; BLOCK_BYTES];
    let file = File::open(path).context("open a table")?;
    file.read_exact_at(&mut page, block * BLOCK_BYTES as u64).context("read a page")?;
    let row =
        line_pointers(&page).find(|line_pointer| line_pointer.state == LinePointerState::Normal);
    let row = usize::from(row.context("a page without a row")?.offset);
    page[row + XMAX_AT..][..4].copy_from_slice(&DELETED_BY.to_le_bytes());
    let infomask = u16::from_le_bytes([page[row + INFOMASK_AT], page[row + INFOMASK_AT + 1]]);
    let infomask = infomask & !XMAX_INVALID | XMAX_COMMITTED;
    page[row + INFOMASK_AT..][..2].copy_from_slice(&infomask.to_le_bytes());
    let checksum = pgtoll_checksum::page_checksum(&page, u32::try_from(block)?);
    page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    overwrite(path, block, 0, &page)
}

const XMAX_AT: usize = 4;
const INFOMASK_AT: usize = 20;
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_INVALID: u16 = 0x0800;
/// A transaction of the cluster's first ones.
const DELETED_BY: u32 = 700;

fn overwrite(file: &Path, block: u64, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
    let opened = File::options().write(true).open(file);
    let opened = opened.with_context(|| format!("open {}", file.display()))?;
    opened.write_all_at(bytes, block * BLOCK_BYTES as u64 + at).context("write")
}

#[expect(clippy::disallowed_methods, reason = "a trial starts what a developer would start")]
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env("LC_ALL", "C").env("XDG_STATE_HOME", "/dev/null/none");
    command
}
