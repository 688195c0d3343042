//! Valid pages with records of any body and a right CRC: taken apart, all parts lie within the
//! record, in their order, and cover it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::wal::rmgr::{XLOG_SWITCH, XLR_RMGR_INFO_MASK};
use pgtoll_format::wal::{Decoder, Parts, Record, RecordType, WalError};
use pgtoll_testing::wal_writer::Writer;

/// One of each form of image flags and page flags.
const MAGICS: [u16; 4] = [0xD106, 0xD110, 0xD118, 0xD122];

fuzz_target!(|input: (u8, Vec<(u8, u8, Vec<u8>)>)| {
    let (version, records) = input;
    let mut writer = Writer::new(MAGICS[usize::from(version) % MAGICS.len()], 1);
    let mut written = Vec::new();
    for (manager, info, body) in records.into_iter().take(64) {
        // After a switch nothing is read up to the next segment.
        if (RecordType { manager, info: info & XLR_RMGR_INFO_MASK }) == XLOG_SWITCH {
            continue;
        }
        written.push(writer.record(manager, info, &body));
    }
    let bytes = writer.finish();
    let mut decoder = Decoder::new(&bytes).expect("the writer begins as a server does");
    let mut seen = Vec::new();
    let mut parts = Parts::default();
    let end = decoder.feed(&bytes, &mut |record: &Record<'_>| {
        seen.push(record.at.0);
        let _ = RecordType::from_header(&record.header).name(record.facts.major);
        if record.parts(&mut parts).is_ok() {
            check(record, &parts);
            let _ = record.event(&parts);
        }
        Ok(())
    });
    assert_eq!(seen, written);
    assert!(matches!(end, Ok(()) | Err(WalError::NoRecord { length: 0, .. })), "{end:?}");
});

fn check(record: &Record<'_>, parts: &Parts) {
    let mut ranges = Vec::new();
    for block in &parts.blocks {
        if let Some(image) = &block.image {
            let bytes = image.range.len() + usize::from(image.hole_bytes);
            assert!(image.compression.is_some() || bytes == 8192, "{image:?}");
            assert!(image.range.len() <= 8192);
            assert!(u32::from(image.hole_offset) + u32::from(image.hole_bytes) <= 8192);
            ranges.push(image.range.clone());
        }
        ranges.push(block.data.clone());
    }
    ranges.push(parts.main_data.clone());
    assert!(ranges[0].start >= 24);
    assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    assert_eq!(ranges.last().map(|last| last.end), Some(record.bytes.len()));
    assert!(parts.image_bytes() <= record.bytes.len() as u64);
}
