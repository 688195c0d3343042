//! Blocks from WAL alone, by the redo of a stock server in a directory that is made for it.
//!
//! The directory has no relation but the sparse files of those that the wanted blocks are in, and WAL in
//! which every record that names no wanted block became one that does nothing. So redo needs no base
//! backup, touches no tablespace of anybody, and does not replay what would remove files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};
use pgtoll_datadir::DataDirectory;
use pgtoll_format::wal::{KeptRecord, WalLayout};
use pgtoll_format::{CONTROL_FILE_BYTES, ControlFile, Lsn, RelationFork, facts_of_major};
use pgtoll_wal::BlockChains;

use super::failure::RedoFailure;
use super::fetched::RebuiltPages;
use super::refusal::{BlockRefusal, RedoRefusal};
use super::source::RelationBlocks;

/// The WAL that a server replays to rebuild blocks.
#[derive(Clone, Debug)]
pub struct RedoPlan {
    blocks: Vec<PlannedBlock>,
    /// Blocks that were given up, and why.
    lost: Vec<((RelationFork, u32), String)>,
    /// Files below the data directory, and how long they are.
    files: BTreeMap<PathBuf, u64>,
    records: Vec<KeptRecord>,
    layout: WalLayout,
    /// The start of the checkpoint record from which redo starts.
    start: Lsn,
    control: Vec<u8>,
    checkpoint: Vec<u8>,
    major: u32,
    slru_files: BTreeSet<PathBuf>,
    target: RelationBlocks,
    data: PathBuf,
}

/// A block, and where the records are that make it again.
#[derive(Clone, Debug)]
struct PlannedBlock {
    of: (RelationFork, u32),
    records: BTreeSet<Lsn>,
}

/// Lets a server replay what is planned.
pub type Rebuild<'a> = &'a mut dyn FnMut(&RedoPlan) -> Result<RebuiltPages, RedoRefusal>;

impl RedoPlan {
    /// How the WAL makes these blocks again; `None`: it has no image of any of them. An error: it cannot
    /// be said to a server.
    pub(super) fn new(
        data: &DataDirectory,
        wanted: &[(RelationFork, u32)],
        chains: &BlockChains,
    ) -> Result<Option<Self>, RedoRefusal> {
        let mut blocks = Vec::new();
        let mut named = BTreeMap::new();
        let mut kept = BTreeMap::new();
        let mut xids = BTreeSet::new();
        for (fork, block) in wanted {
            let Some(chain) = chains.chain(*fork, *block) else { continue };
            let records = chain.iter().map(|chain| chain.record.at).collect();
            blocks.push(PlannedBlock { of: (*fork, *block), records });
            for chain in chain {
                for (fork, block) in &chain.blocks {
                    let last = named.entry(*fork).or_insert(*block);
                    *last = (*last).max(*block);
                }
                xids.insert(chain.xid);
                kept.insert(chain.record.at, chain.record.clone());
            }
        }
        let Some(first) = kept.keys().next().copied() else { return Ok(None) };
        let facts = facts_of_major(data.major).ok_or(RedoRefusal::UnknownVersion)?;
        let control = &data.control;
        let timeline = control.last_checkpoint.timeline;
        let layout = WalLayout {
            magic: facts.wal.magic,
            system_identifier: control.system_identifier,
            timeline,
            segment_bytes: control.wal_segment_bytes.into(),
            page_bytes: control.wal_block_bytes.into(),
        };
        let start = layout.start_before(first, facts.wal.checkpoint_bytes as usize);
        let path = data.path.join("global/pg_control");
        let bytes = pgtoll_system::read(&path, CONTROL_FILE_BYTES as u64)
            .map_err(|error| RedoRefusal::ControlFile { path, error })?;
        let (control_bytes, checkpoint) = ControlFile::for_redo(&bytes, start, timeline)?;
        let target = RelationBlocks::from_data(data);
        let files = sparse_files(&target, &data.path, &named);
        Ok(Some(Self {
            blocks,
            lost: Vec::new(),
            files,
            records: kept.into_values().collect(),
            layout,
            start,
            control: control_bytes,
            checkpoint,
            major: data.major,
            slru_files: slru_files(control, &xids),
            target,
            data: data.path.clone(),
        }))
    }

