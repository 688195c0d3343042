//! The digest of a watch: rates, and the images that logging hints would add.

use std::collections::BTreeMap;

use pgtoll_format::conf;
use pgtoll_format::wal::Compression;
use pgtoll_model::checkpoint_segments;
use pgtoll_model::prediction::{
    Bounded, CensusCounts, CheckpointLoad, IMAGE_RECORD_BYTES, PlacedCensus, StatementCounts,
    WrittenPages, compressed_share, cycle_images, gone_images, window_images,
};
use pgtoll_record::{
    CarriedMarks, DirtyCensus, PredictionBasis, ServerWatch, WatchWindow, WatchedRates,
    WatchedServer, WatchedWal, WatchedWalCycle,
};
use pgtoll_stats::{mean, proportion_interval, quantile, sample_sd, t_quantile};

/// The settings that answers depend on.
#[derive(Clone, Debug)]
pub(crate) struct SeenSettings {
    pub(crate) checksums: bool,
    pub(crate) hints: bool,
    pub(crate) full_page_writes: bool,
    pub(crate) compression: Option<Compression>,
    pub(crate) timeout_s: f64,
    /// WAL after which a checkpoint begins, in bytes.
    pub(crate) trigger_bytes: f64,
    completion_target: f64,
    segment_bytes: u64,
}

impl SeenSettings {
    pub(crate) fn from_server(server: &WatchedServer) -> Self {
        let text = |name: &str| server.settings.get(name).map_or("", String::as_str);
        let is_on = |name: &str| conf::boolean(text(name)).unwrap_or(false);
        let size = conf::size("max_wal_size", text("max_wal_size")).map_or(1 << 30, |size| size.0);
        let time = conf::time("checkpoint_timeout", text("checkpoint_timeout"));
        let mut settings = Self {
            checksums: is_on("data_checksums"),
            hints: is_on("wal_log_hints"),
            full_page_writes: is_on("full_page_writes"),
            compression: conf::wal_compression(text("wal_compression")).flatten(),
            timeout_s: time.map_or(300.0, |time| time.0.as_secs_f64()),
            trigger_bytes: 0.0,
            completion_target: conf::ratio(text("checkpoint_completion_target")).unwrap_or(0.9),
            segment_bytes: server.segment_bytes.max(1 << 20),
        };
        settings.trigger_bytes = settings.trigger_of(size);
        settings
    }

    pub(crate) fn logs_hints(&self) -> bool {
        self.checksums || self.hints
    }

    /// WAL after which a checkpoint begins with this `max_wal_size`, in bytes.
    pub(crate) fn trigger_of(&self, max_wal_size: u64) -> f64 {
        let segments =
            checkpoint_segments(max_wal_size, self.segment_bytes, self.completion_target);
        float(segments.saturating_mul(self.segment_bytes))
    }
}

/// Images that logging hints would add, a second.
#[derive(Clone, Debug)]
pub(super) struct HintImages {
    pub(super) per_second: Bounded,
    /// Images a second of each window, the estimates.
    pub(super) of_windows: Vec<f64>,
    /// Bytes of WAL each.
    pub(super) bytes: Bounded,
    pub(super) basis: PredictionBasis,
    pub(super) estimators: BTreeMap<String, f64>,
}

impl HintImages {
    /// They rest on counters of pages, and not on censuses.
    pub(super) fn is_bounds(&self) -> bool {
        self.basis != PredictionBasis::CensusAndEvictions
    }
}

/// The digest of a watch.
#[derive(Clone, Debug)]
pub(super) struct WatchDigest {
    pub(super) settings: SeenSettings,
    pub(super) rates: WatchedRates,
    pub(super) seconds: f64,
    /// Today's WAL by what begins checkpoints; `None` where images are not counted.
    pub(super) load: Option<CheckpointLoad>,
    /// Checkpoints came sooner than settings explain: by hand, or by backups.
    pub(super) forced: bool,
    /// `None`: not known, or they are logged.
    pub(super) hint_images: Option<HintImages>,
    /// Bytes a second by which today's images would be longer where hints are logged.
    pub(super) fuller: Bounded,
}

