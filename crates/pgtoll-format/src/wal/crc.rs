//! CRC-32C of records.
//!
//! Most records are so short that a call costs more than the sum. They are summed here, by the
//! processor's own instruction, eight bytes at a time; that takes three cycles for each, one after
//! the other. Long ones, those with images, are for [`Crc32c`], which folds many bytes at once; so are
//! all where the processor has no such instruction, or has it by another name.

use multiversion::multiversion;
use multiversion::target::match_target;

use crate::Crc32c;
use crate::wal::record::{CRC_AT, RECORD_HEADER};

/// From here on folding is faster, by measurement.
const LONG: usize = 384;

/// A record's sum: of all that follows the header, and then of the header without the CRC. `crc` is
/// kept, since to make one costs more than a short record's sum.
#[multiversion(targets("x86_64+sse4.2"))]
pub(crate) fn record_sum(crc: &mut Crc32c, header: &[u8; RECORD_HEADER], body: &[u8]) -> u32 {
    match_target! {
        "x86_64+sse4.2" => {
            if body.len() < LONG { sse::crc(header, body) } else { long(crc, header, body) }
        },
        _ => long(crc, header, body),
    }
}

fn long(crc: &mut Crc32c, header: &[u8; RECORD_HEADER], body: &[u8]) -> u32 {
    crc.reset();
    crc.update(body);
    crc.update(&header[..CRC_AT]);
    crc.sum()
}

#[cfg(target_arch = "x86_64")]
mod sse {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    use super::{CRC_AT, RECORD_HEADER};

    #[target_feature(enable = "sse4.2")]
    #[inline]
    pub(super) fn crc(header: &[u8; RECORD_HEADER], body: &[u8]) -> u32 {
        let crc = append(!0, body);
        !append(crc, &header[..CRC_AT])
    }

    #[target_feature(enable = "sse4.2")]
    #[inline]
    fn append(crc: u32, bytes: &[u8]) -> u32 {
        let (eights, mut rest) = bytes.as_chunks();
        let sum = |crc, eight: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(*eight));
        #[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
        let mut crc = eights.iter().fold(u64::from(crc), sum) as u32;
        if let Some((four, after)) = rest.split_first_chunk() {
            crc = _mm_crc32_u32(crc, u32::from_le_bytes(*four));
            rest = after;
        }
        if let Some((two, after)) = rest.split_first_chunk() {
            crc = _mm_crc32_u16(crc, u16::from_le_bytes(*two));
            rest = after;
        }
        rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit: the reversed polynomial 0x1EDC6F41, begun with ones and inverted at the end.
    fn by_definition(bytes: &[u8]) -> u32 {
        let shift = |crc: u32, _| (crc >> 1) ^ (if crc & 1 == 1 { 0x82F6_3B78 } else { 0 });
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
    }

    #[test]
    fn the_definition_has_the_known_check_value() {
        assert_eq!(by_definition(b"123456789"), 0xE306_9283);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_definition(
            header: [u8; RECORD_HEADER],
            body in proptest::collection::vec(any::<u8>(), 0..2 * LONG),
        ) {
            let expected = by_definition(&[&body, &header[..CRC_AT]].concat());
            prop_assert_eq!(record_sum(&mut Crc32c::default(), &header, &body), expected);
            prop_assert_eq!(long(&mut Crc32c::default(), &header, &body), expected);
        }
    }
}
