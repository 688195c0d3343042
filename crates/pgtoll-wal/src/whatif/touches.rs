//! A segment's records as the model wants them: what they refer to, and how long they are without
//! images that depend on checkpoints.

use pgtoll_format::wal::rmgr::{
    RM_XACT_ID, RM_XLOG_ID, XLOG_FPI_FOR_HINT, XLOG_HEAP2_PRUNE_ON_ACCESS, XLOG_HEAP2_VISIBLE,
    XLOG_RUNNING_XACTS, XLOG_SWITCH,
};
use pgtoll_format::wal::{BlockReference, Event, Parts, Record, RecordType};
use pgtoll_format::{Lsn, RelationFork};
use pgtoll_model::{FREEZE_WITHIN, ImageLengths, Rule};
use pgtoll_record::ImageCause;
use rustc_hash::FxHashMap;

use crate::statistics::cause_of;
use crate::whatif::data::{self, Data};
use crate::whatif::images::Images;

/// The references in a segment's records.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    /// The start of its first record.
    pub(crate) from: Option<Lsn>,
    /// The end of its last one.
    pub(crate) to: Option<Lsn>,
    pub(crate) records: Vec<Touched>,
    pub(crate) references: Vec<Touch>,
    pub(crate) images: Vec<ImageLengths>,
    pub(crate) happened: Vec<Happened>,
    pub(crate) forks: Vec<RelationFork>,
    /// By fork: rows of its images, and their bytes.
    rows: Vec<(u64, u64)>,
    pub(crate) means: Means,
    /// Records for hints, whether or not they have an image.
    pub(crate) hints: u64,
    /// Places in `references` of pages that were frozen so near to the begin that a hint in the
    /// segment before may be the reason.
    early_freezes: Vec<usize>,
    places: FxHashMap<RelationFork, u32>,
    recent: (RelationFork, u32),
    /// The last record that has the running transactions: a checkpoint writes one.
    snapshot: Option<usize>,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// Its start, from [`Touches::from`] on.
    pub(crate) at: u32,
    /// Without images, with data where they are known.
    pub(crate) bytes: u32,
    pub(crate) references: u8,
    /// Something happened here: the next of [`Touches::happened`].
    pub(crate) happens: bool,
    /// Place in [`Means`] of its first block.
    pub(crate) class: u16,
}

/// An event at a record's place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happened {
    /// A transaction ended then, in microseconds since 1970.
    Time(i64),
    /// A checkpoint begins here.
    RedoPoint,
    /// A checkpoint was completed that began there and then.
    Checkpoint { redo: Lsn, is_shutdown: bool, time_s: i64 },
    /// The rest of the segment is left.
    Switch,
}

/// A reference to a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// Place in [`Touches::forks`].
    pub(crate) fork: u32,
    pub(crate) block: u32,
    /// Counted from 1 in [`Touches::images`]; 0: none.
    pub(crate) image: u32,
    /// [`UNKNOWN`]: as many as others of its class have.
    pub(crate) data_bytes: u16,
    pub(crate) grows_by: i16,
    pub(crate) rule: Rule,
    pub(crate) id: u8,
    /// Bytes, part of the record's, by which the page was frozen right after this hint.
    pub(crate) freeze_bytes: u16,
    /// Bytes of dead rows that it frees on the page.
    pub(crate) pruned_bytes: u16,
}

/// Its data were left out, and nothing tells how many they were.
pub(crate) const UNKNOWN: u16 = u16::MAX;

/// How many data references have, by kind of record and block.
#[derive(Clone, Debug)]
pub(crate) struct Means(Vec<(u64, u64)>);

/// Blocks of a record that are distinguished.
const BLOCKS: usize = 4;
/// Resource managers that are; extensions' share the last.
const MANAGERS: usize = 32;
/// The approximate bytes of a record about the rows that it freezes: a plan, and two bytes a row of
/// sixty. With the page's image it is left out.
const FREEZE_PLANS_BYTES: u16 = 136;

impl Default for Means {
    fn default() -> Self {
        Self(vec![(0, 0); MANAGERS * 16 * BLOCKS])
    }
}

impl Means {
    fn class(kind: RecordType) -> u16 {
        let manager = kind.manager.min(31);
        (u16::from(manager) * 16 + u16::from(kind.info >> 4)) * 4
    }

    fn place(class: u16, id: u8) -> usize {
        usize::from(class) + usize::from(id).min(BLOCKS - 1)
    }

    #[inline]
    fn add(&mut self, class: u16, id: u8, data_bytes: u16) {
        let item = &mut self.0[Self::place(class, id)];
        item.0 += 1;
        item.1 += u64::from(data_bytes);
    }

    pub(crate) fn append(&mut self, later: &Self) {
        for (own, later) in self.0.iter_mut().zip(&later.0) {
            own.0 += later.0;
            own.1 += later.1;
        }
    }

