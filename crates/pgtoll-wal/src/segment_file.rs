//! A file that holds one segment, by itself, in a tar, or elsewhere.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::packing::Packing;
use crate::segment_name::SegmentName;

/// A file that holds one segment.
#[derive(Clone, Debug)]
pub struct SegmentFile {
    /// Its place; in a tar, the tar's path and the name in it; elsewhere, what people call the place.
    pub path: PathBuf,
    /// The parts of its name.
    pub name: SegmentName,
    /// How it is compressed.
    pub packing: Packing,
    pub(crate) place: SegmentPlace,
}

/// The source of a segment's bytes.
#[derive(Clone, Debug)]
pub(crate) enum SegmentPlace {
    /// The file at its path.
    File,
    /// A stretch of a file: it is in a tar.
    Member(Member),
    /// No file of this machine.
    Elsewhere(Arc<dyn OpenSegment>),
}

/// Opens a segment that is no file of this machine, each time from its begin.
pub trait OpenSegment: fmt::Debug + Send + Sync {
    /// Its bytes as they are stored, compressed or not.
    fn open(&self) -> io::Result<Box<dyn Read + Send>>;
}

impl SegmentFile {
    /// The file at this path, if its name is a segment's.
    pub fn from_path(path: &Path) -> Option<Self> {
        let (name, packing) = SegmentName::parse(path.file_name()?.to_str()?)?;
        Some(Self { path: path.to_owned(), name, packing, place: SegmentPlace::File })
    }

    /// Makes a segment that `source` opens, if its name is a segment's.
    pub fn elsewhere(path: &Path, source: Arc<dyn OpenSegment>) -> Option<Self> {
        Some(Self { place: SegmentPlace::Elsewhere(source), ..Self::from_path(path)? })
    }

    /// The SHA-1 of its decompressed bytes in hexadecimal digits, where its name has one (pgBackRest).
    pub fn named_sha1(&self) -> Option<&str> {
        let behind = self.path.file_name()?.to_str()?.get(24..)?;
        behind.strip_prefix(".partial").unwrap_or(behind).strip_prefix('-')?.get(..40)
    }

    /// Its bytes, decompressed.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.packing.open(match &self.place {
            SegmentPlace::File => Box::new(File::open(&self.path)?),
            SegmentPlace::Member(member) => Box::new(member.clone()),
            SegmentPlace::Elsewhere(source) => source.open()?,
        })
    }
}

/// A stretch of a file.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) file: Arc<File>,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += read as u64;
        self.bytes -= read as u64;
        Ok(read)
    }
}
