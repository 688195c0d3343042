//! The document of a checkup.

use pgtoll_estimate::{CheckupFigure, checkup_figures, percent_of_share};
use pgtoll_record::{
    CheckupRecord, LossBounds, Safety, SafetyRow, SafetyState, Spread, StandbyWindow,
};

use crate::document::{Block, Document, Section, Table, settings};
use crate::plugin::{PluginFacts, PluginFigure};
use crate::prediction_numbers::span;
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::{counted, size_of};

impl ReportedRecord for CheckupRecord {
    const HAS_GAUGES: bool = true;
    const IS_CHECK: bool = true;

    /// Figures have their upper bound.
    fn check(&self) -> Option<PluginFacts> {
        let count = |label, state| {
            let all = self.rows.iter().filter(|row| row.state == state);
            PluginFigure::count(label, all.count() as u64)
        };
        let counts =
            [count("missing", SafetyState::Missing), count("unknown", SafetyState::Unknown)];
        let unit = |unit| match unit {
            "bytes" => "B",
            "s" | "%" => unit,
            _ => "",
        };
        let upper = |figure: CheckupFigure| PluginFigure {
            label: figure.name,
            value: figure.upper,
            unit: unit(figure.unit),
        };
        let figures = checkup_figures(self).into_iter().filter(|figure| figure.upper.is_finite());
        Some(PluginFacts {
            made: self.made.parse().ok(),
            figures: counts.into_iter().chain(figures.map(upper)).collect(),
        })
    }

    fn gauges(&self) -> Option<String> {
        Some(crate::checkup_gauges::checkup_openmetrics(self))
    }

    /// Losses if the server died now, the safeties from the worst on, and the evidence.
    fn document(&self, options: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll checkup",
            question: "What does each safety of this server buy, and what does it cost?",
            subject: subject(self),
            answer: answer(self),
            again: self.command.clone(),
            ..Document::default()
        };
        let others = self.records.iter().filter(|named| named.is_own == Some(false));
        document.notes.extend(
            others.map(|named| format!("{} is of another cluster: not counted", named.path)),
        );
        document.notes.extend(self.watch.ended.iter().map(|why| format!("ended early: {why}")));
        if options.is_page {
            let table = Table::with_prose(&HEAD, self.rows.iter().map(cells).collect());
            document.push(Section::detail("Safeties", vec![Block::Table(table)]));
        } else {
            document.push(Section::detail("", vec![Block::Facts(facts(self, options.full))]));
        }
        document.push(unseen(self));
        document.sections.extend(evidence(self));
        document
    }
}

fn subject(checkup: &CheckupRecord) -> String {
    let server = &checkup.server;
    format!(
        "PostgreSQL {}, watched for {} as role {}: {}, {:.0} writing transactions and {} of WAL a second",
        server.version,
        span(checkup.watch.seconds),
        server.role,
        counted(checkup.watch.looks, "look", "looks"),
        checkup.watch.writes_per_second,
        size_of(checkup.watch.wal_bytes_per_second),
    )
}

/// The missing safeties, then the consequences of the host's death and of a corrupt page.
fn answer(checkup: &CheckupRecord) -> Vec<String> {
    let missing = checkup.rows.iter().filter(|row| row.state == SafetyState::Missing);
    let missing: Vec<&str> = missing.map(|row| row.safety.title()).collect();
    let first = if missing.is_empty() {
        "No safety that this role can see is missing.".to_owned()
    } else {
        format!("Missing: {}.", missing.join(", "))
    };
    let host = checkup.row(Safety::Standbys).map(|row| host_sentence(checkup, row));
    let page = checkup.row(Safety::DataChecksums).filter(|row| row.state == SafetyState::Missing);
    let page =
        page.map(|_| "A corrupt page would go unnoticed: data checksums are off.".to_owned());
    [Some(first), host, page].into_iter().flatten().collect()
}

/// The loss with the primary's host.
fn host_sentence(checkup: &CheckupRecord, row: &SafetyRow) -> String {
    let host = &checkup.server.host;
    let bounds = checkup.loss.as_ref().and_then(|loss| loss.host.as_ref());
    match (row.state, bounds) {
        (SafetyState::Partial, Some(LossBounds { confirmed, range: (lower, upper), .. })) => {
            format!(
                "If the host of {host} died now, {:.0} to {:.0} commits would be lost with it (median {:.0}).",
                lower.floor(),
                upper.ceil(),
                confirmed.median
            )
        }
        _ => format!("If the host of {host} died now: {}.", row.buys),
    }
}