    /// Without the blocks that this record is about: it names others too, whose pages are not those that
    /// it was made for. `None`: nothing is left, or the failure is of no block.
    pub(super) fn without(mut self, failure: &RedoFailure) -> Option<Self> {
        let at = failure.at?;
        let (lost, left): (Vec<_>, Vec<_>) =
            self.blocks.into_iter().partition(|block| block.records.contains(&at));
        if lost.is_empty() || left.is_empty() {
            return None;
        }
        self.lost.extend(lost.into_iter().map(|block| (block.of, failure.words.clone())));
        self.records.retain(|record| left.iter().any(|block| block.records.contains(&record.at)));
        self.blocks = left;
        Some(self)
    }

    /// The major version of the server that can replay it.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Makes the directory that the server runs in, which must not be there yet, as this user and group:
    /// a process of root follows no link of theirs further than they could themselves.
    pub fn write(&self, directory: &Path, uid: u32, gid: u32) -> io::Result<()> {
        let write = || {
            if geteuid().is_root() {
                // These are the calling thread's alone.
                setfsgid(Gid::from_raw(gid));
                setfsuid(Uid::from_raw(uid));
            }
            self.write_here(directory)
        };
        thread::scope(|scope| {
            let writing = thread::Builder::new().spawn_scoped(scope, write)?;
            writing.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")))
        })
    }

    fn write_here(&self, directory: &Path) -> io::Result<()> {
        make_directory(directory)?;
        for name in DIRECTORIES {
            make_directory(&directory.join(name))?;
        }
        write_new(&directory.join("PG_VERSION"), format!("{}\n", self.major).as_bytes())?;
        for name in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            write_new(&directory.join(name), b"")?;
        }
        write_new(&directory.join("global/pg_control"), &self.control)?;
        for path in &self.slru_files {
            new_file(&directory.join(path))?.set_len(SLRU_FILE_BYTES)?;
        }
        for (path, bytes) in &self.files {
            let path = directory.join(path);
            make_parents(directory, &path)?;
            new_file(&path)?.set_len(*bytes)?;
        }
        self.write_wal(&directory.join("pg_wal"))
    }

    fn write_wal(&self, directory: &Path) -> io::Result<()> {
        let mut open: Option<(u64, File)> = None;
        let segment_bytes = self.layout.segment_bytes;
        self.layout.write(self.start, &self.checkpoint, &self.records, &mut |at, bytes| {
            let number = at.0 / segment_bytes;
            if open.as_ref().is_none_or(|(open, _)| *open != number) {
                let file = new_file(&directory.join(self.segment_name(number)))?;
                file.set_len(segment_bytes)?;
                open = Some((number, file));
            }
            let Some((_, file)) = &open else { return Ok(()) };
            file.write_all_at(bytes, at.0 % segment_bytes)
        })
    }

    fn segment_name(&self, number: u64) -> String {
        let of_part = (1_u64 << 32) / self.layout.segment_bytes;
        let high = number / of_part;
        let low = number % of_part;
        format!("{:08X}{high:08X}{low:08X}", self.layout.timeline)
    }

    /// The arguments of `postgres`. It replays, makes a checkpoint, and ends with an error, since
    /// there is no database.
    pub fn arguments(directory: &Path) -> Vec<String> {
        let data = directory.display().to_string();
        let settings = [
            // Records may name blocks beside the wanted ones, which are not there.
            "ignore_invalid_pages=on",
            "fsync=off",
            "huge_pages=off",
            "shared_buffers=16MB",
            "dynamic_shared_memory_type=mmap",
        ];
        let settings =
            settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting.to_owned()]);
        let begin = ["--single".to_owned(), "-D".to_owned(), data];
        begin.into_iter().chain(settings).chain(["template1".to_owned()]).collect()
    }

    /// The pages that are there when the server has ended; `server` says which it was, `log` is what it
    /// logged in English.
    pub fn pages(&self, directory: &Path, server: &str, log: &str) -> RebuiltPages {
        let unreadable = |error: io::Error| BlockRefusal::Unreadable(error.to_string());
        let page = |fork: RelationFork, block: u32| {
            let (path, at) = self.place(directory, fork, block).ok_or(BlockRefusal::NoPlace)?;
            let file = pgtoll_system::open_unlinked(&path).map_err(unreadable)?;
            let mut page = vec![0; self.target.block_bytes()];
            file.read_exact_at(&mut page, at).map_err(unreadable)?;
            Ok(page)
        };
        let made = self.blocks.iter().map(|block| (block.of, page(block.of.0, block.of.1)));
        let lost =
            self.lost.iter().map(|(lost, reason)| (*lost, Err(BlockRefusal::Told(reason.clone()))));
        let pages = made.chain(lost).collect();
        let failure = RedoFailure::of_log(log);
        let from = self.records.first().map_or(Lsn::INVALID, |record| record.at);
        RebuiltPages { pages, server: server.to_owned(), from, failure }
    }

    fn place(&self, directory: &Path, fork: RelationFork, block: u32) -> Option<(PathBuf, u64)> {
        let (path, at) = self.target.place(fork, block)?;
        Some((directory.join(path.strip_prefix(&self.data).ok()?), at))
    }
}

