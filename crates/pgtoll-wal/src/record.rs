//! The record of WAL statistics, from the sums.

use std::collections::BTreeMap;

use pgtoll_datadir::Names;
use pgtoll_format::wal::{Compression, manager_name};
use pgtoll_format::{ByteSize, Lsn, RelationFork};
use pgtoll_record::{
    CycleBegin, ImageCause, Provenance, WAL_STATISTICS_SCHEMA, WalAmount, WalCycle, WalEnd,
    WalEndKind, WalGap, WalImages, WalKind, WalOfDatabase, WalOfKind, WalOfRelation, WalPiece,
    WalSource, WalStatisticsRecord,
};

use crate::end::{End, Gap};
use crate::forks::ForkTotals;
use crate::pieces::{Cycle, Piece};
use crate::recorded_name::recorded_name;
use crate::scan::{Contents, WalSummary};
use crate::statistics::WalStatistics;

/// The known names of relations.
#[derive(Debug, Default)]
pub struct RelationNames {
    /// The names.
    pub names: Names,
    /// Their source; `None`: no names.
    pub by: Option<String>,
    /// Why some are missing.
    pub notes: Vec<String>,
}

impl RelationNames {
    /// No names, and why.
    pub fn without(note: String) -> Self {
        Self { notes: vec![note], ..Self::default() }
    }
}

/// The record of what was counted in the WAL that these names (paths, or a server without its
/// secrets) stand for.
pub fn statistics_record(
    provenance: Provenance,
    source_names: Vec<String>,
    summary: &WalSummary<Contents>,
    end: &End,
    relations: &RelationNames,
) -> WalStatisticsRecord {
    let statistics = &summary.collected.statistics;
    let forks = statistics.forks();
    let names = &relations.names;
    let pieces = &summary.collected.pieces;
    let since_us = pieces.iter().filter_map(|piece| piece.since_us).min();
    let until_us = pieces.iter().filter_map(|piece| piece.until_us).max();
    let gaps = summary.gaps.iter().zip(&summary.collected.gaps_us);
    WalStatisticsRecord {
        schema: WAL_STATISTICS_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        source: WalSource {
            gaps: gaps.map(|(gap, us)| wal_gap(gap, *us)).collect(),
            ..source(source_names, summary, since_us, until_us)
        },
        end: wal_end(end, &summary.gaps),
        total: statistics.total(),
        managers: managers(statistics),
        types: types(statistics, summary.major),
        causes: causes(statistics.causes()),
        compressions: compressions(statistics),
        relations: forks.iter().map(|(fork, totals)| relation(*fork, totals, names)).collect(),
        without_relation: statistics.without_fork(),
        names: relations.by.clone(),
        databases: databases(&forks, names),
        cycles: cycles(summary),
        pieces: pieces.iter().map(piece).collect(),
        notes: notes(summary, relations),
    }
}

/// Returns the WAL that was read, with the times of its first and last transactions in microseconds since 1970.
pub(crate) fn source<T>(
    names: Vec<String>,
    summary: &WalSummary<T>,
    first_us: Option<i64>,
    last_us: Option<i64>,
) -> WalSource {
    WalSource {
        names,
        major: summary.major,
        system_identifier: summary.system_identifier,
        segments: summary.segments as u64,
        segment_bytes: u64::from(summary.segment_bytes),
        timelines: summary.timelines.iter().copied().collect(),
        from: summary.from,
        to: summary.to,
        first_time: first_us.and_then(time),
        last_time: last_us.and_then(time),
        streamed_ms: summary
            .streamed
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        gaps: summary.gaps.iter().map(|gap| wal_gap(gap, None)).collect(),
    }
}

/// A time in microseconds since 1970, as records have it (RFC 3339).
pub(crate) fn time(us: i64) -> Option<String> {
    Some(jiff::Timestamp::from_microsecond(us).ok()?.to_string())
}

/// Why WAL was not read further. Readers of records without gaps take the first gap for the end.
pub(crate) fn wal_end(end: &End, gaps: &[Gap]) -> WalEnd {
    let Some(gap) = gaps.first().filter(|_| end.is_whole()) else {
        return WalEnd { kind: kind_of(end), at: end.at(), words: end.to_string() };
    };
    let words = match gaps.len() {
        1 => format!("read past a gap: {gap}"),
        count => format!("read past {count} gaps, the first: {gap}"),
    };
    WalEnd { kind: kind_of(&gap.why), at: Some(gap.from), words }
}

/// As a record has it; `us`: how long it was.
fn wal_gap(gap: &Gap, us: Option<i64>) -> WalGap {
    WalGap {
        from: gap.from,
        to: gap.to,
        kind: kind_of(&gap.why),
        words: gap.why.to_string(),
        lasted_ms: us.and_then(|us| u64::try_from(us / 1000).ok()),
    }
}

