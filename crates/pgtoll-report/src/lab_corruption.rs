//! The document of a damaged page under replication, and of a failover away from it.

use pgtoll_record::{
    CorruptionFailover, CorruptionRecord, DamageSpread, PrintedRecord as _, RowState,
};
use pgtoll_stats::median;

use crate::document::{Block, Document, Section, settings};
use crate::html::timeline;
use crate::records::{ReportedRecord, TableOptions};
use crate::text::end_words;
use crate::wal_numbers::{count, counted};

impl ReportedRecord for CorruptionRecord {
    /// The answer, what became of the rows, the times of the failovers, and how it was found.
    fn document(&self, _: &TableOptions) -> Document {
        let shown = self.failovers.iter().find_map(|failover| failover.timeline.as_ref());
        let writers = shown.map(|shown| {
            let picture = Block::Picture(timeline("writers-over-time", shown));
            Section::evidence("Writers over time, in the first failover", vec![picture])
        });
        let sections = [
            Section::table("Does the damage reach the standby?", &SPREAD_HEAD, spread_rows(self)),
            Section::table("Failover away from the damage", &STEP_HEAD, step_rows(self)),
            Section::table("Writers", &WRITER_HEAD, writer_rows(self)),
            writers,
            Some(Section::evidence("How it was found", how_section(self))),
        ];
        Document {
            command: "pgtoll lab corruption",
            question: "What becomes of a damaged page?",
            subject: subject_words(self),
            answer: answer(self),
            findings: self.conclusion().sentences(),
            sections: sections.into_iter().flatten().collect(),
            notes: self.notes.clone(),
            again: self.command.clone(),
        }
    }
}

fn how_section(record: &CorruptionRecord) -> Vec<Block> {
    let design = &record.design;
    vec![
        Block::Paragraph(format!(
            "Writers begin {} transactions a second, by {} clients, for {} s; after a third of that a \
             reader meets the damaged page. A watcher looks at the counters of checksum failures every {} s.",
            design.rate_per_second, design.clients, design.seconds, design.poll_s
        )),
        Block::Paragraph("Settings of the servers:".to_owned()),
        settings(&record.settings),
    ]
}

const SPREAD_HEAD: [&str; 5] =
    ["pages", "update beside", "primary's row", "standby before", "standby after"];
const STEP_HEAD: [&str; 3] = ["seconds since the reader's error", "median", "longest"];
const WRITER_HEAD: [&str; 3] = ["of each failover", "median", "most"];

/// As in [`SPREAD_HEAD`].
fn spread_rows(corruption: &CorruptionRecord) -> Vec<Vec<String>> {
    let row = |spread: &DamageSpread| {
        vec![
            if spread.checksums { "with checksums" } else { "without checksums" }.to_owned(),
            if spread.update_error.is_some() { "refused" } else { "done" }.to_owned(),
            state_word(spread.primary_after).to_owned(),
            state_word(spread.standby_before).to_owned(),
            state_word(spread.standby_after).to_owned(),
        ]
    };
    corruption.spread.iter().map(row).collect()
}

fn state_word(state: RowState) -> &'static str {
    match state {
        RowState::Right => "right",
        RowState::Wrong => "wrong",
        RowState::Error => "error",
    }
}

