//! A verification from the first file to the record: in which order pages are read, settled and
//! compared.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use pgtoll_datadir::{Attached, DataDirectory, Names};
use pgtoll_format::RelFileLocator;
use pgtoll_record::{Provenance, VerificationRecord};

use crate::backup::{BackupWal, WalAtHand, WalPlace};
use crate::directory::{verify_again, verify_on};
use crate::evidence::{RunningEvidence, compare_with_evidence};
use crate::found::{EvidenceCompared, Verified};
use crate::online::{Pauses, RunningServer, RunningSettings, verify_running};
use crate::resume::{ResumeError, ResumeJournal};
use crate::settings::{VerifyProgress, VerifySettings};
use crate::storage::{Files, Storage};

/// A verification of a data directory, or of a plain base backup.
pub struct Verification<'a> {
    data: &'a DataDirectory,
    settings: VerifySettings,
    /// Relations that are verified; `None`: all.
    wanted: Option<&'a dyn Fn(RelFileLocator) -> bool>,
    names: Option<Names>,
    leaves_evidence_out: bool,
    tolerates_missing_wal: bool,
    manifest_checksums: ManifestChecksums,
    wal: Vec<WalPlace>,
    disk: &'a dyn Storage,
}

impl fmt::Debug for Verification<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification").field("path", &self.data.path).finish_non_exhaustive()
    }
}

/// Whether the files of a backup are compared with the checksums in its manifest, which reads them
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestChecksums {
    /// They are not.
    Skipped,
    /// They are, where there is a manifest.
    Compared,
    /// The checksums of all files are compared; without a manifest the result is incomplete.
    Required,
}

/// How long a running server is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a checkpoint is waited for, where some block needs one to be judged.
    pub checkpoint: Duration,
    /// Whether to wait for a checkpoint in any case, so that all that was changed before it can be
    /// compared with WAL.
    pub awaits_checkpoint: bool,
}

/// Told which evidence is read (pages: an empty name) and how far; it may end the reading.
pub type ReportProgress<'a> = &'a mut dyn FnMut(&str, VerifyProgress) -> ControlFlow<()>;

/// A verification that came to its end, or was interrupted.
#[derive(Debug)]
pub struct FinishedVerification {
    /// The pages that were read, and their findings.
    pub verified: Verified,
    /// Names of relations; `None`: they were not read.
    pub names: Option<Names>,
    wal: WalAtHand,
}

impl<'a> Verification<'a> {
    /// All relations, with all evidence, read from the file system.
    pub fn new(data: &'a DataDirectory, settings: VerifySettings) -> Self {
        Self {
            data,
            settings,
            wanted: None,
            names: None,
            leaves_evidence_out: false,
            tolerates_missing_wal: false,
            manifest_checksums: ManifestChecksums::Skipped,
            wal: Vec::new(),
            disk: &Files,
        }
    }

    /// Verifies only these relations. Default: all.
    #[must_use]
    pub fn only(mut self, wanted: Option<&'a dyn Fn(RelFileLocator) -> bool>) -> Self {
        self.wanted = wanted;
        self
    }

    /// Takes names that were read before. Default: they are read where they are needed.
    #[must_use]
    pub fn names(mut self, names: Option<Names>) -> Self {
        self.names = names;
        self
    }

    /// Leaves out WAL and B-trees as evidence. Default: no.
    #[must_use]
    pub fn quick(mut self, is_quick: bool) -> Self {
        self.leaves_evidence_out = is_quick;
        self
    }

    /// Takes WAL that is missing for evidence that is left out: it is elsewhere. Default: a directory
    /// without its WAL is incomplete.
    #[must_use]
    pub fn tolerate_missing_wal(mut self) -> Self {
        self.tolerates_missing_wal = true;
        self
    }

    /// Whether the files of a backup are compared with the checksums in its manifest. Default: they
    /// are not.
    #[must_use]
    pub fn manifest_checksums(mut self, checksums: ManifestChecksums) -> Self {
        self.manifest_checksums = checksums;
        self
    }

    /// Places where the WAL of a backup may be that contains none.
    #[must_use]
    pub fn wal(mut self, places: Vec<WalPlace>) -> Self {
        self.wal = places;
        self
    }

    /// Reads files from this disk. Default: the file system.
    #[must_use]
    pub fn disk(mut self, disk: &'a dyn Storage) -> Self {
        self.disk = disk;
        self
    }

    /// Verifies a directory that no server writes to.
    pub fn at_rest(self, progress: ReportProgress<'_>) -> FinishedVerification {
        let is_wanted = |relation| self.wanted.is_none_or(|wanted| wanted(relation));
        let watch = &mut |now| progress("", now);
        let verified = verify_on(self.disk, self.data, &self.settings, &is_wanted, watch);
        self.finish(verified, progress)
    }