    /// The mean; nothing where there is none.
    pub(crate) fn mean(&self, class: u16, id: u8) -> u16 {
        let (count, sum) = self.0[Self::place(class, id)];
        u16::try_from((sum + count / 2).checked_div(count).unwrap_or(0)).unwrap_or(UNKNOWN - 1)
    }
}

impl Touches {
    pub(crate) fn add(&mut self, record: &Record<'_>, parts: &Parts, images: &mut Images) {
        let from = *self.from.get_or_insert(record.at);
        self.to = Some(record.end);
        let kind = RecordType::from_header(&record.header);
        let may_happen = matches!(record.header.manager, RM_XLOG_ID | RM_XACT_ID);
        let happened = if may_happen { Self::happened(record, parts, kind) } else { None };
        if let Some(happened) = happened {
            self.happened.push(happened);
        }
        let is_own = matches!(happened, Some(Happened::RedoPoint | Happened::Checkpoint { .. }));
        if is_own {
            // What every checkpoint writes is counted for each of the settings by itself.
            let snapshot = self.snapshot.take().and_then(|place| self.records.get_mut(place));
            if let (Some(snapshot), Some(Happened::Checkpoint { .. })) = (snapshot, happened) {
                snapshot.bytes = 0;
            }
        }
        if kind == XLOG_RUNNING_XACTS {
            self.snapshot = Some(self.records.len());
        }
        let class = Means::class(kind);
        let mut bytes = if is_own { 0 } else { record.header.total_bytes };
        let freeze_bytes = self.add_freeze(record, parts);
        bytes = bytes.saturating_sub(freeze_bytes);
        if freeze_bytes > 0 && bytes == 0 {
            return;
        }
        let first = self.references.len();
        for block in &parts.blocks {
            bytes = self.refer(record, parts, kind, class, block, bytes, images);
        }
        if freeze_bytes > 0 {
            // What is left of it sets bits of the visibility map.
            let page = &mut self.references[first];
            (page.rule, page.data_bytes) = (Rule::WithHints, 0);
        }
        self.records.push(Touched {
            at: u32::try_from(record.at.0 - from.0).unwrap_or(u32::MAX),
            bytes,
            references: u8::try_from(parts.blocks.len()).unwrap_or(u8::MAX),
            happens: happened.is_some(),
            class,
        });
    }

    fn happened(record: &Record<'_>, parts: &Parts, kind: RecordType) -> Option<Happened> {
        if kind == XLOG_SWITCH {
            return Some(Happened::Switch);
        }
        record.event(parts).map(|event| match event {
            Event::TransactionEnd { time_us } => Happened::Time(time_us),
            Event::RedoPoint => Happened::RedoPoint,
            Event::Checkpoint { redo, is_shutdown, time_s } => {
                Happened::Checkpoint { redo, is_shutdown, time_s }
            }
        })
    }

    /// Adds a reference; the record's bytes without its image, and with its data.
    #[expect(clippy::too_many_arguments, reason = "a loop's body, apart to be read")]
    #[inline]
    fn refer(
        &mut self,
        record: &Record<'_>,
        parts: &Parts,
        kind: RecordType,
        class: u16,
        block: &BlockReference,
        mut bytes: u32,
        images: &mut Images,
    ) -> u32 {
        let fork = RelationFork { relation: block.relation, number: block.fork };
        let fork = self.fork(fork);
        let mut rule = match kind {
            XLOG_FPI_FOR_HINT => Rule::Hint,
            // Until 18. Its second block is the table's page, of which nothing but a hint changes.
            XLOG_HEAP2_VISIBLE if block.id == 1 => Rule::WithHints,
            // Since 19.
            _ if block.id == 0 && record.sets_visibility_alone(parts) => match kind {
                XLOG_HEAP2_PRUNE_ON_ACCESS => Rule::MarkedByReader,
                _ => Rule::WithHints,
            },
            _ if block.will_init => Rule::Init,
            _ => Rule::Regular,
        };
        self.hints += u64::from(rule == Rule::Hint);
        let length = u16::try_from(block.data.len()).unwrap_or(UNKNOWN - 1);
        let mut place = 0;
        let mut data_bytes = length;
        let mut freeze_bytes = 0;
        let mut pruned_bytes = 0;
        let prunes = block.id == 0 && record.prunes(parts);
        if let Some(image) = &block.image {
            let cause = cause_of(kind, block.id, image.applies);
            if block.will_init || matches!(cause, ImageCause::Forced | ImageCause::Check) {
                rule = Rule::Always;
            }
            let header: u32 =
                if image.compression.is_some() && image.hole_bytes > 0 { 7 } else { 5 };
            bytes = bytes.saturating_sub(u32::try_from(image.range.len()).unwrap_or(0) + header);
            if block.id == 0 && rule == Rule::Regular && record.freezes_beside_visibility(parts) {
                (rule, freeze_bytes) = (Rule::WithHints, FREEZE_PLANS_BYTES);
            }
            let missing = block.data.is_empty() && rule == Rule::Regular;
            let (lengths, data, rows) = images.cost(record, parts, block, missing);
            if let Some(page) = rows {
                let all = &mut self.rows[fork as usize];
                *all = (all.0 + u64::from(page.rows), all.1 + u64::from(page.bytes));
                if prunes {
                    let gone = page.pruned(record, parts);
                    pruned_bytes = self
                        .row_bytes(fork, gone)
                        .map_or(image.hole_bytes, |bytes| bytes.min(image.hole_bytes));
                }
            }
            self.images.push(lengths);
            place = u32::try_from(self.images.len()).unwrap_or(0);
            data_bytes = match data {
                _ if !missing => 0,
                Data::Known(known) => known,
                Data::Unknown => UNKNOWN,
            };
            if data_bytes != UNKNOWN {
                bytes += u32::from(data_bytes);
            }
        } else if length > 0 && data::is_kept(record, parts, kind) {
            data_bytes = 0;
        } else {
            self.means.add(class, block.id, length);
        }
        let grows_by = if prunes && block.image.is_none() {
            let rows = record.pruned_rows(parts).unwrap_or(0);
            pruned_bytes = self.row_bytes(fork, rows).unwrap_or(0);
            i16::try_from(pruned_bytes).map_or(i16::MIN, |bytes| -bytes)
        } else if block.image.is_some() || length == 0 {
            0
        } else {
            data::growth(record, parts, kind, block)
        };
        let id = block.id;
        let block = block.block;
        let image = place;
        let touch = Touch {
            fork,
            block,
            image,
            data_bytes,
            grows_by,
            rule,
            id,
            freeze_bytes,
            pruned_bytes,
        };
        self.references.push(touch);
        bytes
    }

