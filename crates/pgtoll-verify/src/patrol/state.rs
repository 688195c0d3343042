//! A patrol's state: its place, its times, its findings.

use std::time::Duration;

use jiff::Timestamp;
use pgtoll_record::{
    FindingClass, PATROL_SCHEMA, PatrolAmount, PatrolBlock, PatrolBudget, PatrolFinding,
    PatrolMark, PatrolRecord, PatrolRound, PatrolSource,
};

use super::patrolled::{PatrolListing, PatrolPiece, PieceResult};
use super::timing::{PatrolSettings, elapsed, time_of};

/// The state of a patrol, and its rules.
#[derive(Debug)]
pub(super) struct PatrolState {
    record: PatrolRecord,
}

/// Whether a block's file is in the list of files.
type IsListed<'a> = &'a dyn Fn(&PatrolBlock) -> bool;

impl PatrolState {
    /// A patrol that begins.
    pub(super) fn new(source: PatrolSource, now: Timestamp) -> Self {
        let record = PatrolRecord {
            schema: PATROL_SCHEMA.to_owned(),
            pgtoll: String::new(),
            command: Vec::new(),
            made: now,
            began: now,
            source,
            budget: PatrolBudget { rate_bytes: 0, within_seconds: 0, round_seconds: 0 },
            read: PatrolAmount::default(),
            round: new_round(1, now),
            last_round: None,
            oldest_read: now,
            failures: 0,
            suspicions: 0,
            unverified: 0,
            findings: Vec::new(),
            unlisted: Vec::new(),
            notes: Vec::new(),
        };
        Self { record }
    }

    /// A patrol that continues.
    pub(super) fn from_record(record: PatrolRecord) -> Self {
        Self { record }
    }

    /// Sets the requested settings.
    pub(super) fn set(&mut self, settings: &PatrolSettings) {
        let record = &mut self.record;
        record.pgtoll.clone_from(&settings.version);
        record.command.clone_from(&settings.command);
        record.budget.rate_bytes = settings.rate;
        record.budget.within_seconds = settings.within.as_secs();
    }

    pub(super) fn into_record(self) -> PatrolRecord {
        self.record
    }

    /// The state as it is to be written now.
    pub(super) fn record(&mut self, now: Timestamp) -> &PatrolRecord {
        self.record.made = now;
        &self.record
    }

    /// Returns the next block of the round.
    pub(super) fn next(&self) -> PatrolBlock {
        self.record.round.next.unwrap_or_default()
    }

    /// Whether nothing of the round was read yet.
    pub(super) fn is_at_begin(&self) -> bool {
        self.record.round.next.is_none()
    }

    /// Takes up the round: from here on blocks are read later than now.
    pub(super) fn begin_run(&mut self, now: Timestamp) {
        let next = self.next();
        self.record.round.marks.push(PatrolMark { block: next, time: now });
    }

    pub(super) fn set_listing(&mut self, listing: PatrolListing) {
        let record = &mut self.record;
        (record.source, record.unlisted) = (listing.source, listing.unlisted);
        record.notes = listing.notes;
        let round = time_of(record.source.bytes, record.budget.rate_bytes);
        record.budget.round_seconds = round.as_secs();
    }

    /// Takes what came out of the round's next piece.
    pub(super) fn add_piece(
        &mut self,
        piece: &PatrolPiece,
        result: PieceResult,
        now: Timestamp,
        is_listed: IsListed<'_>,
    ) {
        let read = result.read;
        add(&mut self.record.round.read, read);
        let left_out = self.add_second_look(piece, result, now, is_listed);
        let round = &mut self.record.round;
        round.left_out = round.left_out.saturating_add(left_out);
        match piece.to {
            None => self.end_round(now),
            Some(to) => self.go_on_from(to, now),
        }
    }

    /// Takes what came out of blocks that were read out of turn. Blocks with something wrong that there
    /// was no room for come back.
    pub(super) fn add_second_look(
        &mut self,
        piece: &PatrolPiece,
        PieceResult { read, findings }: PieceResult,
        now: Timestamp,
        is_listed: IsListed<'_>,
    ) -> u64 {
        add(&mut self.record.read, read);
        let is_whole = self.record.unlisted.is_empty();
        let is_settled = |finding: &PatrolFinding| {
            piece.has(&finding.at) && (is_whole || is_listed(&finding.at))
        };
        let all = std::mem::take(&mut self.record.findings);
        let (before, mut kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_settled);
        let mut found = joined(findings);
        for finding in &mut found {
            let same = before.iter().chain(&kept).filter(|old| is_same(old, finding));
            let first = same.map(|old| old.found).min().unwrap_or(now);
            (finding.found, finding.seen) = (first.min(now), now);
        }
        let room = FINDINGS_MAX.saturating_sub(kept.len()).min(found.len());
        let left_out = found.drain(room..).map(|joined| u64::from(joined.page.blocks)).sum();
        kept.extend(found);
        kept.sort_by_key(|kept| kept.at);
        self.record.findings = kept;
        self.count();
        left_out
    }