/// Cores of a server that does hardly anything: the watching, which is taken off, takes a hundredth.
const IDLE_CORES: f64 = 0.02;

/// The estimator's own error beside that of the sample. Where hints log images, VACUUM freezes more
/// since 16: 2 % of the images in the trial are in it.
pub(super) const MODEL_ERROR: f64 = 0.1;
/// How unlike the cycles of a server are, where too few were seen to say: VACUUM comes in one and not
/// in the next. Of a single one; of more it is divided by their number's root.
pub(super) const UNLIKE_CYCLES: f64 = 0.3;
/// A first census in this part of a cycle has seen its beginning.
const EARLY: f64 = 0.4;
/// The floor, as a share of today's WAL: below it the trial's estimates and truths are unrelated.
/// There was up to 0.7 % that no census finds: images of hints that a later record does without.
pub(super) const FLOOR: Bounded = Bounded { estimate: 0.0, lower: -0.005, upper: 0.008 };

impl WatchDigest {
    /// `None` without a window.
    pub(super) fn new(server: &WatchedServer, watch: &ServerWatch) -> Option<Self> {
        let settings = SeenSettings::from_server(server);
        let windows = &watch.windows;
        let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
        if seconds <= 0.0 {
            return None;
        }
        let rate = |value: &dyn Fn(&WatchWindow) -> u64| {
            float(windows.iter().map(value).fold(0, u64::saturating_add)) / seconds
        };
        let all = |value: &dyn Fn(&WatchWindow) -> Option<f64>| {
            windows.iter().map(value).sum::<Option<f64>>().map(|sum| sum / seconds)
        };
        // It is not the server's own work.
        let watching = if watch.cost.is_cpu { watch.cost.share_of_core } else { 0.0 };
        let mut rates = WatchedRates {
            wal_bytes_per_second: rate(&|window| window.wal_bytes),
            images_per_second: all(&|window| window.wal_images.map(float)),
            reads_per_second: rate(&|window| window.blocks_read),
            writes_per_second: rate(&written),
            busy_cores: all(&|window| window.cpu_seconds).map(|busy| (busy - watching).max(0.0)),
            wal_driven: None,
        };
        let block = float(server.block_bytes.max(1));
        let load = today(&settings, &rates, all(&|window| window.wal_records.map(float)), block);
        rates.wal_driven = load.map(|load| load.is_wal_driven());
        let cycles: Vec<f64> =
            windows.iter().filter(|window| window.is_cycle).map(|window| window.seconds).collect();
        let expected = load.map_or(settings.timeout_s, |load| load.cycle_s());
        let forced = mean(&cycles).is_some_and(|mean| mean < 0.8 * expected);
        let fuller = fuller_images(windows, watch.wal.as_ref()).scaled(1.0 / seconds);
        let mut digest = Self { settings, rates, seconds, load, forced, hint_images: None, fuller };
        if !digest.settings.logs_hints() {
            digest.hint_images = digest.hint_images(windows, watch.wal.as_ref(), block);
        }
        Some(digest)
    }

    /// Returns the CPU of a busy server: on an idle one it is mostly the watch.
    pub(super) fn busy_cores(&self) -> Option<f64> {
        self.rates.busy_cores.filter(|busy| *busy > IDLE_CORES)
    }

