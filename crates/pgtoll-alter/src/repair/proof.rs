//! Whether a page of a source is the one that a damaged block must hold. Pure: pages and WAL in, a
//! class and its reason out.
//!
//! Every change of a page of a permanent relation by WAL, but for hints, leaves the end of its record
//! as the page's LSN. So a sound page of the same cluster, file and block is the right one where its
//! LSN is the end of the last record that names the block; and where no record does since a time before
//! which the source has everything. Images for hints at the end of that WAL change nothing that counts:
//! the page may have the LSN of any of them, or be the one before.

use pgtoll_format::heap::heap_tuples;
use pgtoll_format::wal::rmgr::XLOG_HEAP2_VISIBLE;
use pgtoll_format::{
    Fault, ForkNumber, Lsn, PageHeader, PageKind, RelFileLocator, RelationFork, Verdict, verdict,
};
use pgtoll_record::{EvidenceClass, RepairBlock};
use pgtoll_wal::{BlockHistory, NamingRecord};

/// The known facts about a source as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceHistory {
    /// Its pages contain all changes by WAL before this.
    pub(super) contains: Lsn,
    /// The position at which the damaged cluster left the source's timeline; [`Lsn::MAX`]: it is on it.
    pub(super) timeline_end: Lsn,
    /// Records that name a block from here on may have been made on its damaged page, as far as the
    /// source can tell: a copy has what it had when it was taken, and a standby replays everything.
    pub(super) taken: Lsn,
    /// The WAL has the source's last checkpoint, so that both have the same past up to there.
    pub(super) is_anchored: bool,
    /// Up to here that is shown; [`Lsn::MAX`]: a copy at rest has nothing behind it.
    pub(super) anchor: Lsn,
}

/// The WAL up to the shutdown of the damaged cluster, or to where it was when a running server refused
/// the block, and what it says of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockWal {
    /// The start of its first record behind the last gap; [`Lsn::MAX`]: there is no WAL.
    pub(super) from: Lsn,
    /// The start of the checkpoint of the shutdown, the last record; of a running server the end.
    pub(super) to: Lsn,
    /// The end of the last record that sets `wal_level` to `minimal`.
    pub(super) minimal: Option<Lsn>,
    /// The records that name the block.
    pub(super) history: BlockHistory,
}

/// A judgement and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) class: EvidenceClass,
    pub(super) reason: String,
}

fn refused(reason: impl Into<String>) -> Judgement {
    Judgement { class: EvidenceClass::Refused, reason: reason.into() }
}

/// Returns the verdict of a server with checksums on a page.
pub(super) fn page_verdict(page: &[u8], block: u32) -> Verdict {
    let computed =
        pgtoll_checksum::is_page(page.len()).then(|| pgtoll_checksum::page_checksum(page, block));
    verdict(page, computed)
}

/// The fork that a record's block is in.
pub(super) fn fork_of(block: &RepairBlock) -> Option<RelationFork> {
    let relation = RelFileLocator {
        tablespace: block.tablespace,
        database: block.database,
        rel_number: block.filenode,
    };
    Some(RelationFork { relation, number: ForkNumber::from_name(&block.fork)? })
}

/// Why a server refuses a page, in words.
pub(super) fn fault_words(fault: Fault) -> String {
    match fault {
        Fault::Checksum { stored, computed, .. } => {
            format!("its checksum is {stored:04X}, and should be {computed:04X}")
        }
        Fault::Header => "its header is impossible".to_owned(),
        Fault::NotZero => {
            "its header says that it was never used, and it is not all zeros".to_owned()
        }
    }
}

