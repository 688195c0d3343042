//! What verification found as a page: the verdict, what is wrong by relation, and what to do.

use maud::{Markup, html};
use pgtoll_record::{
    Advice, CommandKind, PageFinding, VerificationOutcome, VerificationRecord, VerifiedRelation,
};

use super::answer::day;
use super::circumstances::{Fact, facts};
use super::{Section, bodies, contents, download, inert, page, swatch};
use crate::plot::{Bar, Look, Part, Unit, Width, Words, bars, figure};
use crate::verification::{
    amount_words, blocks, checksum, class, coverage_beside_findings, more_findings, place,
    qualified, running_words, severity, source_words, sums, verdict,
};

/// Verifications of one command as one HTML file, with all that it needs inside. Whatever stands in
/// the records is text in it, never markup.
pub(crate) fn verification_html(records: &[VerificationRecord]) -> String {
    let ids = records.iter().enumerate();
    let ids: Vec<Ids> = ids.map(|(index, of)| Ids::new(index, of, records.len())).collect();
    let of_each = || records.iter().zip(&ids);
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (of, ids) in of_each() {
        if of.wrong_files > 0 {
            sections.push((&ids.files, &ids.files_title, files(of)));
        }
        if !of.relations.is_empty() {
            sections.push((&ids.findings, &ids.findings_title, findings(of, ids)));
        }
        sections.push((&ids.read, &ids.read_title, what_was_read(of)));
    }
    sections.push(("again", "Again", again(records)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for of in records { (in_short(of, records.len() > 1)) }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let paths: Vec<&str> = records.iter().map(|of| of.source.path.as_str()).collect();
    let title = html! { "Pages of " (paths.join(", ")) ", pgtoll" };
    let words = "Made by pgtoll from the record of a verification.";
    let data = match records {
        [only] => inert(only),
        several => inert(&several),
    };
    page(&title, &heading(records), &main, words, &data)
}

/// What is wrong with the files of one record, as a part of another page: `id` begins the ids in it.
pub(crate) fn damage(of: &VerificationRecord, id: &str) -> Markup {
    let ids = Ids { findings: format!("{id}-findings"), ..Ids::new(0, of, 1) };
    html! {
        p { (capitalised(&verdict(of))) ". " (amount_words(of)) "." }
        @if of.wrong_files > 0 { (files(of)) }
        @if !of.relations.is_empty() { (findings(of, &ids)) }
        (list("Not complete", &of.incomplete))
        (list("Could not be looked into", &of.unlisted))
    }
}

/// Names and titles of a record's sections in the page.
struct Ids {
    files: String,
    files_title: String,
    findings: String,
    findings_title: String,
    read: String,
    read_title: String,
}

impl Ids {
    fn new(index: usize, of: &VerificationRecord, all: usize) -> Self {
        let (number, of) = if all > 1 {
            (format!("-{}", index + 1), format!(": {}", of.source.path))
        } else {
            (String::new(), String::new())
        };
        Self {
            files: format!("files{number}"),
            files_title: format!("Files that are missing or wrong{of}"),
            findings: format!("findings{number}"),
            findings_title: format!("What is wrong, and what to do{of}"),
            read: format!("read{number}"),
            read_title: format!("What was read{of}"),
        }
    }
}

fn heading(records: &[VerificationRecord]) -> Markup {
    html! {
        p class="quiet small" { "pgtoll verify" }
        h1 { "Are the pages sound?" }
        @for of in records {
            p class="quiet" { (of.source.path) ": " (source_words(of)) ", " (day(&of.made)) "." }
            @if of.interrupted {
                p class="warning" role="note" {
                    strong { "Not all was read" } ": it was interrupted."
                }
            }
            @for reason in &of.incomplete {
                p class="warning" role="note" { strong { "Not complete" } ": " (reason) }
            }
        }
    }
}

/// The verdict, and the first step for each relation.
fn in_short(of: &VerificationRecord, is_one_of_several: bool) -> Markup {
    let class = match of.outcome {
        VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen => "gains",
        VerificationOutcome::Findings | VerificationOutcome::Unverified => "costs",
    };
    html! {
        p class="lead" {
            @if is_one_of_several { (of.source.path) ": " }
            span class=(class) { (capitalised(&verdict(of))) } ". " (amount_words(of)) "."
        }
        @if let Some(words) = coverage_beside_findings(of) { p { (capitalised(&words)) "." } }
        @if let Some(words) = running_words(of) { p { (capitalised(&words)) "." } }
        @if !of.relations.is_empty() {
            dl class="answers" {
                @for relation in of.relations.iter().take(IN_SHORT) {
                    dt { (name_of(relation)) }
                    dd { (sums_of(relation)) "; " (severity(relation.severity)) ". " (first_step(relation)) }
                }
                @if of.relations.len() > IN_SHORT {
                    dt { "and" } dd { (of.relations.len() - IN_SHORT) " more relations" }
                }
            }
        }
    }
}

/// Relations that are named in short.
const IN_SHORT: usize = 8;
/// Findings of a relation, relations and files that are shown; JSON has more.
const MOST: usize = 200;
/// Relations of which a picture would say no more than the list.
const FEW: usize = 2;
/// Bars of the picture.
const BARS: usize = 20;

fn first_step(of: &VerifiedRelation) -> String {
    let first = of.advice.first().map_or(of.remedy.as_str(), |step| &step.what);
    if first.is_empty() { String::new() } else { format!("First: {first}.") }
}

/// Without classes of which there are none.
fn sums_of(of: &VerifiedRelation) -> String {
    let all = sums(of.failures, of.suspicions, of.unverified);
    let some: Vec<&str> = all.split(", ").filter(|part| !part.starts_with("0 ")).collect();
    some.join(", ")
}

fn name_of(of: &VerifiedRelation) -> String {
    qualified(of).unwrap_or_else(|| place(of))
}

pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn files(of: &VerificationRecord) -> Markup {
    let shown = of.files.len().min(MOST);
    html! {
        div class="scroll" role="region" aria-label="Table of files" tabindex="0" {
            table class="words" {
                thead { tr { th scope="col" { "file" } th scope="col" { "what is wrong" } } }
                tbody { @for file in &of.files[..shown] {
                    tr { th scope="row" { (file.path) } td { (file.words) } }
                } }
            }
        }
        (more(of.wrong_files.checked_sub(shown as u64)))
    }
}

fn more(count: Option<u64>) -> Markup {
    html! {
        @if let Some(count) = count.filter(|count| *count > 0) {
            p class="small quiet" { (count) " more are not shown here." }
        }
    }
}

fn findings(of: &VerificationRecord, ids: &Ids) -> Markup {
    let shown = of.relations.len().min(MOST);
    html! {
        @if of.relations.len() > FEW { (picture(of, ids)) }
        @for relation in &of.relations[..shown] { (of_relation(relation)) }
        (more(Some((of.relations.len() - shown) as u64)))
    }
}

/// Classes of findings with their colours.
const CLASSES: [(&str, usize); 3] = [("failures", 1), ("suspicions", 4), ("unverified", 6)];

fn picture(of: &VerificationRecord, ids: &Ids) -> Markup {
    let most = &of.relations[..of.relations.len().min(BARS)];
    let said: Vec<String> =
        most.iter().map(|of| format!("{}: {}", name_of(of), sums_of(of))).collect();
    let words = Words {
        id: format!("{}-picture", ids.findings),
        title: "Findings by relation",
        description: said.join(". "),
        caption: html! { h3 { "Findings by relation" } },
    };
    let all: Vec<Bar> = most.iter().enumerate().map(|(index, of)| bar(index, of)).collect();
    html! {
        (figure(&words, |width: Width| bars(&all, Unit::Plain, width)))
        ul class="legend" {
            @for (name, kind) in CLASSES { li { (swatch(kind, false)) (name) } }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of findings are far below 2^53")]
fn bar(index: usize, of: &VerifiedRelation) -> Bar {
    let counts = [of.failures, of.suspicions, of.unverified];
    let parts = CLASSES.iter().zip(counts).filter(|(_, count)| *count > 0);
    let name = of.name.as_ref().map_or_else(|| name_of(of), |name| name.relation.clone());
    Bar {
        name,
        look: Look::grey(index),
        parts: parts
            .map(|((name, kind), count)| Part {
                kind: *kind,
                hatched: false,
                value: count as f64,
                tooltip: format!("{count} {name}"),
            })
            .collect(),
        total: counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)).to_string(),
    }
}

fn of_relation(of: &VerifiedRelation) -> Markup {
    html! {
        h3 { (name_of(of)) }
        p class="quiet small" { (place(of)) ": " (severity(of.severity)) }
        div class="scroll" role="region" aria-label={ "Findings of " (name_of(of)) } tabindex="0" {
            table class="words" {
                thead { tr {
                    @for title in ["blocks", "class", "what is wrong", "stored", "computed", "LSN"] {
                        th scope="col" { (title) }
                    }
                } }
                tbody { @for finding in of.findings.iter().take(MOST) { (row(finding)) } }
            }
        }
        (more(more_findings(of, MOST)))
        @if of.advice.is_empty() { p { "To do: " (of.remedy) } } @else {
            ol { @for step in &of.advice { (advice(step)) } }
        }
    }
}

fn row(of: &PageFinding) -> Markup {
    html! {
        tr {
            th scope="row" { (blocks(of)) }
            td { (class(of.class)) }
            td { (of.words) }
            td { (checksum(of.stored_checksum)) }
            td { (checksum(of.computed_checksum)) }
            td { (of.lsn.map_or_else(|| "-".to_owned(), |lsn| lsn.to_string())) }
        }
    }
}

fn advice(Advice { what, command, kind, database }: &Advice) -> Markup {
    let place = database.as_ref().filter(|_| *kind == Some(CommandKind::Sql));
    html! {
        li {
            (capitalised(what))
            @if let Some(database) = place { " (in database " (database) ")" }
            @if let Some(command) = command { ":" pre { code { (command) } } } @else { "." }
        }
    }
}

fn what_was_read(of: &VerificationRecord) -> Markup {
    let source = &of.source;
    let mut known: Vec<Fact> = vec![
        ("path", source.path.clone()),
        ("system identifier", source.system_identifier.to_string()),
        ("blocks", format!("{}, {} bytes each", of.read.blocks, source.block_bytes)),
        ("files", of.read.files.to_string()),
        ("names of relations", of.names.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    known.extend(source.wal_end.map(|end| ("end of WAL", end.to_string())));
    if of.healed_by_replay > 0 {
        known.push(("healed by replay", format!("{} pages", of.healed_by_replay)));
    }
    if let Some(manifest) = &of.manifest {
        known.push(("compared with the manifest", format!("{} files", manifest.files)));
    }
    known.push(("read", format!("{}, by pgtoll {}", of.made, of.pgtoll)));
    html! {
        (facts(known))
        (list("Could not be looked into", &of.unlisted))
        (list("Not PostgreSQL’s, and not read", &of.foreign))
        (list("Notes", &of.notes))
    }
}

fn list(title: &str, of: &[String]) -> Markup {
    html! {
        @if !of.is_empty() {
            h3 { (title) }
            ul { @for entry in of.iter().take(MOST) { li { (entry) } } }
            (more(Some(of.len().saturating_sub(MOST) as u64)))
        }
    }
}

fn again(records: &[VerificationRecord]) -> Markup {
    let json = match records {
        [only] => serde_json::to_string(only),
        several => serde_json::to_string(several),
    };
    let command = records.first().map(|of| of.command.join(" ")).unwrap_or_default();
    html! {
        p { "The command that verifies it again:" }
        pre { code { (command) } }
        (download("All findings", "verification.json", &json.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::tests::{assert_well_formed, text_of};
    use crate::verification::tests::record;

    #[test]
    fn the_verdict_comes_first_and_commands_can_be_copied() {
        let page = verification_html(&[record()]);
        assert_well_formed(&page);
        insta::assert_snapshot!(text_of(&page));
    }

    #[test]
    fn several_are_one_page_with_a_picture_where_it_tells_something() {
        let mut other = record();
        other.outcome = VerificationOutcome::Sound;
        other.relations = vec![other.relations[0].clone(); FEW + 1];
        other.source.path = "<script>".to_owned();
        let page = verification_html(&[record(), other]);
        assert_well_formed(&page);
        assert!(
            page.contains("findings-2-picture-caption") && !page.contains("findings-1-picture")
        );
        assert!(!page.contains("<script>:"), "a path is text");
    }
}
