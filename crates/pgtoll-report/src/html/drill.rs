//! A drill as a page: three verdicts, what is wrong, what was restored and read.

use maud::{Markup, html};
use pgtoll_record::{
    DrillFinding, DrillRecord, DrillVerdict, VerificationOutcome, VerificationRecord,
};

use super::answer::day;
use super::circumstances::{Fact, facts};
use super::verification::{capitalised, damage};
use super::{Section, bodies, contents, download, inert, page, table};
use crate::drill::{amount_words, backup_words, finding_line, outcome_words, stages};

/// A record of `pgtoll verify --drill` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub(crate) fn drill_html(of: &DrillRecord) -> String {
    let titles = titles(of);
    let mut sections: Vec<Section<'_>> = Vec::new();
    if !of.pages.findings.is_empty() {
        sections.push(("findings", "What the drill found", findings(of)));
    }
    for (id, title, record) in &titles {
        sections.push((id, title, damage(record, id)));
    }
    sections.push(("read", "What was read", read(of)));
    sections.push(("restored", "What was restored, and how", restored(of)));
    sections.push(("again", "Again", again(of)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            (in_short(of))
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "Drill of " (of.backup.path) ", pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll verify --drill" }
        h1 { "Can the backup be restored?" }
        p class="quiet" { (backup_words(of)) ", " (day(&of.made)) "." }
    };
    page(&title, &heading, &main, "Made by pgtoll from the record of a drill.", &inert(of))
}

fn in_short(of: &DrillRecord) -> Markup {
    let class = if of.outcome == VerificationOutcome::Sound { "gains" } else { "costs" };
    let row = |(name, verdict, reason, seconds): (&str, DrillVerdict, &String, f64)| {
        let verdict = match verdict {
            DrillVerdict::Passed => "passed",
            DrillVerdict::Failed => "failed",
            DrillVerdict::Unknown => "unknown",
        };
        vec![name.to_owned(), verdict.to_owned(), format!("{seconds:.1} s"), reason.clone()]
    };
    let rows = stages(of).map(row);
    html! {
        p class="lead" { span class=(class) { (capitalised(outcome_words(of.outcome))) } "." }
        (table("The three verdicts", &["what", "verdict", "took", "why"], &rows))
    }
}

/// The verifications that say more than that all is sound: the id of each, its title.
fn titles(of: &DrillRecord) -> Vec<(String, String, &VerificationRecord)> {
    let members = of.pages.members.iter().enumerate().map(|(number, record)| {
        (format!("member-{}", number + 1), format!("Files of {}", record.source.path), record)
    });
    let named = |id: &str, title: &str, record| (id.to_owned(), title.to_owned(), record);
    let backup = of.pages.backup.iter().map(|of| named("backup", "Files of the backup", of));
    let restored =
        of.pages.restored.iter().map(|of| named("cluster", "Files of the restored cluster", of));
    let all = members.chain(backup).chain(restored);
    all.filter(|(.., record)| {
        !matches!(record.outcome, VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen)
    })
    .collect()
}

fn findings(of: &DrillRecord) -> Markup {
    let shown = &of.pages.findings[..of.pages.findings.len().min(MOST)];
    let hidden = (of.pages.findings.len() - shown.len()) as u64;
    let hidden = hidden.saturating_add(of.pages.more_findings);
    html! {
        ul { @for finding in shown { (finding_item(finding)) } }
        @if hidden > 0 { p class="small quiet" { (hidden) " more are not shown here." } }
    }
}

fn finding_item(of: &DrillFinding) -> Markup {
    html! {
        li { (finding_line(of)) @if let Some(sqlstate) = &of.sqlstate { " (SQLSTATE " (sqlstate) ")" } }
    }
}