fn kind_of(end: &End) -> WalEndKind {
    match end {
        End::Complete | End::Asked(_) | End::RangeEnd(_) => WalEndKind::Complete,
        End::Interrupted => WalEndKind::Interrupted,
        End::Own(_) | End::ServerStopped(_) | End::TimelineEnd(_) => WalEndKind::Own,
        End::Damaged { .. } => WalEndKind::Damaged,
        End::Missing { .. } => WalEndKind::Missing,
        End::CutShort { .. } => WalEndKind::CutShort,
        End::Unreadable { .. } => WalEndKind::Unreadable,
    }
}

fn managers(statistics: &WalStatistics) -> Vec<WalOfKind> {
    let pick = |manager| {
        let name =
            manager_name(manager).map_or_else(|| format!("custom{manager:03}"), str::to_owned);
        WalOfKind { name, amount: statistics.of_manager(manager) }
    };
    (0..=u8::MAX).map(pick).filter(|item| item.amount.records > 0).collect()
}

fn types(statistics: &WalStatistics, major: u32) -> Vec<WalOfKind> {
    let all = statistics.types();
    all.map(|(kind, item)| WalOfKind { name: kind.name(major), amount: item }).collect()
}

fn compressions(statistics: &WalStatistics) -> BTreeMap<String, WalImages> {
    let name = |kind: Option<Compression>| kind.map_or("none", Compression::name);
    let used = statistics.compressions().filter(|(_, compression)| compression.images > 0);
    used.map(|(kind, used)| (name(kind).to_owned(), used)).collect()
}

fn relation(fork: RelationFork, totals: &ForkTotals, names: &Names) -> WalOfRelation {
    WalOfRelation {
        tablespace: fork.relation.tablespace,
        database: fork.relation.database,
        filenode: fork.relation.rel_number,
        fork: fork.number.to_string(),
        name: names.relation(fork.relation).map(recorded_name),
        amount: totals.amount,
        images: totals.images,
        hint_bytes: totals.hint_bytes,
    }
}

fn databases(forks: &[(RelationFork, ForkTotals)], names: &Names) -> Vec<WalOfDatabase> {
    let mut databases: BTreeMap<u32, WalOfDatabase> = BTreeMap::new();
    for (fork, item) in forks {
        let oid = fork.relation.database;
        let entry = databases.entry(oid).or_insert_with(|| WalOfDatabase {
            oid,
            name: names.database(oid).map(str::to_owned),
            amount: WalAmount::default(),
            images: 0,
        });
        entry.amount.add(&item.amount);
        entry.images += item.images;
    }
    let mut databases: Vec<WalOfDatabase> = databases.into_values().collect();
    databases.sort_by_key(|database| (std::cmp::Reverse(database.amount.bytes()), database.oid));
    databases
}

/// Each cycle ends where the next one begins, or a gap; the last where the WAL ends.
fn cycles(summary: &WalSummary<Contents>) -> Vec<WalCycle> {
    let ends = summary.collected.cycles.iter().skip(1).map(|next| Some(next.from)).chain([None]);
    let pick = |(cycle, next): (&Cycle, Option<Lsn>)| {
        let end = next.or(summary.to).unwrap_or(cycle.from);
        let gap = summary.gaps.iter().find(|gap| gap.from >= cycle.from && gap.to <= end);
        let to = gap.map_or(end, |gap| gap.from);
        WalCycle {
            from: cycle.from,
            to,
            whole: next.is_some() && gap.is_none() && cycle.begin != CycleBegin::Unknown,
            began_by: cycle.begin,
            began: cycle
                .began_s
                .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
                .map(|time| time.to_string()),
            amount: cycle.sums.amount,
            causes: causes(ImageCause::ALL.into_iter().zip(cycle.sums.causes)),
        }
    };
    summary.collected.cycles.iter().zip(ends).map(pick).collect()
}

fn piece(piece: &Piece) -> WalPiece {
    let bytes = WalKind::ALL.into_iter().zip(piece.sums.kinds).filter(|(_, bytes)| *bytes > 0);
    WalPiece { from: piece.from, until_us: piece.until_us, bytes: bytes.collect() }
}

fn notes(summary: &WalSummary<Contents>, relations: &RelationNames) -> Vec<String> {
    let mut notes = relations.notes.clone();
    let error = summary.collected.cycle_error_bytes;
    if summary.collected.cycles.len() > 1 && error > 0 {
        notes.push(format!("Cycle totals are accurate to {}.", ByteSize(error).rounded()));
    }
    let names = &relations.names;
    notes.extend(summary.collected.statistics.emptied_maps().map(|(oid, pages)| {
        let name = names.database(oid);
        let database = name.map_or_else(|| oid.to_string(), |name| format!("\"{name}\""));
        format!(
            "Database {database}: CREATE DATABASE logged {pages} pages of its visibility maps without \
             their bits. Where this WAL is replayed (standbys, recovery) its maps are empty, which \
             \"pgtoll verify\" names there; that is harmless until servers change roles."
        )
    }));
    notes
}

fn causes(
    causes: impl Iterator<Item = (ImageCause, WalImages)>,
) -> BTreeMap<ImageCause, WalImages> {
    causes.filter(|(_, images)| images.images > 0).collect()
}
