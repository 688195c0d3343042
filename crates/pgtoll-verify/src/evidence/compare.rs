//! Compares pages with all evidence that there is, and says what was compared.

use std::ops::ControlFlow;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::RelFileLocator;

use super::NotCompared;
use super::blocks::Forks;
use super::indexes::{IndexesCompared, compare_forks_with_indexes};
use super::lost::{WalCompared, compare_forks_with_wal};
use super::unexplained::unexplained_zeros;
use crate::found::{EvidenceCompared, Verified};
use crate::settings::{VerifyProgress, VerifySettings};

/// Compares what was read of a data directory at rest with its WAL and its B-trees, and adds what is
/// wrong. `names` are read where they are `None`; `wanted` and `settings` are those of
/// [`verify`](crate::verify()). `progress` is given the evidence that is read.
pub fn compare_with_evidence(
    verified: &mut Verified,
    data: &DataDirectory,
    names: &mut Option<Names>,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(&str, VerifyProgress) -> ControlFlow<()>,
) -> EvidenceCompared {
    let mut compared = EvidenceCompared::default();
    if verified.is_interrupted || data.backup_start.is_some() {
        return compared;
    }
    let names = match names {
        Some(names) => names,
        None => match Names::of_data_directory(&data.path) {
            Ok(read) => names.insert(read),
            Err(error) => {
                compared.miss(WAL, &error.to_string());
                compared.miss(BTREES, &error.to_string());
                return compared;
            }
        },
    };
    let forks = Forks::new(data, settings, wanted);
    let watch = &mut |now| progress(WAL, now);
    let result = compare_forks_with_wal(verified, data, &forks, names, settings, watch);
    compared.add_wal(result, verified);
    if !verified.is_interrupted {
        let watch = &mut |now| progress("indexes", now);
        let result = compare_forks_with_indexes(verified, data, &forks, names, settings, watch);
        compared.add_indexes(result, verified);
    }
    compared.notes.extend(unexplained_zeros(verified, &verified.zeros, data, &forks, names));
    if !data.is_consistent() {
        compared.is_missing = false;
        let redo = data.control.last_checkpoint.redo;
        compared
            .left_out
            .push(format!("changes since the checkpoint at {redo}: recovery is still to come"));
    }
    compared
}

impl EvidenceCompared {
    /// Nothing was compared, by choice.
    pub(crate) fn skipped(why: &str) -> Self {
        let left_out = vec![format!("{WAL}: {why}"), format!("{BTREES}: {why}")];
        Self { left_out, ..Self::default() }
    }

    /// Nothing was compared of a server that runs.
    pub(crate) fn skipped_while_running(why: &str) -> Self {
        let mut compared = Self::skipped(why);
        compared.left_out.push(LENGTHS.to_owned());
        compared
    }

    pub(super) fn add_wal(
        &mut self,
        result: Result<WalCompared, NotCompared>,
        verified: &mut Verified,
    ) {
        match result {
            Ok(WalCompared { from, to, blocks, dropped }) => {
                self.covered.push(format!("{WAL} from {from} to {to}"));
                self.notes.push(format!(
                    "WAL from {from} to {to} changed {blocks} blocks that were compared"
                ));
                if let Some(until) = dropped {
                    self.left_out.push(format!(
                        "some blocks that WAL changed last before {until}: there is no room for all"
                    ));
                }
            }
            Err(NotCompared::Interrupted) => verified.is_interrupted = true,
            Err(why) => self.miss(WAL, &why.to_string()),
        }
    }

    fn add_indexes(
        &mut self,
        result: Result<IndexesCompared, NotCompared>,
        verified: &mut Verified,
    ) {
        match result {
            Ok(_) => self.covered.push(BTREES.to_owned()),
            Err(NotCompared::Interrupted) => verified.is_interrupted = true,
            Err(why @ NotCompared::NotStopped) => {
                self.left_out.push(format!("{BTREES}: {why}"));
            }
            Err(why) => self.miss(BTREES, &why.to_string()),
        }
    }

    fn miss(&mut self, evidence: &str, why: &str) {
        self.left_out.push(format!("{evidence}: {why}"));
        self.is_missing = true;
    }
}

/// The WAL that a server still has.
pub(super) const WAL: &str = "WAL";
/// Pages of zeros, and ends of files, beside the B-trees that lead there.
pub(super) const BTREES: &str = "zeroed pages by B-trees";

/// The lengths of files that a server changes are unknown.
pub(super) const LENGTHS: &str = "lengths of files: the server changes them";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_evidence_is_left_out_and_an_interruption_is_none() {
        let mut verified = Verified::default();
        let mut compared = EvidenceCompared::default();
        compared.add_indexes(Ok(IndexesCompared::default()), &mut verified);
        assert!(!compared.is_missing, "{compared:?}");
        compared.add_wal(Err(NotCompared::Catalogs), &mut verified);
        assert!(compared.is_missing && !verified.is_interrupted);
        assert_eq!(compared.covered, ["zeroed pages by B-trees"]);
        assert_eq!(compared.left_out, ["WAL: some of the catalogs could not be read"]);
        let mut compared = EvidenceCompared::default();
        compared.add_wal(Err(NotCompared::Interrupted), &mut verified);
        assert!(compared.left_out.is_empty() && verified.is_interrupted);
    }
}
