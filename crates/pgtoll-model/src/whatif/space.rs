//! Places of records: positions without page headers, and their LSNs.

use pgtoll_format::Lsn;

/// How WAL is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// Bytes of a page's header, and of a segment's first one.
const SHORT_HEADER: u64 = 24;
const LONG_HEADER: u64 = 40;

impl Geometry {
    /// Bytes of a segment that records can use.
    pub(crate) fn usable(self) -> u64 {
        let pages = self.segment_bytes / self.page_bytes;
        (pages * (self.page_bytes - SHORT_HEADER)).saturating_sub(LONG_HEADER - SHORT_HEADER).max(8)
    }

    /// The position of an LSN: bytes of records and padding before it.
    pub(crate) fn position(self, at: Lsn) -> u64 {
        let segment = at.0 / self.segment_bytes;
        let within = at.0 % self.segment_bytes;
        let page = within / self.page_bytes;
        let byte = within % self.page_bytes;
        let used = if page == 0 {
            byte.saturating_sub(LONG_HEADER)
        } else {
            let first = self.page_bytes - LONG_HEADER;
            let between = (page - 1) * (self.page_bytes - SHORT_HEADER);
            first + between + byte.saturating_sub(SHORT_HEADER)
        };
        segment * self.usable() + used
    }

    /// Returns the end of a record that was written up to this position.
    pub(crate) fn end(self, position: u64) -> Lsn {
        let segment = position / self.usable();
        let used = position % self.usable();
        let begin = segment * self.segment_bytes;
        let first = self.page_bytes - LONG_HEADER;
        let within = match used {
            0 => 0,
            used if used <= first => LONG_HEADER + used,
            used => {
                let pages = (used - first) / (self.page_bytes - SHORT_HEADER);
                let rest = (used - first) % (self.page_bytes - SHORT_HEADER);
                let header = if rest == 0 { 0 } else { SHORT_HEADER };
                (1 + pages) * self.page_bytes + header + rest
            }
        };
        Lsn(begin + within)
    }
}

/// How many segments after the redo point a checkpoint is asked for, less one (`CheckPointSegments`
/// of `CalculateCheckpointSegments`, since 11).
#[expect(clippy::cast_precision_loss, reason = "segments are few")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the server does")]
pub fn checkpoint_segments(max_wal_size: u64, segment_bytes: u64, completion_target: f64) -> u64 {
    let megabytes = segment_bytes >> 20;
    let segments = (max_wal_size >> 20) / megabytes.max(1);
    ((segments as f64 / (1.0 + completion_target.clamp(0.0, 1.0))) as u64).max(1)
}

/// The smallest `max_wal_size` that servers take (two segments at least) with this many segments from one checkpoint to the next.
pub fn max_wal_size_for(segments: u64, segment_bytes: u64, completion_target: f64) -> u64 {
    let megabyte = 1 << 20;
    let megabytes = (segment_bytes / megabyte).max(1);
    let enough =
        |size: u64| checkpoint_segments(size, segment_bytes, completion_target) >= segments;
    // It is between once and twice the distance: the rule's divisor is.
    let mut low = segments / 2 * megabytes;
    let mut high = segments.saturating_mul(2 * megabytes) + 2;
    while low < high {
        let middle = low.midpoint(high);
        if enough(middle.saturating_mul(megabyte)) { high = middle } else { low = middle + 1 }
    }
    high.max(2 * megabytes).saturating_mul(megabyte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENT: u64 = 16 << 20;

    #[test]
    fn segments_are_those_of_the_servers_rule() {
        for (size, target, expected) in [
            (1 << 30, 0.9, 33),
            (64 << 20, 0.9, 2),
            (1 << 30, 0.5, 42),
            (32 << 20, 0.9, 1),
            (20 << 30, 0.9, 673),
        ] {
            assert_eq!(checkpoint_segments(size, SEGMENT, target), expected, "{size} {target}");
        }
        assert_eq!(max_wal_size_for(33, SEGMENT, 0.9), 1008 << 20);
    }

    proptest! {
        #[test]
        fn positions_are_places_of_bytes(segment in 0_u64..9, used in 0_u64..(1 << 20)) {
            let geometry = Geometry { segment_bytes: 1 << 20, page_bytes: 8192 };
            let position = segment * geometry.usable() + used % geometry.usable();
            prop_assert_eq!(geometry.position(geometry.end(position)), position);
            prop_assert!(geometry.end(position) < geometry.end(position + 1));
        }

        #[test]
        fn the_smallest_size_is_the_smallest(segments in 1_u64..5000, target in 0.0_f64..1.0) {
            let size = max_wal_size_for(segments, SEGMENT, target);
            prop_assert!(checkpoint_segments(size, SEGMENT, target) >= segments);
            prop_assert!(size == 32 << 20 || checkpoint_segments(size - (1 << 20), SEGMENT, target) < segments);
        }
    }
}
