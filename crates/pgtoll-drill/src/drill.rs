//! The drill itself: verified, restored, and what follows from both.

use std::time::Instant;

use pgtoll_cluster::Guard;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{DrillRecord, DrilledKind, Provenance, VerificationRecord};

use crate::DrillError;
use crate::plan::{DrillPlan, DrillStep};
use crate::restore::Restore;

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
        let begin = Instant::now();
        let backup = self.verify_backup(provenance, interrupt, watch)?;
        let backup_seconds = begin.elapsed().as_secs_f64();
        let restored = match &self.wal {
            Some((choice, control)) if self.source.kind != DrilledKind::WithoutLabel => {
                let mut restore = Restore {
                    plan: self,
                    choice,
                    control,
                    guard: &mut guard,
                    provenance,
                    interrupt,
                    watch,
                };
                Some(restore.run()?)
            }
            _ => None,
        };
        guard.finish()?;
        Ok(self.record(provenance, backup, backup_seconds, restored))
    }

    /// The backup's own files; why they could not be verified.
    fn verify_backup(
        &self,
        provenance: &Provenance,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(DrillStep<'_>),
    ) -> Result<Result<VerificationRecord, String>, DrillError> {
        if let Err(error) = &self.source.data {
            return Ok(Err(error.to_string()));
        }
        let what = "verify the backup";
        watch(DrillStep::Stage(what));
        let checks = self.checks(provenance, interrupt);
        let verified = checks.verify(&self.source.path, &mut |now| {
            watch(DrillStep::Bytes { what, done: now.bytes, all: now.all_bytes });
        });
        verified.map(Ok)
    }
}
