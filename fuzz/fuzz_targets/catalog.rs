//! Any bytes as a page of a catalog, and as `pg_filenode.map`, of each version: rows lie within the
//! page, and what is read of them is as long as it can be.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::MAJORS;
use pgtoll_format::catalog::{ClassRow, DatabaseRow, IndexRow, NAME_BYTES, NamedRow, RelationMap};
use pgtoll_format::heap::{TransactionStatus, Transactions, heap_tuples};

fuzz_target!(|input: (u8, u32, &[u8])| {
    let (version, xid, bytes) = input;
    let facts = &MAJORS[usize::from(version) % MAJORS.len()].catalog;
    map(bytes, facts);
    let _ = TransactionStatus::in_page(bytes, xid);
    let mut page = bytes.to_vec();
    page.resize(8192, 0);
    let Ok(rows) = heap_tuples(&page) else { return };
    assert!(rows.len() <= page.len() / 4);
    // What a replaced byte becomes has three.
    let longest = 3 * NAME_BYTES;
    for row in rows {
        assert!(row.data.len() <= page.len());
        let _ = row.is_live(&mut AsInPage(bytes));
        let class = ClassRow::read(&row, facts);
        assert!(class.is_none_or(|class| class.name.len() <= longest));
        let database = DatabaseRow::read(&row, facts);
        assert!(database.is_none_or(|database| database.name.len() <= longest));
        let named = NamedRow::read(&row);
        assert!(named.is_none_or(|named| named.name.len() <= longest));
        let _ = IndexRow::read(&row, facts);
    }
});

/// Any bytes as the transactions' bits.
struct AsInPage<'a>(&'a [u8]);

impl Transactions for AsInPage<'_> {
    fn status(&mut self, xid: u32) -> Option<TransactionStatus> {
        TransactionStatus::in_page(self.0, xid)
    }

    fn updater(&mut self, multixact: u32) -> Option<u32> {
        (!multixact.is_multiple_of(3)).then_some(multixact / 2)
    }
}

/// The bytes as they are, and with the magic and the CRC of a map.
fn map(bytes: &[u8], facts: &pgtoll_format::catalog::CatalogFacts) {
    let _ = RelationMap::read(bytes, facts);
    let crc_at = 8 + 8 * facts.relation_map_entries;
    let mut file = bytes.to_vec();
    file.resize(1024, 0);
    file[..4].copy_from_slice(&0x0059_2717_u32.to_le_bytes());
    // An impossible count is seldom anything else.
    let count = u32::from(file[4]) % 70;
    file[4..8].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c::crc32c(&file[..crc_at]);
    file[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    let count = usize::try_from(count).expect("it is small");
    match RelationMap::read(&file, facts) {
        Ok(_) => assert!(count <= facts.relation_map_entries),
        Err(_) => assert!(count > facts.relation_map_entries),
    }
}
