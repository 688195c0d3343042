//! Names of WAL segments, as servers and archives give them.

use pgtoll_format::Lsn;

use crate::packing::Packing;

/// The first 24 characters of a segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The upper and the lower part of its place: how many segments make one of the upper part
    /// depends on their size.
    pub place: (u32, u32),
    /// The timeline.
    pub timeline: u32,
    /// Only its beginning was written when the server left its timeline.
    pub is_partial: bool,
}

impl SegmentName {
    /// Reads a file's name. Archives put a checksum (pgBackRest) and how it is compressed behind
    /// it: `000000010000000A000000FE-<sha1>.gz`.
    pub fn parse(name: &str) -> Option<(Self, Packing)> {
        let (digits, rest) = name.split_at_checked(24)?;
        let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
        if !digits.chars().all(is_digit) {
            return None;
        }
        let number = |from: usize| u32::from_str_radix(&digits[from..from + 8], 16).ok();
        let place = (number(8)?, number(16)?);
        let (rest, is_partial) = match rest.strip_prefix(".partial") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let rest = match rest.strip_prefix('-') {
            Some(sum) if sum.len() >= 40 && sum.is_char_boundary(40) => {
                let (sum, rest) = sum.split_at(40);
                sum.chars().all(|c| c.is_ascii_hexdigit()).then_some(rest)?
            }
            Some(_) => return None,
            None => rest,
        };
        Some((Self { place, timeline: number(0)?, is_partial }, Packing::of_ending(rest)?))
    }

    /// The start of the segment, of segments with this many bytes. A name may say anything:
    /// [`Lsn::MAX`] where that is out of range.
    pub fn begin(&self, segment_bytes: u64) -> Lsn {
        let (high, low) = self.place;
        Lsn(u64::from(high) << 32).saturating_add(u64::from(low).saturating_mul(segment_bytes))
    }

    /// The segment after this one, where there are this many in one of the upper part.
    pub fn next_place(&self, segments_per_part: u32) -> (u32, u32) {
        let (high, low) = self.place;
        match low.checked_add(1).filter(|next| *next < segments_per_part) {
            Some(next) => (high, next),
            None => (high.wrapping_add(1), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, expected: Option<(u32, (u32, u32), bool, Packing)>) {
        let parsed = SegmentName::parse(name);
        let parsed = parsed
            .map(|(parsed, packing)| (parsed.timeline, parsed.place, parsed.is_partial, packing));
        assert_eq!(parsed, expected, "{name}");
    }

    #[test]
    fn names_as_servers_and_archives_write_them() {
        let place = (0xA, 0xFE);
        check("000000010000000A000000FE", Some((1, place, false, Packing::Plain)));
        check("0000000C0000000A000000FE.partial", Some((12, place, true, Packing::Plain)));
        check("000000010000000A000000FE.lz4", Some((1, place, false, Packing::Lz4)));
        check("000000010000000A000000FE.partial.gz", Some((1, place, true, Packing::Gzip)));
        let sum = "0123456789abcdef0123456789abcdef01234567";
        check(
            &format!("000000010000000A000000FE-{sum}.zst"),
            Some((1, place, false, Packing::Zstd)),
        );
        for other in ["00000002.history", "000000010000000A000000FE.00000028.backup", ""] {
            check(other, None);
        }
    }

    #[test]
    fn segments_begin_where_their_names_say() {
        let check = |name: &str, segment_bytes, expected| {
            let (name, _) = SegmentName::parse(name).unwrap();
            assert_eq!(name.begin(segment_bytes), expected);
        };
        check("000000010000000A000000FE", 16 << 20, Lsn(0xA_FE00_0000));
        check("000000010000000A00000003", 1 << 30, Lsn(0xA_C000_0000));
        check("00000001FFFFFFFFFFFFFFFF", 1 << 30, Lsn::MAX);
    }

    proptest! {
        #[test]
        fn any_name_is_a_segments_or_not(name in ".*", tail in "[.-].{0,60}") {
            let _ = SegmentName::parse(&name);
            let _ = SegmentName::parse(&format!("000000010000000A000000FE{tail}"));
        }
    }
}