    /// If the record freezes rows of a page right after a hint's image of it, these bytes go to
    /// the hint's record; how many they are.
    fn add_freeze(&mut self, record: &Record<'_>, parts: &Parts) -> u32 {
        let Some((freeze, page)) = record.freeze_bytes(parts).zip(parts.blocks.first()) else {
            return 0;
        };
        // With an image of its own, the page was not logged right before.
        if page.image.is_some() {
            return 0;
        }
        let fork = self.fork(RelationFork { relation: page.relation, number: page.fork });
        let mut end = self.references.len();
        for before in self.records.iter_mut().rev().take(FREEZE_WITHIN) {
            let begin = end - usize::from(before.references);
            let references = &mut self.references[begin..end];
            let last = references
                .iter_mut()
                .find(|reference| (reference.fork, reference.block) == (fork, page.block));
            end = begin;
            let Some(last) = last else { continue };
            if last.rule != Rule::Hint || last.image == 0 || last.freeze_bytes > 0 {
                return 0;
            }
            // With their padding: what is left of a record is padded by itself.
            let total = record.header.total_bytes;
            let left = total.saturating_sub(freeze).next_multiple_of(8);
            let padded = total.next_multiple_of(8) - left;
            last.freeze_bytes = u16::try_from(padded).unwrap_or(u16::MAX);
            before.bytes += padded;
            return freeze;
        }
        if self.records.len() < FREEZE_WITHIN {
            self.early_freezes.push(self.references.len());
        }
        0
    }

    /// Bytes of this number of a fork's rows, by the rows on its images; `None` before the first.
    fn row_bytes(&self, fork: u32, rows: u16) -> Option<u16> {
        let (all, bytes) = self.rows[fork as usize];
        let bytes = (bytes * u64::from(rows)).checked_div(all)?;
        Some(u16::try_from(bytes).unwrap_or(u16::MAX))
    }

    /// Pages of its last records that were logged for a hint.
    pub(crate) fn late_hints(&self) -> Vec<(RelationFork, u32)> {
        let records = self.records.iter().rev().take(FREEZE_WITHIN);
        let references = records.map(|record| usize::from(record.references)).sum();
        let late = self.references.iter().rev().take(references);
        let hints = late.filter(|late| late.rule == Rule::Hint && late.image > 0);
        hints.map(|hint| (self.forks[hint.fork as usize], hint.block)).collect()
    }

    /// Pages that were frozen right after these hints, in the segment before, need no image where
    /// hints are not logged.
    pub(crate) fn freeze_after(&mut self, hints: &[(RelationFork, u32)]) {
        for place in std::mem::take(&mut self.early_freezes) {
            let page = &mut self.references[place];
            if hints.contains(&(self.forks[page.fork as usize], page.block)) {
                page.rule = Rule::WithHints;
            }
        }
    }

    #[inline]
    fn fork(&mut self, fork: RelationFork) -> u32 {
        if self.recent.0 == fork && !self.forks.is_empty() {
            return self.recent.1;
        }
        let new = u32::try_from(self.forks.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(fork).or_insert(new);
        if place == new {
            self.forks.push(fork);
            self.rows.push((0, 0));
        }
        self.recent = (fork, place);
        place
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<Touched>()
            + self.references.capacity() * size_of::<Touch>()
            + self.images.capacity() * size_of::<ImageLengths>()
            + self.happened.capacity() * size_of::<Happened>()
    }
}