/// Judges a candidate for a block. `damaged` is the page that is there: a server refuses it, it is all
/// zeros, or WAL changed it later than it says.
///
/// Records may have been made on zeros, or on an old page, if that page was written and lost a second
/// time. The candidate then is what WAL made of the block all the same, and what each standby has.
pub(super) fn judge(
    damaged: &[u8],
    candidate: &[u8],
    block: u32,
    wal: &BlockWal,
    source: &SourceHistory,
) -> Judgement {
    match page_verdict(candidate, block) {
        Verdict::Valid => {}
        Verdict::New => return refused("the source's page is all zeros"),
        Verdict::Invalid(fault) => {
            return refused(format!("the source's page is damaged, too: {}", fault_words(fault)));
        }
    }
    let (Some(header), Some(now)) = (PageHeader::read(candidate), PageHeader::read(damaged)) else {
        return refused("the pages are shorter than a page's header");
    };
    let lsn = header.lsn;
    if lsn > wal.to {
        return refused(format!("its LSN {lsn} is behind the cluster's last record at {}", wal.to));
    }
    if lsn <= now.lsn && page_verdict(damaged, block) == Verdict::Valid {
        return refused(format!("its LSN {lsn} is not newer than the page's own, {}", now.lsn));
    }
    if lsn > source.timeline_end {
        return refused(format!(
            "its LSN {lsn} is behind {}, where the cluster left the source's timeline",
            source.timeline_end
        ));
    }
    let basis = match compare(header, now, wal, source) {
        Ok(basis) => basis,
        Err(judgement) => return without_values(judgement, candidate),
    };
    if let Some(minimal) = wal.minimal.filter(|minimal| *minimal > basis.since) {
        let minimal = if minimal == Lsn::MAX { "now".to_owned() } else { format!("at {minimal}") };
        return refused(format!("wal_level was minimal {minimal}: not all changes were logged"));
    }
    if !source.is_anchored {
        let reason =
            "the WAL does not have the source's last checkpoint: it may be of another past";
        return without_values(plausible(header, now, reason), candidate);
    }
    if lsn > source.anchor {
        return refused(format!(
            "its LSN {lsn} is behind the source's last restartpoint at {}: nothing shows that both have \
             the same past up to there",
            source.anchor
        ));
    }
    // What was handed out of a logged stretch of values since, no record has.
    let is_behind =
        lsn > source.taken && wal.history.last.is_some() && has_unlogged_values(candidate);
    let is_exact = now.lsn == lsn && now.checksum == header.checksum && !now.is_new();
    if is_behind && !is_exact {
        return refused(
            "the sequence may have handed out values since without a record: they would come again",
        );
    }
    let class = if is_exact { EvidenceClass::Exact } else { EvidenceClass::Proved };
    let exact = "; the damaged page's own LSN and checksum are the same";
    Judgement { class, reason: format!("{}{}", basis.words, if is_exact { exact } else { "" }) }
}

/// On what a proof rests.
struct Basis {
    /// From here on no record may be missing.
    since: Lsn,
    words: String,
}

fn compare(
    candidate: PageHeader,
    damaged: PageHeader,
    wal: &BlockWal,
    source: &SourceHistory,
) -> Result<Basis, Judgement> {
    let lsn = candidate.lsn;
    let BlockHistory { last, last_but_visible, last_but_hints, file_change, .. } = wal.history;
    if let Some(last) = last
        && let Some(change) = file_change.filter(|change| *change > last.end)
    {
        return Err(refused(format!(
            "WAL made or cut the file at {change}, after the last record that names the block"
        )));
    }
    let hints = &wal.history.hints;
    if !hints.is_empty()
        && (hints.contains(&lsn)
            || last_but_hints.is_some_and(|last_but_hint| last_but_hint.end == lsn))
    {
        let words = format!("no record behind its LSN {lsn} changes the block but for hints");
        return Ok(Basis { since: lsn, words });
    }
    if !hints.is_empty() && last_but_hints.is_none() {
        return without_record(candidate, damaged, wal, source);
    }
    let is_visible = |naming: &NamingRecord| naming.record_type == XLOG_HEAP2_VISIBLE;
    let may_skip = last.is_some_and(|last| is_visible(&last)) && candidate.flags & ALL_VISIBLE != 0;
    let deciding = match (last, last_but_visible) {
        (Some(last), _) if last.end == lsn => Some(last),
        (Some(_), other) if may_skip => other,
        (last, _) => last,
    };
    let Some(deciding) = deciding else {
        return without_record(candidate, damaged, wal, source);
    };
    let end = deciding.end;
    if lsn == end {
        let words = format!("its LSN is {end}, the end of the last record that names the block");
        return Ok(Basis { since: end, words });
    }
    let age = if lsn < end { "older" } else { "newer" };
    Err(refused(format!(
        "it is {age} than the last record that names the block: its LSN is {lsn}, and that record \
         ends at {end}"
    )))
}