    /// By censuses where there are any, else by the counters of whole cycles.
    fn hint_images(
        &self,
        windows: &[WatchWindow],
        wal: Option<&WatchedWal>,
        block: f64,
    ) -> Option<HintImages> {
        let bytes = image_bytes(windows, block, self.settings.compression);
        let mut estimators = BTreeMap::new();
        let dirtied = windows
            .iter()
            .map(|window| window.select_dirtied)
            .try_fold(0_u64, |sum, dirtied| Some(sum.saturating_add(dirtied?)));
        if let Some(dirtied) = dirtied {
            estimators.insert("E1'".to_owned(), float(dirtied) / self.seconds);
        }
        // Where censuses take long, not every window has one: the others are as these.
        let counted = self.counted(windows);
        let written = wal.and_then(|wal| written_pages(windows, wal));
        if let Some(written) = &written {
            let sum = |value: fn(&WrittenPages) -> u64| {
                float(written.iter().map(|(_, item)| value(item)).fold(0, u64::saturating_add))
                    / self.seconds
            };
            let changed = |pages: &WrittenPages| pages.written().saturating_sub(pages.changed);
            estimators.insert("E3".to_owned(), sum(changed));
            estimators.insert("E4".to_owned(), sum(|item| item.visible));
        }
        if let Some(written) = written.filter(|_| counted.is_empty()) {
            let images: Vec<_> = written
                .iter()
                .zip(windows)
                .map(|((seconds, item), window)| (*seconds, with_gone(item.images(), window)))
                .collect();
            let (per_second, of_windows) = mean_of(&images, self.floor(bytes));
            let basis = PredictionBasis::PagesWritten;
            return Some(HintImages { per_second, of_windows, bytes, basis, estimators });
        }
        if counted.is_empty() {
            if !windows.iter().all(|window| window.is_cycle && window.wal_images.is_some()) {
                return None;
            }
            let has_statements = dirtied.is_some();
            let basis = if has_statements {
                PredictionBasis::Statements
            } else {
                PredictionBasis::Counters
            };
            let images: Vec<_> = windows
                .iter()
                .map(|window| (window.seconds, with_gone(by_counters(window), window)))
                .collect();
            let (per_second, of_windows) = mean_of(&images, self.floor(bytes));
            return Some(HintImages { per_second, of_windows, bytes, basis, estimators });
        }
        let mut images = Vec::new();
        let mut stock = 0.0;
        for (window, census) in &counted {
            let cycle = self.cycle_of(window, census);
            let part = if window.is_cycle { 1.0 } else { window.seconds / cycle };
            stock += counts(census, cycle).stock() * part;
            let written = wal.and_then(|wal| pages_written(window, wal));
            let most = written.as_ref().map(|pages| pages.images().upper);
            let most = most.unwrap_or_else(|| by_counters(window).upper);
            let found = with_unseen(self.by_census(window, census), unseen(census, cycle), most);
            let visible = written.map(|pages| pages.visible);
            let carried = match (visible, window.carried_marks) {
                (Some(visible), _) => CarriedVisible::Counted(visible),
                (None, Some(marks)) => CarriedVisible::Sampled(marks),
                (None, None) => CarriedVisible::Unknown,
            };
            let found = with_carried(found, window.blocks_carried, carried);
            images.push((window.seconds, with_gone(found, window)));
        }
        let (per_second, of_windows) = mean_of(&images, self.floor(bytes));
        let seconds: f64 = images.iter().map(|(seconds, _)| seconds).sum();
        estimators.insert("E2".to_owned(), stock / seconds);
        estimators.insert("E2+".to_owned(), per_second.estimate);
        let basis = PredictionBasis::CensusAndEvictions;
        Some(HintImages { per_second, of_windows, bytes, basis, estimators })
    }