    pub(super) fn end_round(&mut self, now: Timestamp) {
        let next = new_round(self.record.round.number.saturating_add(1), now);
        let mut ended = std::mem::replace(&mut self.record.round, next);
        (ended.ended, ended.next) = (Some(now), None);
        self.record.last_round = Some(ended);
        self.set_oldest();
    }

    /// Pieces with findings that were seen last before this, those first that wait longest.
    pub(super) fn seen_before(&self, time: Timestamp, most: usize) -> Vec<PatrolPiece> {
        let mut waiting: Vec<&PatrolFinding> =
            self.record.findings.iter().filter(|finding| finding.seen <= time).collect();
        waiting.sort_by_key(|waiting| waiting.seen);
        let file_blocks = u64::from(self.record.source.file_blocks.max(1));
        let piece = |finding: &&PatrolFinding| {
            let block = finding.at.block.saturating_add(u64::from(finding.page.blocks.max(1)));
            let more = u32::try_from(block / file_blocks).unwrap_or(u32::MAX);
            let segment = finding.at.segment.saturating_add(more);
            let to = PatrolBlock { segment, block: block % file_blocks, ..finding.at };
            PatrolPiece { from: finding.at, to: Some(to) }
        };
        waiting.iter().take(most).map(piece).collect()
    }

    fn go_on_from(&mut self, next: PatrolBlock, now: Timestamp) {
        let within = Duration::from_secs(self.record.budget.within_seconds);
        let round = &mut self.record.round;
        round.next = Some(next);
        let is_due = |last: &PatrolMark| elapsed(last.time, now) >= within / MARKS;
        if round.marks.last().is_none_or(is_due) {
            round.marks.push(PatrolMark { block: next, time: now });
        }
        if round.marks.len() > MARKS_MAX {
            // Every second one: what lies between two marks counts as read at the first of them.
            let mut number = 0;
            round.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.set_oldest();
    }

    /// Blocks wait longest where the round continues: those before were read in this round, those behind
    /// after it in the round before.
    fn set_oldest(&mut self) {
        let next = self.next();
        let last_round = self.record.last_round.as_ref();
        let passed = last_round
            .and_then(|last_round| last_round.marks.iter().rfind(|mark| mark.block <= next));
        self.record.oldest_read = passed.map_or(self.record.began, |mark| mark.time);
    }

    fn count(&mut self) {
        let blocks = |class: FindingClass| -> u64 {
            let of_class =
                self.record.findings.iter().filter(|finding| finding.page.class == class);
            of_class.map(|item| u64::from(item.page.blocks)).sum()
        };
        let failures = blocks(FindingClass::Failure);
        let suspicions = blocks(FindingClass::Suspicion);
        self.record.unverified = blocks(FindingClass::Unverified);
        (self.record.failures, self.record.suspicions) = (failures, suspicions);
    }
}

fn new_round(number: u64, now: Timestamp) -> PatrolRound {
    PatrolRound {
        number,
        began: now,
        ended: None,
        read: PatrolAmount::default(),
        left_out: 0,
        next: None,
        marks: vec![PatrolMark { block: PatrolBlock::default(), time: now }],
    }
}

fn add(sum: &mut PatrolAmount, more: PatrolAmount) {
    sum.pages = sum.pages.saturating_add(more.pages);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
}

/// Findings of blocks that follow each other as one, where there are many.
fn joined(findings: Vec<PatrolFinding>) -> Vec<PatrolFinding> {
    if findings.len() <= FINDINGS_MANY {
        return findings;
    }
    let mut joined: Vec<PatrolFinding> = Vec::new();
    for finding in findings {
        match joined.last_mut() {
            Some(last) if follows(last, &finding) => {
                last.page.blocks = last.page.blocks.saturating_add(finding.page.blocks);
                (last.page.stored_checksum, last.page.computed_checksum) = (None, None);
                last.page.lsn = None;
            }
            _ => joined.push(finding),
        }
    }
    joined
}

fn follows(last: &PatrolFinding, next: &PatrolFinding) -> bool {
    let behind = last.at.block.saturating_add(u64::from(last.page.blocks));
    (PatrolBlock { block: behind, ..last.at }) == next.at
        && (last.page.class, last.page.kind) == (next.page.class, next.page.kind)
}

/// Whether both are of the same blocks, some at least, or of those behind each other.
fn is_same(old: &PatrolFinding, new: &PatrolFinding) -> bool {
    let end = |finding: &PatrolFinding| {
        finding.at.block.saturating_add(u64::from(finding.page.blocks.max(1)))
    };
    let is_file = (PatrolBlock { block: 0, ..old.at }) == (PatrolBlock { block: 0, ..new.at });
    let overlap = old.at.block < end(new) && new.at.block < end(old);
    is_file && old.page.class == new.page.class && (overlap || follows(old, new))
}

/// Marks within the time within which pages are read: so much more exact is the age of a page.
const MARKS: u32 = 512;
const MARKS_MAX: usize = 2048;
/// Findings that are kept.
const FINDINGS_MAX: usize = 10_000;
/// Findings of a piece that are kept one by one.
const FINDINGS_MANY: usize = 64;
