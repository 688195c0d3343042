//! Failovers: outages and losses over the runs of each case.

mod partition;
mod picture;

use std::fmt::Write as _;

use pgtoll_record::{
    EngineTopology, FailoverDetector, FailoverEngine, FailoverFault, FailoverRecord, FailoverRun,
    PrintedRecord as _, SkippedFault,
};
use pgtoll_stats::{median, proportion_interval, quantile};

use self::partition::{PartitionSummary, SIDES_HEAD, SIDES_WORDS};
use crate::document::{Block, Document, Section, Table, settings};
use crate::html::timeline;
use crate::records::{ReportedRecord, TableOptions};
use crate::text::end_words;
use crate::wal_numbers::{count, counted};

impl ReportedRecord for FailoverRecord {
    /// The answer, a row for each case, and how it was found.
    fn document(&self, _: &TableOptions) -> Document {
        let rows = rows(self);
        let columns = FailoverColumns::from_failover(self);
        let mut document = Document {
            command: "pgtoll lab failover",
            question: "What do clients see of a failover?",
            subject: subject_words(self),
            answer: rows.iter().filter_map(FailoverRow::sentence).collect(),
            findings: self.conclusion().sentences(),
            notes: self.notes.clone(),
            again: self.command.clone(),
            ..Document::default()
        };
        if !rows.is_empty() {
            document.push(picture::side_by_side(&rows));
            document.push(picture::outages(&rows));
            document.push(outage_section(columns, &rows));
            document.push(sides_section(columns, &rows));
            document.push(steps_section(columns, &rows));
            document.push(return_section(columns, &rows));
        }
        for (title, words) in
            [("Second standbys", third_words(self)), ("Skipped", skipped_words(self))]
        {
            document.push(
                (!words.is_empty()).then(|| Section::detail(title, vec![Block::List(words)])),
            );
        }
        document.push(Section::evidence(
            "Clients over time, in each case's first run",
            clients(self, &rows),
        ));
        document
            .push(Section::evidence("Steps of each case's first run", first_steps(self, &rows)));
        document.push(engine_section(self));
        document.push(Section::evidence("How it was found", how_blocks(self)));
        document
    }
}

fn outage_section(columns: FailoverColumns, rows: &[FailoverRow]) -> Section {
    let mut words =
        "An outage is the longest time without an acknowledgement to any client.".to_owned();
    if columns.has_engines {
        words.push_str(" Losing: the share of runs that lose something, at 95 % confidence.");
    }
    let cells = |row: &FailoverRow| vec![row.outage_cells(columns)];
    let table = columns.table(columns.outage_head(), rows, cells);
    Section::detail("Outages and losses", vec![Block::Paragraph(words), table])
}

fn sides_section(columns: FailoverColumns, rows: &[FailoverRow]) -> Option<Section> {
    rows.iter().any(|row| row.partition.is_some()).then(|| {
        let sides =
            |row: &FailoverRow| row.partition.iter().flat_map(PartitionSummary::cells).collect();
        let table = columns.table(SIDES_HEAD.to_vec(), rows, sides);
        Section::detail(
            "Both sides of the partition",
            vec![Block::Paragraph(SIDES_WORDS.to_owned()), table],
        )
    })
}

fn steps_section(columns: FailoverColumns, rows: &[FailoverRow]) -> Section {
    let table = columns.table(STEPS_HEAD.to_vec(), rows, |row| vec![row.step_cells()]);
    Section::detail("From the fault, medians over runs", vec![table])
}

fn return_section(columns: FailoverColumns, rows: &[FailoverRow]) -> Option<Section> {
    rows.iter().any(FailoverRow::has_rejoin_steps).then(|| {
        let table = columns.table(REJOIN_HEAD.to_vec(), rows, |row| vec![row.rejoin_cells()]);
        Section::detail(return_title(rows), vec![table])
    })
}

