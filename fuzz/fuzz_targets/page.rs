//! Any bytes as a page, and the same with some of them changed: its kind, its line pointers, its
//! tuples and what differs between the two.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::heap::heap_tuples;
use pgtoll_format::{PageDifference, PageHeader, PageKind, line_pointers};

fuzz_target!(|input: (u8, Vec<(u16, u8)>, &[u8])| {
    let (size, changes, bytes) = input;
    let _ = (PageHeader::read(bytes), PageKind::from_page(bytes), heap_tuples(bytes).is_ok());
    let mut page = bytes.to_vec();
    page.resize(1024 << (size % 6), 0);
    let _ = (PageKind::from_page(&page), heap_tuples(&page).is_ok());
    assert!(line_pointers(&page).count() * 4 <= page.len());
    let same = PageDifference::between(&page, &page).expect("both are pages of one size");
    assert!(same.is_only_hints());
    let mut other = page.clone();
    for (at, byte) in changes {
        let at = usize::from(at) % other.len();
        other[at] = byte;
    }
    let differs = PageDifference::between(&page, &other).expect("both are pages of one size");
    let back = PageDifference::between(&other, &page).expect("both are pages of one size");
    assert_eq!(page == other, differs == same);
    assert_eq!(page == other, back == same);
});
