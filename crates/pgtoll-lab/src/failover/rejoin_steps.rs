//! Steps of the old primary's return as a standby, with their times.

use std::time::Instant;

use pgtoll_record::JudgedEvent;

/// The step that ends the return.
pub(super) const STREAMING: &str = "streaming";

/// Steps that are done, by the time since the begin.
pub(super) struct RejoinSteps {
    began: Instant,
    pub(super) events: Vec<JudgedEvent>,
}

impl RejoinSteps {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), events: Vec::new() }
    }

    /// When this step was done.
    pub(super) fn at(&self, label: &str) -> Option<f64> {
        self.events.iter().find(|step| step.what == label).map(|step| step.at_s)
    }

    pub(super) fn done(&mut self, label: &str) {
        let at_s = self.began.elapsed().as_secs_f64();
        self.events.push(JudgedEvent { at_s, what: label.to_owned() });
    }
}
