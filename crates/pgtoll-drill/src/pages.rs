//! The pages, verified as `pgtoll verify` does it: of the backup before it is copied, and of the
//! restored cluster when its server was stopped in good order.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{Provenance, VerificationRecord};
use pgtoll_verify::{
    BackupWal, EvidenceSources, VerifyProgress, VerifySettings, WalPlace, compare_with_evidence,
    verify,
};

use crate::DrillError;

/// How pages are verified.
pub(crate) struct PageChecks<'a> {
    pub(crate) jobs: NonZeroUsize,
    /// Where WAL is that says which torn pages recovery replaces.
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
        let mut watch = |now| {
            progress(now);
            match self.interrupt.signal() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        let mut verified = verify(&data, &settings, &|_| true, &mut watch);
        self.interrupt.check()?;
        let is_many = verified.files > FILES_MANY && verified.counts.is_empty();
        // Without them findings have numbers instead.
        let mut names = if is_many { None } else { Names::of_data_directory(&data.path).ok() };
        if let Some(names) = &names {
            verified.compare_with(names, &data, &|_| true);
        }
        verified.settle_maps(names.as_ref());
        verified.check_complete(&data, true, &settings, &mut watch);
        if let Some(names) = &names {
            verified.require_names(names, &data);
        }
        let sources = EvidenceSources { wal: false, indexes: data.is_consistent() };
        let compared = compare_with_evidence(
            &mut verified,
            (&data, &mut names),
            sources,
            &settings,
            &|_| true,
            &mut |_, now| watch(now),
        );
        let wal = BackupWal::of_directory(&data);
        let places: Vec<WalPlace> = WalPlace::of_paths(&self.wal).into_iter().collect();
        let wal = wal.map(|wal| verified.settle(&wal.or_at(&places), self.jobs.get()));
        self.interrupt.check()?;
        let wal = wal.unwrap_or_default();
        let mut record = verified.record(&data, names.as_ref(), wal, self.provenance.clone());
        compared.add_to(&mut record);
        Ok(record)
    }
}

/// More would take much memory for their names.
const FILES_MANY: u64 = 200_000;
