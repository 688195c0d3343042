//! Decoding of WAL that was written here: whatever is fed, in whatever pieces.

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Compression, Decoder, Parts, Record, WalError};
use pgtoll_testing::wal_writer::{PAGE, SEGMENT, Writer, main_data};
use proptest::prelude::*;

const MAGIC: u16 = 0xD116;
const LONG_HEADER: usize = 40;

/// Where records begin and what they hold; how the WAL ends.
type Decoded = (Vec<(Lsn, Vec<u8>)>, Result<(), WalError>);

fn decoded(bytes: &[u8], pages_at_once: usize) -> Result<Decoded, WalError> {
    let mut decoder = Decoder::new(bytes)?;
    let mut records = Vec::new();
    let mut parts = Parts::default();
    let mut end = Ok(());
    for chunk in bytes.chunks(PAGE * pages_at_once) {
        end = decoder.feed(chunk, &mut |record: &Record<'_>| {
            record.parts(&mut parts)?;
            records.push((record.at, record.bytes[parts.main_data.clone()].to_vec()));
            Ok(())
        });
        if end.is_err() {
            break;
        }
    }
    Ok((records, end))
}

fn written(bodies: &[Vec<u8>]) -> (Vec<u8>, Vec<(Lsn, Vec<u8>)>) {
    let mut writer = Writer::new(MAGIC, 5);
    let records = bodies.iter().map(|data| {
        let at = writer.record(10, 0, &main_data(data));
        (Lsn(at), data.clone())
    });
    let records = records.collect();
    (writer.finish(), records)
}

#[test]
fn a_record_longer_than_a_segment() {
    let long: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
    let (bytes, records) = written(&[vec![1], long, vec![2]]);
    assert_eq!(bytes.len(), 3 * SEGMENT);
    let (found, end) = decoded(&bytes, 1).unwrap();
    assert!(found == records);
    assert!(matches!(end, Err(WalError::NoRecord { length: 0, .. })), "{end:?}");
}

#[test]
fn decoding_begins_in_the_middle_of_a_record() {
    let (bytes, records) = written(&[vec![1], vec![3; SEGMENT + 50_000], vec![2]]);
    let (found, _) = decoded(&bytes[SEGMENT..], 4).unwrap();
    assert_eq!(found, records[2..]);
}

#[test]
fn blocks_with_images_and_data_are_taken_apart() {
    let relation = [1663_u32, 5, 16384].map(u32::to_le_bytes).concat();
    let mut body = vec![0, 0x10 | 0x20, 3, 0];
    // An LZ4 image of 4 bytes with a hole of 100 bytes at 200.
    body.extend([4, 0, 200, 0, 0x01 | 0x02 | 0x08, 100, 0]);
    body.extend(&relation);
    body.extend(9_u32.to_le_bytes());
    // The same relation, to be made anew.
    body.extend([1, 0x40 | 0x80, 0, 0]);
    body.extend(10_u32.to_le_bytes());
    body.extend([253, 1, 0, 255, 2]);
    body.extend([0xAA, 0xAA, 0xAA, 0xAA, 0xBB, 0xBB, 0xBB, 0xCC, 0xCC]);
    let mut writer = Writer::new(MAGIC, 1);
    writer.record(10, 0, &body);
    let bytes = writer.finish();
    let mut parts = Parts::default();
    let mut decoder = Decoder::new(&bytes).unwrap();
    let mut seen = Vec::new();
    let end = decoder.feed(&bytes, &mut |record: &Record<'_>| {
        record.parts(&mut parts)?;
        let image = parts.blocks[0].image.clone().unwrap();
        assert_eq!(image.compression, Some(Compression::Lz4));
        assert_eq!((image.hole_offset, image.hole_bytes, image.applies), (200, 100, true));
        let item = [image.range, parts.blocks[0].data.clone(), parts.main_data.clone()];
        seen.extend(item.map(|range| record.bytes[range].to_vec()));
        Ok(())
    });
    assert!(matches!(end, Err(WalError::NoRecord { .. })), "{end:?}");
    assert_eq!(seen, [vec![0xAA; 4], vec![0xBB; 3], vec![0xCC; 2]]);
    assert_eq!((parts.blocks[1].block, parts.blocks[1].will_init), (10, true));
    assert_eq!(parts.blocks[1].relation, parts.blocks[0].relation);
    assert_eq!(parts.origin, Some(1));
}

fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![4 => 0..200_usize, 2 => 200..20_000_usize];
    prop::collection::vec(
        (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length]),
        1..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_in_any_pieces(bodies in bodies(), pages in 1..200_usize) {
        let (bytes, records) = written(&bodies);
        let (found, end) = decoded(&bytes, pages).unwrap();
        prop_assert!(found == records);
        let is_end = matches!(end, Err(WalError::NoRecord { length: 0, .. }) | Ok(()));
        prop_assert!(is_end, "{:?}", end);
    }

    #[test]
    fn a_changed_byte_leaves_what_is_before_it(
        bodies in bodies(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let (mut bytes, records) = written(&bodies);
        let last = records.last().unwrap();
        let end = usize::try_from(last.0.0).unwrap() - 5 * SEGMENT;
        // The first header is believed: it alone says where in WAL its segment stands.
        let at = LONG_HEADER + place.index(end + 24 - LONG_HEADER);
        bytes[at] ^= 1_u8 << bit;
        let (found, _) = decoded(&bytes, 16).unwrap();
        // All of them where the byte is nobody's: padding, and a page's unused fields.
        prop_assert!(records.starts_with(&found));
        let before = records.iter().zip(records.iter().skip(1)).take_while(|(_, next)| {
            usize::try_from(next.0.0).unwrap() - 5 * SEGMENT <= at / PAGE * PAGE
        });
        prop_assert!(found.len() >= before.count());
    }

    #[test]
    fn any_pages_are_decoded_or_not(
        pages in prop::collection::vec(prop::collection::vec(any::<u8>(), PAGE), 1..4),
        magic in prop::sample::select(vec![0xD106_u16, 0xD110, 0xD118, 0xD122]),
    ) {
        let mut bytes = pages.concat();
        let mut begin = Writer::new(magic, 3);
        begin.record(0, 0, &main_data(&[1]));
        bytes[..100].copy_from_slice(&begin.finish()[..100]);
        let _ = decoded(&bytes, 1);
    }

    #[test]
    fn any_body_is_taken_apart_or_not(body: Vec<u8>) {
        let mut writer = Writer::new(MAGIC, 1);
        writer.record(10, 0, &body);
        let _ = decoded(&writer.finish(), 128);
    }
}
