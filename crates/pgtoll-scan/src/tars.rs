//! WAL segments in tar archives: `pg_wal.tar` of a base backup, or one's own.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::files::SegmentFile;
use crate::packing::Packing;
use crate::segment_name::SegmentName;

/// A stretch of a file.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    file: Arc<File>,
    at: u64,
    bytes: u64,
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

/// How a tar with this name is compressed; `None` if it is none.
pub(crate) fn packing(path: &Path) -> Option<Packing> {
    if path.extension().is_some_and(|ending| ending == "tgz") {
        return Some(Packing::Gzip);
    }
    let (_, rest) = path.file_name()?.to_str()?.rsplit_once(".tar")?;
    Packing::of_ending(rest)
}

/// The segments in a tar. One that is compressed can be read only from its beginning, so its
/// segments are unpacked into a temporary file, which is gone when nobody reads it any more.
pub(crate) fn members(path: &Path, packing: Packing) -> io::Result<Vec<SegmentFile>> {
    let mut segments = Vec::new();
    if packing == Packing::Plain {
        let file = Arc::new(File::open(path)?);
        let reader: &File = &file;
        for entry in tar::Archive::new(reader).entries_with_seek()? {
            let entry = entry?;
            if entry.header().entry_type().is_file() {
                let (at, bytes) = (entry.raw_file_position(), entry.size());
                let member = Member { file: file.clone(), at, bytes };
                segments.extend(segment(path, &entry.path()?, member));
            }
        }
        return Ok(segments);
    }
    let mut tar = tar::Archive::new(packing.open(Box::new(File::open(path)?))?);
    let unpacked = Arc::new(tempfile::tempfile()?);
    let mut at = 0;
    for entry in tar.entries()? {
        let mut entry = entry?;
        let member = Member { file: unpacked.clone(), at, bytes: 0 };
        let found = segment(path, &entry.path()?, member);
        let is_file = entry.header().entry_type().is_file();
        if let Some(mut found) = found.filter(|_| is_file) {
            let mut writer: &File = &unpacked;
            let bytes = io::copy(&mut entry, &mut writer)?;
            at += bytes;
            found.member.iter_mut().for_each(|member| member.bytes = bytes);
            segments.push(found);
        }
    }
    Ok(segments)
}

fn segment(tar: &Path, name: &Path, member: Member) -> Option<SegmentFile> {
    let (of, packing) = SegmentName::parse(name.file_name()?.to_str()?)?;
    // Where it stands, for people: the tar, and its name in it.
    Some(SegmentFile { path: tar.join(name), name: of, packing, member: Some(member) })
}
