//! A prediction as text: the decision first.

use std::fmt::Write as _;

use pgtoll_estimate::percent_of_share;
use pgtoll_record::{
    AdvisedAction, BlindCheck, Interval, OneTimeBill, PredictedCpu, PredictedWal, PredictionAnswer,
    PredictionBasis, PredictionChecks, PredictionRecord, ServerWatch, WatchWindow, WatchedWal,
};

use crate::payers::payers_text;
use crate::prediction_numbers::{cores, per_second, rate, span};
use crate::text::{Block, aligned, wrapped};
use crate::wal_numbers::{count, counted, size};

/// Returns the advice, the figures with their ranges, the one-time cost, and the basis of the figures.
pub(crate) fn prediction_text(prediction: &PredictionRecord) -> String {
    let mut text = wrapped("", &subject_words(prediction));
    for answer in &prediction.answers {
        text.push('\n');
        text.push_str(&answer_text(prediction, answer));
    }
    if let Some(bill) = &prediction.one_time {
        text.push_str(&bill_text(bill));
    }
    text.push_str(&payers_text(prediction));
    let checked = check_lines(&prediction.checks);
    if !checked.is_empty() {
        text.push_str("\nchecked\n");
        for line in checked {
            text.push_str(&wrapped("  ", &line));
        }
    }
    text.push_str("\nseen\n");
    for line in seen_lines(prediction) {
        text.push_str(&wrapped("  ", &line));
    }
    for note in &prediction.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text
}

/// Returns the server and the time of the watch.
pub(crate) fn subject_words(prediction: &PredictionRecord) -> String {
    let cycles = prediction.watch.windows.iter().filter(|window| window.is_cycle).count();
    let label = if cycles > 0 {
        counted(cycles as u64, "checkpoint cycle", "checkpoint cycles")
    } else {
        "no whole checkpoint cycle".to_owned()
    };
    let where_to = if prediction.server.local { "on this machine" } else { "remote" };
    let mut words = format!(
        "PostgreSQL {}, {where_to}, watched for {}: {label}.",
        prediction.server.version,
        span(prediction.watch.seconds)
    );
    if let Some(ended) = &prediction.watch.ended {
        let _ = write!(words, " Watching ended early: {ended}.");
    }
    words
}

fn bill_text(bill: &OneTimeBill) -> String {
    let mut text = "\nonce\n".to_owned();
    for line in bill_lines(bill) {
        text.push_str(&wrapped("  ", &line));
    }
    for route in &bill.routes {
        let mark = if route.recommended.is_some() { "  * " } else { "  - " };
        text.push_str(&wrapped(mark, &format!("{}: away {}", route.name, route.away)));
    }
    for (title, lines) in [("afterwards", &bill.afterwards), ("not noticed", &bill.undetected)] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for line in lines {
            text.push_str(&wrapped("  - ", line));
        }
    }
    text
}

fn answer_text(prediction: &PredictionRecord, answer: &PredictionAnswer) -> String {
    let mut text = String::new();
    let remedies = remedy_words(prediction, answer);
    if let Some(advice) = &answer.advice {
        let _ = writeln!(text, "{}", action_words(advice.action));
        text.push_str(&wrapped("  ", &answer.headline));
        push_remedies(&mut text, &remedies);
        text.push_str(&wrapped("  decides: ", &advice.decides));
        text.push_str(&wrapped("  rule:    ", &advice.rule));
        if let Some(words) = prediction.one_time.as_ref().and_then(route_words) {
            text.push_str(&wrapped("  way:     ", &words));
        }
    } else {
        text.push_str(&wrapped("", &answer.headline));
        push_remedies(&mut text, &remedies);
    }
    if let Some(reason) = &answer.reason {
        text.push_str(&wrapped("  why:     ", reason));
    }
    let rows = rows(answer);
    if !rows.is_empty() {
        let head = HEAD.map(str::to_owned).to_vec();
        let blocks: Vec<Block> = Vec::new();
        let rows = std::iter::once(head).chain(rows.into_iter().map(Vec::from)).collect();
        text.push('\n');
        text.push_str(&aligned(rows, blocks));
    }
    if let Some(wal) = &answer.wal {
        text.push_str(&wrapped("  WAL by: ", &basis_words(wal)));
    }
    if let Some(cpu) = answer.cpu.as_ref().filter(|cpu| cpu.read_cores != 0.0) {
        text.push_str(&wrapped("  verified by: ", &cpu.payer));
    }
    text
}

