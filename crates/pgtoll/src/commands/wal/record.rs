//! From sums to the record.

use std::collections::BTreeMap;

use pgtoll_datadir::Names;
use pgtoll_format::RelationFork;
use pgtoll_format::wal::{Compression, manager_name};
use pgtoll_record as form;
use pgtoll_record::{CycleBegin, ImageCause, WalAmount, WalImages, WalKind, WalStatisticsRecord};
use pgtoll_wal::{
    Contents, Cycle, End, ForkTotals, Piece, WalStatistics, WalSummary, recorded_name,
};

use crate::arguments::WalStatsArguments;
use pgtoll_format::shell_quoted;

/// What relations are called, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Called {
    pub(crate) names: Names,
    /// Where names come from.
    pub(crate) by: Option<String>,
    pub(crate) notes: Vec<String>,
}

impl Called {
    /// No names, and why.
    pub(crate) fn without(note: String) -> Self {
        Self { notes: vec![note], ..Self::default() }
    }
}

pub(crate) fn of(
    arguments: &WalStatsArguments,
    summary: &WalSummary<Contents>,
    end: &End,
    called: &Called,
) -> WalStatisticsRecord {
    let statistics = &summary.collected.statistics;
    let forks = statistics.forks();
    WalStatisticsRecord {
        schema: form::WAL_STATISTICS_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        made: jiff::Timestamp::now().to_string(),
        source: source(arguments, summary),
        end: form::WalEnd { kind: kind_of(end), at: end.at(), words: end.to_string() },
        total: statistics.total(),
        managers: managers(statistics),
        types: types(statistics, summary.major),
        causes: causes(statistics.causes()),
        compressions: compressions(statistics),
        relations: forks.iter().map(|(fork, of)| relation(*fork, of, &called.names)).collect(),
        without_relation: statistics.without_fork(),
        names: called.by.clone(),
        databases: databases(&forks, &called.names),
        cycles: cycles(summary),
        pieces: summary.collected.pieces.iter().map(piece).collect(),
        notes: notes(summary, called),
    }
}

/// Paths, or the server without its secrets.
fn names_of(arguments: &WalStatsArguments) -> Vec<String> {
    if let ([], Some(dsn)) = (arguments.paths.as_slice(), &arguments.dsn) {
        return vec![dsn.redacted()];
    }
    arguments.paths.iter().map(|path| path.display().to_string()).collect()
}

/// The command that makes it again, without secrets.
fn command(arguments: &WalStatsArguments) -> Vec<String> {
    let mut command = vec!["pgtoll".to_owned(), "wal".to_owned(), "stats".to_owned()];
    command.extend(arguments.paths.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    let mut option =
        |name: &str, value: &str| command.extend([name.to_owned(), shell_quoted(value)]);
    if let Some(dsn) = &arguments.dsn {
        option("--dsn", &dsn.redacted());
    }
    if let Some(time) = arguments.r#for {
        option("--for", &time.to_string());
    }
    if let Some(names) = &arguments.names {
        option("--names", &names.to_string_lossy());
    }
    command
}

fn source(arguments: &WalStatsArguments, summary: &WalSummary<Contents>) -> form::WalSource {
    let time = |us: Option<i64>| Some(jiff::Timestamp::from_microsecond(us?).ok()?.to_string());
    form::WalSource {
        names: names_of(arguments),
        major: summary.major,
        system_identifier: summary.system_identifier,
        segments: summary.segments as u64,
        segment_bytes: u64::from(summary.segment_bytes),
        timelines: summary.timelines.iter().copied().collect(),
        from: summary.from,
        to: summary.to,
        first_time: time(summary.collected.pieces.iter().filter_map(|piece| piece.since_us).min()),
        last_time: time(summary.collected.pieces.iter().filter_map(|piece| piece.until_us).max()),
    }
}

pub(super) fn kind_of(end: &End) -> form::WalEndKind {
    match end {
        End::Complete | End::Asked(_) => form::WalEndKind::Complete,
        End::Interrupted => form::WalEndKind::Interrupted,
        End::Own(_) | End::ServerStopped(_) | End::TimelineEnd(_) => form::WalEndKind::Own,
        End::Damaged { .. } => form::WalEndKind::Damaged,
        End::Missing { .. } => form::WalEndKind::Missing,
        End::CutShort { .. } => form::WalEndKind::CutShort,
        End::Unreadable { .. } => form::WalEndKind::Unreadable,
    }
}