/// The files that have the blocks up to these, as long as they have to be: redo would write zeros.
fn sparse_files(
    target: &RelationBlocks,
    data: &Path,
    named: &BTreeMap<RelationFork, u32>,
) -> BTreeMap<PathBuf, u64> {
    let mut files = BTreeMap::new();
    for (fork, last) in named {
        let mut block = *last;
        // The file with the last block, then those before it, which are full.
        while let Some((path, at)) = target.place(*fork, block) {
            let Ok(path) = path.strip_prefix(data) else { break };
            files.insert(path.to_owned(), at + target.block_bytes() as u64);
            match (block - block % target.file_blocks()).checked_sub(1) {
                Some(before) => block = before,
                None => break,
            }
        }
    }
    files
}

/// The files of zeros that the end of recovery reads: of the next transaction and the next multixact.
fn slru_files(control: &ControlFile, xids: &BTreeSet<u32>) -> BTreeSet<PathBuf> {
    let last = control.last_checkpoint;
    let pages = u64::from(control.slru_file_blocks.max(1));
    let block_bytes = u64::from(control.block_bytes);
    let name = |directory: &str, number: u64, of_page: u64| {
        PathBuf::from(format!("{directory}/{:04X}", number / of_page / pages))
    };
    #[expect(clippy::cast_possible_truncation, reason = "files are named by the lower half")]
    let next = last.next_xid as u32;
    let xids = xids.iter().map(|xid| xid.wrapping_add(1)).chain([next, 0]);
    let xact = xids.map(|xid| name("pg_xact", xid.into(), block_bytes * XACTS_PER_BYTE));
    // Four bytes before 19, which has longer names too and is not replayed.
    let offsets = name("pg_multixact/offsets", last.next_multixact.into(), block_bytes / 4);
    let groups = block_bytes / MEMBER_GROUP_BYTES;
    let member = last.next_multixact_offset;
    let members = name("pg_multixact/members", member, groups * MEMBERS_PER_GROUP);
    xact.chain([offsets, members]).collect()
}

/// `CLOG_XACTS_PER_BYTE`.
const XACTS_PER_BYTE: u64 = 4;
/// `MULTIXACT_MEMBERGROUP_SIZE` and `MULTIXACT_MEMBERS_PER_MEMBERGROUP`.
const MEMBER_GROUP_BYTES: u64 = 20;
const MEMBERS_PER_GROUP: u64 = 4;
/// 32 pages; only what is read has to be there.
const SLRU_FILE_BYTES: u64 = 32 * 8192;

/// The directories that a server needs.
const DIRECTORIES: [&str; 25] = [
    "base",
    "base/1",
    "global",
    "pg_commit_ts",
    "pg_dynshmem",
    "pg_logical",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_multixact",
    "pg_multixact/members",
    "pg_multixact/offsets",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_wal",
    "pg_wal/archive_status",
    "pg_wal/summaries",
    "pg_xact",
    "tablespaces",
];

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// The directories that a file is in. A tablespace is a link, as servers want it, to a directory of
/// this very one.
fn make_parents(directory: &Path, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| *parent != directory) else { return Ok(()) };
    if fs::symlink_metadata(parent).is_ok() {
        return Ok(());
    }
    make_parents(directory, parent)?;
    if parent.parent() == Some(&directory.join("pg_tblspc")) {
        let own = directory.join("tablespaces").join(parent.file_name().unwrap_or_default());
        make_directory(&own)?;
        return symlink(own, parent);
    }
    make_directory(parent)
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    new_file(path)?.write_all_at(bytes, 0)
}
