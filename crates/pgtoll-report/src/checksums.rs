//! The document of checksums turned on or off.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_record::{
    BlockOfFile, ChecksumsOutcome, ChecksumsPages, ChecksumsRecord, ChecksumsSample, EarlierRun,
};

use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::counted;

impl ReportedRecord for ChecksumsRecord {
    /// The work, the findings, and the next steps.
    fn document(&self, _: &TableOptions) -> Document {
        let amount =
            format!("{}, {}", counted(self.files, "file", "files"), ByteSize(self.bytes).rounded());
        let mut document = Document {
            command: if self.enabled { "pgtoll enable" } else { "pgtoll disable" },
            question: "Are data checksums on?",
            answer: vec![headline(self, &amount)],
            ..Document::default()
        };
        let facts = [
            self.predicted_seconds
                .map(|(least, most)| prediction_words(least, most, self.sample.as_ref())),
            self.earlier.as_ref().map(earlier_words),
            self.pages.as_ref().map(|pages| pages_words(pages, &amount, self.seconds)),
        ];
        let facts: Vec<Block> = facts.into_iter().flatten().map(Block::Paragraph).collect();
        document.push(Section::detail("Pages", facts));
        if let Some(pages) = &self.pages {
            let block = |page: &BlockOfFile| format!("{} block {}", page.file, page.block);
            let damaged: Vec<String> = pages.refused_pages.iter().map(block).collect();
            let title = counted(pages.refused, "page is damaged", "pages are damaged");
            document.push(list(&format!("{title}, with checksums or without"), &damaged));
            document.push(list("Files whose last page is incomplete", &pages.cut_short));
        }
        document.push(list("Files that are not PostgreSQL's, left alone", &self.foreign));
        if !self.next.is_empty() {
            document.push(Section::detail("Now", vec![Block::List(self.next.clone())]));
        }
        document
    }
}

fn headline(record: &ChecksumsRecord, amount: &str) -> String {
    let state = if record.enabled { "on" } else { "off" };
    match record.outcome {
        ChecksumsOutcome::Already => {
            format!("Data checksums are {state} already; nothing was written.")
        }
        ChecksumsOutcome::DryRun => format!("Would write checksums: {amount}."),
        ChecksumsOutcome::Enabled | ChecksumsOutcome::Disabled => {
            format!("Data checksums are {state} now.")
        }
    }
}

fn prediction_words(least: f64, most: f64, sample: Option<&ChecksumsSample>) -> String {
    let mut line = format!("That takes {} to {} without a server.", time(least), time(most));
    if let Some(ChecksumsSample { pages, stale, .. }) = sample {
        let _ = write!(
            line,
            " Of {pages} pages that were sampled {stale} would be written. The disk's write rate is unknown: \
             assumed is its read rate, to a third of that."
        );
    }
    line
}

fn earlier_words(earlier: &EarlierRun) -> String {
    let EarlierRun { valid, files, bytes } = *earlier;
    if !valid {
        return "An earlier run was interrupted, and the cluster was used since: everything was read again."
            .to_owned();
    }
    let files = counted(files, "file", "files");
    let bytes = ByteSize(bytes).rounded();
    format!("An earlier run was interrupted: {files}, {bytes}, that it had synced were skipped.")
}

fn pages_words(pages: &ChecksumsPages, amount: &str, seconds: Option<f64>) -> String {
    let took = seconds.map(|seconds| format!(" in {}", time(seconds))).unwrap_or_default();
    format!(
        "{amount}: {}{took}; {} written, {} right before, {} never used.",
        counted(pages.all, "page", "pages"),
        pages.written,
        pages.all.saturating_sub(pages.written).saturating_sub(pages.new),
        pages.new
    )
}

fn list(title: &str, items: &[String]) -> Option<Section> {
    let mut shown: Vec<String> = items.iter().take(SHOWN).cloned().collect();
    if items.len() > SHOWN {
        shown.push(format!("and {} more (--json lists them)", items.len() - SHOWN));
    }
    (!items.is_empty()).then(|| Section::detail(title, vec![Block::List(shown)]))
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
        insta::assert_snapshot!(record.text(&TableOptions::default()));
    }
}
