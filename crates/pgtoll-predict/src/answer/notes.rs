//! Notes for readers of a prediction.

use pgtoll_record::{PageCosts, ServerWatch, WatchWindow, WatchedServer, WatchedWal};

use crate::answer::advice::IDLE_BYTES;
use crate::answer::digest::{HintImages, SeenSettings, WatchDigest, evicted};

fn logs_hints(server: &WatchedServer) -> bool {
    SeenSettings::from_server(server).logs_hints()
}

/// Checkpoint cycles that were watched.
fn cycles(watch: &ServerWatch) -> usize {
    watch.windows.iter().filter(|window| window.is_cycle).count()
}

/// Returns notes on disturbed reading of WAL.
fn reading_notes(wal: &WatchedWal, watched: usize) -> Vec<String> {
    let read = wal.cycles.len();
    let resumed = (wal.resumed > 0).then(|| {
        format!(
            "the connection that sends WAL was lost {} times; reading resumed where it stopped; nothing is missing",
            wal.resumed
        )
    });
    let ended = wal.ended.as_ref().map(|why| {
        format!(
            "reading WAL ended before watching: {why}. What rests on WAL rests on {read} checkpoint \
             cycles, the rest on {watched}"
        )
    });
    resumed.into_iter().chain(ended).collect()
}

pub(super) fn notes(
    server: &WatchedServer,
    watch: &ServerWatch,
    costs: &PageCosts,
    digest: Option<&WatchDigest>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !costs.timed {
        notes.push(
            "the server is remote, or its processes cannot be seen: CPU for a page is from pgtoll's \
             table (x86-64), not timed there"
                .to_owned(),
        );
    }
    if server.settings.get("wal_level").is_some_and(|level| level == "minimal") {
        notes.push(
            "wal_level = minimal: pages of tables that are loaded without WAL count as if hints \
             would log them"
                .to_owned(),
        );
    }
    if digest.is_some_and(|digest| digest.forced) {
        notes.push(
            "checkpoints came sooner than the settings begin them (CHECKPOINT, backups): figures are \
             of cycles so short"
                .to_owned(),
        );
    }
    if digest.is_some_and(|digest| digest.rates.wal_bytes_per_second < IDLE_BYTES) {
        notes.push("the server made hardly any WAL: watch it at work".to_owned());
    }
    if !watch.windows.is_empty() && !watch.windows.iter().any(|window| window.is_cycle) {
        notes.push(
            "no whole checkpoint cycle was seen: ranges are from a part of one, and wider"
                .to_owned(),
        );
    }
    let is_blind = |window: &WatchWindow| {
        window.census.is_some() && window.blocks_carried > 0 && window.carried_marks.is_none()
    };
    if watch.wal.is_none() && !logs_hints(server) && watch.windows.iter().any(is_blind) {
        notes.push(
            "pages that VACUUM marks all-visible while a checkpoint has still to write them are seen \
             by no census: the upper bound of WAL has all that could be. --wal stream counts them"
                .to_owned(),
        );
    }
    let sum = |bytes: fn(&WatchWindow) -> u64| {
        watch.windows.iter().map(bytes).fold(0, u64::saturating_add)
    };
    let pruned = sum(|window| window.pruned_bytes_most.unwrap_or(0));
    let wal = sum(|window| window.wal_bytes);
    if watch.wal.is_none() && !logs_hints(server) && pruned > wal / UNNOTED {
        notes.push(
            "VACUUM and readers remove dead rows from pages. Where hints are logged, a page's image comes \
             before that, and is longer. Counters give only an upper bound, so the range of WAL is wide: --wal stream counts it"
                .to_owned(),
        );
    }
    let unknown = |window: &WatchWindow| window.relations_gone.is_none();
    if !logs_hints(server) && watch.windows.iter().any(unknown) {
        notes.push(
            "not all databases could be asked how many tables came and went meanwhile: WAL of their free \
             space maps, which no census sees, is not in the range"
                .to_owned(),
        );
    }
    if let [window] = &watch.windows[..]
        && window.blocks_carried > 0
        && evicted(window) > 0
        && digest.and_then(|digest| digest.hint_images.as_ref()).is_some_and(HintImages::is_bounds)
    {
        notes.push(
            "pages that were evicted while a checkpoint ran may count for the cycle before it: the bounds \
             of WAL are of one cycle, and may be off by them. Watch more (--cycles 3)"
                .to_owned(),
        );
    }
    if let Some(wal) = &watch.wal {
        notes.extend(reading_notes(wal, cycles(watch)));
        notes.extend(wal.notes.iter().cloned());
    }
    notes
}

/// Dead rows of less than one in this number of WAL's bytes need no note.
const UNNOTED: u64 = 50;
