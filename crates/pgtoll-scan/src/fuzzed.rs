//! Readers of what strangers may have made, for fuzzing.

use crate::corrupt::Wound;
use crate::tar_stream::TarStream;
use crate::verify::{journal, manifest};

/// Reads any bytes as a tar; the members' names, and bytes of them that are there.
pub fn tar_members(tar: &[u8]) -> (Vec<String>, u64, bool) {
    let (mut stream, mut names, mut bytes) = (TarStream::new(tar), Vec::new(), 0);
    loop {
        match stream.next() {
            Ok(Some(member)) => names.push(member.path),
            end => return (names, bytes, end.is_ok()),
        }
        let mut buffer = [0; 700];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => bytes += read as u64,
                Err(_) => return (names, bytes, false),
            }
        }
    }
}

/// Files in the manifest that these bytes are; `None`: they are none.
pub fn backup_manifest(bytes: &[u8]) -> Option<u64> {
    manifest::files_in(bytes)
}

/// Whether these bytes are a resume file.
pub fn resume_file(bytes: &[u8]) -> bool {
    journal::is_resume_file(bytes)
}

/// Whether these bytes are the undo file of a damage.
pub fn undo_file(bytes: &[u8]) -> bool {
    Wound::read(bytes).is_some()
}