/// Clients over time, a picture a case.
fn clients(record: &FailoverRecord, rows: &[FailoverRow]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        if let Some(shown) = first_run(record, row).and_then(|run| run.timeline.as_ref()) {
            blocks.push(Block::Paragraph(row.describe()));
            blocks.push(Block::Picture(timeline(&format!("clients-{number}"), shown)));
        }
    }
    blocks
}

fn first_steps(record: &FailoverRecord, rows: &[FailoverRow]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for row in rows {
        let Some(run) = first_run(record, row) else { continue };
        let steps = run.steps.iter().take(STEPS_SHOWN);
        let steps: Vec<(String, String)> =
            steps.map(|step| (seconds(Some(step.at_s)), step.what.clone())).collect();
        if !steps.is_empty() {
            blocks.extend([Block::Paragraph(row.describe()), Block::Facts(steps)]);
        }
    }
    blocks
}

/// A run has about ten.
const STEPS_SHOWN: usize = 40;

fn engine_section(record: &FailoverRecord) -> Section {
    let topologies = record.topologies.iter();
    let engines: Vec<(String, String)> = topologies
        .map(|topology| (topology.engine.title().to_owned(), topology_words(topology)))
        .collect();
    let blocks = if engines.is_empty() { Vec::new() } else { vec![Block::Facts(engines)] };
    Section::detail("Engines and their settings", blocks)
}

fn how_blocks(record: &FailoverRecord) -> Vec<Block> {
    let mut blocks = vec![Block::Paragraph(
        "Each run has servers of its own. Transactions of clients fall due at even distances, before and \
         after the fault; every id is journalled before it is sent and after it is answered. Lost is what \
         was acknowledged and is absent in the end."
            .to_owned(),
    )];
    if !record.settings.is_empty() {
        blocks.push(Block::Paragraph("Settings of the servers:".to_owned()));
        blocks.push(settings(&record.settings));
    }
    blocks
}

/// The columns in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailoverColumns {
    /// There are other engines than repmgr.
    has_engines: bool,
}

impl FailoverColumns {
    fn from_failover(failover: &FailoverRecord) -> Self {
        Self { has_engines: failover.design.engines != [FailoverEngine::Repmgr] }
    }

    /// Rows of each case behind its name; beside several engines, below the name of each fault.
    fn table(
        self,
        head: Vec<&str>,
        rows: &[FailoverRow],
        cells: impl Fn(&FailoverRow) -> Vec<Vec<String>>,
    ) -> Block {
        let labels = if self.has_engines { ["engine", "settings"] } else { ["fault", "repmgrd"] };
        let head: Vec<&str> = labels.into_iter().chain(head).collect();
        let mut lines = Vec::new();
        let mut fault = None;
        for row in rows {
            if self.has_engines && fault.replace(row.fault) != Some(row.fault) {
                lines.push(vec![row.fault.name().to_owned()]);
            }
            let labels = row.labels(self);
            lines.extend(cells(row).into_iter().map(|cells| [labels.clone(), cells].concat()));
        }
        Block::Table(Table::new(&head, lines))
    }

    /// Outages and losses.
    fn outage_head(self) -> Vec<&'static str> {
        let own = ["runs", "median", "95 %", "max", "lost"];
        let last: &[&str] = if self.has_engines { &["losing"] } else { &["of acked", "unknown"] };
        [&own, last].concat()
    }
}

/// Columns of the way to service, and back.
const STEPS_HEAD: [&str; 5] = ["noticed", "promoted", "routed", "rejoin", "pages unsound"];

/// Columns of the old primary's return.
const REJOIN_HEAD: [&str; 5] = ["stopped", "checkpoint", "pg_rewind", "start", "streaming"];