const HEAD: [&str; 7] = ["safety", "state", "now", "buys", "costs", "advice", "known from"];

fn cells(row: &SafetyRow) -> Vec<String> {
    let advice = row.advice.clone().unwrap_or_default();
    let SafetyRow { now, buys, costs, basis, .. } = row;
    let words = [row.safety.title(), row.state.word(), now, buys, costs, &advice, basis];
    words.map(str::to_owned).to_vec()
}

/// Those that are not held, each in a few lines; the others in one, unless all are asked for.
fn facts(checkup: &CheckupRecord, all: bool) -> Vec<(String, String)> {
    let (held, open): (Vec<&SafetyRow>, Vec<&SafetyRow>) =
        checkup.rows.iter().partition(|row| row.state == SafetyState::Held && !all);
    let mut facts: Vec<(String, String)> = open.into_iter().map(fact).collect();
    let held: Vec<&str> = held.iter().map(|row| row.safety.title()).collect();
    if !held.is_empty() {
        facts.push((SafetyState::Held.word().to_owned(), held.join(", ")));
    }
    facts
}

fn fact(row: &SafetyRow) -> (String, String) {
    let parts = [
        Some(row.now.clone()),
        Some(format!("Buys: {}", row.buys)),
        (!row.costs.is_empty()).then(|| format!("Costs: {}", row.costs)),
        row.advice.as_ref().map(|advice| format!("-> {advice}")),
    ];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    (format!("{:<7}  {}", row.state.word(), row.safety.title()), words.join(". "))
}

/// Sources hidden from the role, with the grants that show them.
fn unseen(checkup: &CheckupRecord) -> Option<Section> {
    let hidden = checkup.sources.iter().filter(|source| !source.available);
    let lines: Vec<String> = hidden
        .map(|source| {
            let remedy = source.remedy.as_ref().map(|remedy| format!(": {remedy}"));
            format!("{} ({}){}", source.name, source.gives, remedy.unwrap_or_default())
        })
        .collect();
    (!lines.is_empty()).then(|| Section::detail("Not seen by this role", vec![Block::List(lines)]))
}

fn evidence(checkup: &CheckupRecord) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(loss) = &checkup.loss {
        let host = loss.host.as_ref().map(|bounds| bound_rows("the standby that is ahead", bounds));
        let standbys =
            loss.standbys.iter().flat_map(|standby| bound_rows(&standby.name, &standby.loss));
        let crash = spread_row("not flushed here", &loss.crash);
        let rows = std::iter::once(crash).chain(host.into_iter().flatten()).chain(standbys);
        let table = Table::new(&["commits lacking", "median", "95 %", "most"], rows.collect());
        sections.push(Section::evidence("Commits at each look", vec![Block::Table(table)]));
        let rows: Vec<Vec<String>> = loss.standbys.iter().map(lags).collect();
        if !rows.is_empty() {
            let head = ["standby", "state", "looks", "remote_write", "on", "remote_apply"];
            let table = Block::Table(Table::new(&head, rows));
            let text =
                "The median time that each level of synchronous_commit would add to a commit.";
            let blocks = vec![Block::Paragraph(text.to_owned()), table];
            sections.push(Section::evidence("Standbys", blocks));
        }
    }
    if let Some(recovery) = &checkup.recovery {
        let Spread { median, p95, most } = recovery.wal_bytes;
        let (slow, fast) = recovery.bytes_per_second;
        let facts = vec![
            ("WAL since the redo point, median".to_owned(), size_of(median)),
            ("95 % of the looks".to_owned(), size_of(p95)),
            ("most, or what the settings allow at this rate".to_owned(), size_of(most)),
            ("recovered a second".to_owned(), format!("{} to {}", size_of(slow), size_of(fast))),
        ];
        sections.push(Section::evidence("Recovery", vec![Block::Facts(facts)]));
    }
    if let Some(prediction) = &checkup.prediction {
        let lines = prediction.answers.iter().map(|answer| answer.headline.clone()).collect();
        sections.push(Section::evidence("Predicted costs", vec![Block::List(lines)]));
    }
    sections.push(Section::evidence("Settings", vec![settings(&checkup.server.settings)]));
    let cost = &checkup.watch.cost;
    let unit = if cost.is_cpu { "of a core" } else { "of the time, until answers came" };
    let text = format!(
        "{} statements took {} {unit}, without those of the prediction.",
        cost.statements,
        percent_of_share(cost.share_of_core)
    );
    sections.push(Section::evidence("Cost of the looks", vec![Block::Paragraph(text)]));
    sections
}

