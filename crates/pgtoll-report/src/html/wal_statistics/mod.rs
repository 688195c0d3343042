//! WAL statistics as a page: how much, of what, when, and of which relations.

mod embedded;
mod heading;
mod pictures;
mod pieces;
mod tables;

use maud::{Markup, html};
use pgtoll_record::{ImageCause, WalEndKind, WalKind, WalStatisticsRecord};

use super::circumstances::{Fact, facts};
use super::{Section, bodies, contents, download, inert, page};
use crate::wal_numbers::{count, moment};

/// WAL statistics as one HTML file, with all that it needs inside. Whatever stands in the record
/// is text in it, never markup.
pub(crate) fn wal_statistics_html(statistics: &WalStatisticsRecord) -> String {
    let kept = embedded::reduced(statistics);
    let sections: [Section<'_>; 8] = [
        ("time", pictures::title(statistics), pictures::over_time(statistics)),
        ("cycle", "Images after each checkpoint", pictures::over_position(statistics)),
        ("checkpoints", "From checkpoint to checkpoint", tables::cycles(statistics)),
        ("relations", "Relations and databases", tables::relations_and_databases(statistics)),
        ("kinds", "Kinds of records", tables::kinds(statistics)),
        ("images", "Full-page images by cause", tables::images(statistics)),
        ("notes", "What was read", what_was_read(statistics)),
        ("again", "Again", again_section(statistics, &kept)),
    ];
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            (heading::in_short(statistics))
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { (heading::title(statistics)) ", pgtoll" };
    let words = "Made by pgtoll from WAL statistics.";
    page(&title, &heading::heading(statistics), &main, words, &inert(&kept))
}

fn what_was_read(statistics: &WalStatisticsRecord) -> Markup {
    let source = &statistics.source;
    let mut known: Vec<Fact> = vec![
        ("named", embedded::listed(&source.names, ", ")),
        ("system identifier", source.system_identifier.to_string()),
        ("where it ends", statistics.end.words.clone()),
        ("names of relations", statistics.names.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    for (name, time) in [("first commit", &source.first_time), ("last commit", &source.last_time)] {
        known.extend(time.as_ref().map(|time| (name, moment(time))));
    }
    known.push(("pieces that the pictures are made of", count(statistics.pieces.len() as u64)));
    known.push(("read", format!("{}, by pgtoll {}", moment(&statistics.made), statistics.pgtoll)));
    html! {
        (facts(known))
        @if !statistics.notes.is_empty() {
            h3 { "Notes" }
            ul { @for note in &statistics.notes { li { (note) } } }
        }
    }
}

fn again_section(statistics: &WalStatisticsRecord, kept: &WalStatisticsRecord) -> Markup {
    let json = serde_json::to_string(kept).unwrap_or_default();
    html! {
        p { "The command that counts it again, as long as the WAL is there:" }
        pre { code { (embedded::listed(&statistics.command, " ")) } }
        (download("All figures of this page", "wal-statistics.json", &json))
        p class="screen" { (embedded::WORDS) }
    }
}

/// The kind's colour, the same in all pictures and tables. Neighbours in a stack are distinguished
/// with every kind of colour vision, and images are hatched besides.
fn colour(kind: WalKind) -> usize {
    match kind {
        WalKind::FirstTouch => 0,
        WalKind::Hint => 1,
        WalKind::OtherImages => 2,
        WalKind::Heap => 3,
        WalKind::Index => 5,
        WalKind::Transaction => 4,
        WalKind::Other => 6,
    }
}

fn is_image(kind: WalKind) -> bool {
    matches!(kind, WalKind::FirstTouch | WalKind::Hint | WalKind::OtherImages)
}

fn title_of_kind(kind: WalKind) -> &'static str {
    match kind {
        WalKind::FirstTouch => "images: first change after a checkpoint",
        WalKind::Hint => "images: hints",
        WalKind::OtherImages => "other images",
        WalKind::Heap => "tables",
        WalKind::Index => "indexes",
        WalKind::Transaction => "transactions",
        WalKind::Other => "other records",
    }
}

fn title_of_cause(cause: ImageCause) -> &'static str {
    match cause {
        ImageCause::FirstTouch => "first change",
        ImageCause::Hint => "hint",
        ImageCause::Forced => "always",
        ImageCause::Check => "check",
    }
}

fn meaning(cause: ImageCause) -> &'static str {
    match cause {
        ImageCause::FirstTouch => {
            "the page was changed for the first time after a checkpoint (full_page_writes)"
        }
        ImageCause::Hint => {
            "a hint was set on the page for the first time after a checkpoint, and data checksums \
             or wal_log_hints are on"
        }
        ImageCause::Forced => {
            "whatever the checkpoints: a new index, a rewritten table, a page that its access \
             method always logs whole"
        }
        ImageCause::Check => "to check replay (wal_consistency_checking)",
    }
}

fn title_of_end(kind: WalEndKind) -> &'static str {
    match kind {
        WalEndKind::Complete | WalEndKind::Own => "All was read",
        WalEndKind::Damaged => "The WAL is damaged",
        WalEndKind::Missing => "A segment is missing",
        WalEndKind::CutShort => "A file is cut short",
        WalEndKind::Unreadable => "A file cannot be read",
        WalEndKind::Interrupted => "Reading was interrupted",
    }
}

#[cfg(test)]
mod tests;
