//! What `VACUUM` froze right after a hint's image, in a what-if without hints.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

use pgtoll_model::{Geometry, ImageCompression, Schedule, Settings, WhatIfOutcome};
use pgtoll_testing::wal_writer::{PAGE, SEGMENT, Writer, main_data};
use pgtoll_wal::{Compressing, Question, WhatIfCollector, first_header, scan_with, segments};

const XLOG: u8 = 0;
const XACT: u8 = 1;
const HEAP2: u8 = 9;
const FPI_FOR_HINT: u8 = 0xA0;
const VISIBLE: u8 = 0x40;
const HAS_IMAGE: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const TABLE: [u32; 3] = [1663, 5, 16384];
/// Of an image in a record of 18: 8124 bytes and a hole.
const IMAGE_BYTES: u16 = 0x1FBC;
const IMAGE_HEADER: [u8; 5] = [0xBC, 0x1F, 0x5C, 0x01, 0x03];
const FREEZE_PLANS: [u8; 174] = [1; 174];
const PAGES: u32 = 300;

/// A reference to a block: its number in the record, its fork and flags.
fn block(id: u8, flags: u8, data: &[u8], number: u32) -> Vec<u8> {
    let mut body = vec![id, flags];
    body.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
    if flags & HAS_IMAGE != 0 {
        body.extend(IMAGE_HEADER);
    }
    TABLE.iter().chain([&number]).for_each(|word| body.extend(word.to_le_bytes()));
    body
}

fn hint(page: u32) -> Vec<u8> {
    [block(0, HAS_IMAGE, &[], page), vec![0; IMAGE_BYTES.into()]].concat()
}

/// The headers of blocks and of main data, then the data.
fn change(blocks: &[Vec<u8>], data: &[u8], main: &[u8]) -> Vec<u8> {
    let main = main_data(main);
    [&blocks.concat(), &main[..2], data, &main[2..]].concat()
}

fn visible(page: u32) -> Vec<u8> {
    let map = block(0, 2, &[], 0);
    change(&[map, block(1, 0, &[], page)], &[], &[0, 0, 0, 0, 3])
}

/// How a version writes that it freezes rows, and does nothing else.
#[derive(Clone, Copy)]
struct Version {
    magic: u16,
    freeze: u8,
    main: &'static [u8],
}

const V15: Version = Version { magic: 0xD110, freeze: 0x30, main: &[0xF1, 2, 0, 0, 1, 0] };
const V16: Version = Version { magic: 0xD113, ..V15 };
const V18: Version = Version { magic: 0xD118, freeze: 0x20, main: &[0x78, 0x1C, 0xF1, 2, 0, 0] };
/// It prunes, too.
const V18_PRUNES: Version = Version { main: &[0x78, 0x9C, 0xF1, 2, 0, 0], ..V18 };

/// `VACUUM` of pages, with so many other sessions' records between a hint and the freeze; what became
/// of it with hints and without.
fn vacuum(version: Version, between: usize) -> [WhatIfOutcome; 2] {
    let mut writer = Writer::new(version.magic, 1);
    for page in 0..PAGES {
        writer.record(XLOG, FPI_FOR_HINT, &hint(page));
        for _ in 0..between {
            writer.record(XACT, 0x50, &main_data(&[0; 8]));
        }
        let frozen = block(0, HAS_DATA, &FREEZE_PLANS, page);
        writer.record(HEAP2, version.freeze, &change(&[frozen], &FREEZE_PLANS, version.main));
        writer.record(HEAP2, VISIBLE, &visible(page));
    }
    let directory = tempfile::tempdir().unwrap();
    for (number, segment) in (1..).zip(writer.finish().chunks(SEGMENT)) {
        let path = directory.path().join(format!("0000000100000000{number:08X}"));
        fs::write(path, segment).unwrap();
    }
    let files = segments(&[directory.path().to_owned()]).unwrap();
    let with_hints = Settings {
        schedule: Schedule::Source,
        hints: true,
        full_page_writes: true,
        compression: ImageCompression::AsStored,
    };
    let max_wal_size = 1 << 40;
    let timeout_us = i64::MAX;
    let completion_target = 0.9;
    let schedule = Schedule::Rule { max_wal_size, timeout_us, completion_target };
    let without_hints = Settings { schedule, hints: false, ..with_hints };
    let question = Arc::new(Question {
        geometry: Geometry { segment_bytes: SEGMENT as u64, page_bytes: PAGE as u64 },
        facts: first_header(&files).unwrap().1,
        settings: vec![with_hints, without_hints],
        today: None,
        compressing: Compressing::default(),
    });
    let new = || WhatIfCollector::new(question.clone());
    let (summary, _) = scan_with(&files, 2, new, &mut |_| ControlFlow::Continue(())).unwrap();
    let answer = summary.collected.finish();
    let outcomes = <[WhatIfOutcome; 2]>::try_from(answer.outcomes.as_slice()).unwrap();
    // The header of the first segment lies before its first record.
    let header = 40;
    let bytes = answer.to.unwrap().bytes_since(answer.from.unwrap()).unwrap();
    assert_eq!(outcomes[0].bytes, bytes + header);
    outcomes
}

/// Images without hints.
fn images(version: Version, between: usize) -> u64 {
    let [with_hints, without_hints] = vacuum(version, between);
    assert_eq!(with_hints.images, u64::from(PAGES));
    without_hints.images
}

#[test]
fn without_the_hint_there_is_no_freeze_and_no_image() {
    for (version, between) in [(V16, 0), (V18, 0), (V18, 5)] {
        let [with_hints, without_hints] = vacuum(version, between);
        assert_eq!((with_hints.images, without_hints.images), (u64::from(PAGES), 0));
        assert_eq!(with_hints.freeze_bytes, 0);
        // Of each page: that it is visible, and what other sessions wrote. Freezes are left where a
        // segment ends between the hint and them.
        let others = between as u64 * 40;
        let least = u64::from(PAGES) * (72 + others);
        let range = least..least * 103 / 100 + 3 * 300;
        assert!(range.contains(&without_hints.bytes), "{range:?} {without_hints:?}");
        // Had it to freeze them, each would have its image.
        let each = u64::from(IMAGE_BYTES) + 5 + 232;
        let most = u64::from(PAGES) * each;
        let range = most - 3 * each..=most;
        assert!(range.contains(&without_hints.freeze_bytes), "{range:?} {without_hints:?}");
    }
}

#[test]
fn what_has_another_reason_takes_the_image_over() {
    assert_eq!(images(V15, 0), u64::from(PAGES), "15 freezes only what it must");
    assert_eq!(images(V18_PRUNES, 0), u64::from(PAGES), "it prunes, with an image");
    assert_eq!(images(V18, 64), u64::from(PAGES), "a reader's hint, long before");
}
