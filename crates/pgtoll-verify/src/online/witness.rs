//! Witnesses of a page's damage, beside the page itself: WAL positions, images in WAL, the server's
//! answer.
//! the server's answer.

use std::collections::HashSet;

use pgtoll_format::{Lsn, RelationFork};

use super::images::{ImagesInWal, WalImagesError};
use crate::defect::Unsettled;

/// Knows how far the WAL is, which images it has, and whether the server accepts a block.
pub trait Witness {
    /// The server's WAL positions now.
    fn now(&mut self) -> Result<WalHorizon, Unsettled>;

    /// Returns the blocks that the WAL from this place on restores.
    fn images(
        &mut self,
        forks: &HashSet<(RelationFork, u32)>,
        from: Lsn,
    ) -> Result<ImagesInWal, WalImagesError>;

    /// Has the server read a block from the disk, if it can be made to.
    fn ask(&mut self, fork: RelationFork, block: u32) -> ServerAnswer;
}

/// A server's WAL positions, which LSNs of pages are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHorizon {
    /// The redo point of the last completed checkpoint: changes before it are on the disk.
    pub redo: Lsn,
    /// The end of the WAL; `None`: it has to be read to its end.
    pub wal_end: Option<Lsn>,
    /// `full_page_writes`, then and now.
    pub full_page_writes: bool,
    /// Pages on the disk may still be as a crash or a copy left them: it replays WAL, or has done
    /// so since that checkpoint.
    pub replays: bool,
    /// The lowest LSN that a WAL-logged page can carry.
    pub first_lsn: Lsn,
}

/// A server's answer about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// It read it and refuses it.
    Refuses,
    /// It has it: from the disk, or, where it could not be made to forget it, from memory.
    Takes {
        /// It was made to forget it before, or did not have it.
        from_disk: bool,
    },
    /// There is no answer.
    Nothing(Unsettled),
}