    /// As [`at_rest`](Self::at_rest), from where an earlier run was interrupted, and keeps its place in
    /// the journal.
    ///
    /// # Errors
    ///
    /// The journal is of other files, or cannot be written.
    pub fn resumed(
        self,
        journal: &mut ResumeJournal,
        progress: ReportProgress<'_>,
    ) -> Result<FinishedVerification, ResumeError> {
        let is_wanted = |relation| self.wanted.is_none_or(|wanted| wanted(relation));
        let watch = &mut |now| progress("", now);
        let verified =
            verify_again(self.disk, self.data, &self.settings, &is_wanted, journal, watch)?;
        Ok(self.finish(verified, progress))
    }

    /// Compares what was read with catalogs, manifest, WAL and B-trees.
    fn finish(self, mut verified: Verified, progress: ReportProgress<'_>) -> FinishedVerification {
        let Self { data, settings, mut names, .. } = self;
        let is_wanted = |relation| self.wanted.is_none_or(|wanted| wanted(relation));
        if names.is_none() && needs_names(&verified) {
            // Without them findings have numbers instead.
            names = Names::of_data_directory(&data.path).ok();
        }
        if let Some(names) = names.as_ref().filter(|_| !verified.is_interrupted) {
            verified.compare_with(names, data, &is_wanted);
        }
        verified.settle_maps(names.as_ref());
        if settings.only_below.is_empty() && self.wanted.is_none() {
            let checksums = self.manifest_checksums != ManifestChecksums::Skipped;
            let watch = &mut |now| progress("manifest", now);
            verified.check_complete(data, checksums, &settings, watch);
            if let Some(names) = &names {
                verified.require_names(names, data);
            }
        }
        if self.manifest_checksums == ManifestChecksums::Required {
            verified.require_manifest_checksums();
        }
        verified.evidence = if self.leaves_evidence_out {
            EvidenceCompared::skipped("not asked for")
        } else {
            compare_with_evidence(&mut verified, data, &mut names, &settings, &is_wanted, progress)
        };
        verified.evidence.is_missing &= !self.tolerates_missing_wal;
        let wal = BackupWal::of_directory(data).filter(|_| !verified.is_interrupted);
        let wal = wal.map(|wal| verified.settle(&wal.or_at(&self.wal), settings.jobs.get()));
        FinishedVerification { verified, names, wal: wal.unwrap_or_default() }
    }

    /// Verifies a directory while its server runs.
    pub fn while_running(
        mut self,
        attached: &mut Attached,
        server: &mut RunningServer,
        pauses: &dyn Pauses,
        patience: Patience,
        progress: ReportProgress<'_>,
    ) -> FinishedVerification {
        let data = self.data;
        let is_wanted = |relation| self.wanted.is_none_or(|wanted| wanted(relation));
        let settings =
            RunningSettings { verify: self.settings.clone(), patience: patience.checkpoint };
        let watch = &mut |now| progress("", now);
        let mut verified =
            verify_running(self.disk, data, &settings, server, pauses, &is_wanted, watch);
        if self.names.is_none() {
            self.names = attached.names(data).ok();
        }
        verified.settle_maps(self.names.as_ref());
        verified.evidence = match &self.names {
            _ if verified.is_interrupted => EvidenceCompared::default(),
            _ if self.leaves_evidence_out => {
                EvidenceCompared::skipped_while_running("not asked for")
            }
            Some(names) if attached.server().is_some() => {
                let evidence = RunningEvidence {
                    data,
                    names,
                    server,
                    settings: &self.settings,
                    pauses,
                    patience: patience.checkpoint,
                    awaits_checkpoint: patience.awaits_checkpoint,
                    wanted: &is_wanted,
                };
                evidence.compare(&mut verified, progress)
            }
            _ => EvidenceCompared::skipped_while_running("no connection to the server"),
        };
        FinishedVerification { verified, names: self.names, wal: WalAtHand::default() }
    }
}

impl FinishedVerification {
    /// The record of a directory that no server wrote to.
    pub fn record(&self, data: &DataDirectory, provenance: Provenance) -> VerificationRecord {
        self.verified.record(data, self.names.as_ref(), self.wal, provenance)
    }

    /// The record of a directory whose server ran.
    pub fn record_of_running(
        &self,
        data: &DataDirectory,
        attached: &Attached,
        provenance: Provenance,
    ) -> VerificationRecord {
        self.verified.record_of_running(data, self.names.as_ref(), attached, provenance)
    }
}

/// Names take memory for every relation. Where there are very many, only damage is worth it, and
/// evidence, which reads them itself.
fn needs_names(verified: &Verified) -> bool {
    verified.files <= FILES_MANY || !verified.counts.is_empty()
}

/// More would take much memory for their names.
const FILES_MANY: u64 = 200_000;