    /// Windows with censuses. Where some were seen from early in their cycle, those that were not
    /// are left out: the first one, as a rule, whose checkpoint ran already when watching began.
    fn counted<'a>(&self, windows: &'a [WatchWindow]) -> Vec<(&'a WatchWindow, &'a DirtyCensus)> {
        let mut counted: Vec<(&WatchWindow, &DirtyCensus)> =
            windows.iter().filter_map(|window| Some((window, window.census.as_ref()?))).collect();
        let is_early = |(window, census): &(&WatchWindow, &DirtyCensus)| {
            let cycle = self.cycle_of(window, census);
            window.censuses().next().is_some_and(|first| first.age_s < EARLY * cycle)
        };
        if counted.iter().any(is_early) {
            counted.retain(is_early);
        }
        counted
    }

    /// The part of the range that has no relation to any estimate, in images of this many bytes a
    /// second.
    fn floor(&self, bytes: Bounded) -> Bounded {
        FLOOR.scaled(self.rates.wal_bytes_per_second / bytes.estimate.max(1.0))
    }

    /// Returns the images by census. For a whole cycle: in the window. Of a part of one: a second's share of what the cycle will
    /// have, for the window.
    fn by_census(&self, window: &WatchWindow, census: &DirtyCensus) -> Bounded {
        let cycle = self.cycle_of(window, census);
        let censuses = placed(window, cycle);
        let evicted = float(evicted(window));
        if window.is_cycle {
            return cycle_images(&censuses, evicted);
        }
        // What is evicted was counted in the window alone.
        cycle_images(&censuses, evicted * cycle / window.seconds).scaled(window.seconds / cycle)
    }

    /// Seconds of the cycle that a census is of.
    fn cycle_of(&self, window: &WatchWindow, census: &DirtyCensus) -> f64 {
        let expected = self.load.map_or(self.settings.timeout_s, |load| load.cycle_s());
        let seen = census.cycle_s.filter(|_| window.is_cycle);
        seen.unwrap_or(expected).max(census.age_s).max(SHORTEST_S)
    }
}

/// The part of a cycle after its last census. Looks are half a second apart, so that in a cycle of a second
/// a census may have been anywhere.
fn unseen(census: &DirtyCensus, cycle_s: f64) -> f64 {
    if cycle_s <= SHORTEST_S {
        return 1.0;
    }
    ((cycle_s - census.age_s) / cycle_s).clamp(0.0, 1.0)
}

/// Shorter cycles count as cycles of a second.
const SHORTEST_S: f64 = 1.0;

/// Hints need not come evenly: who reads a table once, late in the cycle, sets them all. What came after the
/// last census is taken to be at most its part of all that the counters leave room for.
fn with_unseen(found: Bounded, unseen: f64, most: f64) -> Bounded {
    Bounded { upper: found.upper.max(unseen * most), ..found }
}

/// The known facts about the pages that `VACUUM` marked all-visible while a checkpoint had still to write
/// them.
#[derive(Clone, Copy, Debug)]
enum CarriedVisible {
    /// By the WAL this many pages were only marked in the cycle, these among them.
    Counted(u64),
    /// By the visibility map, of a sample.
    Sampled(CarriedMarks),
    Unknown,
}

/// Beside what censuses found, what `VACUUM` marked all-visible on pages that were written while a
/// checkpoint ran: hints alone change such a page, and when it is looked at it is clean. Of those
/// that were marked, some may have been written before, so that censuses found them. Where nothing
/// is known of it, all that were carried over may have been marked.
fn with_carried(found: Bounded, carried: u64, visible: CarriedVisible) -> Bounded {
    match visible {
        CarriedVisible::Counted(visible) => {
            let visible = float(visible);
            Bounded {
                estimate: found.estimate.max(visible),
                lower: found.lower.max(visible),
                upper: if carried > 0 { found.upper + visible } else { found.upper.max(visible) },
            }
        }
        CarriedVisible::Sampled(marks) => {
            let marked = marked_share(&marks).scaled(float(carried));
            Bounded {
                estimate: found.estimate.max(marked.estimate),
                lower: found.lower.max(marked.lower),
                upper: found.upper + marked.upper,
            }
        }
        CarriedVisible::Unknown => Bounded { upper: found.upper + float(carried), ..found },
    }
}