fn push_remedies(text: &mut String, remedies: &[String]) {
    for remedy in remedies {
        text.push_str(&wrapped("  narrower: ", remedy));
    }
}

/// Returns what would narrow a range of WAL that is too wide to decide.
pub(crate) fn remedy_words(
    prediction: &PredictionRecord,
    answer: &PredictionAnswer,
) -> Vec<String> {
    let remedies = prediction.remedies(answer).into_iter();
    remedies.filter_map(|source| source.remedy.clone()).collect()
}

/// Returns the action in the imperative.
pub(crate) fn action_words(action: AdvisedAction) -> &'static str {
    match action {
        AdvisedAction::TurnOn => "Turn data checksums on.",
        AdvisedAction::MeasureFirst => "Measure first.",
        AdvisedAction::Leave => "Leave data checksums off, or make room for them first.",
    }
}

/// The way to take, why, and how long the server is away.
pub(crate) fn route_words(bill: &OneTimeBill) -> Option<String> {
    let route = bill.routes.iter().find(|route| route.recommended.is_some())?;
    let why = route.recommended.as_deref()?;
    Some(format!("{} ({why}); away {}", route.name, route.away))
}

/// Titles of the table's columns.
pub(crate) const HEAD: [&str; 5] = ["", "today", "more", "range", "p95"];

/// Rows of the table.
pub(crate) fn rows(answer: &PredictionAnswer) -> Vec<[String; 5]> {
    let mut rows = Vec::new();
    if let Some(wal) = &answer.wal {
        rows.push(row(
            "WAL",
            rate(wal.baseline_bytes_per_second),
            &wal.extra_bytes_per_second,
            rate,
            wal.extra_p95_bytes_per_second.map(rate),
        ));
        if let Some(share) = &wal.extra_share {
            rows.push(row("of today's WAL", String::new(), share, percent_of_share, None));
        }
        if let Some(images) = &wal.images_per_second {
            rows.push(row("page images", String::new(), images, per_second, None));
        }
    }
    if let Some(io) = &answer.io_bytes_per_second {
        rows.push(row("WAL, all copies", String::new(), io, rate, None));
    }
    if answer.wal.as_ref().is_some_and(|wal| wal.basis == PredictionBasis::Counters) {
        // The middle of bounds is no estimate.
        for [_, _, more, _, p95] in &mut rows {
            "not known".clone_into(more);
            p95.clear();
        }
    }
    if let Some(cpu) = &answer.cpu {
        rows.push(row("CPU in cores", String::new(), &cpu.cores, cores, None));
        if let Some(share) = &cpu.share_of_busy {
            rows.push(row("of today's CPU", String::new(), share, percent_of_share, None));
        }
        rows.extend(cpu_parts(cpu));
    }
    rows
}

fn cpu_parts(cpu: &PredictedCpu) -> Vec<[String; 5]> {
    let part = |name: &str, value: f64| {
        [name.to_owned(), String::new(), cores(value), String::new(), String::new()]
    };
    let parts = [
        ("  pages read", cpu.read_cores),
        ("  pages written", cpu.write_cores),
        ("  page images", cpu.image_cores),
    ];
    parts
        .into_iter()
        .filter(|(_, part)| *part != 0.0)
        .map(|(name, item)| part(name, item))
        .collect()
}

fn row(
    name: &str,
    today: String,
    interval: &Interval,
    words: fn(f64) -> String,
    p95: Option<String>,
) -> [String; 5] {
    let range = if interval.lower.to_bits() == interval.upper.to_bits() {
        "exactly".to_owned()
    } else {
        format!("{} to {}", words(interval.lower), words(interval.upper))
    };
    [name.to_owned(), today, words(interval.estimate), range, p95.unwrap_or_default()]
}

