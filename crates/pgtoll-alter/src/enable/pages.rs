//! Pages in memory: which of them get another checksum, and what of them is written.

use std::ops::Range;
use std::path::{Path, PathBuf};

use pgtoll_checksum::Kernel;
use pgtoll_format::{PAGE_CHECKSUM, PageHeader};

/// The counts of the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnabledPages {
    /// Number of pages.
    pub pages: u64,
    /// Pages whose checksum was another one, and was written.
    pub written: u64,
    /// Pages that were never used, and have no checksum.
    pub new: u64,
    /// Pages that a server refuses, with checksums or without.
    pub refused: u64,
    /// The first of these, in no order.
    pub refused_pages: Vec<RefusedPage>,
    /// Files whose last page is not whole. A server does not read it.
    pub cut_short: Vec<PathBuf>,
}

/// A page that a server refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedPage {
    /// The file.
    pub path: PathBuf,
    /// The block's number in the file.
    pub block: u64,
}

impl EnabledPages {
    /// Whether no page is refused and no file cut short: both are reported by each run.
    pub fn is_sound(&self) -> bool {
        self.refused == 0 && self.cut_short.is_empty()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.written += other.written;
        self.new += other.new;
        self.refused += other.refused;
        self.refused_pages.extend(other.refused_pages);
        self.refused_pages.truncate(REFUSED_MAX);
        self.cut_short.extend(other.cut_short);
    }

    fn refuse(&mut self, path: &Path, block: u64) {
        self.refused += 1;
        if self.refused_pages.len() < REFUSED_MAX {
            self.refused_pages.push(RefusedPage { path: path.to_owned(), block });
        }
    }
}

/// Refused pages that are listed one by one.
const REFUSED_MAX: usize = 1000;

/// Some blocks of a file, as they were read.
pub(super) struct Blocks<'a> {
    pub(super) path: &'a Path,
    pub(super) block_bytes: usize,
    /// The first one's number in the file.
    pub(super) in_file: u64,
    /// The first one's number in the fork.
    pub(super) in_fork: u32,
}

impl Blocks<'_> {
    /// Puts its checksum into every page; returns which blocks had another one. What is behind the
    /// last whole page is left alone.
    pub(super) fn stamp(
        &self,
        bytes: &mut [u8],
        checksums: &mut Vec<u16>,
        found: &mut EnabledPages,
    ) -> Vec<usize> {
        let count = bytes.len() / self.block_bytes;
        let (whole, rest) = bytes.split_at_mut(count * self.block_bytes);
        checksums.resize(count, 0);
        Kernel::best().checksums(whole, self.block_bytes, self.in_fork, checksums);
        let mut changed = Vec::with_capacity(count);
        let pages = whole.chunks_exact_mut(self.block_bytes);
        for (index, (page, checksum)) in pages.zip(checksums.iter()).enumerate() {
            let block = self.in_file + index as u64;
            match stamp(page, *checksum, || found.refuse(self.path, block)) {
                Some(true) => changed.push(index),
                Some(false) => {}
                None => found.new += 1,
            }
        }
        found.pages += count as u64;
        if !rest.is_empty() {
            found.cut_short.push(self.path.to_owned());
        }
        changed
    }
}

/// Puts the checksum into a page; says whether there was another one, `None` for a page that was
/// never used, which gets none.
fn stamp(page: &mut [u8], checksum: u16, refused: impl FnOnce()) -> Option<bool> {
    let header = PageHeader::read(page)?;
    if header.is_new() {
        if page.iter().any(|&byte| byte != 0) {
            refused();
        }
        return None;
    }
    if !header.is_plausible(page.len()) {
        refused();
    }
    if header.checksum == checksum {
        return Some(false);
    }
    page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    Some(true)
}

/// The runs of blocks that are written for these changed ones, each by one call.
///
/// A call costs as much as some pages: up to three that are right before and after are written
/// again between two that changed. They get the very bytes that they had.
pub(super) fn runs(changed: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &block in changed {
        match runs.last_mut() {
            Some(run) if block - run.end <= GAP_BLOCKS_MAX => run.end = block + 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

/// With gaps of 3 pages of 8 kB, one call for all took half the CPU time of many and two thirds of
/// their time to sync (Linux 6.18, ext4); with gaps of 7 the syncs took longer.
const GAP_BLOCKS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_runs_are_written_together() {
        let all: Vec<usize> = (0..32).collect();
        let check = |changed: &[usize], expected: &[(usize, usize)]| {
            let found: Vec<_> = runs(changed).iter().map(|run| (run.start, run.end)).collect();
            assert_eq!(found, expected);
        };
        check(&[], &[]);
        check(&all, &[(0, 32)]);
        check(&[0, 4, 9, 10], &[(0, 5), (9, 11)]);
        check(&[31], &[(31, 32)]);
    }

    #[test]
    fn every_page_gets_its_own_number_s_checksum() {
        let mut bytes = vec![0; 4 * 8192 + 10];
        for index in [0, 1, 3] {
            // lower, upper and special of an empty page.
            let page = &mut bytes[index * 8192..];
            page[12..18].copy_from_slice(&[24, 0, 0, 32, 0, 32]);
        }
        bytes[3 * 8192 + 100] = 1;
        let right = pgtoll_checksum::page_checksum(&bytes[8192..2 * 8192], 101);
        bytes[8192 + 8..8192 + 10].copy_from_slice(&right.to_le_bytes());
        let path = Path::new("f");
        let blocks = Blocks { path, block_bytes: 8192, in_file: 0, in_fork: 100 };
        let mut found = EnabledPages::default();
        let mut checksums = Vec::new();
        assert_eq!(blocks.stamp(&mut bytes, &mut checksums, &mut found), [0, 3]);
        assert_eq!((found.pages, found.new, found.refused), (4, 1, 0));
        assert_eq!(found.cut_short, [path]);
        for (index, block) in [(0, 100), (1, 101), (3, 103)] {
            let page = &bytes[index * 8192..(index + 1) * 8192];
            let expected = pgtoll_checksum::page_checksum(page, block);
            assert_eq!(page[8..10], expected.to_le_bytes());
        }
        assert!(blocks.stamp(&mut bytes, &mut checksums, &mut found).is_empty());
    }
}
