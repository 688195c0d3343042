//! Readers of what strangers may have made, for fuzzing.

use crate::TarStream;

/// Reads any bytes as a tar; the members' names, and bytes of them that are there.
pub fn tar_members(tar: &[u8]) -> (Vec<String>, u64, bool) {
    let mut stream = TarStream::new(tar);
    let mut names = Vec::new();
    let mut bytes = 0;
    loop {
        match stream.next_member() {
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
