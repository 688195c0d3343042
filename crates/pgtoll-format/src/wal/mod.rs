//! The write-ahead log: pages in, records out.
//!
//! A [`Decoder`] is fed whole pages in their order and gives each record, CRC checked, to a
//! visitor; [`Record::parts`] takes a record apart. What stops it is a [`WalError`], which says
//! where.

mod changes;
mod compression;
mod crc;
mod decoder;
mod error;
mod events;
mod neutral;
mod page;
mod prune;
mod record;
mod reduced;
pub mod rmgr;

use crate::bytes;

pub use changes::FileChange;
pub use compression::Compression;
pub use decoder::Decoder;
pub use error::WalError;
pub use events::Event;
pub use neutral::record_places;
pub use page::{PageHeader, SegmentHeader};
pub use record::{BlockReference, Image, Parts, RECORD_HEADER, Record, RecordHeader};
pub use reduced::{KeptRecord, PutWal, WalLayout};
pub use rmgr::{RecordType, manager_name};
