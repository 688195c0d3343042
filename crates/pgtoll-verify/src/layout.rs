//! Are the files there, and as long as they should be?

use pgtoll_format::{ControlFile, ForkNumber, RelationFork};

use crate::defect::{BlockFinding, Defect, LayoutDefect};
use crate::listing::{Listed, Listing};
use pgtoll_datadir::DataDirectory;

/// The faults of the lengths of these files, those of a fork one after the other.
pub(super) fn findings(
    files: impl IntoIterator<Item = Listed>,
    data: &DataDirectory,
) -> Vec<BlockFinding> {
    // The files of a backup are copied one after the other while the server changes them.
    let is_backup = data.backup_start.is_some();
    let mut found = Vec::new();
    of_forks(files, |item| check(item, &data.control, is_backup, &mut found));
    found
}

/// Main forks without a block: an index or a sequence always has one.
pub(super) fn empty_ones(files: &Listing, mut each: impl FnMut(RelationFork)) {
    of_forks(files.iter(), |item| {
        if item[0].fork.number == ForkNumber::MAIN && item.iter().all(|file| file.bytes == 0) {
            each(item[0].fork);
        }
    });
}

/// The files of each fork together. There is one at least.
fn of_forks(files: impl IntoIterator<Item = Listed>, mut each: impl FnMut(&[Listed])) {
    let mut listeds: Vec<Listed> = Vec::new();
    for file in files {
        if listeds.first().is_some_and(|first| first.fork != file.fork) {
            each(&listeds);
            listeds.clear();
        }
        listeds.push(file);
    }
    if !listeds.is_empty() {
        each(&listeds);
    }
}

/// Checks files; a truncated relation leaves empty ones, so only files up to the last filled one count.
fn check(
    listeds: &[Listed],
    control: &ControlFile,
    is_backup: bool,
    found: &mut Vec<BlockFinding>,
) {
    let block_bytes = u64::from(control.block_bytes);
    let full = block_bytes * u64::from(control.file_blocks);
    let Some(last) = listeds.iter().rposition(|file| file.bytes > 0) else { return };
    let mut next = 0;
    for (place, file) in listeds[..=last].iter().enumerate() {
        let segment = file.segment;
        let mut tell = |block: u64, layout: LayoutDefect| {
            let block = u32::try_from(block).unwrap_or(u32::MAX);
            found.push(BlockFinding { fork: file.fork, block, defect: Defect::Layout(layout) });
        };
        let first_block = u64::from(segment) * u64::from(control.file_blocks);
        if segment > next && !is_backup {
            let first_missing = u64::from(next) * u64::from(control.file_blocks);
            tell(first_missing, LayoutDefect::Missing { segment: next, count: segment - next });
        }
        let rest = u32::try_from(file.bytes % block_bytes).unwrap_or_default();
        let end = first_block + file.bytes / block_bytes;
        if file.bytes > full {
            tell(first_block + u64::from(control.file_blocks), LayoutDefect::TooLong { segment });
        } else if place < last && file.bytes < full && !is_backup {
            tell(end, LayoutDefect::Short { segment });
        }
        if rest > 0 {
            tell(end, LayoutDefect::EndsInBlock { bytes: rest });
        }
        next = segment.saturating_add(1);
    }
}