fn read(of: &DrillRecord) -> Markup {
    let row = |database: &pgtoll_record::DrilledDatabase| {
        let words = match &database.skipped {
            Some(why) => format!("not read: {why}"),
            None => amount_words(database),
        };
        vec![database.name.clone(), words]
    };
    let rows: Vec<Vec<String>> = of.pages.databases.iter().take(MOST).map(row).collect();
    html! {
        @if rows.is_empty() { p { "No server served it: nothing was read." } } @else {
            (table("Databases", &["database", "what was read"], &rows))
        }
    }
}

fn restored(of: &DrillRecord) -> Markup {
    let bytes = |bytes| pgtoll_format::ByteSize(bytes).rounded();
    let lsn = |lsn: Option<pgtoll_format::Lsn>| {
        lsn.map_or_else(|| "unknown".to_owned(), |lsn| lsn.to_string())
    };
    let mut known: Vec<Fact> = vec![
        ("server", format!("PostgreSQL {}", of.server)),
        ("recovered to", of.until.clone()),
        ("files", bytes(of.backup.bytes)),
        ("copied, unpacked, combined in", format!("{:.1} s", of.start.copy_seconds)),
        (
            "disk",
            format!(
                "{} at most, of {} free",
                bytes(of.disk.needed_bytes),
                bytes(of.disk.free_bytes)
            ),
        ),
        ("WAL from", of.wal.sources.join(", ")),
        ("segments", of.wal.segments.to_string()),
        ("recovery begins at", lsn(of.wal.start)),
        ("the backup ends at", lsn(of.wal.stop)),
        ("WAL is whole up to", lsn(of.wal.read_to)),
    ];
    if let Some(identifier) = &of.backup.system_identifier {
        known.push(("system identifier", identifier.clone()));
    }
    let tablespace = |of: &pgtoll_record::DrilledTablespace| {
        let path = of.path.clone().unwrap_or_else(|| "missing".to_owned());
        vec![of.oid.to_string(), path]
    };
    let member = |of: &pgtoll_record::DrilledMember| {
        let before = of.incremental_from;
        vec![
            of.path.clone(),
            lsn(of.start),
            before.map_or_else(|| "full".to_owned(), |lsn| lsn.to_string()),
        ]
    };
    let tablespaces: Vec<Vec<String>> =
        of.backup.tablespaces.iter().take(MOST).map(tablespace).collect();
    let chain: Vec<Vec<String>> = of.backup.chain.iter().take(MOST).map(member).collect();
    html! {
        (facts(known))
        @if !chain.is_empty() {
            (table("Backups of the chain", &["backup", "begins at", "taken from"], &chain))
        }
        @if !tablespaces.is_empty() {
            (table("Tablespaces", &["tablespace", "files"], &tablespaces))
        }
        @for made in of.wal.made_tablespaces.iter().take(MOST) {
            p { "The WAL makes tablespace " (made.oid) " in " (made.path) " at " (made.at.to_string()) ": the drill made it \
                in its own directory." }
        }
        @if let Some(words) = &of.start.last_words {
            p { "The server’s last words:" }
            pre { code { (words) } }
        }
        @if !of.notes.is_empty() {
            h3 { "Notes" }
            ul { @for note in of.notes.iter().take(MOST) { li { (note) } } }
        }
    }
}

fn again(of: &DrillRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that drills it again:" }
        pre { code { (of.command.join(" ")) } }
        (download("All of it", "drill.json", &json))
    }
}

/// Rows of each list; JSON has more.
const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::tests::record;
    use crate::html::tests::{assert_well_formed, text_of};

    #[test]
    fn three_verdicts_come_first() {
        let page = drill_html(&record());
        assert_well_formed(&page);
        insta::assert_snapshot!(text_of(&page));
    }

    #[test]
    fn files_that_are_damaged_are_named() {
        let mut damaged = record();
        damaged.pages.backup = Some(crate::verification::tests::record());
        damaged.backup.path = "<script>".to_owned();
        damaged.start.last_words = Some("<b>".to_owned());
        let page = drill_html(&damaged);
        assert_well_formed(&page);
        assert!(page.contains("id=\"backup-heading\""), "{page}");
        assert!(!page.contains("<script>:") && !page.contains("<b>"), "a path is text");
    }
}
