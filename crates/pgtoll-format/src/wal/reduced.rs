//! WAL of which only some records remain, at their places. All between them is taken by records that do
//! nothing, so that a server's redo gets from one to the next.

use std::io;

use crate::wal::page::{FIRST_IS_CONTINUATION, HAS_LONG_HEADER, LONG_HEADER, SHORT_HEADER};
use crate::wal::record::{CRC_AT, RECORD_HEADER};
use crate::wal::rmgr::{RM_XLOG_ID, XLOG_CHECKPOINT_SHUTDOWN, XLOG_NOOP};
use crate::{Crc32c, Lsn};

/// A record that remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// Its start.
    pub at: Lsn,
    /// Its end, which is the LSN of the pages that it changes.
    pub end: Lsn,
    /// All of it, with its header.
    pub bytes: Vec<u8>,
}

/// How the segments are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalLayout {
    /// `XLOG_PAGE_MAGIC`.
    pub magic: u16,
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// The timeline of all pages.
    pub timeline: u32,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// Takes bytes and their place in the WAL. What is never put is zeros.
pub type PutWal<'a> = &'a mut dyn FnMut(Lsn, &[u8]) -> io::Result<()>;

impl WalLayout {
    /// Returns the checkpoint record from which redo gets to the record that begins here:
    /// at the begin of that record's segment, or of the one before.
    pub fn start_before(&self, first: Lsn, checkpoint_bytes: usize) -> Lsn {
        let segment = first.0 / self.segment_bytes;
        let at = |segment: u64| Lsn(segment * self.segment_bytes + LONG_HEADER as u64);
        let room = self.usable(first).checked_sub(self.usable(at(segment)));
        let left =
            room.and_then(|room| room.checked_sub(checkpoint_record_bytes(checkpoint_bytes)));
        let fits = left.is_some_and(|left| left == 0 || left >= RECORD_HEADER as u64);
        at(if fits { segment } else { segment.saturating_sub(1) })
    }

    /// Writes WAL from the checkpoint of a shutdown at `start`, with this data, on to the last of these
    /// records, which are in their order.
    pub fn write(
        &self,
        start: Lsn,
        checkpoint: &[u8],
        records: &[KeptRecord],
        put: PutWal<'_>,
    ) -> io::Result<()> {
        let mut writer = Writer {
            layout: *self,
            // The header of the segment's first page is written with the record.
            at: Lsn(start.0 - start.0 % self.segment_bytes),
            previous: Lsn::INVALID,
            put,
            zeros: vec![0; FILLER_BYTES_MAX],
        };
        writer.checkpoint(checkpoint)?;
        for record in records {
            writer.fill_up_to(record.at)?;
            writer.keep(record)?;
        }
        Ok(())
    }

    /// How many bytes of records fit before this place.
    fn usable(&self, lsn: Lsn) -> u64 {
        let long = LONG_HEADER as u64;
        let short = SHORT_HEADER as u64;
        let pages = self.segment_bytes / self.page_bytes;
        let of_segment = self.segment_bytes - long - (pages - 1) * short;
        let segment = lsn.0 / self.segment_bytes;
        let within = lsn.0 % self.segment_bytes;
        let page = within / self.page_bytes;
        let at = within % self.page_bytes;
        let in_segment = if page == 0 {
            at.saturating_sub(long)
        } else {
            self.page_bytes - long
                + (page - 1) * (self.page_bytes - short)
                + at.saturating_sub(short)
        };
        segment * of_segment + in_segment
    }
}

/// Bytes that a checkpoint's record takes.
fn checkpoint_record_bytes(checkpoint_bytes: usize) -> u64 {
    (RECORD_HEADER + SHORT_DATA_HEADER + checkpoint_bytes).next_multiple_of(ALIGNMENT) as u64
}

struct Writer<'a> {
    layout: WalLayout,
    at: Lsn,
    /// The start of the record before.
    previous: Lsn,
    put: PutWal<'a>,
    zeros: Vec<u8>,
}

