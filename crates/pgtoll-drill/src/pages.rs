//! The pages, verified as `pgtoll verify` does it: of the backup before it is copied, and of the
//! restored cluster when its server was stopped in good order.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgtoll_datadir::DataDirectory;
use pgtoll_record::{Provenance, VerificationRecord};
use pgtoll_system::Interrupt;
use pgtoll_verify::{ManifestChecksums, Verification, VerifyProgress, VerifySettings, WalPlace};

use crate::DrillError;

/// How pages are verified.
pub(crate) struct PageChecks<'a> {
    pub(crate) jobs: NonZeroUsize,
    /// The places of WAL that shows which torn pages recovery replaces.
    pub(crate) wal: Vec<PathBuf>,
    pub(crate) provenance: &'a Provenance,
    pub(crate) interrupt: &'a Interrupt,
}

impl PageChecks<'_> {
    /// The record of this directory: all relations, their maps and rows; of a backup what its manifest
    /// says of every file, checksums too; of a cluster that was shut down also what its indexes lead to.
    pub(crate) fn verify(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<VerificationRecord, DrillError> {
        let data = DataDirectory::open(path)?;
        let settings =
            VerifySettings { jobs: self.jobs, rate: None, only_below: Vec::new(), rows: true };
        let mut watch = |_: &str, now| {
            progress(now);
            match self.interrupt.signal() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        let finished = Verification::new(&data, settings)
            .tolerate_missing_wal()
            .manifest_checksums(ManifestChecksums::Compared)
            .wal(WalPlace::of_paths(&self.wal).into_iter().collect())
            .at_rest(&mut watch);
        self.interrupt.check()?;
        Ok(finished.record(&data, self.provenance.clone()))
    }
}