/// The estimator in words, and what others come to.
pub(crate) fn basis_words(wal: &PredictedWal) -> String {
    let mut words = match wal.basis {
        PredictionBasis::CensusAndEvictions => {
            "dirty pages with an LSN before the checkpoint, counted, and their share of evicted \
             ones, by censuses over the checkpoint cycle (E2+)"
        }
        PredictionBasis::Statements => {
            "what SELECTs dirtied (E1'), less the share that is evicted: right for readers that set \
             hints, nothing of VACUUM's, wrong either way where many pages are evicted; so the range \
             reaches from none to all pages written that were not logged whole"
        }
        PredictionBasis::Counters => {
            "bounds alone: pages written that were not logged whole; within them nothing is known"
        }
        PredictionBasis::AlreadyLogged => "settings: what hints log does not change",
        PredictionBasis::AlreadySo => "settings: nothing changes",
        PredictionBasis::ClosedForm => "counters, and what checkpoints follow",
        PredictionBasis::WhatIf => "the server's own WAL, replayed with this value (what-if)",
        PredictionBasis::PagesWritten => {
            "pages written that no WAL record changed (E3), at least those that records only mark \
             all-visible (E4): without evictions a count, else bounds"
        }
    }
    .to_owned();
    let estimators: Vec<String> = wal
        .estimators
        .iter()
        .map(|(name, images)| format!("{name} {}", per_second(*images)))
        .collect();
    if !estimators.is_empty() {
        let _ = write!(words, "; images by estimator: {}", estimators.join(", "));
    }
    words
}

/// The one-time bill, a sentence each.
pub(crate) fn bill_lines(bill: &OneTimeBill) -> Vec<String> {
    let mut lines = Vec::new();
    match (bill.pass_bytes, bill.pass_seconds) {
        (Some(bytes), Some((least, most))) if bill.pass_sample_bytes.is_some() => {
            lines.push(format!(
                "All {} of relations are read and written once, offline: {} to {} with one thread, by \
                 a sample of {} of these files that was read here. Then a new base backup.",
                size(bytes),
                span(least),
                span(most),
                size(bill.pass_sample_bytes.unwrap_or(0))
            ));
        }
        (Some(bytes), Some((least, most))) => lines.push(format!(
            "All {} are read and written once, offline: {} where memory has them, {} on a slow \
             disk (100 MB/s). Then a new base backup.",
            size(bytes),
            span(least),
            span(most)
        )),
        _ => lines.push("All files are read and written once; their size is unknown.".to_owned()),
    }
    match bill.first_touch_bytes {
        Some(bytes) => lines.push(format!(
            "The first SELECT or VACUUM of pages that are not all-visible logs them: at most {} \
             of WAL.",
            size(bytes)
        )),
        None => lines.push("First touches log no more than today.".to_owned()),
    }
    lines
}

/// Returns the basis of the figures: today's rates, sources, the cost of the watch.
pub(crate) fn seen_lines(prediction: &PredictionRecord) -> Vec<String> {
    let today = &prediction.today;
    let mut lines = vec![format!(
        "Today: {} of WAL, {:.0} blocks read and {:.0} written a second{}.",
        rate(today.wal_bytes_per_second),
        today.reads_per_second,
        today.writes_per_second,
        today.busy_cores.map_or_else(String::new, |busy| format!(", {busy:.3} cores busy"))
    )];
    let costs = &prediction.page_costs;
    let by = if costs.timed { "timed here" } else { "by pgtoll's table" };
    lines.push(format!(
        "CPU for a page by the server's kernel ({}, {by}): {:.0} ns read, {:.0} ns written, \
         {:.0} ns logged.",
        costs.kernel, costs.read_ns.estimate, costs.write_ns.estimate, costs.image_ns.estimate
    ));
    lines.extend(census_lines(&prediction.watch));
    lines.extend(prediction.watch.wal.as_ref().map(wal_line));
    for source in prediction.watch.sources.iter().filter(|source| !source.available) {
        let remedy =
            source.remedy.as_ref().map_or_else(String::new, |remedy| format!(" ({remedy})"));
        lines.push(format!("Not read: {}, which gives {}.{remedy}", source.name, source.gives));
    }
    for discarded in &prediction.watch.discarded {
        lines.push(format!("Left out: {discarded}."));
    }
    let cost = &prediction.watch.cost;
    let kind = if cost.is_cpu { "of server CPU" } else { "until answers came" };
    lines.push(format!(
        "Watching took {:.2} s {kind}, {:.2} % of a core, in {}.",
        cost.seconds,
        cost.share_of_core * 100.0,
        counted(cost.statements, "statement", "statements")
    ));
    lines
}

