//! Tars that are not files: objects in a store, standard input.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Opens something that is read from its begin, such as an object in a store. Each call begins again; an
/// input that can be read once only answers a second call with an error.
pub trait OpenInput: Debug + Send + Sync {
    /// The bytes from the first one on, as they are packed.
    fn open(&self) -> io::Result<Box<dyn Read + Send>>;

    /// Files that were read since the last `open` whose bytes are not those that the backup's own list
    /// of checksums has; `None`: it has no such list.
    fn wrong_checksums(&self) -> Option<Vec<String>> {
        None
    }
}

/// A tar that is no file.
#[derive(Clone, Debug)]
pub struct TarInput {
    /// Its name in records: a URL.
    pub name: String,
    /// The name that says how it is packed, such as `base.tar.gz`.
    pub file_name: String,
    /// The tablespace that it is of; `None`: the data directory's.
    pub tablespace: Option<u32>,
    /// Bytes, as it is packed; 0 where that is unknown.
    pub bytes: u64,
    /// Opens it.
    pub input: Arc<dyn OpenInput>,
}

/// The source of a tar's bytes.
#[derive(Clone, Debug)]
pub(super) enum TarBytes {
    File,
    Input(Arc<dyn OpenInput>),
}

impl TarBytes {
    /// Opens the tar whose path, or name, this is.
    pub(super) fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Self::File => Ok(Box::new(pgtoll_system::open(path)?)),
            Self::Input(input) => input.open(),
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File)
    }
}

/// All of an input in a file without a name.
pub(super) fn spooled(input: &dyn OpenInput) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut input.open()?.take(SPOOLED_MAX), &mut file)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// Some seven million files of a manifest.
const SPOOLED_MAX: u64 = 1 << 30;
