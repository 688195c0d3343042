//! How a log's work went on another server, as a page.

use maud::{Markup, html};
use pgtoll_record::{ReplayDone, ReplayQuantiles, ReplayRecord};

use super::{Section, bodies, contents, download, inert, page, table};
use crate::replay::{
    HISTOGRAM_HEAD, bottleneck_words, code_word, concurrency_words, errors_words, headline,
    histogram_rows, order_words, recorded_words, replayed_words, replayer_words, table_words,
    unrepeatable_words,
};

/// A record of `pgtoll replay run` as one HTML file. Whatever stands in the record is text in it, never
/// markup.
pub fn replay_html(of: &ReplayRecord) -> String {
    let mut sections: Vec<Section<'_>> = vec![("work", "The work", work(of))];
    if let Some(done) = &of.done {
        sections.push(("statistics", "Statistics", statistics(done)));
        sections.push(("times", "How long statements took", times(of, done)));
        sections.push(("divergence", "What went otherwise", divergence(done)));
        sections.push(("breaks", "Breaks of the order", breaks(done)));
    }
    sections.push(("again", "Again", again(of)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for sentence in answer(of) { p class="lead" { (sentence) } }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "How the replay went, pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll replay run" }
        h1 { "How did the replay go?" }
        p class="quiet" { (headline(of)) }
    };
    page(&title, &heading, &main, "Made by pgtoll from a replay of logged work.", &inert(of))
}

/// How long it took, what went otherwise, and what kept it from being faster.
fn answer(of: &ReplayRecord) -> Vec<String> {
    let Some(done) = &of.done else { return vec![recorded_words(&of.planned)] };
    let mut sentences = vec![
        format!("Recorded in {:.1} s, replayed in {:.1} s.", of.planned.length_s, done.run_s),
        format!("Errors: {}. Order breaks: {}.", errors_words(done), done.order_breaks),
    ];
    if done.broken_sessions > 0 {
        sentences.push(format!("{} sessions ended early.", done.broken_sessions));
    }
    let differing = done.tables.iter().filter(|table| table.same == Some(false)).count();
    let compared = done.tables.iter().filter(|table| table.same.is_some()).count();
    if compared > 0 {
        sentences
            .push(format!("{differing} of {compared} tables differ from what they should be."));
    }
    if let Some(words) = bottleneck_words(done) {
        sentences.push(format!("Bottleneck: {words}."));
    }
    sentences
}

fn work(of: &ReplayRecord) -> Markup {
    let planned = &of.planned;
    let mut rows = vec![
        vec!["recorded".to_owned(), recorded_words(planned)],
        vec!["order".to_owned(), order_words(of)],
        vec!["pairs that the log leaves open".to_owned(), planned.uncertain_pairs.to_string()],
    ];
    rows.extend(unrepeatable_words(planned).map(|words| vec!["not repeatable".to_owned(), words]));
    for (reason, count) in &planned.skipped {
        rows.push(vec!["not replayed".to_owned(), format!("{count}: {reason}")]);
    }
    for (code, count) in &planned.failed {
        rows.push(vec!["failed when recorded".to_owned(), format!("{count} with {code}")]);
    }
    table("The work", &["what", "value"], &rows)
}

fn statistics(done: &ReplayDone) -> Markup {
    let mut rows = vec![
        vec!["replayed".to_owned(), replayed_words(done)],
        vec!["concurrency".to_owned(), concurrency_words(done)],
        vec!["replayer".to_owned(), replayer_words(done)],
        vec!["errors".to_owned(), errors_words(done)],
    ];
    for (reason, count) in &done.skipped {
        rows.push(vec!["not executed".to_owned(), format!("{count}: {reason}")]);
    }
    table("Statistics", &["what", "value"], &rows)
}

fn times(of: &ReplayRecord, done: &ReplayDone) -> Markup {
    let quantiles = [
        ("recorded", of.planned.latency_ms.as_ref()),
        ("replayed", done.latency_ms.as_ref()),
        ("later than due", done.lateness_ms.as_ref()),
    ];
    let rows = quantiles.into_iter().filter_map(|(name, of)| Some(quantile_row(name, of?)));
    let rows: Vec<Vec<String>> = rows.collect();
    html! {
        (table("Quantiles", &["ms", "statements", "mean", "median", "p95", "p99", "max"], &rows))
        (table("Histogram", &HISTOGRAM_HEAD, &histogram_rows(of, done)))
    }
}

fn quantile_row(name: &str, of: &ReplayQuantiles) -> Vec<String> {
    let times = [of.mean, of.median, of.p95, of.p99, of.max].map(|ms| format!("{ms:.2}"));
    [vec![name.to_owned(), of.count.to_string()], times.to_vec()].concat()
}

fn divergence(done: &ReplayDone) -> Markup {
    let rows: Vec<Vec<String>> = done
        .divergences
        .iter()
        .map(|of| {
            let [logged, now] = [&of.logged, &of.now].map(|code| code_word(code.as_deref()));
            let (logged, now) = (logged.to_owned(), now.to_owned());
            vec![of.statement.clone(), of.count.to_string(), logged, now]
        })
        .collect();
    let tables: Vec<Vec<String>> = done
        .tables
        .iter()
        .map(|of| vec![of.name.clone(), of.without.join(", "), table_words(of)])
        .collect();
    html! {
        @if rows.is_empty() { p { "Every statement ended as it was recorded." } }
        @else { (table("Statements", &["statement", "times", "recorded", "now"], &rows)) }
        @if !tables.is_empty() { (table("Tables", &["table", "without", "state"], &tables)) }
    }
}

fn breaks(done: &ReplayDone) -> Markup {
    let rows: Vec<Vec<String>> = done
        .breaks
        .iter()
        .map(|of| {
            let before = of.waited_for_statement.clone().unwrap_or_default();
            vec![of.statement.clone(), of.step.to_string(), before, of.reason.clone()]
        })
        .collect();
    html! {
        @if done.order_breaks == 0 { p { "None." } }
        @else {
            (table("Breaks", &["statement", "step", "went before", "reason"], &rows))
            @let more = done.order_breaks.saturating_sub(rows.len() as u64);
            @if more > 0 { p { (more) " more are counted and not described." } }
        }
    }
}

fn again(of: &ReplayRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "replay.json", &json))
    }
}