/// All runs of a fault with one engine and one of its settings.
#[derive(Clone, Debug, PartialEq)]
struct FailoverRow {
    fault: FailoverFault,
    engine: FailoverEngine,
    detector: FailoverDetector,
    /// They are failovers back to the server that had been the primary.
    is_back: bool,
    /// In seconds, in the order of the runs.
    outages: Vec<f64>,
    /// They are lower bounds: the lab ended them by hand.
    are_bounds: bool,
    runs: usize,
    /// Runs in which the old primary was restarted and no standby promoted.
    restarted: usize,
    /// Acknowledged and lost transactions of runs whose final set was read.
    judged: Vec<(u64, u64)>,
    unknown: u64,
    noticed: Option<f64>,
    promoted: Option<f64>,
    routed: Option<f64>,
    rejoin: Option<f64>,
    unsound: Option<u64>,
    /// Medians, as in [`REJOIN_HEAD`].
    rejoin_steps: Vec<Option<f64>>,
    /// The summary of partitions.
    partition: Option<PartitionSummary>,
}

impl FailoverRow {
    fn new(runs: &[&FailoverRun], is_back: bool) -> Option<Self> {
        let first = runs.first()?;
        let middle = |value: fn(&FailoverRun) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
            median(&values)
        };
        Some(Self {
            fault: first.fault,
            engine: first.engine,
            detector: first.detector,
            is_back,
            outages: runs.iter().filter_map(|run| run.outage_s).collect(),
            are_bounds: runs.iter().any(|run| run.ended_by_hand_s.is_some()),
            runs: runs.len(),
            restarted: runs.iter().filter(|run| run.restarted_in_place).count(),
            judged: runs.iter().filter_map(|run| Some((run.acknowledged, run.lost?))).collect(),
            unknown: runs.iter().map(|run| run.unknown).fold(0, u64::saturating_add),
            noticed: middle(|run| run.noticed_s),
            promoted: middle(|run| run.promoted_s),
            routed: middle(|run| run.routed_s),
            rejoin: middle(|run| run.rejoin.as_ref().and_then(|rejoin| rejoin.seconds)),
            unsound: runs
                .iter()
                .filter_map(|run| run.rejoin.as_ref()?.unsound)
                .reduce(u64::saturating_add),
            rejoin_steps: REJOIN_HEAD.iter().map(|name| rejoin_step(runs, name)).collect(),
            partition: PartitionSummary::from_runs(runs),
        })
    }

    /// Describes the case of the row.
    fn describe(&self) -> String {
        let words = case_words(self.fault, self.engine, self.detector);
        if self.is_back { format!("{words}, back again") } else { words }
    }

    fn fault_cell(&self) -> String {
        let name = self.fault.name();
        if self.is_back { format!("{name}, back") } else { name.to_owned() }
    }

    /// The case, in two cells.
    fn labels(&self, columns: FailoverColumns) -> Vec<String> {
        if !columns.has_engines {
            return vec![self.fault_cell(), self.detector.name().to_owned()];
        }
        let back = if self.is_back { ", back" } else { "" };
        vec![format!("{}{back}", self.engine.name()), self.settings_cell()]
    }

    fn settings_cell(&self) -> String {
        if self.engine == FailoverEngine::None {
            return "-".to_owned();
        }
        self.detector.name().to_owned()
    }

    /// An outage, or what it is at least.
    fn outage(&self, value: Option<f64>) -> String {
        match value {
            Some(value) if self.are_bounds => format!(">{value:.1} s"),
            value => seconds(value),
        }
    }

    fn has_rejoin_steps(&self) -> bool {
        self.rejoin_steps.iter().any(Option::is_some)
    }

    /// As in [`REJOIN_HEAD`].
    fn rejoin_cells(&self) -> Vec<String> {
        self.rejoin_steps.iter().map(|step| seconds(*step)).collect()
    }

    fn median(&self) -> Option<f64> {
        median(&self.outages)
    }

    /// Returns the 95 % quantile, unless the runs are few: it would be the longest.
    fn p95(&self) -> Option<f64> {
        if self.outages.len() < RUNS_FOR_P95 { None } else { quantile(&self.outages, 0.95) }
    }

    fn longest(&self) -> Option<f64> {
        self.outages.iter().copied().reduce(f64::max)
    }

    fn acknowledged(&self) -> u64 {
        self.judged.iter().map(|(acknowledged, _)| *acknowledged).fold(0, u64::saturating_add)
    }

    fn lost(&self) -> u64 {
        self.judged.iter().map(|(_, lost)| *lost).fold(0, u64::saturating_add)
    }

    /// The share of runs that lose something, as far as these runs tell.
    fn losing(&self) -> String {
        let losing = self.judged.iter().filter(|(_, lost)| *lost > 0).count();
        let runs = self.judged.len();
        match proportion_interval(losing as u64, runs as u64) {
            None => "?".to_owned(),
            Some(_) if losing == 0 => format!("< {:.0} %", 100.0 * losing_share_bound(runs)),
            Some((low, high)) => format!("{:.0}-{:.0} %", 100.0 * low, 100.0 * high),
        }
    }

    /// As in [`FailoverColumns::outage_head`].
    fn outage_cells(&self, columns: FailoverColumns) -> Vec<String> {
        let is_judged = !self.judged.is_empty();
        let judged = |value| if is_judged { count(value) } else { "?".to_owned() };
        let mut cells = vec![
            self.runs.to_string(),
            self.outage(self.median()),
            self.outage(self.p95()),
            self.outage(self.longest()),
            judged(self.lost()),
        ];
        if columns.has_engines {
            cells.push(self.losing());
        } else {
            cells.extend([judged(self.acknowledged()), count(self.unknown)]);
        }
        cells
    }

    /// As in [`STEPS_HEAD`].
    fn step_cells(&self) -> Vec<String> {
        vec![
            seconds(self.noticed),
            seconds(self.promoted),
            seconds(self.routed),
            seconds(self.rejoin),
            self.unsound.map_or_else(|| "-".to_owned(), count),
        ]
    }

    /// Returns the answer in sentences.
    fn sentence(&self) -> Option<String> {
        let median = self.median()?;
        let longest = self.longest()?;
        let p95 = self.p95().map(|p95| format!(", 95 % within {p95:.2} s")).unwrap_or_default();
        let outage = if let Some(partition) = &self.partition {
            partition.describe(self.engine)
        } else if self.are_bounds {
            let shortest = self.outages.iter().copied().fold(median, f64::min);
            format!(
                "no service until pgtoll ended the fault by hand, after {shortest:.1} s at least ({})",
                counted(self.outages.len() as u64, "run", "runs")
            )
        } else if self.outages.len() == 1 {
            format!("no service for {median:.2} s (1 run)")
        } else {
            format!(
                "no service for {median:.2} s (median of {} runs{p95}, longest {longest:.2} s)",
                self.outages.len()
            )
        };
        let losing = self.judged.iter().filter(|(_, lost)| *lost > 0).count();
        let runs = self.judged.len();
        let loss = if runs == 0 {
            "losses are unknown".to_owned()
        } else if losing == 0 {
            format!(
                "0 of {} acknowledged transactions lost (none in {}: up to {:.0} % of runs may lose \
                 some, at 95 %)",
                count(self.acknowledged()),
                counted(runs as u64, "run", "runs"),
                100.0 * losing_share_bound(runs),
            )
        } else {
            format!(
                "{} of {} acknowledged transactions lost, in {losing} of {runs} runs",
                count(self.lost()),
                count(self.acknowledged()),
            )
        };
        let restarted = match self.restarted {
            0 => String::new(),
            restarted => format!(
                "; the old primary was restarted, and no standby promoted, in {restarted} of {} runs",
                self.runs
            ),
        };
        Some(format!("{}: {outage}; {loss}{restarted}.", self.describe()))
    }
}