/// Returns the WAL that was read, and its cost for the server.
fn wal_line(wal: &WatchedWal) -> String {
    let mut line = format!(
        "WAL read: {} in {} from {} to {}, {}, {} whole",
        size(wal.bytes),
        span(wal.seconds),
        wal.from,
        wal.to,
        counted(wal.redo_points, "redo point", "redo points"),
        counted(wal.cycles.len() as u64, "cycle", "cycles")
    );
    let check = &wal.check;
    let _ = write!(
        line,
        "; its redo points explain {} of {} images",
        count(check.images.saturating_sub(check.unpredicted)),
        count(check.images)
    );
    match wal.sender_cpu_seconds {
        Some(seconds) => {
            let share = 100.0 * seconds / wal.seconds.max(0.001);
            let _ = write!(
                line,
                ". Sending it took {seconds:.2} s of server CPU, {share:.2} % of a core"
            );
        }
        None => line.push_str(". What sending it took of server CPU is unknown"),
    }
    line.push('.');
    line
}

/// Predictions of what was seen, beside it.
pub(crate) fn check_lines(checks: &PredictionChecks) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(next) = &checks.next_cycle {
        let mut line = format!(
            "Next cycle: WAL a second of {} predicted by those before, off by {} on average and {} at \
             most",
            counted(next.cycles, "checkpoint cycle", "checkpoint cycles"),
            percent_of_share(next.wal_error),
            percent_of_share(next.wal_error_most)
        );
        if let Some((mean, most)) = next.images_error.zip(next.images_error_most) {
            let mean = percent_of_share(mean);
            let most = percent_of_share(most);
            let _ = write!(line, "; images by {mean} and {most}");
        }
        lines.push(line + ".");
    }
    if let Some(error) = checks.own_settings_error {
        let direction = if error < 0.0 { "less" } else { "more" };
        let amount = percent_of_share(error.abs());
        lines.push(format!("Today's settings, replayed: {amount} {direction} WAL than was read."));
    }
    if let Some(blind) = &checks.blind {
        lines.extend(blind_lines(blind));
    }
    lines
}

fn blind_lines(blind: &BlindCheck) -> [String; 2] {
    let Interval { estimate, lower, upper } = blind.predicted_share;
    let found = blind.found_share;
    let images = &blind.predicted_images;
    let [estimate_words, lower, upper] = [estimate, lower, upper].map(percent_of_share);
    let holds = if blind.holds { "in the range" } else { "not in the range" };
    let share = format!(
        "Blind, as if hints were not logged: they would add {estimate_words} of WAL [{lower} to \
         {upper}]. In the WAL it is {}: {:+.1} points, {holds}.",
        percent_of_share(found),
        (estimate - found) * 100.0
    );
    let pages = format!(
        "That is by {} blocks written ({} of them evicted) less {} pages that WAL records changed, in \
         {}: {:.0} images [{:.0} to {:.0}]; in the WAL {}.",
        count(blind.written_blocks),
        count(blind.evicted_blocks),
        count(blind.changed_pages),
        counted(blind.cycles, "checkpoint cycle", "checkpoint cycles"),
        images.estimate,
        images.lower,
        images.upper,
        count(blind.found_images)
    );
    [share, pages]
}

