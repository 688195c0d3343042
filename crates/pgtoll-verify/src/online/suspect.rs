//! Blocks that looked damaged, and reading them again.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use pgtoll_format::{Fault, ForkNumber, Lsn, PageHeader, RelationFork, Verdict};

use super::pauses::Pauses;
use crate::listing::Listing;
use crate::page::page_verdict;
use crate::storage::Storage;
use crate::storage::read_all;
use crate::visible::VisibilityMap;
use pgtoll_datadir::DataDirectory;

/// A block that looked damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    pub(super) fork: RelationFork,
    pub(super) block: u32,
    /// How it looked when it was read last.
    pub(super) bad: Bad,
    /// How often it was read again while it was watched.
    reads: usize,
    /// It looked the same all that time.
    is_same: bool,
}

/// How a damaged block looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) fault: Fault,
    pub(super) lsn: Lsn,
    /// A digest of all bytes: it suffices to compare two reads after each other.
    digest: u64,
}

/// The state of a block at a look.
#[derive(Debug)]
pub(super) enum Look {
    Sound,
    Bad(Bad),
    /// The file is gone, or ends before.
    Gone,
    Unreadable(String),
}

impl Suspect {
    pub(super) fn new(fork: RelationFork, block: u32, fault: Fault, lsn: Lsn) -> Self {
        let bad = Bad { fault, lsn, digest: 0 };
        Self { fork, block, bad, reads: 0, is_same: true }
    }

    /// It looked the same for as long as blocks are watched.
    pub(super) fn is_steady(&self) -> bool {
        self.is_same && self.reads >= BACK_OFF.len()
    }
}

/// A source of blocks.
pub(crate) struct DiskBlocks<'a> {
    pub(super) disk: &'a dyn Storage,
    files: &'a Listing,
    block_bytes: usize,
    per_file: u32,
    has_checksums: bool,
}

impl<'a> DiskBlocks<'a> {
    pub(crate) fn new(disk: &'a dyn Storage, data: &DataDirectory, files: &'a Listing) -> Self {
        let block_bytes = data.control.block_bytes as usize;
        let per_file = data.control.file_blocks;
        Self { disk, files, block_bytes, per_file, has_checksums: data.has_checksums() }
    }

    fn path(&self, fork: RelationFork, block: u32) -> Option<PathBuf> {
        let segment = block / self.per_file.max(1);
        let mut of_fork = self.files.of_fork(fork);
        of_fork.find(|&at| self.files.file(at).segment == segment).map(|at| self.files.path(at))
    }

