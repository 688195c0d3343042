//! Compares pages with all evidence that was asked for, and says what was compared.

use std::ops::ControlFlow;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::RelFileLocator;
use pgtoll_record::{VerificationOutcome, VerificationRecord};

use super::NotCompared;
use super::indexes::{IndexesCompared, compare_with_indexes};
use super::lost::{WalCompared, compare_with_wal};
use crate::found::Verified;
use crate::settings::{VerifyProgress, VerifySettings};

/// What pages are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceSources {
    /// The WAL since the last checkpoint.
    pub wal: bool,
    /// The B-trees that lead to them.
    pub indexes: bool,
}

/// What was compared, and what was not.
#[derive(Debug, Default)]
pub struct EvidenceCompared {
    notes: Vec<String>,
    /// Something that was asked for was not compared.
    is_missing: bool,
}

/// Compares what was read with these sources, and adds what is wrong. `names` are read where they
/// are `None`; `wanted` and `settings` are those of [`verify`](crate::verify()). `progress` is given
/// the source that is read.
pub fn compare_with_evidence(
    verified: &mut Verified,
    (data, names): (&DataDirectory, &mut Option<Names>),
    sources: EvidenceSources,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(&str, VerifyProgress) -> ControlFlow<()>,
) -> EvidenceCompared {
    let mut compared = EvidenceCompared::default();
    if verified.is_interrupted || sources == EvidenceSources::default() {
        return compared;
    }
    let names = match names {
        Some(names) => names,
        None => match Names::of_data_directory(&data.path) {
            Ok(read) => names.insert(read),
            Err(error) => {
                compared.miss("nothing was compared with WAL or indexes", &error.to_string());
                return compared;
            }
        },
    };
    if sources.wal {
        let progress = &mut |now| progress("WAL", now);
        let result = compare_with_wal(verified, data, names, settings, wanted, progress);
        compared.add_wal(result, verified);
    }
    if sources.indexes && !verified.is_interrupted {
        let progress = &mut |now| progress("indexes", now);
        let result = compare_with_indexes(verified, data, names, settings, wanted, progress);
        compared.add_indexes(result, verified);
    }
    compared
}

impl EvidenceCompared {
    fn add_wal(&mut self, result: Result<WalCompared, NotCompared>, verified: &mut Verified) {
        match result {
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
            Err(why) => self.miss("pages were not compared with WAL", &why.to_string()),
        }
    }

    fn add_indexes(
        &mut self,
        result: Result<IndexesCompared, NotCompared>,
        verified: &mut Verified,
    ) {
        match result {
            Ok(IndexesCompared { indexes, tables }) => self.notes.push(format!(
                "tables that were compared with their B-trees: {tables}, with {indexes} of these"
            )),
            Err(NotCompared::Interrupted) => verified.is_interrupted = true,
            Err(why) => self.miss("tables were not compared with indexes", &why.to_string()),
        }
    }

    fn miss(&mut self, comparison: &str, why: &str) {
        self.notes.push(format!("{comparison}: {why}"));
        self.is_missing = true;
    }

    /// Adds the notes to the record. What was asked for and not compared is not sound.
    pub fn add_to(self, record: &mut VerificationRecord) {
        record.notes.extend(self.notes);
        if self.is_missing && record.outcome == VerificationOutcome::Sound {
            record.outcome = VerificationOutcome::Unverified;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_compared_is_a_note_and_an_interruption_none() {
        let mut verified = Verified::default();
        let mut compared = EvidenceCompared::default();
        compared.add_indexes(Ok(IndexesCompared { indexes: 3, tables: 2 }), &mut verified);
        assert!(!compared.is_missing, "{compared:?}");
        compared.add_wal(Err(NotCompared::Catalogs), &mut verified);
        assert!(compared.is_missing && !verified.is_interrupted);
        assert_eq!(
            compared.notes,
            [
                "tables that were compared with their B-trees: 2, with 3 of these",
                "pages were not compared with WAL: some of the catalogs could not be read",
            ]
        );
        let mut compared = EvidenceCompared::default();
        compared.add_wal(Err(NotCompared::Interrupted), &mut verified);
        assert!(compared.notes.is_empty() && !compared.is_missing && verified.is_interrupted);
    }
}
