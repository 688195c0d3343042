//! Any bytes as a client's journal of `lab judge`, and as what follows a journal's header.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_lab::{Attempt, ENTRY_BYTES, JournalReader};

fuzz_target!(|input: (bool, &[u8])| {
    let (with_header, bytes) = input;
    if !with_header {
        return check(bytes);
    }
    // The header of run 0 and client 0, then entries whose sums are right.
    let mut journal = sealed(b"pgto\0\0\0\0llJ1").to_vec();
    for entry in bytes.chunks(ENTRY_BYTES) {
        journal.extend(sealed(entry));
    }
    check(&journal);
    // What was read of a part is the begin of what is read of the whole, but for its last end.
    let cut = journal.len() - journal.len() % 7;
    let whole = read(&journal);
    let part = read(&journal[..cut]);
    assert!(part.len() <= whole.len());
    for (of_part, of_whole) in part.iter().zip(&whole) {
        assert_eq!((of_part.sequence, of_part.due_ns), (of_whole.sequence, of_whole.due_ns));
    }
});

fn check(bytes: &[u8]) {
    let attempts = read(bytes);
    assert!(attempts.len() <= bytes.len() / ENTRY_BYTES);
    for (sequence, item) in (0..).zip(&attempts) {
        assert_eq!(item.sequence, sequence);
        assert!(item.end.is_some() || sequence + 1 == attempts.len() as u64);
    }
}

fn read(bytes: &[u8]) -> Vec<Attempt> {
    JournalReader::new(bytes).map(Iterator::collect).unwrap_or_default()
}

/// The bytes as a whole entry with its CRC.
fn sealed(bytes: &[u8]) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let length = bytes.len().min(ENTRY_BYTES);
    entry[..length].copy_from_slice(&bytes[..length]);
    entry[4..8].fill(0);
    let crc = crc32c::crc32c(&entry);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
    entry
}
