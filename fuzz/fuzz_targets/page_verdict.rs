//! Any bytes as a page at any block, once as they are and once with the checksum that fits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_checksum::{is_page, page_checksum};
use pgtoll_format::{Fault, PageHeader, Verdict, line_pointers, verdict};
use pgtoll_verify::page_verdict;

fuzz_target!(|input: (u8, u32, &[u8])| {
    let (size, block, bytes) = input;
    // Zeros behind the bytes, up to a size that pages have.
    let mut page = bytes.to_vec();
    page.resize(1024 << (size % 6), 0);
    let is_zero = page.iter().all(|byte| *byte == 0);
    let found = page_verdict(&page, block, true);
    assert_eq!(found == Verdict::New, is_zero);
    assert_eq!(found == Verdict::New, page_verdict(&page, block, false) == Verdict::New);
    let _ = verdict(bytes, Some(1));
    assert!(line_pointers(&page).count() * 4 <= page.len());

    let header = PageHeader::read(&page).expect("pages are longer than headers");
    if header.is_new() || !is_page(page.len()) {
        return;
    }
    let checksum = page_checksum(&page, block);
    page[8..10].copy_from_slice(&checksum.to_le_bytes());
    let expected = if header.is_plausible(page.len()) {
        Verdict::Valid
    } else {
        Verdict::Invalid(Fault::Header)
    };
    assert_eq!(page_verdict(&page, block, true), expected);
    assert_eq!(page_verdict(&page, block, false), expected);
});
