//! Sources of a backup's bytes: tars as they are packed, and incremental files of a plain backup.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgtoll_format::RelFileLocator;

use super::opener::{TarBytes, TarInput};
use crate::pace::Pace;
use pgtoll_datadir::DatadirError;
use pgtoll_datadir::RelationFileName;
use pgtoll_system::open;
use pgtoll_wal::Packing;

/// A tar of a base backup.
#[derive(Clone, Debug)]
pub(super) struct TarFile {
    pub(super) path: PathBuf,
    pub(super) packing: Packing,
    /// Whose it is; `None`: the data directory's.
    pub(super) tablespace: Option<u32>,
    /// Bytes, as they are packed.
    pub(super) bytes: u64,
    pub(super) from: TarBytes,
}

/// An incremental file of a plain backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IncrementalFile {
    pub(crate) path: PathBuf,
    pub(crate) relation: RelFileLocator,
    pub(crate) name: RelationFileName,
    pub(crate) bytes: u64,
}

/// Something to read from its begin to its end.
#[derive(Debug)]
pub(super) enum Source {
    Tar(TarFile),
    Incremental(IncrementalFile),
}

impl TarFile {
    /// The tar at this path, by its name.
    pub(super) fn from_path(path: &Path) -> Option<Result<Self, DatadirError>> {
        let packing = Packing::of_tar(path)?;
        let name = path.file_name()?.to_str()?;
        let stem = name.split_once(".tar").or_else(|| name.split_once(".tgz"));
        let stem = stem.map_or(name, |(stem, _)| stem);
        let tablespace = pgtoll_datadir::decimal(stem).filter(|&oid| oid > 0);
        let found = open(path).and_then(|file| file.metadata());
        Some(match found {
            Ok(found) => Ok(Self {
                path: path.to_owned(),
                packing,
                tablespace,
                bytes: found.len(),
                from: TarBytes::File,
            }),
            Err(source) => Err(DatadirError::Read { path: path.to_owned(), source }),
        })
    }

    /// A tar that is no file; `None`: its name is not a tar's.
    pub(super) fn of_input(input: TarInput) -> Option<Self> {
        let packing = Packing::of_tar(Path::new(&input.file_name))?;
        let TarInput { name, tablespace, bytes, input, .. } = input;
        Some(Self { path: name.into(), packing, tablespace, bytes, from: TarBytes::Input(input) })
    }

    /// Unpacks it from its first byte on.
    pub(super) fn unpacked(&self) -> io::Result<Box<dyn Read + Send>> {
        self.packing.open(self.from.open(&self.path)?)
    }
}

impl Source {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Tar(tar) => &tar.path,
            Self::Incremental(file) => &file.path,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tar(tar) => tar.bytes,
            Self::Incremental(file) => file.bytes,
        }
    }
}

/// The limits that all readers of files share: rate, progress and interruption.
#[derive(Debug)]
pub(super) struct Meter {
    pace: Pace,
    bytes: AtomicU64,
    is_stopped: AtomicBool,
}

impl Meter {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { pace: Pace::new(rate), bytes: AtomicU64::new(0), is_stopped: AtomicBool::new(false) }
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.pace.stop();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A reader at the permitted rate.
pub(super) struct Metered<'a> {
    input: Box<dyn Read + Send>,
    meter: &'a Meter,
}

impl<'a> Metered<'a> {
    pub(super) fn open(path: &Path, meter: &'a Meter) -> io::Result<Self> {
        Ok(Self { input: Box::new(open(path)?), meter })
    }

    pub(super) fn tar(tar: &TarFile, meter: &'a Meter) -> io::Result<Self> {
        Ok(Self { input: tar.from.open(&tar.path)?, meter })
    }
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.meter.pace.may_read(buffer.len() as u64) {
            return Err(io::Error::other("interrupted"));
        }
        let read = self.input.read(buffer)?;
        self.meter.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