/// Judges a block that no record names.
fn without_record(
    candidate: PageHeader,
    damaged: PageHeader,
    wal: &BlockWal,
    source: &SourceHistory,
) -> Result<Basis, Judgement> {
    let lsn = candidate.lsn;
    let contains = source.contains;
    if wal.from > contains {
        let to = if wal.from == Lsn::MAX { wal.to } else { wal.from };
        let reason = format!("no WAL from {contains} to {to}, in which the page may have changed");
        return Err(plausible(candidate, damaged, &reason));
    }
    let change = wal.history.file_change;
    if let Some(change) = change.filter(|change| *change > contains) {
        return Err(refused(format!(
            "WAL made, cut or copied the file at {change}, since the source was taken"
        )));
    }
    let newest = change.unwrap_or(wal.from);
    if lsn > newest {
        return Err(refused(format!(
            "its LSN {lsn} is within the WAL, which has no record that names the block: the source is \
             of another past"
        )));
    }
    let but = if wal.history.hints.is_empty() { "" } else { " but for hints" };
    let words = format!("no record of WAL from {contains} on names the block{but}");
    Ok(Basis { since: contains, words })
}

/// A sequence's page is not plausible either where values may be missing on it.
fn without_values(judgement: Judgement, candidate: &[u8]) -> Judgement {
    if judgement.class == EvidenceClass::Plausible && has_unlogged_values(candidate) {
        return refused(format!("{}; it is a sequence's", judgement.reason));
    }
    judgement
}

/// Whether it is a sequence's page that does not have all values that its last record allows: replay
/// leaves one that has.
fn has_unlogged_values(page: &[u8]) -> bool {
    let rows = || heap_tuples(page).ok();
    // `last_value`, `log_cnt`, `is_called`.
    let unlogged = || {
        let count = rows()?.first()?.data.get(8..16)?.try_into().ok()?;
        Some(i64::from_le_bytes(count))
    };
    PageKind::from_page(page) == PageKind::Sequence && unlogged() != Some(0)
}

/// Judges by the damaged page's own LSN, if WAL does not decide.
fn plausible(candidate: PageHeader, damaged: PageHeader, reason: &str) -> Judgement {
    if damaged.lsn == candidate.lsn && !damaged.is_new() {
        let reason = format!("{reason}; the damaged page's own LSN is the same");
        return Judgement { class: EvidenceClass::Plausible, reason };
    }
    refused(format!("{reason}; the damaged page's own LSN is another one"))
}

/// `PD_ALL_VISIBLE`.
const ALL_VISIBLE: u16 = 0x0004;

#[cfg(test)]
mod tests {
    use pgtoll_format::wal::RecordType;
    use pgtoll_format::wal::rmgr::{XLOG_FPI_FOR_HINT, XLOG_HEAP_INSERT};
    use pgtoll_format::{PAGE_BYTES, PAGE_CHECKSUM};

    use super::*;

    const BLOCK: u32 = 7;