type Step = (&'static str, fn(&CorruptionFailover) -> Option<f64>);
const STEPS: [Step; 7] = [
    ("the watcher noticed", |item| Some(item.noticed_s)),
    ("the standby had read the table", |item| Some(item.verified_s)),
    ("writers were held back", |item| item.paused_s),
    ("the old primary had stopped", |item| Some(item.stopped_s)),
    ("the standby was promoted", |item| Some(item.promoted_s)),
    ("the row was readable again", |item| Some(item.readable_s)),
    ("(longest gap of the writers)", |item| item.gap_s),
];

/// As in [`STEP_HEAD`].
fn step_rows(corruption: &CorruptionRecord) -> Vec<Vec<String>> {
    let row = |(name, value): Step| {
        let values: Vec<f64> = corruption.failovers.iter().filter_map(value).collect();
        let most = values.iter().copied().reduce(f64::max)?;
        Some(vec![name.to_owned(), format!("{:.2}", median(&values)?), format!("{most:.2}")])
    };
    STEPS.into_iter().filter_map(row).collect()
}

type Count = (&'static str, fn(&CorruptionFailover) -> Option<u64>);
const COUNTS: [Count; 4] = [
    ("transactions acknowledged", |item| Some(item.acknowledged)),
    ("acknowledged and lost", |item| item.lost),
    ("failed", |item| Some(item.failed)),
    ("of unknown outcome", |item| Some(item.unknown)),
];

/// As in [`WRITER_HEAD`].
fn writer_rows(corruption: &CorruptionRecord) -> Vec<Vec<String>> {
    let row = |(name, value): Count| {
        let mut values: Vec<u64> = corruption.failovers.iter().filter_map(value).collect();
        values.sort_unstable();
        let middle = values.get(values.len() / 2)?;
        let most = values.last()?;
        Some(vec![name.to_owned(), count(*middle), count(*most)])
    };
    COUNTS.into_iter().filter_map(row).collect()
}

/// Returns the answer in sentences.
fn answer(corruption: &CorruptionRecord) -> Vec<String> {
    let spread = corruption.spread.iter().map(spread_sentence);
    spread.chain(failover_sentence(corruption)).collect()
}

fn spread_sentence(spread: &DamageSpread) -> String {
    let pages = if spread.checksums { "With checksums" } else { "Without checksums" };
    let update = if spread.update_error.is_some() {
        "the update of a row beside the damage was refused"
    } else {
        "an update of a row beside the damage logged the damaged page as a whole"
    };
    let standby = match spread.standby_after {
        RowState::Right => "the standby stayed right",
        RowState::Wrong => "the standby is wrong too, and no server reported an error",
        RowState::Error => "the standby cannot read the row",
    };
    format!("{pages} {update}: {standby}.")
}

fn failover_sentence(corruption: &CorruptionRecord) -> Option<String> {
    let gaps: Vec<f64> =
        corruption.failovers.iter().filter_map(|failover| failover.gap_s).collect();
    let longest = gaps.iter().copied().reduce(f64::max)?;
    let lost = corruption
        .failovers
        .iter()
        .try_fold(0_u64, |sum, failover| Some(sum.saturating_add(failover.lost?)));
    let lost = lost.map_or_else(
        || "the number of lost acknowledged transactions is unknown".to_owned(),
        |lost| {
            format!(
                "{} lost",
                counted(lost, "acknowledged transaction", "acknowledged transactions")
            )
        },
    );
    Some(format!(
        "{} away from the page: writers had no acknowledgement for {:.2} s (median; {longest:.2} s at \
         most), {lost}{}.",
        counted(corruption.failovers.len() as u64, "failover", "failovers"),
        median(&gaps)?,
        loss_bound(corruption)
    ))
}

/// Returns the upper bound of the share of runs with a loss, if these have none, at 95 %.
fn loss_bound(corruption: &CorruptionRecord) -> String {
    let runs = f64::from(u32::try_from(corruption.failovers.len()).unwrap_or(u32::MAX));
    let bound = 1.0 - 0.05_f64.powf(1.0 / runs);
    // A few runs say nothing of the others.
    if bound > 0.5 || corruption.failovers.iter().any(|failover| failover.lost != Some(0)) {
        return String::new();
    }
    format!(" (at most {:.0} % of such failovers lose any, at 95 %)", bound * 100.0)
}

fn subject_words(corruption: &CorruptionRecord) -> String {
    let server = &corruption.server;
    let entry = &corruption.design.entry;
    let mut words = format!(
        "{server}, a primary with a damaged page and its standby; writers connect to {entry}."
    );
    words.push_str(&end_words(corruption.ended.as_deref(), corruption.complete, "all runs were"));
    words
}