fn managers(statistics: &WalStatistics) -> Vec<form::WalOfKind> {
    let of = |manager| {
        let name =
            manager_name(manager).map_or_else(|| format!("custom{manager:03}"), str::to_owned);
        form::WalOfKind { name, amount: statistics.of_manager(manager) }
    };
    (0..=u8::MAX).map(of).filter(|of| of.amount.records > 0).collect()
}

fn types(statistics: &WalStatistics, major: u32) -> Vec<form::WalOfKind> {
    let all = statistics.types();
    all.map(|(kind, of)| form::WalOfKind { name: kind.name(major), amount: of }).collect()
}

fn compressions(statistics: &WalStatistics) -> BTreeMap<String, WalImages> {
    let name = |kind| match kind {
        None => "none",
        Some(Compression::Pglz) => "pglz",
        Some(Compression::Lz4) => "lz4",
        Some(Compression::Zstd) => "zstd",
    };
    let used = statistics.compressions().filter(|(_, of)| of.images > 0);
    used.map(|(kind, of)| (name(kind).to_owned(), of)).collect()
}

fn relation(fork: RelationFork, of: &ForkTotals, names: &Names) -> form::WalOfRelation {
    form::WalOfRelation {
        tablespace: fork.relation.tablespace,
        database: fork.relation.database,
        filenode: fork.relation.rel_number,
        fork: fork.number.to_string(),
        name: names.relation(fork.relation).map(recorded_name),
        amount: of.amount,
        images: of.images,
        hint_bytes: of.hint_bytes,
    }
}

fn databases(forks: &[(RelationFork, ForkTotals)], names: &Names) -> Vec<form::WalOfDatabase> {
    let mut databases: BTreeMap<u32, form::WalOfDatabase> = BTreeMap::new();
    for (fork, of) in forks {
        let oid = fork.relation.database;
        let entry = databases.entry(oid).or_insert_with(|| form::WalOfDatabase {
            oid,
            name: names.database(oid).map(str::to_owned),
            amount: WalAmount::default(),
            images: 0,
        });
        entry.amount.add(&of.amount);
        entry.images += of.images;
    }
    let mut databases: Vec<form::WalOfDatabase> = databases.into_values().collect();
    databases.sort_by_key(|of| (std::cmp::Reverse(of.amount.bytes()), of.oid));
    databases
}

/// Each cycle ends where the next one begins; the last where the WAL ends.
fn cycles(summary: &WalSummary<Contents>) -> Vec<form::WalCycle> {
    let ends = summary.collected.cycles.iter().skip(1).map(|next| Some(next.from)).chain([None]);
    let of = |(cycle, next): (&Cycle, Option<pgtoll_format::Lsn>)| {
        let to = next.or(summary.to).unwrap_or(cycle.from);
        form::WalCycle {
            from: cycle.from,
            to,
            whole: next.is_some() && cycle.begin != CycleBegin::Unknown,
            began_by: cycle.begin,
            began: cycle
                .began_s
                .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
                .map(|time| time.to_string()),
            amount: cycle.sums.amount,
            causes: causes(ImageCause::ALL.into_iter().zip(cycle.sums.causes)),
        }
    };
    summary.collected.cycles.iter().zip(ends).map(of).collect()
}

fn piece(of: &Piece) -> form::WalPiece {
    let bytes = WalKind::ALL.into_iter().zip(of.sums.kinds).filter(|(_, bytes)| *bytes > 0);
    form::WalPiece { from: of.from, until_us: of.until_us, bytes: bytes.collect() }
}

fn notes(summary: &WalSummary<Contents>, called: &Called) -> Vec<String> {
    let mut notes = called.notes.clone();
    if summary.collected.cycles.len() > 1 && !summary.collected.cycles_are_exact {
        notes.push(
            "Redo points lie within pieces that could not be read again: the sums of single \
             checkpoint cycles may be wrong by what such a piece holds."
                .to_owned(),
        );
    }
    notes
}

fn causes(of: impl Iterator<Item = (ImageCause, WalImages)>) -> BTreeMap<ImageCause, WalImages> {
    of.filter(|(_, images)| images.images > 0).collect()
}
