//! Any bytes as a page of a B-tree, as they are and with a header and links that fit one: what it
//! leads to is not more than fits on it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::PageHeader;
use pgtoll_format::btree::BtreePage;

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (size, is_leaf, bytes) = input;
    read(bytes);
    let mut page = bytes.to_vec();
    page.resize(1024 << (size % 6), 0);
    read(&page);
    let special = page.len() - 16;
    for (at, value) in [(10, 0), (14, special), (16, special), (special + 14, 0)] {
        let value = u16::try_from(value).expect("pages have 32 kB at most");
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    let lower = u16::from_le_bytes([page[12], page[13]]);
    let lower = lower.min(u16::try_from(special).expect("pages have 32 kB at most"));
    page[12..14].copy_from_slice(&lower.to_le_bytes());
    page[special + 8..special + 12].copy_from_slice(&u32::from(!is_leaf).to_le_bytes());
    page[special + 12..special + 14].copy_from_slice(&u16::from(is_leaf).to_le_bytes());
    assert!(read(&page), "it has the form of one");
});

/// Whether it is a node, or the first page.
fn read(page: &[u8]) -> bool {
    match BtreePage::read(page) {
        Some(BtreePage::Node(node)) => {
            let items = page.len() / 4;
            assert!(page.len() >= PageHeader::BYTES);
            assert!(node.children().count() <= items);
            assert!(node.rows().count() <= items * (page.len() / 6));
            true
        }
        Some(BtreePage::Meta(_)) => true,
        None => false,
    }
}