/// The title of the table of returns.
fn return_title(rows: &[FailoverRow]) -> &'static str {
    let is_of_standby = |row: &FailoverRow| row.fault == FailoverFault::StandbyDeath;
    if rows.iter().all(is_of_standby) {
        "The standby's return, medians over runs"
    } else if rows.iter().any(is_of_standby) {
        "The return of the old primary, or of the dead standby, medians over runs"
    } else {
        "The old primary's return, medians over runs"
    }
}

/// The median time until a step of the old primary's return was done.
fn rejoin_step(runs: &[&FailoverRun], name: &str) -> Option<f64> {
    let of_run = |run: &&FailoverRun| {
        let steps = &run.rejoin.as_ref()?.steps;
        steps.iter().find(|step| step.what == name).map(|step| step.at_s)
    };
    median(&runs.iter().filter_map(of_run).collect::<Vec<_>>())
}

/// A 95 % quantile of fewer values is the largest of them.
const RUNS_FOR_P95: usize = 20;

/// The largest share of losing runs that would let this many runs all lose nothing with a probability
/// of 5 %.
fn losing_share_bound(runs: usize) -> f64 {
    let runs = f64::from(u32::try_from(runs).unwrap_or(u32::MAX));
    1.0 - 0.05_f64.powf(1.0 / runs)
}

