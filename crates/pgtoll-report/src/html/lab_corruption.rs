//! A damaged page under replication as a page: the answer, both tables, how it was found.

use maud::{Markup, html};
use pgtoll_record::CorruptionRecord;

use super::timeline::timeline;
use super::{LabPage, Section, download, inert};
use crate::lab_corruption::{
    SPREAD_HEAD, STEP_HEAD, WRITER_HEAD, answer, lab_corruption_findings, spread_rows, step_rows,
    subject_words, writer_rows,
};

/// A record of `pgtoll lab corruption` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub fn lab_corruption_html(of: &CorruptionRecord) -> String {
    let spread = table("What the rows show", &SPREAD_HEAD, &spread_rows(of));
    let failovers = html! {
        (table("Steps", &STEP_HEAD, &step_rows(of)))
        (table("Writers", &WRITER_HEAD, &writer_rows(of)))
    };
    let sections: Vec<Section<'_>> = vec![
        ("spread", "Does the damage reach the standby?", spread),
        ("failovers", "Failover away from the damage", failovers),
        ("writers", "Writers over time, in the first failover", writers(of)),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    LabPage {
        command: "pgtoll lab corruption",
        title: "What becomes of a damaged page",
        question: "What becomes of a damaged page?",
        subject: subject_words(of),
        sentences: answer(of),
        remarks: vec![("Finding", lab_corruption_findings(of))],
        sections,
        data: inert(of),
    }
    .html()
}

fn table(label: &str, head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class="names close" {
                thead { tr { @for title in head { th scope="col" { (title) } } } }
                tbody { @for row in rows { tr {
                    @for (place, cell) in row.iter().enumerate() {
                        @if place == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                    }
                } } }
            }
        }
    }
}

fn writers(of: &CorruptionRecord) -> Markup {
    html! {
        @match of.failovers.iter().find_map(|failover| failover.timeline.as_ref()) {
            Some(shown) => (timeline("writers-over-time", shown)),
            None => p { "No failover of the record has them." },
        }
    }
}

fn how(of: &CorruptionRecord) -> Markup {
    html! {
        p {
            "Writers begin " (of.design.rate_per_second) " transactions a second, by "
            (of.design.clients) " clients, for " (of.design.seconds) " s; after a third of that a \
            reader meets the damaged page. A watcher looks at the counters of checksum failures \
            every " (of.design.poll_s) " s."
        }
        ul { @for note in &of.notes { li { (note) } } }
        p { "Settings of the servers:" }
        pre { code {
            @for (name, value) in &of.settings { (name) " = " (value) "\n" }
        } }
    }
}

fn again(of: &CorruptionRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "corruption.json", &json))
    }
}
