//! What is compressed is decompressed to the same; what is damaged is refused, without more memory
//! than its length can stand for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::pglz;

fuzz_target!(|input: (u32, &[u8])| {
    let (length, bytes) = input;
    if let Some(compressed) = pglz::compress(bytes) {
        assert!(compressed.len() < bytes.len());
        assert_eq!(pglz::decompress(&compressed, bytes.len()).as_deref(), Some(bytes));
    }
    if let Some(made) = pglz::decompress(bytes, length as usize) {
        assert_eq!(made.len(), length as usize);
    }
});