impl Writer<'_> {
    fn checkpoint(&mut self, data: &[u8]) -> io::Result<()> {
        let body = [&[ID_DATA_SHORT, u8::try_from(data.len()).unwrap_or(u8::MAX)], data].concat();
        let info = XLOG_CHECKPOINT_SHUTDOWN.info;
        let total = RECORD_HEADER + body.len();
        self.record(&header(total, 0, info, RM_XLOG_ID), &body, total)
    }

    /// Records that do nothing, until the next one begins here.
    fn fill_up_to(&mut self, at: Lsn) -> io::Result<()> {
        let here = self.layout.usable(self.at);
        let there = self.layout.usable(at);
        let too_near = || io::Error::new(io::ErrorKind::InvalidData, "records overlap");
        let mut left = there.checked_sub(here).ok_or_else(too_near)?;
        while left > 0 {
            let mut total = left.min(FILLER_BYTES_MAX as u64);
            let least = RECORD_HEADER as u64;
            if left > total && left - total < least {
                total = left - least;
            }
            if total < least {
                return Err(too_near());
            }
            self.filler(usize::try_from(total).unwrap_or(FILLER_BYTES_MAX))?;
            left -= total;
        }
        Ok(())
    }

    fn filler(&mut self, total: usize) -> io::Result<()> {
        let body = match total - RECORD_HEADER {
            0 => Vec::new(),
            bytes => {
                if let Ok(data) = u8::try_from(bytes - SHORT_DATA_HEADER) {
                    vec![ID_DATA_SHORT, data]
                } else {
                    let data = u32::try_from(bytes - LONG_DATA_HEADER).unwrap_or(u32::MAX);
                    [&[ID_DATA_LONG][..], &data.to_le_bytes()].concat()
                }
            }
        };
        self.record(&header(total, 0, XLOG_NOOP.info, RM_XLOG_ID), &body, total)
    }

    fn keep(&mut self, record: &KeptRecord) -> io::Result<()> {
        let Some((header, body)) = record.bytes.split_first_chunk::<RECORD_HEADER>() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record without its header"));
        };
        self.record(header, body, record.bytes.len())
    }

    /// Writes a record with another one before it; behind its body follow zeros up to `total` bytes.
    fn record(
        &mut self,
        header: &[u8; RECORD_HEADER],
        body: &[u8],
        total: usize,
    ) -> io::Result<()> {
        let mut header = *header;
        header[PREVIOUS].copy_from_slice(&self.previous.0.to_le_bytes());
        let mut crc = Crc32c::default();
        crc.update(body);
        crc.update(&self.zeros[..(total - RECORD_HEADER).saturating_sub(body.len())]);
        crc.update(&header[..CRC_AT]);
        header[CRC_AT..].copy_from_slice(&crc.sum().to_le_bytes());
        let bytes = [&header, body].concat();
        self.lay_out(&bytes, total)
    }

    /// Puts a record on as many pages as it takes.
    fn lay_out(&mut self, bytes: &[u8], total: usize) -> io::Result<()> {
        let mut done = 0;
        while done < total {
            if self.at.is_aligned(self.layout.page_bytes) {
                self.page_header(if done > 0 { total - done } else { 0 })?;
            }
            if done == 0 {
                self.previous = self.at;
            }
            let room = self.layout.page_bytes - self.at.0 % self.layout.page_bytes;
            let count = usize::try_from(room).unwrap_or(usize::MAX).min(total - done);
            let here = bytes.len().min(done)..bytes.len().min(done + count);
            if !here.is_empty() {
                (self.put)(self.at, &bytes[here])?;
            }
            self.at = Lsn(self.at.0 + count as u64);
            done += count;
        }
        self.at = Lsn(self.at.0.next_multiple_of(ALIGNMENT as u64));
        Ok(())
    }

    fn page_header(&mut self, remaining: usize) -> io::Result<()> {
        let WalLayout { magic, system_identifier, timeline, segment_bytes, page_bytes } =
            self.layout;
        let is_long = self.at.is_aligned(segment_bytes);
        let continues = if remaining > 0 { FIRST_IS_CONTINUATION } else { 0 };
        let flags = continues | if is_long { HAS_LONG_HEADER } else { 0 };
        let word = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        let mut header = Vec::with_capacity(LONG_HEADER);
        header.extend(magic.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header.extend(timeline.to_le_bytes());
        header.extend(self.at.0.to_le_bytes());
        header.extend(word(remaining as u64));
        header.extend([0; 4]);
        if is_long {
            header.extend(system_identifier.to_le_bytes());
            header.extend(word(segment_bytes));
            header.extend(word(page_bytes));
        }
        (self.put)(self.at, &header)?;
        self.at = Lsn(self.at.0 + header.len() as u64);
        Ok(())
    }
}

