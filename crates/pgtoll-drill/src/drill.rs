//! The drill itself: verified, restored, and what follows from both.

use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard};
use pgtoll_record::{DrillRecord, DrilledKind, Provenance, VerificationRecord};
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::plan::DrillPlan;
use crate::restore::{Restore, Restored};
use crate::source::SourceForm;
use crate::stage::{Stage, Staged};
use crate::startup::without_place;
use crate::step::DrillStep;

/// The files of a backup.
pub(crate) struct VerifiedBackup {
    /// Their record; the error is why they were not verified.
    pub(crate) files: Result<VerificationRecord, String>,
    pub(crate) seconds: f64,
}

impl DrillPlan {
    /// Does it. Whatever is wrong with the backup is in the record.
    pub fn run(
        &self,
        provenance: &Provenance,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(DrillStep<'_>),
    ) -> Result<DrillRecord, DrillError> {
        let record = self.verify_and_restore(provenance, interrupt, watch);
        // A signal ends the guard, and with it the files that are being written.
        interrupt.check()?;
        record
    }

    fn verify_and_restore(
        &self,
        provenance: &Provenance,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(DrillStep<'_>),
    ) -> Result<DrillRecord, DrillError> {
        let mut guard = Guard::begin(&self.options.guard, interrupt)?;
        let cluster = Cluster::empty(&mut guard, &self.options.installation, "drill")?;
        let guarded = &mut guard;
        let mut stage =
            Stage { plan: self, cluster: &cluster, guard: guarded, provenance, interrupt, watch };
        let staged = stage.run()?;
        let backup = self.verify_backup(&cluster, &staged, provenance, interrupt, watch)?;
        let is_restorable =
            staged.failure.is_none() && self.source.kind != DrilledKind::WithoutLabel;
        let restored = match &self.wal {
            Some((choice, control)) if is_restorable => {
                let mut restore = Restore {
                    plan: self,
                    choice,
                    control,
                    cluster: &cluster,
                    guard: &mut guard,
                    provenance,
                    interrupt,
                    watch,
                };
                let restored = restore.run()?;
                let copy_seconds = restored.copy_seconds + staged.seconds;
                Some(Restored { copy_seconds, ..restored })
            }
            _ => None,
        };
        guard.finish()?;
        Ok(self.record(provenance, staged, backup, restored))
    }

    /// The backup's own files, where they lie, or as they were unpacked or combined.
    fn verify_backup(
        &self,
        cluster: &Cluster,
        staged: &Staged,
        provenance: &Provenance,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(DrillStep<'_>),
    ) -> Result<VerifiedBackup, DrillError> {
        let unread = self.source.control.as_ref().err().map(ToString::to_string);
        if let Some(why) = staged.failure.clone().or(unread) {
            return Ok(VerifiedBackup { files: Err(why), seconds: 0.0 });
        }
        let begin = Instant::now();
        let label = "verify the backup";
        watch(DrillStep::Stage(label));
        let path = match self.source.form {
            SourceForm::Directory => self.source.path.clone(),
            SourceForm::Tars(_) | SourceForm::Repository(_) | SourceForm::Chain(_) => {
                cluster.data()
            }
        };
        let checks = self.checks(provenance, interrupt);
        let verified = checks.verify(&path, &mut |now| {
            watch(DrillStep::Bytes { what: label, done: now.bytes, all: now.all_bytes });
        });
        let mut record = match verified {
            // Tars may hold a data directory that is none.
            Err(DrillError::Datadir(error)) if path != self.source.path => {
                let words = without_place(&error.to_string(), cluster);
                return Ok(VerifiedBackup { files: Err(words), seconds: 0.0 });
            }
            verified => verified?,
        };
        record.source.path = self.source.path.display().to_string();
        Ok(VerifiedBackup { files: Ok(record), seconds: begin.elapsed().as_secs_f64() })
    }
}