fn census_lines(watch: &ServerWatch) -> Option<String> {
    let censuses: Vec<_> = watch.windows.iter().flat_map(WatchWindow::censuses).collect();
    let last = watch.windows.iter().filter_map(|window| window.census.as_ref()).next_back()?;
    Some(format!(
        "{}; the last: {} dirty pages, {} looked at, {} of them changed by hints alone.",
        counted(censuses.len() as u64, "census of dirty pages", "censuses of dirty pages"),
        count(last.dirty),
        count(last.sampled),
        count(last.hint_only)
    ))
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{WATCHED_PAGES, WATCHED_WAL, WatchSource};

    use super::*;

    fn record() -> PredictionRecord {
        serde_json::from_str(include_str!("../tests/fixtures/prediction.json")).unwrap()
    }

    #[test]
    fn what_would_narrow_a_wide_range_stands_below_the_headline() {
        let mut record = record();
        let source = |name: &str, remedy: &str| WatchSource {
            name: name.to_owned(),
            available: false,
            gives: String::new(),
            remedy: Some(remedy.to_owned()),
        };
        record.watch.sources =
            vec![source(WATCHED_PAGES, "CREATE EXTENSION"), source(WATCHED_WAL, "--wal stream")];
        assert!(!prediction_text(&record).contains("narrower"));
        let wide = Interval { estimate: 0.1, lower: 0.0, upper: 0.4 };
        record.answers[0].wal.as_mut().unwrap().extra_share = Some(wide);
        let text = prediction_text(&record);
        let expected = "  narrower: --wal stream\n  narrower: CREATE EXTENSION\n  decides: ";
        assert!(text.contains(expected), "{text}");
        // Hints are logged already: pages say nothing of what they save.
        record.server.settings.insert("wal_log_hints".to_owned(), "on".to_owned());
        assert!(!prediction_text(&record).contains("narrower: CREATE EXTENSION"));
        record.answers[0].wal = None;
        assert!(prediction_text(&record).contains("narrower: --wal stream"));
    }

    #[test]
    fn the_decision_comes_first_and_all_is_in_80_columns() {
        let text = prediction_text(&record());
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn predictions_stand_beside_what_was_seen() {
        let range = |estimate, lower, upper| Interval { estimate, lower, upper };
        let blind = BlindCheck {
            cycles: 3,
            written_blocks: 12_345,
            evicted_blocks: 45,
            changed_pages: 8_000,
            predicted_images: range(4_322.5, 3_800.0, 4_900.0),
            found_images: 4_400,
            predicted_share: range(0.31, 0.28, 0.36),
            found_share: 0.325,
            holds: true,
        };
        let next_cycle = pgtoll_record::NextCycleCheck {
            cycles: 2,
            wal_error: 0.031,
            wal_error_most: 0.052,
            images_error: None,
            images_error_most: None,
        };
        let mut record = record();
        record.checks = PredictionChecks {
            next_cycle: Some(next_cycle),
            own_settings_error: Some(-0.002),
            blind: Some(blind),
        };
        let text = prediction_text(&record);
        let checked = text.split("\nchecked\n").nth(1).unwrap().split("\nseen\n").next().unwrap();
        insta::assert_snapshot!(checked);
        assert!(
            crate::html::prediction_html(&record).contains("Blind, as if hints were not logged")
        );
    }

    #[test]
    fn names_of_strangers_are_escaped() {
        let mut record = record();
        let payers = record.payers.as_mut().unwrap();
        payers.relations[0].relation = "a\u{1b}[31m<b>".to_owned();
        payers.statements[0].text = Some("SELECT \u{1b}[31m<b>".to_owned());
        assert!(!prediction_text(&record).contains('\u{1b}'));
        let page = crate::html::prediction_html(&record);
        assert!(!page.contains("<b>") && page.contains("&lt;b&gt;"), "{page}");
    }

    #[test]
    fn the_page_has_the_decision_and_every_figure() {
        let record = record();
        let page = crate::html::prediction_html(&record);
        let advice = record.answers[0].advice.as_ref().unwrap();
        assert!(page.contains(action_words(advice.action)));
        for row in rows(&record.answers[0]) {
            assert!(page.contains(row[2].as_str()), "{row:?}");
        }
    }
}