fn case_words(fault: FailoverFault, engine: FailoverEngine, detector: FailoverDetector) -> String {
    let is_handover = fault.is_handover();
    let fault = match fault {
        FailoverFault::HostDeath => "Death of the primary's host",
        FailoverFault::Postmaster => "SIGKILL to the postmaster",
        FailoverFault::Partition => "Partition, clients on both sides",
        FailoverFault::Freeze => "Primary frozen, thawed after the promotion",
        FailoverFault::LinkCut => "Link between the servers cut",
        FailoverFault::WalFull => "The primary's WAL volume full",
        FailoverFault::IoFreeze => "The primary's disk frozen for a time",
        FailoverFault::StandbyDeath => "Death of the standby's host",
        FailoverFault::Switchover => "Handover by plan",
        FailoverFault::WalsenderHang => "Handover by plan beside a hung receiver of WAL",
    };
    let title = engine.title();
    match (engine, detector) {
        (FailoverEngine::Repmgr, _) if is_handover => format!("{fault}, PgBouncer paused"),
        (FailoverEngine::None, _) => format!("{fault}, {title}"),
        (_, FailoverDetector::Default) => format!("{fault}, {title}'s defaults"),
        (_, FailoverDetector::Fast) => format!("{fault}, {title}'s shortest times"),
        (_, FailoverDetector::None) => format!("{fault}, no time to notice (the floor)"),
    }
}

/// The case of a row.
type RowCase = (FailoverFault, FailoverEngine, FailoverDetector);

/// A row for each fault, each engine and each of its settings.
fn rows(failover: &FailoverRecord) -> Vec<FailoverRow> {
    let all = FailoverFault::ALL.into_iter().flat_map(|fault| {
        FailoverEngine::ALL
            .into_iter()
            .flat_map(move |engine| FailoverDetector::ALL.map(|detector| (fault, engine, detector)))
    });
    all.flat_map(|case: RowCase| {
        [false, true].map(|is_back| FailoverRow::new(&case_runs(failover, case, is_back), is_back))
    })
    .flatten()
    .collect()
}

/// Runs of a case, or the failovers back in them.
fn case_runs(failover: &FailoverRecord, case: RowCase, is_back: bool) -> Vec<&FailoverRun> {
    let own = failover.runs.iter().filter(|run| (run.fault, run.engine, run.detector) == case);
    own.filter_map(|run| if is_back { run.back.as_deref() } else { Some(run) }).collect()
}

/// The first run that a row is of.
fn first_run<'a>(failover: &'a FailoverRecord, row: &FailoverRow) -> Option<&'a FailoverRun> {
    case_runs(failover, (row.fault, row.engine, row.detector), row.is_back).into_iter().next()
}

