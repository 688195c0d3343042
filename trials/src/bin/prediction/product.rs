//! The answer of `pgtoll predict` to the trial's own censuses: its formula, without its watching.

use pgtoll_format::{Lsn, ServerVersion};
use pgtoll_predict::{SettingQuestion, Watched, prediction_record};
use pgtoll_record::trials::{
    PredictionTrialCensus, PredictionTrialCycle, PredictionTrialRange as Range,
    PredictionTrialRun as Run,
};
use pgtoll_record::{DirtyCensus, Interval, Provenance, ServerWatch, WatchWindow, WatchedServer};

use crate::float;

/// The relative change of WAL if the server that ran `source` turned checksums on; `None` without
/// censuses.
pub(crate) fn change(source: &Run) -> Option<Range> {
    source.cycles.first()?.censuses.first()?;
    let seconds = source.elapsed_s / float(source.cycles.len() as u64);
    let windows = source.cycles.iter().map(|cycle| window(source, cycle, seconds)).collect();
    let watch = ServerWatch { windows, complete: true, ..ServerWatch::default() };
    let provenance =
        Provenance { version: String::new(), command: Vec::new(), made: String::new() };
    let requested = SettingQuestion::parse("data_checksums=on").ok()?;
    let record = prediction_record(provenance, Watched::now(server(source), watch), &[requested]);
    let Interval { estimate, lower, upper } = record.answers[0].wal.as_ref()?.extra_share?;
    Some(Range { middle: estimate, lower, upper })
}

fn server(source: &Run) -> WatchedServer {
    let settings =
        [("data_checksums", "off"), ("wal_log_hints", "off"), ("full_page_writes", "on")];
    let version: Option<ServerVersion> = source.server.parse().ok();
    WatchedServer {
        version: version.map_or_else(String::new, |version| version.to_string()),
        settings: settings
            .map(|(name, value)| (String::from(name), String::from(value)))
            .into_iter()
            .collect(),
        block_bytes: 8192,
        segment_bytes: 16 << 20,
        ..WatchedServer::default()
    }
}

fn window(source: &Run, cycle: &PredictionTrialCycle, seconds: f64) -> WatchWindow {
    let parts = float(cycle.censuses.len() as u64);
    let taken = (1..).map(float).zip(&cycle.censuses);
    let image_bytes = image_bytes(source);
    let census = |(number, item): (f64, &PredictionTrialCensus)| DirtyCensus {
        image_bytes,
        ..census(item, seconds * number / parts, seconds)
    };
    let mut censuses: Vec<DirtyCensus> = taken.map(census).collect();
    WatchWindow {
        seconds,
        is_cycle: true,
        wal_bytes: cycle.wal_bytes,
        blocks_checkpointed: cycle.written.saturating_sub(cycle.evicted),
        blocks_evicted: cycle.evicted,
        census: censuses.pop(),
        earlier_censuses: censuses,
        ..WatchWindow::default()
    }
}

fn census(census: &PredictionTrialCensus, age_s: f64, cycle_s: f64) -> DirtyCensus {
    DirtyCensus {
        at: String::new(),
        redo: Lsn(0),
        age_s,
        cycle_s: Some(cycle_s),
        evicted: None,
        buffers: 0,
        dirty: census.dirty,
        covered: census.dirty,
        sampled: census.sampled,
        hint_only: census.hint_only,
        low: census.low,
        low_hint_only: census.low_hint_only,
        low_unsure: 0,
        image_bytes: None,
        relations: Vec::new(),
    }
}

/// The mean over all pages that censuses found changed by hints alone.
fn image_bytes(run: &Run) -> Option<f64> {
    let mut pages = 0;
    let mut bytes = 0;
    for census in run.cycles.iter().flat_map(|cycle| &cycle.censuses) {
        pages += census.hint_only;
        bytes += census.hint_only_bytes;
    }
    (pages > 0).then(|| float(bytes) / float(pages))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contents::Contents;
    use crate::score::{LARGE, Scored, mean};
    use pgtoll_record::trials::PredictionTrialArm as Arm;

    /// Of every run of the record that was watched, beside the truth of its repetition.
    #[test]
    fn the_formula_holds_what_was_paid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let record = root.join("records/2026-11-23-prediction-trial.jsonl");
        let runs = Contents::read([&record]).unwrap().runs;
        let wal = |item: &Run, arm: Arm| {
            let is_own = |run: &&Run| {
                run.arm == arm
                    && (&run.server, run.workload, run.repetition)
                        == (&item.server, item.workload, item.repetition)
            };
            float(runs.iter().find(is_own).unwrap().wal_bytes)
        };
        let watched: Vec<&Run> = runs.iter().filter(|run| run.arm == Arm::Watched).collect();
        let scored = |run: &&Run| {
            let truth = wal(run, Arm::On) / wal(run, Arm::Off) - 1.0;
            let scored = Scored { prediction: change(run).unwrap(), truth };
            let name = format!("{} {} {}", run.server, run.workload.name(), run.repetition);
            assert!(scored.is_covered(), "{name}: {scored:?}");
            // No excuse for large ones.
            let is_near = scored.error() <= 0.12 * truth.max(LARGE);
            assert!(is_near, "{name}: {scored:?}");
            scored
        };
        let scored: Vec<Scored> = watched.iter().map(scored).collect();
        let narrow = scored.iter().filter(|scored| scored.is_narrow()).count();
        assert_eq!((scored.len(), narrow), (36, 36));
        assert!(mean(scored.iter().map(Scored::error)).unwrap() < 0.01);
    }
}
