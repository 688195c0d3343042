//! Pages that are in memory: of a running standby, of tars, of redo.

use std::collections::HashMap;

use pgtoll_format::{Lsn, RelationFork};

use super::failure::RedoFailure;
use super::refusal::BlockRefusal;

/// The pages of blocks, or why there is none.
pub(super) type FetchedPages = HashMap<(RelationFork, u32), Result<Vec<u8>, BlockRefusal>>;

/// Pages that a server made again.
#[derive(Clone, Debug)]
pub struct RebuiltPages {
    pub(super) pages: FetchedPages,
    /// The server, in words.
    pub(super) server: String,
    pub(super) from: Lsn,
    /// Redo did not get to the end: no page is to be used.
    pub(super) failure: Option<RedoFailure>,
}
