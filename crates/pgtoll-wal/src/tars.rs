//! WAL segments in tar archives: `pg_wal.tar` of a base backup, or one's own.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::packing::Packing;
use crate::segment_file::{Member, SegmentFile, SegmentPlace};
use crate::segment_name::SegmentName;
use crate::tar_stream::{TarMemberKind, TarMemberReader, TarStream};

/// The segments in a tar. One that is compressed can be read only from its beginning, so its
/// segments are unpacked into a temporary file, which is gone when nobody reads it any more.
pub(crate) fn members(path: &Path, packing: Packing) -> io::Result<Vec<SegmentFile>> {
    let file = pgtoll_system::open(path)?;
    if packing == Packing::Plain {
        let file = Arc::new(file);
        return members_of(&mut TarStream::seeking(&file)?, path, &mut |stream, bytes| {
            Ok(Member { file: file.clone(), at: stream.position(), bytes })
        });
    }
    let unpacked = Arc::new(tempfile::tempfile()?);
    let mut end = 0;
    let stream = &mut TarStream::new(packing.open(Box::new(file))?);
    members_of(stream, path, &mut |stream, _| {
        let mut writer: &File = &unpacked;
        let at = end;
        let bytes = io::copy(&mut TarMemberReader { stream }, &mut writer)?;
        end += bytes;
        Ok(Member { file: unpacked.clone(), at, bytes })
    })
}

/// Those members that are segments; `take` is given the tar at the first byte of each.
fn members_of<R: Read>(
    stream: &mut TarStream<R>,
    path: &Path,
    take: &mut dyn FnMut(&mut TarStream<R>, u64) -> io::Result<Member>,
) -> io::Result<Vec<SegmentFile>> {
    let mut segments = Vec::new();
    while let Some(found) = stream.next_member()? {
        let name = Path::new(&found.path);
        let Some((item, packing)) =
            name.file_name().and_then(|name| SegmentName::parse(name.to_str()?))
        else {
            continue;
        };
        if found.kind != TarMemberKind::File {
            continue;
        }
        if found.bytes > SEGMENT_BYTES_MAX {
            let words = format!("{} has {} bytes: no WAL segment", found.path, found.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let place = SegmentPlace::Member(take(stream, found.bytes)?);
        // Where it stands, for people: the tar, and its name in it.
        segments.push(SegmentFile { path: path.join(name), name: item, packing, place });
    }
    Ok(segments)
}

/// No server has larger segments (`wal_segment_size`).
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{EntryType, Header};

    use super::*;

    /// A tar that claims a member of 4 GiB, of which it has little.
    fn bomb(kind: EntryType, name: &str) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path(name).unwrap();
        header.set_size(4 << 30);
        header.set_cksum();
        [header.as_bytes().as_slice(), &vec![0; 1 << 20]].concat()
    }

    #[test]
    fn a_tar_that_claims_gigabytes_is_refused_at_once() {
        let segment = "000000010000000000000001";
        for (kind, name, expected) in [
            (EntryType::GNULongName, "././@LongLink", "damaged: no tar header at byte 0"),
            (EntryType::XHeader, "pax", "damaged: no tar header at byte 0"),
            (EntryType::Regular, segment, "000000010000000000000001 has 4294967296 bytes"),
        ] {
            let plain = bomb(kind, name);
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&plain).unwrap();
            let directory = tempfile::tempdir().unwrap();
            for (ending, bytes) in [("tar", &plain), ("tar.gz", &packed.finish().unwrap())] {
                let path = directory.path().join(format!("pg_wal.{ending}"));
                std::fs::write(&path, bytes).unwrap();
                let error =
                    members(&path, Packing::of_tar(&path).unwrap()).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{ending} {kind:?}: {error}");
            }
        }
    }
}
