//! Any text as a segment's name; what is one has a next one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_wal::SegmentName;

fuzz_target!(|input: (u32, &str)| {
    let (segments_per_part, name) = input;
    for name in [name.to_owned(), format!("000000010000000A000000FE{name}")] {
        let Some((item, packing)) = SegmentName::parse(&name) else { continue };
        let (high, low) = item.place;
        let canonical = format!("{:08X}{high:08X}{low:08X}", item.timeline);
        assert!(name.starts_with(&canonical));
        assert_eq!(SegmentName::parse(&name), Some((item, packing)));
        assert_ne!(item.next_place(segments_per_part), item.place);
    }
});