fn bound_rows(name: &str, bounds: &LossBounds) -> Vec<Vec<String>> {
    vec![
        spread_row(&format!("{name}: not confirmed"), &bounds.confirmed),
        spread_row(&format!("{name}: not sent"), &bounds.sent),
    ]
}

fn spread_row(name: &str, spread: &Spread) -> Vec<String> {
    let number = |value: f64| format!("{value:.1}");
    vec![name.to_owned(), number(spread.median), number(spread.p95), number(spread.most)]
}

fn lags(standby: &StandbyWindow) -> Vec<String> {
    let lag = |lag: Option<Spread>| {
        lag.map_or_else(|| "-".to_owned(), |lag| format!("{:.1} ms", lag.median))
    };
    let StandbyWindow { name, sync_state, looks, .. } = standby;
    vec![
        name.clone(),
        sync_state.clone(),
        looks.to_string(),
        lag(standby.write_lag_ms),
        lag(standby.flush_lag_ms),
        lag(standby.replay_lag_ms),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use pgtoll_record::{CHECKUP_SCHEMA, CheckedServer, CheckupWatch, LossWindow, WatchSource};

    use super::*;

    pub(crate) fn record() -> CheckupRecord {
        let row =
            |safety, state, now: &str, buys: &str, costs: &str, advice: Option<&str>| SafetyRow {
                safety,
                state,
                now: now.to_owned(),
                buys: buys.to_owned(),
                costs: costs.to_owned(),
                advice: advice.map(str::to_owned),
                basis: "pg_settings".to_owned(),
            };
        let spread = |median, p95, most| Spread { median, p95, most };
        let loss = LossBounds {
            confirmed: spread(12.0, 37.0, 60.0),
            sent: spread(0.0, 3.0, 8.0),
            range: (0.0, 41.0),
        };
        CheckupRecord {
            schema: CHECKUP_SCHEMA.to_owned(),
            command: ["pgtoll", "checkup", "--dsn", "host=db1"].map(str::to_owned).to_vec(),
            server: CheckedServer {
                host: "db1".to_owned(),
                version: "17.10".to_owned(),
                role: "monitor".to_owned(),
                ..CheckedServer::default()
            },
            watch: CheckupWatch {
                seconds: 900.0,
                looks: 9_000,
                writes_per_second: 210.0,
                wal_bytes_per_second: 1.2e6,
                ..CheckupWatch::default()
            },
            loss: Some(LossWindow {
                crash: spread(0.0, 1.0, 2.0),
                host: Some(loss),
                standbys: vec![StandbyWindow {
                    name: "db2".to_owned(),
                    sync_state: "async".to_owned(),
                    looks: 9_000,
                    loss,
                    write_lag_ms: Some(spread(0.8, 2.0, 9.0)),
                    flush_lag_ms: Some(spread(1.9, 3.0, 12.0)),
                    replay_lag_ms: None,
                    replay_bytes_per_second: None,
                }],
            }),
            rows: vec![
                row(
                    Safety::DataChecksums,
                    SafetyState::Missing,
                    "off",
                    "1,200,000 pages a day are read unchecked",
                    "CPU +0.2 % to +1.1 %, WAL +0.5 % to +3.0 %; once: away 12 min",
                    Some("a standby first: stop it, enable there, start it, switch over"),
                ),
                row(
                    Safety::Standbys,
                    SafetyState::Partial,
                    "db2 (async)",
                    "the loss of the host loses 0 to 41 commits (median 12, most 60)",
                    "to wait for it: remote_write +0.8 ms, on +1.9 ms a commit",
                    Some("name a standby in synchronous_standby_names if no commit may be lost"),
                ),
                row(Safety::Fsync, SafetyState::Held, "on", "a crash corrupts nothing", "", None),
                row(Safety::Autovacuum, SafetyState::Held, "on", "freezes rows", "", None),
            ],
            sources: vec![WatchSource {
                name: "redo point".to_owned(),
                available: false,
                gives: "time to recover from a crash".to_owned(),
                remedy: Some("GRANT pg_monitor TO monitor;".to_owned()),
            }],
            ..CheckupRecord::default()
        }
    }

    #[test]
    fn the_worst_comes_first_and_what_is_held_in_one_line() {
        let text = ReportedRecord::text(&record(), &TableOptions::default());
        insta::assert_snapshot!(text);
        assert!(text.lines().count() <= 24, "{text}");
    }

    #[test]
    fn a_page_has_every_safety_and_the_evidence() {
        let page = record().html();
        for word in ["Commits at each look", "remote_apply", "autovacuum", "known from"] {
            assert!(page.contains(word), "{word}");
        }
    }
}
