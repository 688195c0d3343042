//! Defects of a block, or of the files of a fork.

use std::fmt;

use pgtoll_format::{Fault, IncrementalError, Lsn, RelFileLocator, RelationFork};
use pgtoll_record::FindingClass;
use serde::{Deserialize, Serialize};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFinding {
    /// The position.
    pub fork: RelationFork,
    /// The block's number in the fork.
    pub block: u32,
    /// The faults. Resume files call it `what`.
    #[serde(rename = "what")]
    pub defect: Defect,
}

/// The faults of a block, or with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// A server that reads the page refuses it.
    Invalid {
        /// The reason, in a sentence.
        fault: Fault,
        /// The page's LSN: the end of the record that changed it last.
        lsn: Lsn,
    },
    /// A server that reads the page refuses it; the server may have written it while the backup
    /// was made, and only the backup's WAL shows whether recovery replaces it.
    MayBeTorn {
        /// The faults.
        fault: Fault,
        /// The page's LSN: the end of the record that changed it last.
        lsn: Lsn,
    },
    /// The file of an incremental backup is not as any is, and cannot be restored from.
    Incremental(IncrementalError),
    /// It says that it was changed last by WAL that was never written.
    AheadOfWal {
        /// By which.
        lsn: Lsn,
    },
    /// The page is zero, though the visibility map says that all of its rows are visible.
    ZeroButVisible,
    /// The visibility map says of these blocks what their pages contradict.
    MapStale {
        /// How many blocks, this one and those behind it.
        blocks: u32,
        /// The claim.
        claim: StaleClaim,
        /// Neither page was changed since this place of WAL, up to which all had been written; `None`:
        /// the server was stopped in good order, or the map contradicts itself.
        since: Option<Lsn>,
    },
    /// The pages say that all of their rows are visible to everybody, and some are not.
    PageVisible {
        /// How many blocks, this one and those behind it.
        blocks: u32,
    },
    /// The first page of an index or of a sequence is zero, which none ever is.
    ZeroFirst,
    /// The files are not as long, or not there, as a server would have left them.
    Layout(LayoutDefect),
    /// The system could not read it.
    Unreadable {
        /// How many blocks, this one and those behind it.
        blocks: u32,
        /// The system's error.
        error: String,
    },
    /// The file became shorter while it was read.
    Changed,
    /// Something else says that the page must be another one.
    Evidence(Evidence),
    /// A server that reads the page would refuse it; but it runs, and may have it otherwise.
    Unsettled {
        /// The faults of the page.
        fault: Fault,
        /// The page's LSN: the end of the record that changed it last.
        lsn: Lsn,
        /// Why it is unknown.
        why: Unsettled,
    },
}

/// A wrong claim of a visibility map about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StaleClaim {
    /// All rows are visible; the page does not say so.
    Visible,
    /// All rows are frozen; some are not.
    Frozen,
    /// Both bits.
    VisibleAndFrozen,
    /// All rows are frozen, and yet not all are visible: no server writes that.
    FrozenAlone,
}

/// The faults of the files of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutDefect {
    /// The file ends within a block, which no server reads.
    EndsInBlock {
        /// Bytes of it that are there.
        bytes: u32,
    },
    /// A file that another one follows is not full.
    Short {
        /// Its number, from 0.
        segment: u32,
    },
    /// A file has more blocks than files have.
    TooLong {
        /// Its number or name.
        segment: u32,
    },
    /// Files are missing that others follow.
    Missing {
        /// The first one.
        segment: u32,
        /// How many.
        count: u32,
    },
    /// The file ends before this block, and the visibility map says that rows behind are visible.
    VisibleBeyondEnd {
        /// The last block of which a page of the map says so.
        last: u32,
    },
    /// The file ends before this block, as the catalogs have it, and the visibility map has bits of
    /// blocks behind.
    StaleBeyondEnd {
        /// The last block of which a page of the map has bits.
        last: u32,
        /// Blocks that `VACUUM` or `ANALYZE` counted last.
        counted: u32,
    },
    /// The catalogs name the relation, and it has no file.
    NoFile,
    /// The catalogs name the index or the sequence, and its file is empty, which none ever is.
    Empty,
}

/// Why a page cannot be what it is, or cannot be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// WAL changed the page later than the page says: the write was lost, or an old copy put back.
    Stale {
        /// The LSN on the page.
        lsn: Lsn,
        /// The end of the record that changed it.
        wal: Lsn,
    },
    /// The page is zero, though WAL changed it.
    ZeroButLogged {
        /// The end of the last record that did.
        wal: Lsn,
    },
    /// The file ends here, though WAL changed blocks behind.
    MissingButLogged {
        /// The last one of them.
        last: u32,
        /// The end of the last record that changed that one.
        wal: Lsn,
    },
    /// The page of a B-tree is zero, though another one leads to it.
    ZeroButLinked {
        /// Its number or name.
        from: u32,
    },
    /// The file of a B-tree ends here, though a page leads to blocks behind.
    MissingButLinked {
        /// The last one of them.
        last: u32,
        /// The page.
        from: u32,
    },
    /// The page of a table is zero, though an index leads to rows on it.
    ZeroButIndexed {
        /// The index.
        index: RelFileLocator,
    },
    /// The file of a table ends here, though an index leads to rows behind.
    MissingButIndexed {
        /// The index.
        index: RelFileLocator,
        /// The last block of them.
        last: u32,
    },
}

