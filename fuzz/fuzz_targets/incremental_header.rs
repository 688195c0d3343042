//! Any bytes as the begin of an incremental backup's file, of relations with files of any length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::IncrementalHeader;

fuzz_target!(|input: (u32, u8, bool, &[u8])| {
    let (file_blocks, size, has_magic, bytes) = input;
    let mut bytes = bytes.to_vec();
    if has_magic && bytes.len() >= 4 {
        bytes[..4].copy_from_slice(&0xd3ae_1f0d_u32.to_le_bytes());
    }
    let Ok(header) = IncrementalHeader::read(&bytes, file_blocks) else { return };
    assert!(header.blocks <= file_blocks);
    let block_bytes = 1024_u32 << (size % 6);
    let behind = header.file_bytes(block_bytes) - header.header_bytes(block_bytes);
    assert_eq!(behind, u64::from(header.blocks) * u64::from(block_bytes));
    let Ok(numbers) = header.numbers(&bytes[IncrementalHeader::BYTES..], file_blocks) else {
        return;
    };
    assert_eq!(numbers.len(), header.blocks as usize);
    assert!(numbers.is_sorted_by(|one, next| one < next));
    assert!(numbers.iter().all(|number| *number < file_blocks));
});
