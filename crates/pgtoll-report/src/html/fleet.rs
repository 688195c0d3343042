//! The answer about a fleet's backups as a page: how many are sound, the others, all.

use maud::{Markup, html};
use pgtoll_record::FleetRecord;

use super::{Section, bodies, contents, day, download, inert, page, table};
use crate::fleet::{ALL, HEAD, NOT_SOUND, counts, heading, oldest, rows};

/// A record of `pgtoll fleet merge` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub(crate) fn fleet_html(of: &FleetRecord) -> String {
    let (worst, all) = (rows(of, NOT_SOUND), rows(of, ALL));
    let mut sections: Vec<Section<'_>> = Vec::new();
    if !worst.is_empty() {
        let title = "Backups that are not sound";
        sections.push(("worst", title, table(title, &HEAD, &worst)));
    }
    sections.push(("all", "All backups", everything(&all)));
    sections.push(("again", "Again", again(of)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            (in_short(of))
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "Backups of a fleet, pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll fleet merge" }
        h1 { "Are the backups sound?" }
        p class="quiet" { (of.plan) ", " (day(&of.made)) "." }
    };
    page(&title, &heading, &main, "Made by pgtoll from the results of a plan.", &inert(of))
}

fn in_short(of: &FleetRecord) -> Markup {
    let is_all = of.sound > 0 && of.sound == of.backups.len() as u64;
    html! {
        p class="lead" { span class=(if is_all { "gains" } else { "costs" }) { (heading(of)) } "." }
        @if !is_all { ul { @for (count, what) in counts(of) { li { (count) " " (what) } } } }
        @if let Some(oldest) = oldest(of) { p { "Oldest verification: " (day(oldest)) "." } }
    }
}

fn everything(rows: &[Vec<String>]) -> Markup {
    html! {
        @if rows.is_empty() { p { "The plan names no backup." } }
        @else { (table("All backups", &HEAD, rows)) }
    }
}

fn again(of: &FleetRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.join(" ")) } }
        (download("All figures of this page", "fleet.json", &json))
    }
}
