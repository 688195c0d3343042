//! Records that lead out of a data directory, and how replay passes over them.

use std::ops::Range;

use crate::bytes::u32_at;
use crate::wal::page::{LONG_HEADER, SHORT_HEADER};
use crate::wal::record::{CRC_AT, RECORD_HEADER};
use crate::wal::rmgr::{XLOG_NOOP, XLOG_TBLSPC_CREATE, XLR_RMGR_INFO_MASK};
use crate::wal::{Parts, Record, RecordType};
use crate::{Crc32c, Lsn};

impl Record<'_> {
    /// The tablespace that it makes: its OID and its directory, which replay links and empties. `None`
    /// of all other records. Source: `xl_tblspc_create_rec`.
    pub fn made_tablespace(&self, parts: &Parts) -> Option<(u32, &[u8])> {
        if RecordType::from_header(&self.header) != XLOG_TBLSPC_CREATE {
            return None;
        }
        let data = self.bytes.get(parts.main_data.clone())?;
        let path = data.get(4..)?;
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        Some((u32_at(data, 0)?, &path[..end]))
    }

    /// The header with which it is `XLOG/NOOP`: replay does nothing, and continues after it.
    pub fn neutral_header(&self) -> [u8; RECORD_HEADER] {
        let mut header = [0; RECORD_HEADER];
        header.copy_from_slice(&self.bytes[..RECORD_HEADER]);
        header[INFO_AT] = XLOG_NOOP.info | (header[INFO_AT] & !XLR_RMGR_INFO_MASK);
        header[MANAGER_AT] = XLOG_NOOP.manager;
        let mut crc = Crc32c::default();
        crc.update(&self.bytes[RECORD_HEADER..]);
        crc.update(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.sum().to_le_bytes());
        header
    }
}

/// The offset of `xl_info` and `xl_rmid` in a record's header.
const INFO_AT: usize = 16;
const MANAGER_AT: usize = 17;

/// Returns the places in the WAL of the next bytes of a record from this place on: pages have headers in between.
pub fn record_places(
    at: Lsn,
    bytes: usize,
    page_bytes: u64,
    segment_bytes: u64,
) -> Vec<(Lsn, Range<usize>)> {
    let mut places = Vec::new();
    let mut place = at;
    let mut done = 0;
    while done < bytes {
        if place.is_aligned(page_bytes) {
            let is_first = place.is_aligned(segment_bytes);
            let header = if is_first { LONG_HEADER } else { SHORT_HEADER };
            place = place.saturating_add(header as u64);
        }
        let left_of_page = page_bytes - place.0 % page_bytes;
        let left = usize::try_from(left_of_page).unwrap_or(usize::MAX).min(bytes - done);
        places.push((place, done..done + left));
        place = place.saturating_add(left as u64);
        done += left;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_record_pass_over_page_headers() {
        let check = |at: u64, bytes, expected: &[(u64, Range<usize>)]| {
            let places = record_places(Lsn(at), bytes, 8192, 1 << 24);
            let places: Vec<(u64, Range<usize>)> =
                places.into_iter().map(|(at, range)| (at.0, range)).collect();
            assert_eq!(places, expected);
        };
        check(0x0100_0028, 24, &[(0x0100_0028, 0..24)]);
        check(0x0100_1FF8, 24, &[(0x0100_1FF8, 0..8), (0x0100_2018, 8..24)]);
        check(0x01FF_FFF0, 24, &[(0x01FF_FFF0, 0..16), (0x0200_0028, 16..24)]);
        check(0x0100_2000, 8, &[(0x0100_2018, 0..8)]);
    }
}