/// Why it is unknown whether a block is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsettled {
    /// The WAL has its image: a crash now would lose nothing.
    InFlight,
    /// The server has it in memory, and could not be made to read it from the disk.
    Resident,
    /// It was never twice the same.
    Changing,
    /// There is no connection to the server, whose answer would decide.
    NoServer,
    /// The server knows no relation with this file: not yet, or not any more.
    Unnamed,
    /// SQL reads no such page, and the extensions that do are not there.
    NoWay,
    /// The server could not be asked.
    Refused(String),
    /// The WAL since the last checkpoint could not be read.
    NoWal(String),
    /// The server is starting, stopping or recovering.
    NotReady(String),
    /// There are too many to ask for each.
    TooMany,
    /// Ended before.
    Interrupted,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::InFlight => "bad on the disk; the WAL has its image",
            Self::Resident => "bad on the disk; the server has it in memory",
            Self::Changing => "bad on the disk, and never twice the same",
            Self::NoServer => "bad on disk; only the server can judge it, and it was not queried",
            Self::Unnamed => "bad on the disk; the server knows no relation with this file",
            Self::NoWay => "bad on the disk; the server cannot be made to read it",
            Self::Refused(error) => return write!(f, "bad on the disk; the server: {error}"),
            Self::NoWal(error) => return write!(f, "bad on the disk; the WAL: {error}"),
            Self::NotReady(error) => return write!(f, "bad on the disk; {error}"),
            Self::TooMany => "bad on the disk; there are too many to ask for each",
            Self::Interrupted => "bad on the disk; interrupted before it was settled",
        };
        f.write_str(words)
    }
}

/// How much is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefectCounts {
    /// Pages that a server refuses.
    pub failures: u64,
    /// Suspicions: findings that no server would report.
    pub suspicions: u64,
    /// Blocks that could not be read.
    pub unverified: u64,
}

impl Defect {
    /// How bad it is.
    pub fn class(&self) -> FindingClass {
        match self {
            Self::Invalid { .. } | Self::Incremental(_) => FindingClass::Failure,
            Self::Unreadable { .. }
            | Self::Changed
            | Self::MayBeTorn { .. }
            | Self::Unsettled { .. } => FindingClass::Unverified,
            Self::AheadOfWal { .. }
            | Self::ZeroButVisible
            | Self::MapStale { .. }
            | Self::PageVisible { .. }
            | Self::ZeroFirst
            | Self::Layout(_)
            | Self::Evidence(_) => FindingClass::Suspicion,
        }
    }
}

impl Defect {
    /// How many blocks it counts for.
    pub(crate) fn blocks(&self) -> u32 {
        match self {
            Self::Unreadable { blocks, .. }
            | Self::MapStale { blocks, .. }
            | Self::PageVisible { blocks } => *blocks,
            _ => 1,
        }
    }

    /// Whether it is about what a page of a table, or the map, says of the rows' visibility.
    pub(crate) fn is_of_visibility(&self) -> bool {
        matches!(
            self,
            Self::MapStale { .. }
                | Self::PageVisible { .. }
                | Self::Layout(LayoutDefect::StaleBeyondEnd { .. })
        )
    }

    /// Takes the same defect of the blocks behind into this one; false: it is another one.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        let is_same = match (&*self, next) {
            (
                Self::MapStale { claim, since, .. },
                Self::MapStale { claim: of_next, since: since_next, .. },
            ) => (claim, since) == (of_next, since_next),
            (Self::PageVisible { .. }, Self::PageVisible { .. }) => true,
            _ => false,
        };
        if let (true, Self::MapStale { blocks, .. } | Self::PageVisible { blocks }) =
            (is_same, &mut *self)
        {
            *blocks = blocks.saturating_add(next.blocks());
        }
        is_same
    }
}

impl BlockFinding {
    /// The block behind it.
    pub(crate) fn next_block(&self) -> Option<u32> {
        self.block.checked_add(self.defect.blocks())
    }

    /// Returns for the missing end of a file the last block that is known to have been there; `None`: no
    /// end is missing.
    pub(crate) fn last_missing(&self) -> Option<u32> {
        match &self.defect {
            Defect::Layout(LayoutDefect::VisibleBeyondEnd { last })
            | Defect::Evidence(
                Evidence::MissingButLogged { last, .. }
                | Evidence::MissingButLinked { last, .. }
                | Evidence::MissingButIndexed { last, .. },
            ) => Some((*last).max(self.block)),
            _ => None,
        }
    }
}

impl DefectCounts {
    pub(crate) fn count(&mut self, defect: &Defect) {
        let blocks = u64::from(defect.blocks());
        match defect.class() {
            FindingClass::Failure => self.failures += blocks,
            FindingClass::Suspicion => self.suspicions += blocks,
            FindingClass::Unverified => self.unverified += blocks,
        }
    }
}