/// Bytes by which images of all windows would be longer where hints are logged: pruning a page sets its rows'
/// hints first, so that its image would come before the dead rows are gone. A hint that was set before the
/// checkpoint needs no image.
fn fuller_images(windows: &[WatchWindow], wal: Option<&WatchedWal>) -> Bounded {
    let of_window = |window: &WatchWindow| {
        if let Some(cycles) = wal.and_then(|wal| cycles_of(window, wal)) {
            let sum = |bytes: fn(&WatchedWalCycle) -> u64| {
                float(cycles.iter().map(bytes).fold(0, u64::saturating_add))
            };
            let estimate = sum(|cycle| cycle.pruned_bytes) * PRUNED_SHARE;
            return Bounded::new(estimate, 0.0, sum(|cycle| cycle.pruned_bytes_most));
        }
        // Rows that died in the cycle are on pages that have their image already.
        let most = float(window.pruned_bytes_most.unwrap_or(0));
        let vacuumed = window.vacuumed_bytes_most.map_or(most, float);
        Bounded::new(vacuumed * PRUNED_SHARE, 0.0, most)
    };
    let all: Vec<Bounded> = windows.iter().map(of_window).collect();
    Bounded::sum_of_bounds(&all)
}

/// The share of freed bytes that makes images longer: a guess. Readers of a queue set the hints of its dead rows
/// before `VACUUM` comes (nothing); dead rows of a TOAST table are never read (all). What readers free is
/// left out of the estimate by counters: most such pages have their image already (18.6, a queue: 54 of 7,545
/// prunes had one).
const PRUNED_SHARE: f64 = 0.5;

/// Beside what was found, free space maps of relations that came and went in the window.
fn with_gone(found: Bounded, window: &WatchWindow) -> Bounded {
    Bounded::sum_of_bounds(&[found, gone_images(window.relations_gone.unwrap_or(0))])
}

/// With the error of the sample; what is not known may be marked.
fn marked_share(marks: &CarriedMarks) -> Bounded {
    let CarriedMarks { sampled, marked, unknown } = *marks;
    let interval = |hits: u64| proportion_interval(hits.min(sampled), sampled);
    let (Some((lower, _)), Some((_, upper))) = (interval(marked), interval(marked + unknown))
    else {
        return Bounded::new(0.0, 0.0, 1.0);
    };
    Bounded::new(float(marked) / float(sampled), lower, upper)
}

/// Images a second of all windows, given with their seconds, and the estimate of each. Errors of
/// windows may have one cause, so they are added up; their number's own scatter, that between windows
/// and the estimator's error are independent of each other. The `floor` comes on top.
fn mean_of(images: &[(f64, Bounded)], floor: Bounded) -> (Bounded, Vec<f64>) {
    let seconds: f64 = images.iter().map(|(seconds, _)| seconds).sum();
    let sum = |value: fn(&Bounded) -> f64| {
        images.iter().map(|(_, images)| value(images)).sum::<f64>() / seconds
    };
    let of_windows: Vec<f64> =
        images.iter().map(|(seconds, images)| images.estimate / seconds).collect();
    let mean =
        Bounded::new(sum(|item| item.estimate), sum(|item| item.lower), sum(|item| item.upper));
    let scatter = 1.96 * (mean.estimate / seconds).sqrt();
    let unlike = mean.estimate * UNLIKE_CYCLES / float(images.len().max(1) as u64).sqrt();
    let around = |half: f64| Bounded { estimate: 0.0, lower: -half, upper: half };
    let errors = [
        mean,
        around(scatter),
        around(between_windows(&of_windows).max(unlike)),
        around(mean.estimate * MODEL_ERROR),
    ];
    let all = Bounded::sum(&errors);
    let lower = all.lower + floor.lower;
    let upper = all.upper + floor.upper;
    (Bounded { lower: lower.max(0.0), upper, ..all }, of_windows)
}

/// The censuses of a window's cycle, each with the share of the cycle's evictions before it: by the
/// counter where that was published often enough, else by time.
fn placed(window: &WatchWindow, cycle_s: f64) -> Vec<PlacedCensus> {
    let mut censuses: Vec<&DirtyCensus> = window.censuses().collect();
    if censuses.iter().any(|census| is_sure(census)) {
        censuses.retain(|census| is_sure(census));
    }
    let mut places: Vec<f64> =
        censuses.iter().map(|census| (census.age_s / cycle_s).clamp(0.0, 1.0)).collect();
    if let (Some(evicted), [first, .., last]) = (published(&censuses), &places[..]) {
        let first = *first;
        let last = *last;
        let begin = evicted[0];
        let end = evicted[evicted.len() - 1];
        let place = |evicted: &f64| first + (last - first) * (evicted - begin) / (end - begin);
        places = evicted.iter().map(place).collect();
    }
    let place = |(census, place): (&&DirtyCensus, f64)| PlacedCensus {
        counts: counts(census, cycle_s),
        place,
    };
    censuses.iter().zip(places).map(place).collect()
}

