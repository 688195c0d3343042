//! Journals: what a client was about to do, written before it did it, and what it was answered.
//!
//! A client has a file of its own, which only grows: 32 bytes of header, then entries of 32 bytes,
//! little-endian, each with a CRC-32C over its other bytes. Transactions of a client follow each
//! other, so their numbers are dense and an entry that begins one is followed by the one that ends
//! it. Wherever such a file breaks off, what was written before is read.

mod entry;
mod read;
mod write;

pub(crate) use entry::JournalEntry;
pub use entry::{AttemptOutcome, ENTRY_BYTES};
pub use read::{Attempt, AttemptEnd, JournalReader};
pub(crate) use write::JournalWriter;

use std::path::{Path, PathBuf};

/// The journal of a client in a run's directory.
pub(crate) fn journal_path(directory: &Path, client: u64) -> PathBuf {
    directory.join(format!("client-{client:04}.journal"))
}
