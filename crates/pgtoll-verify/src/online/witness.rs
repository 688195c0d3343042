//! What is known beside the pages themselves.

use std::collections::HashSet;

use pgtoll_format::{Lsn, RelationFork};

use super::images::ImagesInWal;
use crate::defect::Unsettled;

/// Tells what the pages themselves do not: how far the WAL is, what is in it, and what the server
/// says of a block.
pub trait Witness {
    /// How far the server is now.
    fn now(&mut self) -> Result<WalHorizon, Unsettled>;

    /// Which of these blocks the WAL from this place on makes whole again.
    fn images(
        &mut self,
        of: &HashSet<(RelationFork, u32)>,
        from: Lsn,
    ) -> Result<ImagesInWal, String>;

    /// Has the server read a block from the disk, if it can be made to.
    fn ask(&mut self, fork: RelationFork, block: u32) -> ServerAnswer;
}

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHorizon {
    /// Where the last completed checkpoint began: whatever was changed last before it is on the
    /// disk.
    pub redo: Lsn,
    /// Up to where there is WAL; `None`: only the WAL itself could tell.
    pub wal_end: Option<Lsn>,
    /// `full_page_writes`, then and now.
    pub full_page_writes: bool,
    /// Pages on the disk may still be as a crash or a copy left them: it replays WAL, or has done
    /// so since that checkpoint.
    pub replays: bool,
    /// Places of WAL below this are on no page that WAL has changed.
    pub first_lsn: Lsn,
}

/// What a server says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// It read it and refuses it.
    Refuses,
    /// It has it: from the disk, or, where it could not be made to forget it, from memory.
    Takes {
        /// It was made to forget it before, or did not have it.
        from_disk: bool,
    },
    /// It does not say.
    Nothing(Unsettled),
}
