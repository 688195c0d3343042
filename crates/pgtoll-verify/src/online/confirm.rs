//! Pages of a running server that contradict their visibility maps: read again.
//!
//! The rule of [`MapRule`] alone is enough where pages have checksums. Without them a page that is being
//! written may be read half old and half new, and is another one when it is read again.

use std::time::Duration;

use pgtoll_format::RelationFork;

use super::pauses::Pauses;
use super::suspect::DiskBlocks;
use crate::defect::{BlockFinding, Defect};
use crate::maps::{self, MapRule};

/// Those that say the same each time they are read, with the map read again each time.
pub(super) fn confirm(
    blocks: &DiskBlocks<'_>,
    rule: MapRule,
    rows: bool,
    findings: &[BlockFinding],
    pauses: &dyn Pauses,
) -> Vec<BlockFinding> {
    let mut left: Vec<(RelationFork, u32, Defect)> = findings.iter().flat_map(each_block).collect();
    for pause in PAUSES {
        if left.is_empty() || !pauses.pause(pause) {
            return Vec::new();
        }
        let mut map = None;
        left.retain(|(fork, block, defect)| {
            if map.as_ref().is_none_or(|(map, _)| map != fork) {
                map = Some((*fork, blocks.map(*fork)));
            }
            let of_map = map.as_mut().and_then(|(_, map)| map.as_mut());
            let bits = of_map.and_then(|map| map.bits(*block));
            let page = blocks.sound_page(*fork, *block);
            let found = page.and_then(|page| maps::compare(rule, &page, bits, rows).defect);
            found.as_ref() == Some(defect)
        });
    }
    joined(left)
}

/// A range's blocks, each by itself; of very many the first ones.
fn each_block(finding: &BlockFinding) -> impl Iterator<Item = (RelationFork, u32, Defect)> {
    let fork = finding.fork;
    let first = finding.block;
    let one = match finding.defect.clone() {
        Defect::MapStale { claim, since, .. } => Defect::MapStale { blocks: 1, claim, since },
        Defect::PageVisible { .. } => Defect::PageVisible { blocks: 1 },
        other => other,
    };
    let count = finding.defect.blocks().min(BLOCKS_MAX);
    (first..first.saturating_add(count)).map(move |block| (fork, block, one.clone()))
}

fn joined(blocks: Vec<(RelationFork, u32, Defect)>) -> Vec<BlockFinding> {
    let mut joined: Vec<BlockFinding> = Vec::new();
    for (fork, block, defect) in blocks {
        let last = joined.last_mut();
        let last = last.filter(|last| last.fork == fork && last.next_block() == Some(block));
        if !last.is_some_and(|last| last.defect.extend(&defect)) {
            joined.push(BlockFinding { fork, block, defect });
        }
    }
    joined
}

/// Before each read: a page is written in microseconds, or after its writer got a core again.
const PAUSES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(200)];
/// The most blocks of a range.
const BLOCKS_MAX: u32 = 100_000;