    /// Reads a block once more.
    pub(super) fn look(&self, fork: RelationFork, block: u32) -> Look {
        let Some(path) = self.path(fork, block) else { return Look::Gone };
        let at = u64::from(block % self.per_file.max(1)) * self.block_bytes as u64;
        let mut page = vec![0; self.block_bytes];
        let read = self.disk.open(&path).and_then(|file| read_all(&*file, &mut page, at));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Gone,
            Err(error) => return Look::Unreadable(error.to_string()),
            // No server reads a part of a block.
            Ok(read) if read < page.len() => return Look::Gone,
            Ok(_) => {}
        }
        match page_verdict(&page, block, self.has_checksums) {
            Verdict::Valid | Verdict::New => Look::Sound,
            Verdict::Invalid(fault) => {
                let lsn = PageHeader::read(&page).map_or(Lsn(0), |header| header.lsn);
                let mut digest = DefaultHasher::new();
                digest.write(&page);
                Look::Bad(Bad { fault, lsn, digest: digest.finish() })
            }
        }
    }

    /// Reads a page that a server would take; `None`: there is none.
    pub(super) fn sound_page(&self, fork: RelationFork, block: u32) -> Option<Vec<u8>> {
        let at = u64::from(block % self.per_file.max(1)) * self.block_bytes as u64;
        let file = self.disk.open(&self.path(fork, block)?).ok()?;
        let mut page = vec![0; self.block_bytes];
        let read = read_all(&*file, &mut page, at).ok()?;
        let is_sound =
            read == page.len() && page_verdict(&page, block, self.has_checksums) == Verdict::Valid;
        is_sound.then_some(page)
    }

    /// The visibility map of a relation, as it is now; `None`: it has none.
    pub(super) fn map(&self, fork: RelationFork) -> Option<VisibilityMap<'_>> {
        let map = RelationFork { number: ForkNumber::VM, ..fork };
        let file = self.disk.open(&self.path(map, 0)?).ok()?;
        Some(VisibilityMap::new(file, self.block_bytes, self.has_checksums))
    }

    pub(crate) fn is_gone(&self, fork: RelationFork, block: u32) -> bool {
        let Some(path) = self.path(fork, block) else { return true };
        let opened = self.disk.open(&path);
        opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Unlogged relations have an init fork, which itself is logged.
    pub(super) fn is_unlogged(&self, fork: RelationFork) -> bool {
        if fork.number == ForkNumber::INIT {
            return false;
        }
        let Some(first) =
            self.files.of_fork(RelationFork { number: ForkNumber::MAIN, ..fork }).next()
        else {
            return false;
        };
        let init =
            self.files.path(first).with_file_name(format!("{}_init", fork.relation.rel_number));
        // One that cannot be looked at is no proof that there is none.
        let opened = self.disk.open(&init);
        opened.err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
    }
}

/// The outcome of blocks that were read again.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// They still look damaged.
    pub(super) left: Vec<Suspect>,
    pub(super) healed: u64,
    pub(super) dropped: u64,
    pub(super) unreadable: Vec<(RelationFork, u32, String)>,
}

impl Watched {
    pub(super) fn add(&mut self, other: Self) {
        self.left.extend(other.left);
        self.unreadable.extend(other.unreadable);
        self.healed += other.healed;
        self.dropped += other.dropped;
    }

    /// Files what a block looked like; true: it still looks damaged.
    pub(super) fn file(&mut self, suspect: &mut Suspect, look: Look) -> bool {
        match look {
            Look::Sound => self.healed += 1,
            Look::Gone => self.dropped += 1,
            Look::Unreadable(error) => self.unreadable.push((suspect.fork, suspect.block, error)),
            Look::Bad(bad) => {
                suspect.is_same &= suspect.reads == 0 || suspect.bad == bad;
                suspect.bad = bad;
                suspect.reads += 1;
                return true;
            }
        }
        false
    }
}

/// Watches what the scan finds, as long as it continues. What comes while others are watched is
/// watched together.
pub(super) fn watch_all(
    blocks: &DiskBlocks<'_>,
    pauses: &dyn Pauses,
    receiver: &Receiver<Suspect>,
) -> Watched {
    let mut watched = Watched::default();
    while let Ok(first) = receiver.recv() {
        let batch = std::iter::once(first).chain(receiver.try_iter()).collect();
        watched.add(watch(blocks, batch, &mut |time| pauses.pause(time)));
    }
    watched
}

/// Reads each again and again until it is sound, gone, or all pauses are over.
pub(super) fn watch(
    blocks: &DiskBlocks<'_>,
    mut suspects: Vec<Suspect>,
    pause: &mut dyn FnMut(Duration) -> bool,
) -> Watched {
    let mut watched = Watched::default();
    for suspect in &mut suspects {
        (suspect.reads, suspect.is_same) = (0, true);
    }
    for wait in BACK_OFF {
        if suspects.is_empty() || !pause(wait) {
            break;
        }
        suspects.retain_mut(|suspect| {
            let look = blocks.look(suspect.fork, suspect.block);
            watched.file(suspect, look)
        });
    }
    watched.left = suspects;
    watched
}

/// Pauses before each read: what is being written is whole after microseconds, or, where its writer
/// has to wait for the disk or for a core, after much longer.
const BACK_OFF: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];
