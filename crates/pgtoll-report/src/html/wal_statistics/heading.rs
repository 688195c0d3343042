//! The head of the page: the WAL that was read.

use maud::{Markup, html};
use pgtoll_format::ByteSize;
use pgtoll_record::WalStatisticsRecord;

use super::title_of_end;
use crate::wal_numbers::{counted, moment, size};
use crate::wal_short;

pub(super) fn title(statistics: &WalStatisticsRecord) -> String {
    format!("WAL of PostgreSQL {}", statistics.source.major)
}

/// Returns the heading: the WAL, and whether all of it could be read.
pub(super) fn heading(statistics: &WalStatisticsRecord) -> Markup {
    let source = &statistics.source;
    html! {
        p class="quiet small" { "pgtoll wal stats" }
        h1 { (title(statistics)) }
        p class="quiet" {
            @if let (Some(from), Some(to)) = (source.from, source.to) {
                "From " (from) " to " (to) ", " (size(source.bytes())) " in "
            }
            (counted(source.segments, "segment", "segments")) " of " (ByteSize(source.segment_bytes))
            (timelines(&source.timelines)) "."
            @if let (Some(first), Some(last)) = (&source.first_time, &source.last_time) {
                " Commits from " (moment(first)) " to " (moment(last)) "."
            }
        }
        (incomplete(statistics))
    }
}

/// Returns the parts that are missing.
fn incomplete(statistics: &WalStatisticsRecord) -> Markup {
    html! {
        @if !statistics.source.gaps.is_empty() {
            p class="warning" role="note" {
                strong { "Not all was read" }
                ". This page leaves out:"
            }
            ul class="small" { @for words in wal_short::left_out(&statistics.source.gaps) { li { (words) } } }
        } @else if !statistics.end.kind.is_whole() {
            p class="warning" role="note" {
                strong { (title_of_end(statistics.end.kind)) }
                @if let Some(at) = statistics.end.at { " (at " (at) ")" }
                ": " (statistics.end.words.trim_end_matches('.')) ". This page shows the WAL before it."
            }
        }
    }
}

fn timelines(timelines: &[u32]) -> String {
    let words = if timelines.len() == 1 { "timeline" } else { "timelines" };
    let numbers: Vec<String> = timelines.iter().map(u32::to_string).collect();
    if numbers.is_empty() { String::new() } else { format!(", {words} {}", numbers.join(", ")) }
}

/// Topics with their sentences.
pub(super) fn in_short(statistics: &WalStatisticsRecord) -> Markup {
    let answers = wal_short::in_short(statistics);
    if answers.is_empty() {
        return html! { p class="lead" { "No record was read." } };
    }
    html! {
        dl class="answers" {
            @for (topic, sentences) in answers {
                dt { (topic) }
                dd { ul { @for sentence in sentences { li { (sentence) } } } }
            }
        }
    }
}
