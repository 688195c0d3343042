//! The files that a patrol reads, as its course sees them.

use jiff::Timestamp;
use pgtoll_record::{PatrolAmount, PatrolBlock, PatrolFinding, PatrolSource};

use super::error::PatrolError;

/// The subject of a patrol: a data directory, or a simulated one in tests.
pub(super) trait Patrolled {
    /// Lists the files again.
    fn list(&mut self) -> Result<PatrolListing, PatrolError>;

    /// The piece from this block on, of at most this many bytes; `None`: there is no file behind it.
    fn piece(&self, from: PatrolBlock, bytes_max: u64) -> Option<PatrolPiece>;

    /// Verifies a piece.
    fn read(&mut self, piece: &PatrolPiece, now: Timestamp) -> Result<PieceResult, PatrolError>;

    /// Whether the file of this block is in the list.
    fn is_listed(&self, block: &PatrolBlock) -> bool;
}

/// The list of files to read.
#[derive(Clone, Debug)]
pub(super) struct PatrolListing {
    pub(super) source: PatrolSource,
    pub(super) unlisted: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// A range of blocks that is verified at once: of one file, or of several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatrolPiece {
    pub(super) from: PatrolBlock,
    /// The first block behind it; `None`: the last file ends with it.
    pub(super) to: Option<PatrolBlock>,
}

impl PatrolPiece {
    pub(super) fn has(&self, block: &PatrolBlock) -> bool {
        self.from <= *block && self.to.is_none_or(|to| *block < to)
    }
}

/// The result of a piece.
#[derive(Clone, Debug, Default)]
pub(super) struct PieceResult {
    pub(super) read: PatrolAmount,
    pub(super) findings: Vec<PatrolFinding>,
}
