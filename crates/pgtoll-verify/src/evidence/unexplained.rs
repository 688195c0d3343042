//! Pages of zeros before a relation's last used page of which no evidence says whether they were
//! used. A crash leaves such pages, and so do sessions that extend a table at the same time; damage
//! looks the same.

use std::collections::HashSet;
use std::ops::Range;

use pgtoll_datadir::{DataDirectory, Names, RelationName};
use pgtoll_format::{ForkNumber, PageKind, RelationFork};

use super::blocks::Forks;
use crate::found::Verified;
use crate::zeros::{ZeroPages, ZeroRun};

/// A note for each relation that has such pages; of many relations the first.
pub(super) fn unexplained_zeros(
    verified: &Verified,
    zeros: &ZeroPages,
    data: &DataDirectory,
    forks: &Forks<'_>,
    names: &Names,
) -> Vec<String> {
    let found: HashSet<(RelationFork, u32)> =
        verified.findings.iter().map(|finding| (finding.fork, finding.block)).collect();
    let mut notes = Vec::new();
    let mut more = 0_u64;
    for (relation, runs) in zeros.by_relation() {
        let fork = RelationFork { relation, number: ForkNumber::MAIN };
        let Some(name) = names.relation(relation) else { continue };
        let is_unexplained =
            |run: &Range<u32>| run.clone().any(|block| !found.contains(&(fork, block)));
        let end = forks.blocks(fork).count();
        let within = runs.iter().map(ZeroRun::blocks).filter(|run| run.end < end);
        let within: Vec<Range<u32>> = within.filter(is_unexplained).collect();
        if within.is_empty() || preallocates(data, forks, fork) {
            continue;
        }
        if notes.len() < NOTES_MAX {
            notes.push(note(name, &within));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        notes.push(format!("{more} more relations have unexplained pages of zeros"));
    }
    notes
}

/// Whether the relation's access method leaves pages of zeros between others: a hash index makes room
/// for all buckets of a doubling at once.
fn preallocates(data: &DataDirectory, forks: &Forks<'_>, fork: RelationFork) -> bool {
    let mut page = vec![0; data.control.block_bytes as usize];
    forks.blocks(fork).read(0, &mut page).is_ok() && PageKind::from_page(&page) == PageKind::Hash
}

fn note(name: &RelationName, runs: &[Range<u32>]) -> String {
    let blocks: u64 = runs.iter().map(|run| u64::from(run.end - run.start)).sum();
    let shown = runs.iter().take(RUNS_SHOWN).map(|run| match run.end - run.start {
        1 => run.start.to_string(),
        _ => format!("{}-{}", run.start, run.end - 1),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let dots = if runs.len() > RUNS_SHOWN { ", ..." } else { "" };
    let (pages, are, they) = if blocks == 1 {
        ("1 page".to_owned(), "is", "it was")
    } else {
        (format!("{blocks} pages"), "are", "they were")
    };
    format!(
        "{name}: {pages} before the last used page {are} all zeros ({shown}{dots}); no evidence \
         shows whether {they} ever used"
    )
}

const NOTES_MAX: usize = 10;
const RUNS_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use pgtoll_format::catalog::{Persistence, RelationKind};

    use super::*;

    #[test]
    fn a_note_names_the_relation_and_its_blocks() {
        let name = RelationName {
            oid: 1,
            database: Some("shop".into()),
            schema: Some("public".into()),
            relation: "orders".to_owned(),
            kind: RelationKind::Table,
            persistence: Persistence::Permanent,
            of: None,
        };
        let check = |runs: &[Range<u32>], expected: &str| {
            let text = note(&name, runs);
            assert!(text.starts_with(&format!("shop.public.orders: {expected}; ")), "{text}");
        };
        check(&[Range { start: 7, end: 8 }], "1 page before the last used page is all zeros (7)");
        check(
            &[3..5, 7..8, 9..10, 11..12, 13..14, 15..16],
            "7 pages before the last used page are all zeros (3-4, 7, 9, 11, 13, ...)",
        );
    }
}