/// Pages that a running checkpoint had still to write are told from new ones. Where they come and go
/// faster than censuses do, the first one after its begin cannot: it takes new pages for old ones.
fn is_sure(census: &DirtyCensus) -> bool {
    census.low_unsure.saturating_mul(MOST_UNSURE) <= census.low
}

/// At most one in this many.
const MOST_UNSURE: u64 = 4;

/// Evictions before each census, where their counter tells more than time does: sessions publish
/// theirs up to some seconds late.
fn published(censuses: &[&DirtyCensus]) -> Option<Vec<f64>> {
    let evicted: Vec<f64> =
        censuses.iter().map(|census| census.evicted.map(float)).collect::<Option<_>>()?;
    let first = censuses.first()?;
    let last = censuses.last()?;
    let parts = float(censuses.len().saturating_sub(1) as u64);
    let slow = last.age_s - first.age_s >= PUBLISHED_S * parts;
    let grows = evicted.windows(2).all(|pair| pair[1] > pair[0]);
    (parts >= 2.0 && slow && grows).then_some(evicted)
}

/// Seconds between censuses in which nearly all evictions are published.
const PUBLISHED_S: f64 = 5.0;

fn counts(census: &DirtyCensus, cycle_s: f64) -> CensusCounts {
    CensusCounts {
        dirty: census.dirty,
        covered: census.covered,
        sampled: census.sampled,
        hint_only: census.hint_only,
        low: census.low,
        low_hint_only: census.low_hint_only,
        low_unsure: census.low_unsure,
        age_s: census.age_s,
        cycle_s,
    }
}

/// The cycles of the WAL that are the window's; `None` where it was not read whole.
pub(super) fn cycles_of<'a>(
    window: &WatchWindow,
    wal: &'a WatchedWal,
) -> Option<&'a [WatchedWalCycle]> {
    let (from, to) = window.redo.filter(|_| window.is_cycle)?;
    let first = wal.cycles.iter().position(|cycle| cycle.from == from)?;
    let last = wal.cycles.iter().position(|cycle| cycle.to == to)?;
    wal.cycles.get(first..=last)
}

/// Pages of a window's checkpoint cycle; `None` where its WAL was not read whole.
pub(super) fn pages_written(window: &WatchWindow, wal: &WatchedWal) -> Option<WrittenPages> {
    let cycles = cycles_of(window, wal)?;
    let sum =
        |value: fn(&WatchedWalCycle) -> u64| cycles.iter().map(value).fold(0, u64::saturating_add);
    Some(WrittenPages {
        checkpointed: window.blocks_checkpointed,
        evicted: evicted(window),
        carried: window.blocks_carried,
        changed: sum(|item| item.changed_pages),
        forced: sum(|item| item.forced_pages),
        visible: sum(|item| item.visible_pages),
        select_dirtied: window.select_dirtied,
    })
}

/// Pages of all windows, with their seconds; `None` where the WAL of one was not read whole.
fn written_pages(windows: &[WatchWindow], wal: &WatchedWal) -> Option<Vec<(f64, WrittenPages)>> {
    windows.iter().map(|window| Some((window.seconds, pages_written(window, wal)?))).collect()
}

fn by_counters(window: &WatchWindow) -> Bounded {
    let images = window.wal_images.zip(window.forced_images_most);
    let images = images.map_or(0, |(images, forced)| images.saturating_sub(forced));
    window_images(&StatementCounts {
        select_dirtied: window.select_dirtied,
        written: written(window),
        evicted: evicted(window),
        images,
        carried: window.blocks_carried,
        may_be_marked: window.vacuums != Some(0),
    })
}

