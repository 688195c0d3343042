//! Any bytes as WAL: fed at once and in pieces, both say the same, and the memory that is taken
//! does not exceed what was fed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::Lsn;
use pgtoll_format::wal::{Decoder, Parts, Record, WalError};

/// Where records begin and end; how the WAL ends.
type Decoded = (Vec<(Lsn, Lsn)>, Result<(), WalError>);

fuzz_target!(|input: (u8, &[u8])| {
    let (pages_at_once, bytes) = input;
    let Ok(decoder) = Decoder::new(bytes) else { return };
    let page = decoder.segment().page_bytes as usize;
    // The smallest page is 1 kB: with a short input there would be no page to decode.
    let bytes = &bytes[..bytes.len() / page * page];
    if bytes.is_empty() {
        return;
    }
    let whole = decoded(bytes, bytes.len());
    let pieces = decoded(bytes, page * (usize::from(pages_at_once) + 1));
    assert_eq!(whole, pieces);
});

fn decoded(bytes: &[u8], at_once: usize) -> Decoded {
    let mut decoder = Decoder::new(bytes).expect("it was made before");
    let mut records = Vec::new();
    let mut parts = Parts::default();
    for chunk in bytes.chunks(at_once) {
        let fed = decoder.feed(chunk, &mut |record: &Record<'_>| {
            assert!(record.bytes.len() <= bytes.len());
            records.push((record.at, record.end));
            if record.parts(&mut parts).is_ok() {
                let _ = record.event(&parts);
            }
            Ok(())
        });
        if fed.is_err() {
            return (records, fed);
        }
    }
    (records, Ok(()))
}
