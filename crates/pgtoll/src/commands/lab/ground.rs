//! The base of every lab of servers: signals, a work directory, a user for the servers, a guard.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_cluster::{Guard, GuardOptions, Installation, ServerUser};
use pgtoll_record::Host;
use pgtoll_system::Interrupt;

use crate::commands::measure::tell_leftovers;
use crate::commands::{absolute, measure};
use crate::printer::Printer;

/// The directory and the user of a lab's servers.
pub(super) struct LabGround {
    pub(super) interrupt: Interrupt,
    work_dir: PathBuf,
    user: ServerUser,
}

impl LabGround {
    /// Signals are caught from here on.
    pub(super) fn begin(work_dir: &Path) -> anyhow::Result<Self> {
        let interrupt = Interrupt::new();
        interrupt.catch_signals().context("catch signals")?;
        Ok(Self { interrupt, work_dir: absolute(work_dir)?, user: ServerUser::choose()? })
    }

    /// The server that was asked for, or the one there is.
    pub(super) fn installation(
        &self,
        requested: Option<&str>,
        printer: &mut Printer,
    ) -> anyhow::Result<Installation> {
        measure::installation(requested, &self.interrupt, printer)
    }

    pub(super) fn tell_leftovers(&self, printer: &Printer) {
        tell_leftovers(&self.work_dir, &self.user, printer);
    }

    /// Makes the guard that starts servers, with the machine's facts.
    pub(super) fn guard(&self) -> anyhow::Result<(Guard, Host)> {
        let options = GuardOptions::of_this_program(self.work_dir.clone(), self.user.clone());
        Ok((Guard::begin(&options, &self.interrupt)?, pgtoll_measure::host(&self.work_dir)?))
    }
}

/// Says why a lab ended early, if it did.
pub(super) fn tell_early_end(ended: Option<&str>, printer: &Printer) {
    if let Some(ended) = ended {
        printer.warn(&format!("pgtoll: ended early: {ended}"));
    }
}
