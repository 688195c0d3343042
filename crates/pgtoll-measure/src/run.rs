//! A run: what all its parts share.

use std::time::{Duration, Instant};

use pgtoll_cluster::Guard;
use pgtoll_record::{Calibration, Line, Note};
use pgtoll_system::Interrupt;

use crate::recorder::Recorder;
use crate::{BenchError, Plan, Progress};

/// A run that continues.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) calibration: &'a [Calibration],
    pub(crate) guard: &'a mut Guard,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) progress: &'a mut dyn FnMut(Progress<'_>),
    pub(crate) began: Instant,
}

impl Run<'_> {
    /// How long it has run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reports that something begins that takes a while.
    pub(crate) fn stage(&mut self, name: &str) {
        (self.progress)(Progress::Stage(name));
    }

    /// Appends a line to the record.
    pub(crate) fn write(&mut self, line: &Line) -> Result<(), BenchError> {
        self.recorder.write(line)
    }

    /// Appends a note to the record.
    pub(crate) fn note(&mut self, text: String) -> Result<(), BenchError> {
        self.write(&Line::Note(Note { text }))
    }
}