/// Blocks written by all, without new ones.
fn written(window: &WatchWindow) -> u64 {
    window.blocks_checkpointed.saturating_add(evicted(window))
}

/// Blocks evicted, without the new ones that until 15 count with them.
pub(super) fn evicted(window: &WatchWindow) -> u64 {
    window.blocks_evicted.saturating_sub(window.blocks_extended.unwrap_or(0))
}

/// How far the mean of a few windows may be from that of many: half the distance of two, of more
/// by Student's t.
pub(super) fn between_windows(of_windows: &[f64]) -> f64 {
    match of_windows {
        [] | [_] => 0.0,
        [a, b] => (a - b).abs() / 2.0,
        all => {
            let count = float(all.len() as u64);
            let half = sample_sd(all).map(|sd| t_quantile(0.95, count - 1.0) * sd / count.sqrt());
            half.unwrap_or(0.0)
        }
    }
}

/// Bytes of WAL for an image: of the pages that the censuses saw, else of any page.
pub(super) fn image_bytes(
    windows: &[WatchWindow],
    block: f64,
    compression: Option<Compression>,
) -> Bounded {
    let mut pages = 0.0;
    let mut bytes = 0.0;
    for census in windows.iter().flat_map(WatchWindow::censuses) {
        pages += float(census.hint_only);
        bytes += float(census.hint_only) * census.image_bytes.unwrap_or(block);
    }
    let any = Bounded::new(block * 0.9, block * 0.4, block);
    let page = match (pages > 0.0).then(|| bytes / pages) {
        Some(mean) => {
            let error = MEAN_SIZE_ERROR.max(1.0 / pages.sqrt());
            let upper = (mean * (1.0 + error)).min(any.upper);
            Bounded::new(mean, (mean * (1.0 - error)).max(any.lower).min(mean), upper)
        }
        None => any,
    };
    let stored = page.times(compressed_share(compression));
    Bounded::sum(&[stored, Bounded::exact(IMAGE_RECORD_BYTES)])
}

/// How far the mean size of many pages that hints alone changed is from that of all. Of few pages it is
/// farther: the error falls with their number's root.
const MEAN_SIZE_ERROR: f64 = 0.05;

/// WAL by what begins checkpoints: images at most as large as pages, and as what records leave.
fn today(
    settings: &SeenSettings,
    rates: &WatchedRates,
    records_per_second: Option<f64>,
    block: f64,
) -> Option<CheckpointLoad> {
    let share = compressed_share(settings.compression).estimate;
    let images = rates.images_per_second? * (block * IMAGE_SHARE * share + IMAGE_RECORD_BYTES);
    let most = rates.wal_bytes_per_second - records_per_second? * RECORD_BYTES;
    let images = images.min(most).max(0.0);
    Some(CheckpointLoad {
        other_bytes_per_second: (rates.wal_bytes_per_second - images).max(0.0),
        image_bytes_per_second: images,
        timeout_s: settings.timeout_s,
        trigger_bytes: settings.trigger_bytes,
    })
}

/// Pages are so full on average that holes take the rest: a guess, used for the part of images in
/// today's WAL alone.
const IMAGE_SHARE: f64 = 0.85;
/// The shortest records (`sizeof(XLogRecord)`, with a block's header).
const RECORD_BYTES: f64 = 44.0;

