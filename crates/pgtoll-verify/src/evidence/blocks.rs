//! The blocks of forks, read one by one or one after the other.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use pgtoll_format::{RelFileLocator, RelationFork};

use crate::listing::{Listed, Listing};
use crate::settings::VerifySettings;
use pgtoll_datadir::DataDirectory;
use pgtoll_system::open;

/// The forks of all relations that are looked at.
pub(super) struct Forks<'a> {
    data: &'a DataDirectory,
    files: Listing,
}

impl<'a> Forks<'a> {
    /// Those of the relations that are wanted.
    pub(super) fn new(
        data: &'a DataDirectory,
        settings: &VerifySettings,
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) -> Self {
        let (files, _) = Listing::new(&data.path, &data.control, &settings.only_below, wanted);
        Self { data, files }
    }

    /// Those that have files.
    pub(super) fn iter(&self) -> impl Iterator<Item = RelationFork> {
        let firsts = self.files.iter().scan(None, |before: &mut Option<RelationFork>, file| {
            let is_first = before.replace(file.fork) != Some(file.fork);
            Some(is_first.then_some(file.fork))
        });
        firsts.flatten()
    }

    /// The path of a fork's first file; `None`: it has none.
    pub(super) fn first_file(&self, fork: RelationFork) -> Option<PathBuf> {
        let first = self.files.of_fork(fork).next()?;
        Some(self.files.path(first))
    }

    /// The blocks of a fork.
    pub(super) fn blocks(&self, fork: RelationFork) -> Blocks<'_> {
        let control = &self.data.control;
        let block_bytes = control.block_bytes as usize;
        let per_file = control.file_blocks;
        let range = self.files.of_fork(fork);
        Blocks { files: &self.files, range, block_bytes, per_file, open: None }
    }
}

/// The blocks of a fork.
pub(super) struct Blocks<'a> {
    files: &'a Listing,
    /// The range of the fork's files.
    range: Range<usize>,
    block_bytes: usize,
    /// Blocks of a full file.
    per_file: u32,
    open: Option<(u32, File)>,
}

impl Blocks<'_> {
    /// There is no file.
    pub(super) fn is_none(&self) -> bool {
        self.range.is_empty()
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, Listed)> {
        self.range.clone().map(|at| (at, self.files.file(at)))
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|(_, file)| file.bytes).sum()
    }

    /// How many there are, by the last file that is not empty.
    pub(super) fn count(&self) -> u32 {
        let last = self.iter().rev().find(|(_, file)| file.bytes > 0);
        let count = last.map_or(0, |(_, file)| {
            let before = u64::from(file.segment) * u64::from(self.per_file);
            before + file.bytes / self.block_bytes as u64
        });
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Reads the first bytes of a block.
    pub(super) fn read(&mut self, block: u32, buffer: &mut [u8]) -> io::Result<()> {
        let segment = block / self.per_file;
        if self.open.as_ref().is_none_or(|(open, _)| *open != segment) {
            let found = self.iter().find(|(_, file)| file.segment == segment);
            let (at, _) = found.ok_or(io::ErrorKind::NotFound)?;
            self.open = Some((segment, open(&self.files.path(at))?));
        }
        let at = u64::from(block % self.per_file) * self.block_bytes as u64;
        match &self.open {
            Some((_, file)) => file.read_exact_at(buffer, at),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Gives every whole block that can be read to `visit`, in their order, until it has enough.
    pub(super) fn each(&self, buffer: &mut [u8], visit: &mut dyn FnMut(u32, &[u8]) -> bool) {
        let room = buffer.len() / self.block_bytes * self.block_bytes;
        for (at, item) in self.iter() {
            let Ok(file) = open(&self.files.path(at)) else { continue };
            let first = u64::from(item.segment) * u64::from(self.per_file);
            let whole = item.bytes / self.block_bytes as u64;
            let bytes = whole.min(u64::from(self.per_file)) * self.block_bytes as u64;
            let mut at = 0;
            while at < bytes {
                let wanted = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(room);
                let buffer = &mut buffer[..wanted];
                // An unreadable page was reported when it was verified.
                if file.read_exact_at(buffer, at).is_ok() {
                    let begin = first + at / self.block_bytes as u64;
                    for (page, block) in buffer.chunks_exact(self.block_bytes).zip(begin..) {
                        let Ok(block) = u32::try_from(block) else { return };
                        if !visit(block, page) {
                            return;
                        }
                    }
                }
                at += wanted as u64;
            }
        }
    }
}

/// Whether every byte is zero.
pub(super) fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}
