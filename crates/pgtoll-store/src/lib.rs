//! Objects in S3, Google Cloud Storage, Azure Blob Storage, and files, behind a synchronous facade:
//! list, read in ranges, write under a condition.
//!
//! One thread does all I/O, with an asynchronous runtime that nobody else sees. Credentials are read
//! from the environment (static ones, web identity, a machine's or pod's role); named profiles are
//! not. At most [`MEMORY_BYTES_MAX`] of objects are in memory, of all readers together.
//!
//! ```
//! use std::io::Read as _;
//!
//! use pgtoll_store::{Store, StoreUrl};
//!
//! let directory = tempfile::tempdir()?;
//! let prefix = StoreUrl::of_path(directory.path()).expect("an absolute path in UTF-8");
//! let store = Store::open(&prefix, &pgtoll_system::Interrupt::new())?;
//! assert!(store.put_new(&prefix.join("units/1.json"), b"{}")?);
//! assert!(!store.put_new(&prefix.join("units/1.json"), b"[]")?, "it exists");
//! let objects = store.list(&prefix)?;
//! let mut text = String::new();
//! store.reader(&objects[0])?.read_to_string(&mut text)?;
//! assert_eq!(text, "{}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod connector;
mod error;
mod io_thread;
mod local;
mod object;
mod reader;
mod remote;
mod url;

use std::sync::{Arc, OnceLock};

use pgtoll_system::Interrupt;

use budget::RangeBudget;
pub use error::StoreError;
pub use object::StoredObject;
pub use reader::ObjectReader;
use remote::Remote;
pub use url::{StoreScheme, StoreUrl, StoreUrlError};

/// A bucket, or the files of this machine.
#[derive(Clone, Debug)]
pub struct Store(Option<Remote>);

impl Store {
    /// The store of this URL. Nothing is asked of it yet. `interrupt` ends waits for it.
    pub fn open(url: &StoreUrl, interrupt: &Interrupt) -> Result<Self, StoreError> {
        Self::open_with(url, interrupt, &[])
    }

    /// Like [`open`](Self::open), with values for variables of the environment that count instead of
    /// what is there, such as `AWS_ENDPOINT_URL`.
    pub fn open_with(
        url: &StoreUrl,
        interrupt: &Interrupt,
        variables: &[(&str, String)],
    ) -> Result<Self, StoreError> {
        static BUDGET: OnceLock<Arc<RangeBudget>> = OnceLock::new();
        if url.scheme() == StoreScheme::File {
            return Ok(Self(None));
        }
        let budget = BUDGET.get_or_init(|| RangeBudget::new(reader::RANGES_MAX));
        Ok(Self(Some(Remote::open(url, interrupt, budget, variables)?)))
    }

    /// All objects below a prefix, by their keys. None is no error.
    pub fn list(&self, prefix: &StoreUrl) -> Result<Vec<StoredObject>, StoreError> {
        let mut objects = match &self.0 {
            Some(remote) => remote.list(prefix)?,
            None => local::list(prefix)?,
        };
        objects.sort_by(|one, other| one.url.cmp(&other.url));
        Ok(objects)
    }

    /// The known facts about an object.
    pub fn head(&self, url: &StoreUrl) -> Result<StoredObject, StoreError> {
        match &self.0 {
            Some(remote) => remote.head(url),
            None => local::open(url).map(|(_, object)| object),
        }
    }

    /// Reads an object from its begin.
    pub fn reader(&self, object: &StoredObject) -> Result<ObjectReader, StoreError> {
        match &self.0 {
            Some(remote) => Ok(ObjectReader::remote(remote, object)),
            None => ObjectReader::local(object),
        }
    }

    /// A whole object of at most `bytes_max` bytes.
    pub fn read(&self, url: &StoreUrl, bytes_max: u64) -> Result<Vec<u8>, StoreError> {
        let object = self.head(url)?;
        if object.bytes > bytes_max {
            return Err(StoreError::TooLong { url: url.clone(), bytes_max });
        }
        let mut bytes = Vec::new();
        match std::io::Read::read_to_end(&mut self.reader(&object)?, &mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(match error.downcast::<StoreError>() {
                Ok(error) => error,
                Err(error) => local::failed(url, error),
            }),
        }
    }

    /// Small objects as they were listed, several at the same time, in their order. The first one that
    /// cannot be read, or has more than `bytes_max` bytes, ends it.
    pub fn read_each(
        &self,
        objects: &[&StoredObject],
        bytes_max: u64,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        if let Some(long) = objects.iter().find(|object| object.bytes > bytes_max) {
            return Err(StoreError::TooLong { url: long.url.clone(), bytes_max });
        }
        match &self.0 {
            Some(remote) => remote.read_each(objects),
            None => objects.iter().map(|object| self.read(&object.url, bytes_max)).collect(),
        }
    }

    /// Writes an object unless there is one with its key, which is decided by the store: of several
    /// writers one gets true. False: it exists.
    pub fn put_new(&self, url: &StoreUrl, bytes: &[u8]) -> Result<bool, StoreError> {
        match &self.0 {
            Some(remote) => remote.put(url, bytes, true),
            None => local::put(url, bytes, true),
        }
    }

    /// Writes an object in place of what has its key.
    pub fn put(&self, url: &StoreUrl, bytes: &[u8]) -> Result<(), StoreError> {
        match &self.0 {
            Some(remote) => remote.put(url, bytes, false),
            None => local::put(url, bytes, false),
        }
        .map(drop)
    }
}

/// Bytes of objects in memory at the same time, of all readers together.
pub const MEMORY_BYTES_MAX: u64 = reader::RANGES_MAX as u64 * reader::RANGE_BYTES;