/// A header without CRC and without the record before.
fn header(total: usize, xid: u32, info: u8, manager: u8) -> [u8; RECORD_HEADER] {
    let mut header = [0; RECORD_HEADER];
    header[..4].copy_from_slice(&u32::try_from(total).unwrap_or(u32::MAX).to_le_bytes());
    header[4..8].copy_from_slice(&xid.to_le_bytes());
    (header[16], header[17]) = (info, manager);
    header
}

/// The range of the previous record's address in a record's header.
const PREVIOUS: std::ops::Range<usize> = 8..16;
/// Records begin at multiples of this (`MAXALIGN`).
const ALIGNMENT: usize = 8;
const ID_DATA_SHORT: u8 = 255;
const ID_DATA_LONG: u8 = 254;
const SHORT_DATA_HEADER: usize = 2;
const LONG_DATA_HEADER: usize = 5;
/// A server takes memory for a whole record.
const FILLER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::MAJORS;
    use crate::wal::{Decoder, Parts};

    const SEGMENT: u64 = 1 << 20;

    fn layout() -> WalLayout {
        let magic = MAJORS[0].wal.magic;
        let system_identifier = 42;
        let timeline = 3;
        WalLayout { magic, system_identifier, timeline, segment_bytes: SEGMENT, page_bytes: 8192 }
    }

    /// A record of main data, with a CRC and a record before that are wrong.
    fn record(layout: &WalLayout, at: Lsn, data: usize) -> KeptRecord {
        let length = u32::try_from(data).unwrap().to_le_bytes();
        let total = RECORD_HEADER + LONG_DATA_HEADER + data;
        let head = header(total, 77, 0x10, 9);
        let bytes = [&head[..], &[ID_DATA_LONG], &length, &vec![5; data]].concat();
        let mut writer = Writer {
            layout: *layout,
            at,
            previous: at,
            put: &mut |_, _| Ok(()),
            zeros: Vec::new(),
        };
        writer.lay_out(&bytes, total).unwrap();
        KeptRecord { at, end: writer.at, bytes }
    }

    /// Where a record may begin, at or behind this place.
    fn begin(layout: &WalLayout, at: u64) -> Lsn {
        let at = at.next_multiple_of(8);
        let header = if at.is_multiple_of(layout.segment_bytes) { 40 } else { 24 };
        let within = at % layout.page_bytes;
        let least = if at % layout.segment_bytes < 40 { 40 } else { header };
        Lsn(if within < least { at - within + least } else { at })
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_again_at_its_place(
            first in 2 * SEGMENT..4 * SEGMENT,
            steps in proptest::collection::vec((0..3 * SEGMENT, 0..20_000_usize), 1..8),
        ) {
            let layout = layout();
            let mut records: Vec<KeptRecord> = Vec::new();
            for (step, data) in steps {
                let behind = records.last().map_or(first, |last| last.end.0);
                // Nothing shorter than a header fits between two records.
                let step = if step < 64 { 0 } else { step };
                records.push(record(&layout, begin(&layout, behind + step), data));
            }
            let start = layout.start_before(records[0].at, 88);
            let mut bytes = BTreeMap::<u64, Vec<u8>>::new();
            layout.write(start, &[1; 88], &records, &mut |at, part| {
                let segment = bytes.entry(at.0 / SEGMENT).or_insert_with(|| {
                    vec![0; usize::try_from(SEGMENT).unwrap()]
                });
                let at = usize::try_from(at.0 % SEGMENT).unwrap();
                segment[at..at + part.len()].copy_from_slice(part);
                Ok(())
            }).unwrap();
            let whole: Vec<u8> = bytes.values().flatten().copied().collect();
            let mut decoder = Decoder::new(&whole).unwrap();
            let mut found = Vec::new();
            let mut parts = Parts::default();
            let _ = decoder.feed(&whole, &mut |record| {
                record.parts(&mut parts)?;
                found.push((record.at, record.end, record.header, record.bytes.len()));
                Ok(())
            });
            prop_assert_eq!(found[0].0, start);
            let kept = found.iter().filter(|(_, _, header, _)| header.manager == 9);
            let kept: Vec<_> = kept.map(|(at, end, _, bytes)| (*at, *end, *bytes)).collect();
            let expected: Vec<_> =
                records.iter().map(|record| (record.at, record.end, record.bytes.len())).collect();
            prop_assert_eq!(kept, expected);
            prop_assert!(found.windows(2).all(|two| two[1].2.previous == two[0].0));
        }
    }
}