    /// A sound page with this LSN.
    fn page(lsn: u64, flags: u16, content: u8) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let low = u32::try_from(lsn & 0xFFFF_FFFF).unwrap();
        let high = u32::try_from(lsn >> 32).unwrap();
        page[..4].copy_from_slice(&high.to_le_bytes());
        page[4..8].copy_from_slice(&low.to_le_bytes());
        for (at, value) in [(10, flags), (12, 24), (14, 8000), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[8100..].fill(content);
        let checksum = pgtoll_checksum::page_checksum(&page, BLOCK);
        page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    /// The same with a bit of its content turned over.
    fn bit_flip(page: &[u8]) -> Vec<u8> {
        let mut page = page.to_vec();
        page[8150] ^= 1;
        page
    }

    fn naming(end: u64, record_type: RecordType) -> NamingRecord {
        NamingRecord { at: Lsn(end - 8), end: Lsn(end), record_type }
    }

    fn inserted(end: u64) -> BlockHistory {
        let last = Some(naming(end, XLOG_HEAP_INSERT));
        let hints = Vec::new();
        BlockHistory {
            last,
            last_but_visible: last,
            last_but_hints: last,
            hints,
            file_change: None,
        }
    }

    /// WAL from 1000 to 9000 that never names the block.
    const SILENT: BlockWal = BlockWal {
        from: Lsn(1000),
        to: Lsn(9000),
        minimal: None,
        history: BlockHistory {
            last: None,
            last_but_visible: None,
            last_but_hints: None,
            hints: Vec::new(),
            file_change: None,
        },
    };

    fn no_record() -> BlockHistory {
        BlockHistory::default()
    }

    fn wal(history: BlockHistory) -> BlockWal {
        BlockWal { history, ..SILENT }
    }

    const SOURCE: SourceHistory = SourceHistory {
        contains: Lsn(3000),
        timeline_end: Lsn::MAX,
        taken: Lsn(3000),
        is_anchored: true,
        anchor: Lsn::MAX,
    };
    /// A standby that replayed everything.
    const STANDBY: SourceHistory =
        SourceHistory { contains: Lsn(9000), taken: Lsn(0), anchor: Lsn(8000), ..SOURCE };

    #[track_caller]
    fn check(
        damaged: &[u8],
        candidate: &[u8],
        wal: &BlockWal,
        source: &SourceHistory,
        expected: EvidenceClass,
        words: &str,
    ) {
        let found = judge(damaged, candidate, BLOCK, wal, source);
        assert_eq!(found.class, expected, "{found:?}");
        assert!(found.reason.contains(words), "{found:?}");
    }

    #[test]
    fn the_last_record_decides() {
        use EvidenceClass::{Exact, Proved, Refused};
        let candidate = page(5000, 0, 1);
        let torn = vec![7; PAGE_BYTES];
        let end = "the end of the last record";
        check(&torn, &candidate, &wal(inserted(5000)), &SOURCE, Proved, end);
        check(&bit_flip(&candidate), &candidate, &wal(inserted(5000)), &SOURCE, Exact, "checksum");
        check(&torn, &candidate, &wal(inserted(5008)), &SOURCE, Refused, "older");
        check(&torn, &candidate, &wal(inserted(4992)), &SOURCE, Refused, "newer");
        check(&torn, &candidate, &SILENT, &SOURCE, Refused, "another past");
        // The end of a record is enough where the WAL does not reach back to the source.
        let short = BlockWal { from: Lsn(4000), ..wal(inserted(5000)) };
        check(&torn, &candidate, &short, &SOURCE, Proved, end);
    }

    #[test]
    fn without_a_record_the_wal_has_to_reach_back_to_the_source() {
        use EvidenceClass::{Exact, Plausible, Proved, Refused};
        let candidate = page(900, 0, 1);
        let torn = vec![7; PAGE_BYTES];
        let flipped = bit_flip(&candidate);
        check(&torn, &candidate, &SILENT, &SOURCE, Proved, "no record of WAL from");
        check(&flipped, &candidate, &SILENT, &SOURCE, Exact, "no record of WAL from");
        for from in [3001, u64::MAX] {
            let gap = BlockWal { from: Lsn(from), ..SILENT };
            check(&torn, &candidate, &gap, &SOURCE, Refused, "no WAL from 0/BB8");
            check(&flipped, &candidate, &gap, &SOURCE, Plausible, "no WAL from 0/BB8");
        }
    }

    #[test]
    fn what_is_not_sound_or_of_another_past_is_refused() {
        use EvidenceClass::{Plausible, Refused};
        let candidate = page(900, 0, 1);
        let torn = vec![7; PAGE_BYTES];
        let refuse = |candidate: &[u8], wal: &BlockWal, source: &SourceHistory, words| {
            check(&torn, candidate, wal, source, Refused, words);
        };
        refuse(&bit_flip(&candidate), &SILENT, &SOURCE, "damaged, too");
        refuse(&vec![0; PAGE_BYTES], &SILENT, &SOURCE, "all zeros");
        refuse(&page(9001, 0, 1), &wal(inserted(9001)), &SOURCE, "last record");
        let left = SourceHistory { timeline_end: Lsn(899), ..SOURCE };
        refuse(&candidate, &SILENT, &left, "left the source's timeline");
        let floating = SourceHistory { is_anchored: false, ..SOURCE };
        refuse(&candidate, &SILENT, &floating, "another past");
        check(&bit_flip(&candidate), &candidate, &SILENT, &floating, Plausible, "another past");
        let minimal = BlockWal { minimal: Some(Lsn(3008)), ..SILENT };
        refuse(&candidate, &minimal, &SOURCE, "wal_level was minimal");
        let earlier = BlockWal { minimal: Some(Lsn(2000)), ..SILENT };
        check(&torn, &candidate, &earlier, &SOURCE, EvidenceClass::Proved, "");
    }

    #[test]
    fn a_file_that_was_made_anew_or_cut_has_no_old_pages() {
        use EvidenceClass::{Proved, Refused};
        let torn = vec![7; PAGE_BYTES];
        let changed = |at, history| wal(BlockHistory { file_change: Some(Lsn(at)), ..history });
        let silent = SILENT.history;
        check(
            &torn,
            &page(900, 0, 1),
            &changed(4000, silent.clone()),
            &SOURCE,
            Refused,
            "since the source",
        );
        check(&torn, &page(900, 0, 1), &changed(2000, silent), &SOURCE, Proved, "");
        let candidate = page(5000, 0, 1);
        check(&torn, &candidate, &changed(4000, inserted(5000)), &SOURCE, Proved, "");
        check(
            &torn,
            &candidate,
            &changed(6000, inserted(5000)),
            &SOURCE,
            Refused,
            "after the last",
        );
    }

    #[test]
    fn a_standby_is_of_the_same_past_up_to_its_restartpoint() {
        use EvidenceClass::{Proved, Refused};
        let torn = vec![7; PAGE_BYTES];
        check(&torn, &page(900, 0, 1), &SILENT, &STANDBY, Proved, "no record");
        check(&torn, &page(8000, 0, 1), &wal(inserted(8000)), &STANDBY, Proved, "the end");
        let newer = wal(inserted(8008));
        check(&torn, &page(8008, 0, 1), &newer, &STANDBY, Refused, "restartpoint");
        let zeros = vec![0; PAGE_BYTES];
        check(&zeros, &page(5000, 0, 1), &wal(inserted(5000)), &STANDBY, Proved, "the end");
        check(&zeros, &page(900, 0, 1), &SILENT, &STANDBY, Proved, "no record");
        let values = sequence(5000, 28);
        check(&torn, &values, &wal(inserted(5000)), &STANDBY, Refused, "come again");
    }

    #[test]
    fn a_last_visible_is_skipped_where_the_page_has_the_flag() {
        use EvidenceClass::{Proved, Refused};
        let torn = vec![7; PAGE_BYTES];
        let visible = |before: Option<NamingRecord>| {
            let last = Some(naming(6000, XLOG_HEAP2_VISIBLE));
            wal(BlockHistory {
                last,
                last_but_visible: before,
                last_but_hints: last,
                ..no_record()
            })
        };
        let after_insert = visible(Some(naming(5000, XLOG_HEAP_INSERT)));
        check(&torn, &page(5000, ALL_VISIBLE, 1), &after_insert, &SOURCE, Proved, "0/1388");
        check(&torn, &page(5000, 0, 1), &after_insert, &SOURCE, Refused, "older");
        check(&torn, &page(6000, ALL_VISIBLE, 1), &after_insert, &SOURCE, Proved, "0/1770");
        check(&torn, &page(4992, ALL_VISIBLE, 1), &after_insert, &SOURCE, Refused, "older");
        check(&torn, &page(900, ALL_VISIBLE, 1), &visible(None), &SOURCE, Proved, "no record");
        check(&torn, &page(900, 0, 1), &visible(None), &SOURCE, Refused, "older");
    }

    #[test]
    fn pages_before_hints_are_right_ones() {
        use EvidenceClass::{Proved, Refused};
        let torn = vec![7; PAGE_BYTES];
        // A change, and two images for hints of sessions that raced.
        let raced = |before: Option<NamingRecord>| {
            let last = Some(naming(6016, XLOG_FPI_FOR_HINT));
            let hints = vec![Lsn(6000), Lsn(6016)];
            let last_but_visible = last;
            let last_but_hints = before;
            wal(BlockHistory { last, last_but_visible, last_but_hints, hints, file_change: None })
        };
        let after_insert = raced(Some(naming(5000, XLOG_HEAP_INSERT)));
        check(&torn, &page(5000, 0, 1), &after_insert, &SOURCE, Proved, "but for hints");
        check(&torn, &page(6000, 0, 1), &after_insert, &SOURCE, Proved, "but for hints");
        check(&torn, &page(6016, 0, 1), &after_insert, &SOURCE, Proved, "");
        check(&torn, &page(4992, 0, 1), &after_insert, &SOURCE, Refused, "older");
        check(&torn, &page(5504, 0, 1), &after_insert, &SOURCE, Refused, "older");
        check(
            &torn,
            &page(900, 0, 1),
            &raced(None),
            &SOURCE,
            Proved,
            "names the block but for hints",
        );
        check(&torn, &page(6000, 0, 1), &raced(None), &SOURCE, Proved, "but for hints");
        check(&torn, &page(2000, 0, 1), &raced(None), &SOURCE, Refused, "another past");
        let gap = BlockWal { from: Lsn(3001), ..raced(None) };
        check(&torn, &page(900, 0, 1), &gap, &SOURCE, Refused, "no WAL from");
    }

    /// A sequence's page with this many values that are logged and not handed out.
    fn sequence(lsn: u64, unlogged: i64) -> Vec<u8> {
        let mut page = page(lsn, 0, 0);
        let special = 8184_u16;
        let places = [(12, 28), (14, 8128), (16, special), (24, 0x1FC0 | 0x8000), (26, 41 << 1)];
        for (at, value) in places {
            page[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
        }
        page[8128 + 22] = 24;
        page[8128 + 24..8128 + 32].copy_from_slice(&5_i64.to_le_bytes());
        page[8128 + 32..8128 + 40].copy_from_slice(&unlogged.to_le_bytes());
        page[8184..8188].copy_from_slice(&0x1717_u32.to_le_bytes());
        let checksum = pgtoll_checksum::page_checksum(&page, BLOCK);
        page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(PageKind::from_page(&page), PageKind::Sequence);
        page
    }

    #[test]
    fn a_sequence_hands_no_value_out_twice() {
        use EvidenceClass::{Exact, Plausible, Proved, Refused};
        let torn = vec![7; PAGE_BYTES];
        let logged = wal(inserted(5000));
        check(&torn, &sequence(5000, 0), &logged, &SOURCE, Proved, "the end");
        check(&torn, &sequence(5000, 28), &logged, &SOURCE, Refused, "come again");
        let mut flipped = sequence(5000, 28);
        flipped[8000] ^= 1;
        check(&flipped, &sequence(5000, 28), &logged, &SOURCE, Exact, "checksum");
        // The first value after a checkpoint has a record.
        check(&torn, &sequence(900, 28), &SILENT, &SOURCE, Proved, "no record");
        let gap = BlockWal { from: Lsn(3001), ..SILENT };
        let mut flipped = sequence(900, 28);
        flipped[8000] ^= 1;
        check(&flipped, &sequence(900, 28), &gap, &SOURCE, Refused, "a sequence's");
        let mut flipped = sequence(900, 0);
        flipped[8000] ^= 1;
        check(&flipped, &sequence(900, 0), &gap, &SOURCE, Plausible, "no WAL");
    }

    #[test]
    fn zeros_and_old_pages_are_replaced_by_what_wal_made() {
        use EvidenceClass::{Proved, Refused};
        let zeros = vec![0; PAGE_BYTES];
        check(&zeros, &page(900, 0, 1), &SILENT, &SOURCE, Proved, "no record");
        check(&zeros, &page(2000, 0, 1), &wal(inserted(2000)), &SOURCE, Proved, "the end");
        check(&zeros, &page(5000, 0, 1), &wal(inserted(5000)), &SOURCE, Proved, "the end");
        check(&zeros, &page(2000, 0, 1), &wal(inserted(5000)), &SOURCE, Refused, "older");
        let old = page(1500, 0, 1);
        check(&old, &page(5000, 0, 1), &wal(inserted(5000)), &SOURCE, Proved, "the end");
        check(&old, &page(2000, 0, 1), &wal(inserted(5000)), &SOURCE, Refused, "older");
        check(&old, &page(1500, 0, 2), &wal(inserted(5000)), &SOURCE, Refused, "not newer");
        let gap = BlockWal { from: Lsn(3001), ..SILENT };
        check(&zeros, &page(0, 0, 1), &gap, &SOURCE, Refused, "no WAL");
        // A page whose begin alone is zero is refused by servers: nothing was made on it.
        let mut half = page(5000, 0, 1);
        half[..4096].fill(0);
        check(&half, &page(5000, 0, 1), &wal(inserted(5000)), &SOURCE, Proved, "the end");
    }
}
