//! What else in the data directory says that pages cannot be right: asked for with `--lost-writes`
//! and `--indexes`.

use std::ops::ControlFlow;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::Lsn;
use pgtoll_format::wal::RelationFiles;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{FindingKind, VerificationOutcome, VerificationRecord};
use pgtoll_verify::{
    Evidence, IndexesCompared, NotCompared, Progress, Verified, VerifySettings, WalCompared,
    WhatIsWrong, compare_with_indexes, compare_with_wal,
};

use super::size;
use crate::arguments::VerifyArguments;
use crate::printer::Printer;

/// What is to be compared.
pub(super) struct Asked<'a> {
    pub(super) arguments: &'a VerifyArguments,
    pub(super) data: &'a DataDirectory,
    pub(super) settings: &'a VerifySettings,
    pub(super) is_wanted: &'a dyn Fn(RelationFiles) -> bool,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Compared {
    notes: Vec<String>,
    /// Something that was asked for was not compared.
    is_missing: bool,
}

impl Asked<'_> {
    /// Compares what was asked for, and adds what is wrong.
    pub(super) fn compare(
        &self,
        verified: &mut Verified,
        names: &mut Option<Names>,
        interrupt: &Interrupt,
        printer: &mut Printer,
    ) -> Compared {
        let mut compared = Compared::default();
        let Self { arguments, data, settings, is_wanted } = self;
        if verified.is_interrupted || !(arguments.lost_writes || arguments.indexes) {
            return compared;
        }
        let names = match names {
            Some(names) => names,
            None => match Names::of_data_directory(&data.path) {
                Ok(read) => names.insert(read),
                Err(error) => {
                    compared
                        .missing("nothing was compared with WAL or indexes", &error.to_string());
                    return compared;
                }
            },
        };
        let mut progress = |what: &str, now: Progress| {
            let text = format!("{what}: {} of {}", size(now.bytes), size(now.all_bytes));
            printer.progress(&text, now.bytes, now.all_bytes);
            match interrupt.signal() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        if arguments.lost_writes {
            let progress = &mut |now| progress("WAL", now);
            let of = compare_with_wal(verified, data, names, settings, is_wanted, progress);
            compared.wal(of, verified);
        }
        if arguments.indexes && !verified.is_interrupted {
            let progress = &mut |now| progress("indexes", now);
            let of = compare_with_indexes(verified, data, names, settings, is_wanted, progress);
            compared.indexes(of, verified);
        }
        compared
    }
}

impl Compared {
    fn wal(&mut self, of: Result<WalCompared, NotCompared>, verified: &mut Verified) {
        match of {
            Ok(WalCompared { from, to, blocks, dropped }) => {
                self.notes.push(format!(
                    "WAL from {from} to {to} changed {blocks} blocks that were compared"
                ));
                if let Some(until) = dropped {
                    self.notes.push(format!(
                        "it changed more: of blocks that it changed last before {until} not all \
                         were compared"
                    ));
                }
            }
            Err(NotCompared::Interrupted) => verified.is_interrupted = true,
            Err(why) => self.missing("pages were not compared with WAL", &why.to_string()),
        }
    }

    fn indexes(&mut self, of: Result<IndexesCompared, NotCompared>, verified: &mut Verified) {
        match of {
            Ok(IndexesCompared { indexes, tables }) => self.notes.push(format!(
                "tables that were compared with their B-trees: {tables}, with {indexes} of these"
            )),
            Err(NotCompared::Interrupted) => verified.is_interrupted = true,
            Err(why) => self.missing("tables were not compared with indexes", &why.to_string()),
        }
    }

    fn missing(&mut self, what: &str, why: &str) {
        self.notes.push(format!("{what}: {why}"));
        self.is_missing = true;
    }

    /// Puts it into the record. What was asked for and not done is not sound.
    pub(super) fn tell(self, record: &mut VerificationRecord) {
        record.notes.extend(self.notes);
        if self.is_missing && record.outcome == VerificationOutcome::Sound {
            record.outcome = VerificationOutcome::Unverified;
        }
    }
}

/// Where WAL says that the page was changed last.
pub(super) fn wal(of: &WhatIsWrong) -> Option<Lsn> {
    match of {
        WhatIsWrong::Evidence(
            Evidence::Stale { wal, .. }
            | Evidence::ZeroButLogged { wal }
            | Evidence::MissingButLogged { wal, .. },
        ) => Some(*wal),
        _ => None,
    }
}

/// What the index is called that leads to rows.
pub(super) fn index(of: &WhatIsWrong, names: Option<&Names>) -> Option<String> {
    let WhatIsWrong::Evidence(
        Evidence::ZeroButIndexed { index } | Evidence::MissingButIndexed { index, .. },
    ) = of
    else {
        return None;
    };
    let name = names.and_then(|names| names.relation(*index));
    Some(name.map_or_else(|| index.number.to_string(), ToString::to_string))
}

pub(super) fn words(of: Evidence, index: Option<&str>) -> (FindingKind, String) {
    use FindingKind as Kind;
    let index = index.unwrap_or("an index");
    match of {
        Evidence::Stale { lsn, wal } => (
            Kind::LostWrite,
            format!("old: changed last at {lsn}, and by WAL at {wal}; that write is lost"),
        ),
        Evidence::ZeroButLogged { wal } => {
            (Kind::ZeroButLogged, format!("all zeros, though WAL changed it at {wal}"))
        }
        Evidence::MissingButLogged { last, wal } => {
            (Kind::MissingButLogged, format!("missing; WAL changed block {last} at {wal}"))
        }
        Evidence::ZeroButLinked { from } => {
            (Kind::ZeroButLinked, format!("all zeros, though block {from} leads to it"))
        }
        Evidence::MissingButLinked { last, from } => {
            (Kind::MissingButLinked, format!("missing; block {from} leads to block {last}"))
        }
        Evidence::ZeroButIndexed { .. } => {
            (Kind::ZeroButIndexed, format!("all zeros, though {index} leads to rows on it"))
        }
        Evidence::MissingButIndexed { last, .. } => {
            (Kind::MissingButIndexed, format!("missing; {index} leads to rows up to block {last}"))
        }
    }
}
