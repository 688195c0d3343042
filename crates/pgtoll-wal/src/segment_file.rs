//! A file that holds one segment, by itself or in a tar.

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
    /// Where it is; in a tar, the tar's path and the name in it.
    pub path: PathBuf,
    /// What its name says.
    pub name: SegmentName,
    /// How it is compressed.
    pub packing: Packing,
    /// In which stretch of which file, where it is in a tar.
    pub(crate) member: Option<Member>,
}

impl SegmentFile {
    /// The file at this path, if its name is a segment's.
    pub fn of(path: &Path) -> Option<Self> {
        let (name, packing) = SegmentName::parse(path.file_name()?.to_str()?)?;
        Some(Self { path: path.to_owned(), name, packing, member: None })
    }

    /// Its bytes, decompressed.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.packing.open(match &self.member {
            Some(member) => Box::new(member.clone()),
            None => Box::new(File::open(&self.path)?),
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
