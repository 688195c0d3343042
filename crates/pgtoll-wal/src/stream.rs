//! WAL as a server sends it.

use std::collections::BTreeSet;
use std::fmt;

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Decoder, Parts, Record, WalError};

use crate::collect::Collect;
use crate::scan::WalSummary;

/// Takes WAL in pieces of any length, from a segment's begin on, on one thread.
#[derive(Debug)]
pub struct WalStream<C> {
    decoder: Option<Decoder>,
    /// Bytes that do not fill a page yet.
    rest: Vec<u8>,
    parts: Parts,
    new: New<C>,
    /// Since the last time that it was added to the others.
    latest: C,
    latest_bytes: u64,
    summary: WalSummary<C>,
    /// Records that begin here or later are not counted.
    until: Option<Lsn>,
}

/// Makes collectors.
struct New<C>(Box<dyn Fn() -> C>);

impl<C> fmt::Debug for New<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("New")
    }
}

/// A segment is distinguished from others by its first bytes, which have to come together.
const BEGIN: usize = 64;
/// How much is collected before it is added to the rest.
const APPENDED: u64 = 16 << 20;

impl<C: Collect> WalStream<C> {
    /// A stream of which nothing has come; `new` makes collectors. Records that begin at `until` or
    /// later are not counted.
    pub fn new(new: impl Fn() -> C + 'static, until: Option<Lsn>) -> Self {
        let summary = WalSummary {
            major: 0,
            system_identifier: 0,
            segment_bytes: 0,
            timelines: BTreeSet::new(),
            from: None,
            to: None,
            segments: 0,
            streamed: None,
            gaps: Vec::new(),
            collected: new(),
        };
        Self {
            decoder: None,
            rest: Vec::new(),
            parts: Parts::default(),
            latest: new(),
            new: New(Box::new(new)),
            latest_bytes: 0,
            summary,
            until,
        }
    }

    /// Takes the next bytes. After an error nothing more can be taken; what came before it is kept.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        self.rest.extend_from_slice(bytes);
        if self.decoder.is_none() {
            if self.rest.len() < BEGIN {
                return Ok(());
            }
            self.decoder = Some(self.begin()?);
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let page_bytes = decoder.segment().page_bytes as usize;
        let whole = self.rest.len() / page_bytes * page_bytes;
        let summary = &mut self.summary;
        let latest = &mut self.latest;
        let parts = &mut self.parts;
        let until = self.until;
        let fed = decoder.feed(&self.rest[..whole], &mut |record: &Record<'_>| {
            if until.is_some_and(|until| record.at >= until) {
                return Ok(());
            }
            record.parts(parts)?;
            latest.add(record, parts);
            summary.from = summary.from.or(Some(record.at));
            summary.to = Some(record.end);
            Ok(())
        });
        summary.timelines.insert(decoder.timeline());
        self.rest.drain(..whole);
        self.latest_bytes += whole as u64;
        if self.latest_bytes >= APPENDED {
            self.append();
        }
        fed
    }

    fn begin(&mut self) -> Result<Decoder, WalError> {
        let decoder = Decoder::new(&self.rest)?;
        let segment = decoder.segment();
        self.summary.major = decoder.facts().major;
        self.summary.system_identifier = segment.system_identifier;
        self.summary.segment_bytes = segment.segment_bytes;
        Ok(decoder)
    }

    fn append(&mut self) {
        let latest = std::mem::replace(&mut self.latest, (self.new.0)());
        self.summary.collected.append(latest);
        self.latest_bytes = 0;
    }

    /// Returns the summary so far, without a record that is incomplete.
    pub fn so_far(&mut self) -> &mut WalSummary<C> {
        self.append();
        &mut self.summary
    }

    /// Returns the summary, without a record that is incomplete.
    pub fn finish(mut self) -> WalSummary<C> {
        if let Some(decoder) = &self.decoder {
            // Of the last page only a part has come. Behind it no record is found, as at the end of
            // a server's own WAL.
            let filled = self.rest.len().next_multiple_of(decoder.segment().page_bytes as usize);
            let missing = filled - self.rest.len();
            let _its_end = self.feed(&vec![0; missing]);
        }
        self.append();
        if let (Some(decoder), Some(from)) = (&self.decoder, self.summary.from) {
            let segment_bytes = u64::from(decoder.segment().segment_bytes);
            let end = decoder.next_page().align_up(segment_bytes);
            let segments = (end - from.align_down(segment_bytes)) / segment_bytes;
            self.summary.segments = usize::try_from(segments).unwrap_or(usize::MAX);
        }
        self.summary
    }
}
