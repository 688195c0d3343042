//! Files of incremental backups: how long they become when they are combined.

use std::io::{self, Read};
use std::path::Path;

use pgtoll_format::IncrementalHeader;
use pgtoll_wal::{TarError, TarMember, TarStream};

/// Whether a file of this name holds some blocks of another one.
pub(crate) fn is_incremental(name: &str) -> bool {
    name.starts_with("INCREMENTAL.")
}

/// Bytes of the file that an incremental one becomes; of one that is damaged nothing is made.
pub(crate) fn combined_file_bytes(path: &Path) -> io::Result<u64> {
    let mut begin = Vec::new();
    pgtoll_system::open(path)?.take(BEGIN_BYTES).read_to_end(&mut begin)?;
    Ok(of_header(&begin))
}

/// The same of a tar's member.
pub(crate) fn combined_member_bytes<R: Read>(
    member: &TarMember,
    stream: &mut TarStream<R>,
) -> Result<u64, TarError> {
    let most = usize::try_from(member.bytes.min(BEGIN_BYTES)).unwrap_or_default();
    let mut begin = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match stream.read(&mut begin[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(of_header(&begin[..filled]))
}

fn of_header(begin: &[u8]) -> u64 {
    let read = || {
        let header = IncrementalHeader::read(begin, FILE_BLOCKS).ok()?;
        let numbers = header.numbers(begin.get(IncrementalHeader::BYTES..)?, FILE_BLOCKS).ok()?;
        Some(u64::from(header.combined_blocks(&numbers)) * BLOCK_BYTES)
    };
    read().unwrap_or_default()
}

/// As all packages are built.
const FILE_BLOCKS: u32 = 131_072;
const BLOCK_BYTES: u64 = 8192;
/// The bytes of an incremental file's header with the numbers of all blocks.
const BEGIN_BYTES: u64 = 12 + 4 * FILE_BLOCKS as u64;
