//! Defects in the record's kinds and words.

use pgtoll_datadir::Names;
use pgtoll_format::{Fault, Lsn};
use pgtoll_record::{FileFinding, FileFindingKind, FindingKind as Kind, PageFinding};

use crate::defect::{BlockFinding, Defect, Evidence, LayoutDefect, StaleClaim};
use crate::manifest::{FileDefect, WrongFile};

/// A block's finding as the record has it.
pub(crate) fn page_finding(finding: &BlockFinding, names: Option<&Names>) -> PageFinding {
    let (stored, computed) = match finding.defect {
        Defect::Invalid { fault: Fault::Checksum { stored, computed, .. }, .. }
        | Defect::MayBeTorn { fault: Fault::Checksum { stored, computed, .. }, .. }
        | Defect::Unsettled { fault: Fault::Checksum { stored, computed, .. }, .. } => {
            (Some(stored), Some(computed))
        }
        _ => (None, None),
    };
    let lsn = match finding.defect {
        Defect::Invalid { lsn, .. }
        | Defect::MayBeTorn { lsn, .. }
        | Defect::Unsettled { lsn, .. }
        | Defect::AheadOfWal { lsn }
        | Defect::Evidence(Evidence::Stale { lsn, .. }) => Some(lsn),
        _ => None,
    };
    let index = index_name(&finding.defect, names);
    let (kind, words) = describe(&finding.defect, index.as_deref());
    let missing = finding.last_missing().map(|last| (last - finding.block).saturating_add(1));
    let words = match missing {
        Some(blocks) if blocks > 1 => format!("{blocks} blocks {words}"),
        _ => words,
    };
    PageFinding {
        block: finding.block,
        blocks: missing.unwrap_or(finding.defect.blocks()),
        class: finding.defect.class(),
        kind,
        words,
        stored_checksum: stored,
        computed_checksum: computed,
        lsn,
        wal: wal_of(&finding.defect),
        index,
    }
}

/// The faults of a block, and that in words.
fn describe(defect: &Defect, index: Option<&str>) -> (Kind, String) {
    let (kind, words) = match defect {
        Defect::Invalid { fault: Fault::Checksum { header_is_plausible: true, .. }, .. } => {
            (Kind::Checksum, "wrong checksum")
        }
        Defect::Invalid { fault: Fault::Checksum { .. }, .. } => {
            (Kind::Checksum, "wrong checksum, impossible header")
        }
        Defect::Invalid { fault: Fault::Header, .. } => (Kind::Header, "impossible header"),
        Defect::Invalid { fault: Fault::NotZero, .. } => {
            (Kind::NotZero, "never used by its header, yet not zero")
        }
        Defect::MayBeTorn { .. } => (
            Kind::MayBeTorn,
            "wrong checksum; it may be torn, which only the backup's WAL can decide",
        ),
        Defect::Incremental(error) => return (Kind::DamagedIncremental, error.to_string()),
        Defect::AheadOfWal { lsn } => {
            return (Kind::AheadOfWal, format!("LSN {lsn} is beyond the end of WAL"));
        }
        Defect::ZeroButVisible => {
            (Kind::ZeroButVisible, "all zeros, though the visibility map has rows on it")
        }
        Defect::MapStale { claim, since, .. } => {
            return (Kind::MapStale, stale_words(*claim, *since));
        }
        Defect::PageVisible { .. } => (
            Kind::PageVisible,
            "marked all-visible, with rows that are dead, rolled back or deleted",
        ),
        Defect::ZeroFirst => {
            (Kind::ZeroFirst, "all zeros; the first page of an index or sequence never is")
        }
        Defect::Layout(layout) => return layout_words(*layout),
        Defect::Evidence(evidence) => return evidence_words(*evidence, index),
        Defect::Unreadable { error, .. } => return (Kind::Unreadable, error.clone()),
        Defect::Unsettled { why, .. } => return (Kind::Unsettled, why.to_string()),
        Defect::Changed => (Kind::Changed, "the file became shorter while it was read"),
    };
    (kind, words.to_owned())
}

fn stale_words(claim: StaleClaim, since: Option<Lsn>) -> String {
    let claim = match claim {
        StaleClaim::Visible => "the visibility map says all visible; the page does not",
        StaleClaim::Frozen => "the visibility map says all frozen; some rows are not",
        StaleClaim::VisibleAndFrozen => {
            "the visibility map says all visible and frozen; the page is neither"
        }
        StaleClaim::FrozenAlone => {
            return "the visibility map says all frozen and not all visible".to_owned();
        }
    };
    match since {
        Some(since) => format!("{claim}; both unchanged since {since}"),
        None => claim.to_owned(),
    }
}