/// The 95th percentile over windows; `None` with fewer than two.
pub(super) fn p95(of_windows: &[f64]) -> Option<f64> {
    (of_windows.len() > 1).then(|| quantile(of_windows, 0.95)).flatten()
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes, far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_checkpoint_is_in_the_upper_bound_or_counted_by_the_wal() {
        let found = Bounded::new(100.0, 80.0, 120.0);
        let unknown = CarriedVisible::Unknown;
        assert_eq!(with_carried(found, 0, unknown), found);
        assert_eq!(with_carried(found, 500, unknown), Bounded::new(100.0, 80.0, 620.0));
        let counted = CarriedVisible::Counted;
        assert_eq!(with_carried(found, 500, counted(0)), found);
        assert_eq!(with_carried(found, 500, counted(300)), Bounded::new(300.0, 300.0, 420.0));
        // Without such pages, censuses saw what was marked.
        assert_eq!(with_carried(found, 0, counted(90)), Bounded::new(100.0, 90.0, 120.0));
    }

    /// 15.18, rows that are read at the end of a cycle of a second: a census before it found nothing.
    #[test]
    fn what_comes_after_the_last_census_is_in_the_upper_bound() {
        let census = |age_s| DirtyCensus { age_s, ..census(10, 0, 0) };
        assert!((unseen(&census(0.4), 1.0) - 1.0).abs() < 1e-9);
        assert!((unseen(&census(297.0), 300.0) - 0.01).abs() < 1e-9);
        let found = Bounded::new(10.0, 5.0, 20.0);
        assert_eq!(with_unseen(found, 1.0, 2400.0), Bounded::new(10.0, 5.0, 2400.0));
        assert_eq!(with_unseen(found, 0.01, 1500.0), found);
    }

    fn census(low: u64, low_hint_only: u64, low_unsure: u64) -> DirtyCensus {
        DirtyCensus {
            at: String::new(),
            redo: pgtoll_format::Lsn(1),
            age_s: 0.0,
            cycle_s: None,
            evicted: None,
            buffers: 3000,
            dirty: low,
            covered: low,
            sampled: low,
            hint_only: low_hint_only,
            low,
            low_hint_only,
            low_unsure,
            image_bytes: None,
            relations: Vec::new(),
        }
    }

    /// Just after a checkpoint's begin, in small shared buffers under heavy eviction.
    #[test]
    fn a_census_that_takes_new_pages_for_old_ones_does_not_count() {
        let census = |age_s, low_hint_only, low_unsure| DirtyCensus {
            age_s,
            ..census(100, low_hint_only, low_unsure)
        };
        let window = |first: DirtyCensus| WatchWindow {
            earlier_censuses: vec![first, census(10.0, 40, 5)],
            census: Some(census(20.0, 20, 0)),
            ..WatchWindow::default()
        };
        let shares = |window: &WatchWindow| -> Vec<u64> {
            placed(window, 30.0).iter().map(|placed| placed.counts.low_hint_only).collect()
        };
        assert_eq!(shares(&window(census(1.0, 0, 60))), [40, 20]);
        assert_eq!(shares(&window(census(1.0, 45, 20))), [45, 40, 20]);
        let only = WatchWindow { census: Some(census(1.0, 0, 60)), ..WatchWindow::default() };
        assert_eq!(shares(&only), [0]);
    }

    /// The range of what a sample found, and of what it left open.
    #[test]
    fn marks_of_a_sample_narrow_what_was_carried_over() {
        let found = Bounded::new(100.0, 80.0, 120.0);
        let with = |marked, unknown| {
            let marks = CarriedMarks { sampled: 2000, marked, unknown };
            with_carried(found, 10_000, CarriedVisible::Sampled(marks))
        };
        let none = with(0, 0);
        assert_eq!((none.estimate, none.lower), (100.0, 80.0));
        assert!(none.upper > 120.0 && none.upper < 150.0, "{none:?}");
        let some = with(200, 0);
        assert!((some.estimate - 1000.0).abs() < 1e-9, "{some:?}");
        assert!(some.lower > 850.0 && some.lower < 950.0, "{some:?}");
        assert!(some.upper > 1170.0 && some.upper < 1270.0, "{some:?}");
        let unsure = with(200, 400);
        assert_eq!((unsure.estimate, unsure.lower), (some.estimate, some.lower));
        assert!(unsure.upper > 3100.0, "{unsure:?}");
        let nothing = CarriedVisible::Sampled(CarriedMarks::default());
        assert!((with_carried(found, 10_000, nothing).upper - 10_120.0).abs() < 1e-9);
    }
}
