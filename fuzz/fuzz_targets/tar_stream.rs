//! Any bytes as a tar, and with a header whose sum is right: no more comes out than went in.

#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use pgtoll_wal::fuzzed::tar_members;

fuzz_target!(|input: (u16, u64, &[u8])| {
    let (number, bytes, tar) = input;
    check(tar);
    // With the right sum in one header, of any length: seldom anything else.
    let mut tar = tar.to_vec();
    let at = usize::from(number) * 512;
    if let Some(block) = tar.get_mut(at..at + 512) {
        let length = &mut block[124..136];
        if bytes % 3 == 0 {
            length.copy_from_slice(&[&[0x80, 0, 0, 0][..], &bytes.to_be_bytes()].concat());
        } else {
            let _ = write!(&mut length[..], "{:011o}\0", bytes % 4096);
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let _ = write!(&mut block[148..156], "{sum:06o}\0 ");
        check(&tar);
    }
});

fn check(tar: &[u8]) {
    let (names, bytes, _) = tar_members(tar);
    assert!(bytes <= tar.len() as u64);
    assert!(names.len() <= tar.len() / 512);
    // What a replaced byte becomes has three.
    assert!(names.iter().map(String::len).sum::<usize>() <= 3 * tar.len());
}