fn layout_words(defect: LayoutDefect) -> (Kind, String) {
    match defect {
        LayoutDefect::EndsInBlock { bytes } => {
            (Kind::EndsInBlock, format!("the file ends within the block, after {bytes} bytes"))
        }
        LayoutDefect::Short { segment } => {
            (Kind::ShortFile, format!("file {segment} is not full, and another one follows"))
        }
        LayoutDefect::TooLong { segment } => {
            (Kind::LongFile, format!("file {segment} is longer than files are"))
        }
        LayoutDefect::Missing { segment, count: 1 } => {
            (Kind::MissingFile, format!("file {segment} is missing, and another one follows"))
        }
        LayoutDefect::Missing { segment, count } => {
            (Kind::MissingFile, format!("{count} files from {segment} on are missing"))
        }
        LayoutDefect::VisibleBeyondEnd { last } => (
            Kind::VisibleBeyondEnd,
            format!("missing; the visibility map has rows up to block {last}"),
        ),
        LayoutDefect::StaleBeyondEnd { last, counted } => (
            Kind::MapStale,
            format!(
                "the visibility map has bits up to block {last}; the file is whole by the catalogs, \
                 which counted {counted} blocks"
            ),
        ),
        LayoutDefect::NoFile => (Kind::NoFile, "the relation has no file".to_owned()),
        LayoutDefect::Empty => {
            (Kind::EmptyFile, "empty file; this relation always has at least one block".to_owned())
        }
    }
}

/// Returns the last change of the page by WAL.
fn wal_of(defect: &Defect) -> Option<Lsn> {
    match defect {
        Defect::Evidence(
            Evidence::Stale { wal, .. }
            | Evidence::ZeroButLogged { wal }
            | Evidence::MissingButLogged { wal, .. },
        ) => Some(*wal),
        _ => None,
    }
}

/// Returns the name of the index that leads to rows.
fn index_name(defect: &Defect, names: Option<&Names>) -> Option<String> {
    let Defect::Evidence(
        Evidence::ZeroButIndexed { index } | Evidence::MissingButIndexed { index, .. },
    ) = defect
    else {
        return None;
    };
    let name = names.and_then(|names| names.relation(*index));
    Some(name.map_or_else(|| index.rel_number.to_string(), ToString::to_string))
}

fn evidence_words(evidence: Evidence, index: Option<&str>) -> (Kind, String) {
    let index = index.unwrap_or("an index");
    match evidence {
        Evidence::Stale { lsn, wal } => (
            Kind::LostWrite,
            format!("old: changed last at {lsn}, and by WAL at {wal}; that write is lost"),
        ),
        Evidence::ZeroButLogged { wal } => {
            (Kind::ZeroButLogged, format!("all zeros, though WAL changed it at {wal}"))
        }
        Evidence::MissingButLogged { last, wal } => {
            (Kind::MissingButLogged, format!("missing; WAL changed block {last} at {wal}"))
        }
        Evidence::ZeroButLinked { from } => {
            (Kind::ZeroButLinked, format!("all zeros, though block {from} leads to it"))
        }
        Evidence::MissingButLinked { last, from } => {
            (Kind::MissingButLinked, format!("missing; block {from} leads to block {last}"))
        }
        Evidence::ZeroButIndexed { .. } => {
            (Kind::ZeroButIndexed, format!("all zeros, though {index} leads to rows on it"))
        }
        Evidence::MissingButIndexed { last, .. } => {
            (Kind::MissingButIndexed, format!("missing; {index} leads to rows up to block {last}"))
        }
    }
}

/// A file's finding as the record has it.
pub(super) fn file_finding(file: &WrongFile) -> FileFinding {
    use FileFindingKind as Kind;
    let (kind, words) = match &file.defect {
        FileDefect::Missing => (Kind::Missing, "missing".to_owned()),
        FileDefect::Length { bytes, expected } => {
            let words = if bytes < expected { "cut short" } else { "too long" };
            (Kind::Length, format!("{words}: {bytes} bytes, and the manifest lists {expected}"))
        }
        FileDefect::Extra => (Kind::Extra, "the manifest does not list it".to_owned()),
        FileDefect::Checksum => {
            (Kind::Checksum, "not the checksum that the manifest lists".to_owned())
        }
        FileDefect::Manifest(error) => (Kind::Manifest, error.clone()),
        FileDefect::OtherCluster => {
            (Kind::OtherCluster, "the system identifier is another cluster's".to_owned())
        }
        FileDefect::NoDatabase { name } => {
            (Kind::NoDatabase, format!("missing: the directory of the database \"{name}\""))
        }
        FileDefect::NoVersion => (
            Kind::NoVersion,
            "missing or unreadable: no server starts on this directory".to_owned(),
        ),
        FileDefect::NoTablespace => {
            (Kind::NoTablespace, "the tablespace's tar is missing".to_owned())
        }
    };
    FileFinding { path: file.path.clone(), kind, words }
}
