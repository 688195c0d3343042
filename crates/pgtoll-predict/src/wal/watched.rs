//! The WAL that was read, as the record has it.

use pgtoll_record::{CycleWithoutHints, Provenance, WatchedWal, WatchedWalCycle};
use pgtoll_wal::{CycleOutcome, End, SourceCycle, Streamed, WhatIfSource, whatif_record};

use crate::wal::plan::WalQuestion;
use crate::wal::reader::ReadWal;

/// `None` where not a record was read.
pub(crate) fn watched_wal(requested: &WalQuestion, read: ReadWal) -> Option<WatchedWal> {
    let ReadWal { streamed: Streamed { summary, redo, resumed, end }, sender_cpu_s, ended } = read;
    let answer = &summary.collected;
    let (from, to) = answer.from.zip(answer.to)?;
    let source = WhatIfSource {
        names: Vec::new(),
        settings: requested.settings,
        guessed: WalQuestion::guessed(),
        settings_by: String::new(),
        notes: Vec::new(),
    };
    let provenance =
        Provenance { version: String::new(), command: Vec::new(), made: String::new() };
    let compressing = &requested.question.compressing;
    // Others that are in the same segment may be long past.
    let cycles = answer.cycles.iter().filter(|cycle| cycle.from >= redo);
    let end = end.unwrap_or(End::Interrupted);
    let whatif = whatif_record(provenance, source, &requested.grid, compressing, &summary, &end);
    Some(WatchedWal {
        from,
        to,
        bytes: answer.bytes(),
        seconds: summary.streamed.unwrap_or_default().as_secs_f64(),
        sender_cpu_seconds: sender_cpu_s,
        ended,
        resumed,
        redo_points: answer.redo_points.len() as u64,
        cycles: cycles.map(|item| cycle(item, requested.settings.hints)).collect(),
        check: whatif.check,
        today: whatif.today,
        rows: whatif.rows,
        notes: whatif.notes,
    })
}

/// Places of the outcomes: the own redo points come first, and hints the other way round at the same
/// ones third (see [`WalQuestion::new`]).
const TODAY: usize = 0;
const TOGGLED: usize = 2;

fn cycle(cycle: &SourceCycle, logs_hints: bool) -> WatchedWalCycle {
    let outcome = |place: usize| cycle.outcomes.get(place).copied().unwrap_or_default();
    let CycleOutcome { bytes, images, image_bytes, .. } = outcome(TODAY);
    WatchedWalCycle {
        from: cycle.from,
        to: cycle.to,
        bytes,
        images,
        image_bytes,
        changed_pages: cycle.pages.changed,
        forced_pages: cycle.pages.forced,
        visible_pages: cycle.pages.visible,
        pruned_bytes: cycle.pages.pruned_bytes,
        pruned_bytes_most: cycle.pages.pruned_bytes_most,
        without_hints: logs_hints.then(|| {
            let CycleOutcome { bytes, images, image_bytes, freeze_bytes } = outcome(TOGGLED);
            CycleWithoutHints { bytes, images, image_bytes, freeze_bytes }
        }),
    }
}
