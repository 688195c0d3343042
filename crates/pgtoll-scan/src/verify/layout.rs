//! Are the files there, and as long as they should be?

use pgtoll_format::ControlFile;

use super::{DataDirectory, Finding, Layout, WhatIsWrong, fork_of};
use crate::{Fork, RelationFile};

/// What is wrong with the lengths of these files, those of a fork one after the other.
pub(super) fn findings(files: &[RelationFile], data: &DataDirectory) -> Vec<Finding> {
    // The files of a backup are copied one after the other while the server changes them.
    let is_backup = data.backup_start.is_some();
    let mut found = Vec::new();
    for of in files.chunk_by(|one, next| fork_of(one) == fork_of(next)) {
        check(of, &data.control, is_backup, &mut found);
    }
    found
}

/// Forks without a block: an index or a sequence always has one.
pub(super) fn empty_ones(files: &[RelationFile]) -> Vec<(Fork, WhatIsWrong)> {
    let of_forks = files.chunk_by(|one, next| fork_of(one) == fork_of(next));
    let empty = of_forks.filter(|of| of.iter().all(|file| file.bytes == 0));
    let forks = empty.filter_map(|of| of.first()).map(fork_of);
    let main = forks.filter(|fork| fork.fork == 0);
    main.map(|fork| (fork, WhatIsWrong::Layout(Layout::Empty))).collect()
}

/// What is cut off is left behind empty, so that only files up to the last one that is not count.
fn check(of: &[RelationFile], control: &ControlFile, is_backup: bool, found: &mut Vec<Finding>) {
    let block_bytes = u64::from(control.block_bytes);
    let full = block_bytes * u64::from(control.file_blocks);
    let Some(last) = of.iter().rposition(|file| file.bytes > 0) else { return };
    let mut next = 0;
    for (place, file) in of[..=last].iter().enumerate() {
        let segment = file.name.segment;
        let mut tell = |block: u64, layout: Layout| {
            let block = u32::try_from(block).unwrap_or(u32::MAX);
            found.push(Finding { fork: fork_of(file), block, what: WhatIsWrong::Layout(layout) });
        };
        let first_block = u64::from(segment) * u64::from(control.file_blocks);
        if segment > next && !is_backup {
            let first_missing = u64::from(next) * u64::from(control.file_blocks);
            tell(first_missing, Layout::Missing { segment: next, count: segment - next });
        }
        let rest = u32::try_from(file.bytes % block_bytes).unwrap_or_default();
        let end = first_block + file.bytes / block_bytes;
        if file.bytes > full {
            tell(first_block + u64::from(control.file_blocks), Layout::TooLong { segment });
        } else if place < last && file.bytes < full && !is_backup {
            tell(end, Layout::Short { segment });
        }
        if rest > 0 {
            tell(end, Layout::EndsInBlock { bytes: rest });
        }
        next = segment.saturating_add(1);
    }
}
