//! What turning data checksums on or off did, as text.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_record::{
    ChecksumsOutcome, ChecksumsPages, ChecksumsRecord, ChecksumsSample, EarlierRun,
};

use crate::printable::printable;
use crate::text::wrapped;

/// What was done, what was found on the way, and what has to follow.
pub fn checksums_text(of: &ChecksumsRecord) -> String {
    let state = if of.enabled { "on" } else { "off" };
    let amount = format!("{} files, {}", of.files, ByteSize(of.bytes).rounded());
    let mut text = String::new();
    let _ = match of.outcome {
        ChecksumsOutcome::Already => {
            writeln!(text, "Data checksums are {state} already; nothing was written.")
        }
        ChecksumsOutcome::DryRun => writeln!(text, "Would write checksums: {amount}."),
        ChecksumsOutcome::Enabled | ChecksumsOutcome::Disabled => {
            writeln!(text, "Data checksums are {state} now.")
        }
    };
    if let Some(seconds) = of.predicted_seconds {
        text.push_str(&prediction_text(seconds, of.sample.as_ref()));
    }
    if let Some(earlier) = &of.earlier {
        text.push_str(&earlier_text(earlier));
    }
    if let Some(pages) = &of.pages {
        text.push_str(&pages_text(pages, &amount, of.seconds));
    }
    if !of.foreign.is_empty() {
        let files = of.foreign.len();
        let line = format!("{files} files that are not PostgreSQL's were left alone:");
        list(&mut text, &line, &of.foreign);
    }
    if !of.next.is_empty() {
        text.push_str("\nNow:\n");
        for next in &of.next {
            text.push_str(&wrapped("  - ", next));
        }
    }
    text
}

fn prediction_text((least, most): (f64, f64), sample: Option<&ChecksumsSample>) -> String {
    let mut line = format!("That takes {} to {} without a server.", time(least), time(most));
    if let Some(ChecksumsSample { pages, stale, .. }) = sample {
        let _ = write!(
            line,
            " Of {pages} pages that were read here and there {stale} would be written. How fast the \
             disk writes is not known: taken is as fast as it reads, to a third of that."
        );
    }
    wrapped("", &line)
}

fn earlier_text(of: &EarlierRun) -> String {
    let EarlierRun { valid, files, bytes } = of;
    let line = if *valid {
        format!(
            "A run before this one was interrupted: {files} files, {}, that it had synced were \
             passed over.",
            ByteSize(*bytes).rounded()
        )
    } else {
        "A run before this one was interrupted, and the cluster was used since: everything was read \
         again."
            .to_owned()
    };
    wrapped("", &line)
}

fn pages_text(pages: &ChecksumsPages, amount: &str, seconds: Option<f64>) -> String {
    let ChecksumsPages { all, written, new, refused, refused_pages, cut_short } = pages;
    let took = seconds.map(|seconds| format!(" in {}", time(seconds))).unwrap_or_default();
    let line = format!(
        "{amount}: {all} pages{took}; {written} were written, {} were right before, {new} were \
         never used.",
        all.saturating_sub(*written).saturating_sub(*new)
    );
    let mut text = wrapped("", &line);
    if *refused > 0 {
        let line = format!("{refused} pages are damaged, with checksums or without:");
        let block =
            |page: &pgtoll_record::BlockOfFile| format!("{} block {}", page.file, page.block);
        list(&mut text, &line, &refused_pages.iter().map(block).collect::<Vec<_>>());
    }
    if !cut_short.is_empty() {
        list(&mut text, "The last page of these files is not whole:", cut_short);
    }
    text
}

fn list(text: &mut String, line: &str, of: &[String]) {
    let _ = writeln!(text, "{line}");
    for item in of.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", printable(item));
    }
    if of.len() > SHOWN {
        let _ = writeln!(text, "  and {} more (--json lists them)", of.len() - SHOWN);
    }
}

/// Lines of a list.
const SHOWN: usize = 10;

pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_record::BlockOfFile;

    use super::*;

    #[test]
    fn what_was_done_found_and_has_to_follow() {
        let record = ChecksumsRecord {
            schema: pgtoll_record::CHECKSUMS_SCHEMA.to_owned(),
            pgtoll: String::new(),
            data: "/d".to_owned(),
            system_identifier: "7".to_owned(),
            outcome: ChecksumsOutcome::Enabled,
            enabled: true,
            files: 3,
            bytes: 24 << 10,
            pages: Some(ChecksumsPages {
                all: 3,
                written: 1,
                new: 1,
                refused: 1,
                refused_pages: vec![BlockOfFile { file: "/d/base/5/1\n".to_owned(), block: 7 }],
                cut_short: vec!["/d/base/5/2".to_owned()],
            }),
            earlier: Some(EarlierRun { valid: true, files: 2, bytes: 16 << 10 }),
            seconds: Some(1.25),
            predicted_seconds: None,
            sample: None,
            foreign: vec!["/d/base/5/x".to_owned(); 12],
            next: vec!["take a new full backup".to_owned()],
        };
        let text = checksums_text(&record);
        assert!(
            text.starts_with(
                "Data checksums are on now.\nA run before this one was interrupted: 2"
            ),
            "{text}"
        );
        assert!(text.contains("\n3 files, 24.0 kB: 3 pages in 1."), "{text}");
        assert!(text.contains("1 were written, 1 were right"), "{text}");
        assert!(text.contains("\n  /d/base/5/1\\n block 7\n"), "{text}");
        assert!(text.contains("\n  and 2 more"), "{text}");
        assert!(text.ends_with("\nNow:\n  - take a new full backup\n"), "{text}");
    }
}