fn subject_words(failover: &FailoverRecord) -> String {
    let wait = if failover.design.synchronous {
        "commits wait for the standby"
    } else {
        "commits do not wait for the standby"
    };
    let programs: Vec<&str> =
        std::iter::once(&failover.server).chain(&failover.engines).map(String::as_str).collect();
    let mut words = format!(
        "{}: a primary and {}, {wait}; {}, {} transactions a second; {}.",
        programs.join(", "),
        standby_words(failover),
        counted(u64::from(failover.design.clients), "client", "clients"),
        failover.design.rate_per_second,
        counted(failover.runs.len() as u64, "run", "runs"),
    );
    let loads: Vec<f64> = failover.runs.iter().filter_map(|run| run.load_average).collect();
    if let (Some(middle), Some(most)) = (median(&loads), loads.iter().copied().reduce(f64::max)) {
        let _ = write!(
            words,
            " The machine's load average before each run: median {middle:.1}, most {most:.1}."
        );
    }
    words.push_str(&end_words(failover.ended.as_deref(), failover.complete, "all runs were"));
    words
}

fn standby_words(failover: &FailoverRecord) -> &'static str {
    match (failover.design.third_node, failover.design.witness) {
        (false, false) => "a standby",
        (true, false) => "two standbys",
        (false, true) => "a standby, a witness",
        (true, true) => "two standbys, a witness",
    }
}

/// The outcome of second standbys, a sentence for each run.
fn third_words(failover: &FailoverRecord) -> Vec<String> {
    let thirds = failover.runs.iter().filter_map(|run| Some((run, run.third.as_ref()?)));
    let words = thirds.map(|(run, third)| {
        let past = match third.past_fork_bytes {
            Some(0) => "had no WAL that the promoted one lacked".to_owned(),
            Some(bytes) => format!(
                "was past the fork: it had {} bytes of WAL that the promoted one lacked",
                count(bytes)
            ),
            None => "could not be asked what WAL it had".to_owned(),
        };
        let followed = match &third.refused {
            None => "repmgr let it follow".to_owned(),
            Some(reason) => format!("repmgr refused to let it follow ({reason})"),
        };
        let rejoin = match &third.rejoin {
            None => String::new(),
            Some(rejoin) => match (&rejoin.error, rejoin.seconds) {
                (Some(error), _) => format!("; its return by pg_rewind failed: {error}"),
                (None, item) => format!("; it returned by pg_rewind in {}", seconds(item)),
            },
        };
        let fault = run.fault.name();
        let detector = run.detector.name();
        let number = run.number;
        format!("{fault}, {detector}, run {number}: it {past}; {followed}{rejoin}.")
    });
    words.collect()
}

/// Faults that could not be made, and why.
fn skipped_words(failover: &FailoverRecord) -> Vec<String> {
    let words = |fault: &SkippedFault| {
        let engine = fault.engine.map(|engine| format!(", {}", engine.name())).unwrap_or_default();
        format!("{}{engine}: {}", fault.fault.name(), fault.reason)
    };
    failover.skipped.iter().map(words).collect()
}

/// Versions, the clients' way in, and settings of an engine.
fn topology_words(topology: &EngineTopology) -> String {
    let versions = if topology.versions.is_empty() {
        String::new()
    } else {
        format!("{}; ", topology.versions.join(", "))
    };
    let own = [format!("{versions}clients enter by {}", topology.entry)];
    let words: Vec<String> =
        own.into_iter().chain(topology.settings.iter().map(settings_words)).collect();
    format!("{}.", words.join("; "))
}

/// The name of an engine's settings, and their values.
fn settings_words(settings: &pgtoll_record::EngineSettings) -> String {
    let values: Vec<String> =
        settings.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{}: {}", settings.detector.name(), values.join(", "))
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} s"))
}

#[cfg(test)]
mod tests;
