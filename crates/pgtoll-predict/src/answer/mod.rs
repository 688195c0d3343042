//! From what was seen of a server to answers.

mod advice;
mod checks;
mod digest;
mod ranking;
#[cfg(test)]
mod wal_tests;
mod whatif;
mod windows;

use pgtoll_format::ServerVersion;
use pgtoll_format::wal::Compression;
use pgtoll_model::prediction::{
    Bounded, ImageWork, PageWork, compressed_share, cpu_cores, image_cost_ns,
};
use pgtoll_record::{
    Interval, PREDICTION_SCHEMA, PageCosts, PredictedCpu, PredictedWal, PredictionAnswer,
    PredictionBasis, PredictionRecord, Provenance, ServerWatch, WatchWindow, WatchedServer,
    WatchedWal,
};

use crate::answer::advice::{IDLE_BYTES, advice};
use crate::answer::checks::checks;
pub(crate) use crate::answer::digest::SeenSettings;
use crate::answer::digest::{HintImages, WatchDigest, p95};
use crate::answer::ranking::payers;
use crate::one_time::{one_time_bill, sentence};
use crate::question::{AskedValue, SettingQuestion};
use crate::{bounded, interval, page_costs};

/// What was seen of a server, now or in an earlier record.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Which.
    pub server: WatchedServer,
    /// What was seen of it.
    pub watch: ServerWatch,
    /// CPU for a page there.
    pub page_costs: PageCosts,
}

impl Watched {
    /// A server that was just watched. Its kernel is timed here if it runs here.
    pub fn now(server: WatchedServer, watch: ServerWatch) -> Self {
        Self { page_costs: costs_of(&server), server, watch }
    }

    /// As an earlier record has it.
    pub fn of_record(record: PredictionRecord) -> Self {
        let PredictionRecord { server, watch, page_costs, .. } = record;
        Self { server, watch, page_costs }
    }
}

/// CPU for a page on this server: its kernel is timed here if it runs here.
pub fn costs_of(server: &WatchedServer) -> PageCosts {
    let version: Option<ServerVersion> = server.version.parse().ok();
    let facts = version.and_then(|version| version.facts().ok());
    let compression = SeenSettings::of(server).compression;
    page_costs(facts.unwrap_or(&pgtoll_format::MAJORS[0]), server.local, compression)
}

/// The record with an answer to each question; without questions the opposite of the server's
/// checksums is asked about.
pub fn prediction_record(
    provenance: Provenance,
    watched: Watched,
    questions: &[SettingQuestion],
) -> PredictionRecord {
    let Watched { server, watch, page_costs } = watched;
    let default = [SettingQuestion::default_for(&server.settings)];
    let questions = if questions.is_empty() { &default[..] } else { questions };
    let digest = WatchDigest::of(&server, &watch);
    let mut answers: Vec<PredictionAnswer> = questions
        .iter()
        .map(|question| {
            let today = server.settings.get(question.name).cloned().unwrap_or_default();
            let (costs, wal) = (&page_costs, watch.wal.as_ref());
            let asking = Asking { server: &server, costs, question, today, wal };
            let mut answer = asking.answer(digest.as_ref());
            answer.windows = windows::windows(&asking, &watch, &answer);
            answer
        })
        .collect();
    let turns_on = |question: &SettingQuestion| {
        question.value == AskedValue::Checksums(true)
            && server.settings.get("data_checksums").is_some_and(|value| value != "on")
    };
    let one_time = questions.iter().any(turns_on).then(|| one_time_bill(&server, &watch));
    for answer in &mut answers {
        if let (Some(advice), Some(bill)) = (&mut answer.advice, &one_time) {
            advice.sentence = Some(sentence(advice, &answer.headline, bill));
        }
    }
    PredictionRecord {
        schema: PREDICTION_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        today: digest.as_ref().map(|digest| digest.rates).unwrap_or_default(),
        notes: notes(&server, &watch, &page_costs, digest.as_ref()),
        payers: payers(questions, &watch, &page_costs, digest.as_ref()),
        one_time,
        answers,
        checks: checks(&server, &watch),
        page_costs,
        watch,
        server,
    }
}

/// A question and what it is about.
struct Asking<'a> {
    server: &'a WatchedServer,
    costs: &'a PageCosts,
    question: &'a SettingQuestion,
    today: String,
    /// `None`: not read, or it has no images to leave out.
    wal: Option<&'a WatchedWal>,
}

/// What changes with hints.
enum HintChange {
    /// Their images come on top.
    Added,
    /// Their images go.
    Gone,
    /// Nothing, and why.
    None(String),
}

impl Asking<'_> {
    fn unanswered(&self) -> PredictionAnswer {
        PredictionAnswer {
            setting: self.question.name.to_owned(),
            today: self.today.clone(),
            value: self.question.value.words(),
            headline: String::new(),
            reason: None,
            wal: None,
            io_bytes_per_second: None,
            cpu: None,
            advice: None,
            windows: Vec::new(),
        }
    }

    fn answer(&self, digest: Option<&WatchDigest>) -> PredictionAnswer {
        let mut answer = self.unanswered();
        if let Some(digest) = digest {
            self.fill(&mut answer, digest);
        } else {
            answer.reason = Some("no window of time was seen whole".to_owned());
        }
        answer.io_bytes_per_second = answer.wal.as_ref().map(|wal| {
            let copies =
                1.0 + f64::from(self.server.standbys) + f64::from(u8::from(self.server.archives));
            interval(bounded(wal.extra_bytes_per_second).scaled(copies))
        });
        answer.advice = advice(self.question, &answer);
        answer.headline = advice::headline(&answer);
        answer
    }

    fn fill(&self, answer: &mut PredictionAnswer, digest: &WatchDigest) {
        let settings = &digest.settings;
        match self.question.value {
            AskedValue::Checksums(is_on) if is_on == settings.checksums => {
                self.nothing(answer, digest, format!("data_checksums is {} already", self.today));
            }
            AskedValue::Hints(is_on) if is_on == settings.hints => {
                self.nothing(answer, digest, format!("wal_log_hints is {} already", self.today));
            }
            AskedValue::Checksums(is_on) => {
                let sign = if is_on { 1.0 } else { -1.0 };
                let change = hint_change(digest, is_on || settings.hints);
                let images = self.hints(answer, digest, &change);
                let pages = PageWork {
                    read: (digest.rates.reads_per_second, bounded(self.costs.read_ns).scaled(sign)),
                    write: (
                        digest.rates.writes_per_second,
                        bounded(self.costs.write_ns).scaled(sign),
                    ),
                };
                answer.cpu = Some(self.cpu(digest, &pages, images));
            }
            AskedValue::Hints(is_on) => {
                let change = hint_change(digest, is_on || settings.checksums);
                let images = self.hints(answer, digest, &change);
                answer.cpu = Some(self.cpu(digest, &PageWork::default(), images));
            }
            AskedValue::Compression(kind) => self.compression(answer, digest, kind),
            AskedValue::MaxWalSize(size) => {
                let trigger = settings.trigger_of(size.0);
                self.distance(answer, digest, settings.timeout_s, trigger);
            }
            AskedValue::Timeout(time) => {
                let seconds = time.0.as_secs_f64();
                self.distance(answer, digest, seconds, settings.trigger_bytes);
            }
        }
    }

    fn nothing(&self, answer: &mut PredictionAnswer, digest: &WatchDigest, why: String) {
        answer.reason = Some(why);
        answer.wal = Some(wal(digest, Bounded::ZERO, PredictionBasis::AlreadySo));
        answer.cpu = Some(self.cpu(digest, &PageWork::default(), Bounded::ZERO));
    }

    fn cpu(&self, digest: &WatchDigest, pages: &PageWork, images: Bounded) -> PredictedCpu {
        let work = ImageWork { images, cost_ns: bounded(self.costs.image_ns) };
        let cores = cpu_cores(pages, &work);
        let of = |(rate, cost): (f64, Bounded)| rate * cost.estimate / 1e9;
        let busy = digest.busy_cores();
        PredictedCpu {
            cores: interval(cores),
            share_of_busy: busy.map(|busy| interval(cores.scaled(1.0 / busy))),
            read_cores: of(pages.read),
            write_cores: of(pages.write),
            image_cores: images.estimate * work.cost_ns.estimate / 1e9,
            payer: payer(self.server),
        }
    }

    /// Fills in the WAL; images a second more.
    fn hints(
        &self,
        answer: &mut PredictionAnswer,
        digest: &WatchDigest,
        change: &HintChange,
    ) -> Bounded {
        match change {
            HintChange::None(why) => {
                answer.reason = Some(why.clone());
                answer.wal = Some(wal(digest, Bounded::ZERO, PredictionBasis::AlreadyLogged));
                Bounded::ZERO
            }
            HintChange::Gone => {
                let Some(gone) = self.wal.and_then(|wal| whatif::hints_gone(digest, wal)) else {
                    answer.reason = Some(gone_words(digest));
                    return Bounded::ZERO;
                };
                (answer.wal, answer.reason) = (Some(gone.wal), gone.reason);
                gone.images
            }
            HintChange::Added => {
                let Some(images) = &digest.hint_images else {
                    answer.reason = Some(UNKNOWN_HINTS.to_owned());
                    return Bounded::ZERO;
                };
                answer.wal = Some(hint_wal(digest, images));
                images.per_second
            }
        }
    }

    /// What the WAL comes to when it is replayed with the value that is asked about.
    fn replayed(&self, digest: &WatchDigest) -> Option<PredictedWal> {
        let read = self.wal.filter(|_| digest.settings.full_page_writes)?;
        let change = whatif::changed(digest, read, self.question.value)?;
        Some(wal(digest, change, PredictionBasis::WhatIf))
    }

    fn distance(
        &self,
        answer: &mut PredictionAnswer,
        digest: &WatchDigest,
        timeout_s: f64,
        trigger_bytes: f64,
    ) {
        if let Some(replayed) = self.replayed(digest) {
            answer.wal = Some(replayed);
            return;
        }
        let Some(load) = &digest.load else {
            answer.reason = Some(UNCOUNTED_IMAGES.to_owned());
            return;
        };
        if digest.forced {
            answer.reason = Some(
                "checkpoints came sooner than the settings begin them (CHECKPOINT, backups): what \
                 other settings would change is not known"
                    .to_owned(),
            );
            return;
        }
        let change = load.with_other_distance(timeout_s, trigger_bytes);
        answer.wal = Some(wal(digest, change, PredictionBasis::ClosedForm));
        if change == Bounded::ZERO {
            let begins = if load.is_wal_driven() { "volume" } else { "time" };
            answer.reason =
                Some(format!("{begins} begins checkpoints, with this value as with today's"));
            return;
        }
        answer.reason = Some(self.distance_words().to_owned());
    }

    /// Why it rests on counters.
    fn distance_words(&self) -> &'static str {
        if self.wal.is_some() {
            "bounds by counters: too little WAL was read to replay it with this value"
        } else {
            "bounds by counters: --wal stream, or `pgtoll wal whatif`, works it out from the WAL, \
             within a few per cent"
        }
    }

    fn compression(
        &self,
        answer: &mut PredictionAnswer,
        digest: &WatchDigest,
        kind: Option<Compression>,
    ) {
        let today = digest.settings.compression;
        if kind == today {
            return self.nothing(
                answer,
                digest,
                format!("wal_compression is {} already", self.today),
            );
        }
        let (Some(load), Some(images)) = (&digest.load, digest.rates.images_per_second) else {
            answer.reason = Some(UNCOUNTED_IMAGES.to_owned());
            return;
        };
        let replayed = self.replayed(digest);
        if replayed.is_none() {
            answer.reason = Some(
                "how well these pages compress is not known: --wal stream, or `pgtoll wal whatif`, \
                 compresses the images that are in the WAL"
                    .to_owned(),
            );
        }
        answer.wal = replayed.or_else(|| {
            let change = compressed(load.image_bytes_per_second, today, kind);
            Some(wal(digest, change, PredictionBasis::ClosedForm))
        });
        let cost = Bounded::sum(&[image_cost_ns(kind), image_cost_ns(today).negated()]);
        let cores = cost.scaled(images / 1e9);
        let busy = digest.busy_cores();
        answer.cpu = Some(PredictedCpu {
            cores: interval(cores),
            share_of_busy: busy.map(|busy| interval(cores.scaled(1.0 / busy))),
            read_cores: 0.0,
            write_cores: 0.0,
            image_cores: cores.estimate,
            payer: "the session that writes".to_owned(),
        });
    }
}

/// Bytes a second more where images are compressed by another kind: as pgbench's pages are.
fn compressed(before: f64, today: Option<Compression>, kind: Option<Compression>) -> Bounded {
    let plain = before / compressed_share(today).estimate;
    let share = compressed_share(kind);
    let after = Bounded::new(plain * share.estimate, plain * share.lower, plain * share.upper);
    Bounded::new(after.estimate - before, after.lower - before, (after.upper - before).max(0.0))
}

const UNKNOWN_HINTS: &str = "the pages that hints would log are not known: it takes whole \
     checkpoint cycles with the counters of 14 or later, or a superuser with pg_buffercache and \
     pageinspect; CPU is without their images";
const UNCOUNTED_IMAGES: &str = "full-page images are counted since PostgreSQL 14";

fn hint_change(digest: &WatchDigest, logs_after: bool) -> HintChange {
    let settings = &digest.settings;
    match (settings.logs_hints(), logs_after) {
        (true, true) if settings.hints && !settings.checksums => HintChange::None(
            "hints are logged already (wal_log_hints = on), so that WAL is paid".to_owned(),
        ),
        (true, true) if settings.hints => {
            HintChange::None("hints stay logged (wal_log_hints = on)".to_owned())
        }
        (true, true) => HintChange::None("hints are logged already with data checksums".to_owned()),
        (false, false) => HintChange::None("hints are not logged either way".to_owned()),
        (false, true) | (true, false) if !settings.full_page_writes => {
            HintChange::None("full_page_writes = off: hints log no images".to_owned())
        }
        (false, true) => HintChange::Added,
        (true, false) => HintChange::Gone,
    }
}

/// The saving by hints that are not logged any more: their images hide which pages needed them
/// anyway.
fn gone_words(digest: &WatchDigest) -> String {
    let bound = digest.load.map(|load| {
        let size = pgtoll_format::ByteSize(whole(load.image_bytes_per_second)).rounded();
        format!("at most {size}/s, as all images together; ")
    });
    format!(
        "how much WAL that saves is not known from counters: {}--wal stream, or `pgtoll wal whatif \
         --hints off`, works it out from the WAL itself; CPU is without images",
        bound.unwrap_or_default()
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, not negative")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}

fn hint_wal(digest: &WatchDigest, images: &HintImages) -> PredictedWal {
    let alone = images.per_second.times(images.bytes);
    // What is forced comes when it comes, whatever the WAL.
    let load = digest.load.filter(|_| !digest.forced);
    let extra = load.map_or(alone, |load| load.with_more_images(alone));
    let of_windows: Vec<f64> =
        images.of_windows.iter().map(|of| of * images.bytes.estimate).collect();
    PredictedWal {
        extra_p95_bytes_per_second: p95(&of_windows),
        images_per_second: Some(interval(images.per_second)),
        image_bytes: Some(interval(images.bytes)),
        estimators: images.estimators.clone(),
        ..wal(digest, extra, images.basis)
    }
}

fn wal(digest: &WatchDigest, extra: Bounded, basis: PredictionBasis) -> PredictedWal {
    let baseline = digest.rates.wal_bytes_per_second;
    let share: Option<Interval> = (baseline > 0.0).then(|| interval(extra.scaled(1.0 / baseline)));
    PredictedWal {
        baseline_bytes_per_second: baseline,
        extra_bytes_per_second: interval(extra),
        extra_share: share,
        extra_p95_bytes_per_second: None,
        images_per_second: None,
        image_bytes: None,
        basis,
        estimators: std::collections::BTreeMap::new(),
    }
}

/// Who verifies pages that are read.
fn payer(server: &WatchedServer) -> String {
    match server.settings.get("io_method").map(String::as_str) {
        Some("worker") => {
            "I/O workers where reads run ahead (io_method = worker), else the session that reads"
                .to_owned()
        }
        Some(method) => format!("the session that reads (io_method = {method})"),
        None => "the session that reads".to_owned(),
    }
}

fn logs_hints(server: &WatchedServer) -> bool {
    SeenSettings::of(server).logs_hints()
}

/// Checkpoint cycles that were watched.
fn cycles(watch: &ServerWatch) -> usize {
    watch.windows.iter().filter(|window| window.is_cycle).count()
}

/// Where reading WAL was disturbed.
fn reading_notes(wal: &WatchedWal, watched: usize) -> Vec<String> {
    let read = wal.cycles.len();
    let resumed = (wal.resumed > 0).then(|| {
        format!(
            "the connection that sends WAL was lost {} times; reading resumed where it was, so that \
             nothing is missing",
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

fn notes(
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
    if digest.is_some_and(|of| of.rates.wal_bytes_per_second < IDLE_BYTES) {
        notes.push("the server made hardly any WAL: watch it at work".to_owned());
    }
    if !watch.windows.is_empty() && !watch.windows.iter().any(|window| window.is_cycle) {
        notes.push(
            "no whole checkpoint cycle was seen: a part stands for the whole, with wider ranges"
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
    if let Some(wal) = &watch.wal {
        notes.extend(reading_notes(wal, cycles(watch)));
        notes.extend(wal.notes.iter().cloned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::{AdvisedAction, DirtyCensus};

    use super::*;

    fn server(settings: &[(&str, &str)]) -> WatchedServer {
        let all = [
            ("data_checksums", "off"),
            ("wal_log_hints", "off"),
            ("full_page_writes", "on"),
            ("wal_compression", "off"),
            ("max_wal_size", "10GB"),
            ("checkpoint_timeout", "5min"),
            ("checkpoint_completion_target", "0.9"),
        ];
        let pairs = all.iter().chain(settings);
        WatchedServer {
            version: "17.10".to_owned(),
            settings: pairs
                .map(|(name, value)| (String::from(*name), String::from(*value)))
                .collect(),
            block_bytes: 8192,
            segment_bytes: 16 << 20,
            ..WatchedServer::default()
        }
    }

    /// A cycle of 5 min with 1 MB of WAL, 100 blocks read and 20 written a second, and a census that
    /// found 300 of 3,000 dirty pages changed by hints alone.
    fn window() -> WatchWindow {
        WatchWindow {
            seconds: 300.0,
            is_cycle: true,
            wal_bytes: 300_000_000,
            wal_records: Some(300_000),
            wal_images: Some(20_000),
            blocks_read: 30_000,
            blocks_checkpointed: 6_000,
            cpu_seconds: Some(150.0),
            census: Some(DirtyCensus {
                at: String::new(),
                redo: Lsn(1),
                age_s: 300.0,
                cycle_s: Some(300.0),
                evicted: None,
                buffers: 16_384,
                dirty: 3_000,
                covered: 3_000,
                sampled: 3_000,
                hint_only: 300,
                low: 100,
                low_hint_only: 10,
                low_unsure: 0,
                image_bytes: Some(8_000.0),
                relations: Vec::new(),
            }),
            ..WatchWindow::default()
        }
    }

    fn answered(
        settings: &[(&str, &str)],
        window: WatchWindow,
        asked: &[&str],
    ) -> PredictionRecord {
        let watch = ServerWatch { windows: vec![window], complete: true, ..ServerWatch::default() };
        let asked: Vec<SettingQuestion> =
            asked.iter().map(|text| SettingQuestion::parse(text).unwrap()).collect();
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        prediction_record(provenance, Watched::now(server(settings), watch), &asked)
    }

    #[test]
    fn the_census_decides_what_hints_would_log() {
        let record = answered(&[], window(), &[]);
        let answer = &record.answers[0];
        assert_eq!((&*answer.setting, &*answer.value), ("data_checksums", "on"));
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::CensusAndEvictions);
        // 300 images of 8,050 bytes in 300 s, of 1 MB/s.
        let extra = wal.extra_bytes_per_second;
        assert!((extra.estimate - 8_050.0).abs() < 1.0, "{extra:?}");
        // 33 % of the estimate, beyond it 5 kB/s less and 8 kB/s more: of today's WAL 0.5 % and 0.8 %.
        assert!((0.0..1_000.0).contains(&extra.lower), "{extra:?}");
        assert!((16_050.0..20_000.0).contains(&extra.upper), "{extra:?}");
        assert_eq!(answer.advice.as_ref().unwrap().action, AdvisedAction::TurnOn);
        let cpu = answer.cpu.as_ref().unwrap();
        // 100 reads at 0.668 µs, 20 writes at 1 µs, an image at 13 µs.
        assert!((cpu.cores.estimate - 99.8e-6).abs() < 1e-8, "{cpu:?}");
        assert!((cpu.share_of_busy.unwrap().estimate - 2.0 * 99.8e-6).abs() < 1e-7);
        assert!(record.one_time.is_some());
    }

    /// Half of what is evicted at first has hints alone, and at last nothing.
    #[test]
    fn censuses_over_the_cycle_are_weighed_by_evictions() {
        let census = |age_s: f64, low_hint_only: u64, evicted: u64| DirtyCensus {
            age_s,
            evicted: Some(evicted),
            dirty: 0,
            hint_only: 0,
            low: 1000,
            low_hint_only,
            low_unsure: 0,
            ..window().census.unwrap()
        };
        let images = |evicted: [u64; 3]| {
            let [a, b, c] = evicted;
            let cycle = WatchWindow {
                blocks_evicted: 30_000,
                earlier_censuses: vec![census(100.0, 500, a), census(200.0, 100, b)],
                census: Some(census(300.0, 0, c)),
                ..window()
            };
            let wal = answered(&[], cycle, &[]).answers[0].wal.clone().unwrap();
            wal.images_per_second.unwrap().estimate * 300.0
        };
        // Of the thirds of a cycle (0.9 + 0.5) / 2, (0.5 + 0.1) / 2 and (0.1 + 0) / 2: but the first
        // census is too late to know what came before.
        let even = images([10_000, 20_000, 30_000]);
        assert!((images([0, 0, 0]) - even).abs() < 1e-6, "time stands for a counter without news");
        // Most evictions came late, where hints alone had changed nothing.
        let late = images([10_000, 11_000, 30_000]);
        assert!(late < 0.9 * even, "{late} {even}");
        let early = images([10_000, 29_000, 30_000]);
        assert!(early > 1.05 * even, "{early} {even}");
    }

    #[test]
    fn a_window_without_a_census_is_as_the_others() {
        let watch = |windows| ServerWatch { windows, complete: true, ..ServerWatch::default() };
        let images = |windows| {
            let provenance =
                Provenance { version: String::new(), command: Vec::new(), made: String::new() };
            let watched = Watched::now(server(&[]), watch(windows));
            let wal = prediction_record(provenance, watched, &[]).answers[0].wal.clone().unwrap();
            (wal.basis, wal.images_per_second.unwrap().estimate)
        };
        let without = WatchWindow { census: None, ..window() };
        assert_eq!(images(vec![window(), without]), images(vec![window()]));
    }

    #[test]
    fn hints_that_are_logged_already_cost_no_wal_again() {
        let record = answered(&[("wal_log_hints", "on")], window(), &["data_checksums=on"]);
        let answer = &record.answers[0];
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(
            (wal.extra_bytes_per_second.upper, wal.basis),
            (0.0, PredictionBasis::AlreadyLogged)
        );
        assert!(answer.reason.as_ref().unwrap().contains("wal_log_hints = on"));
        let cpu = answer.cpu.as_ref().unwrap();
        assert!(cpu.read_cores > 0.0 && cpu.image_cores == 0.0);
    }

    #[test]
    fn without_full_page_writes_hints_log_no_images() {
        let record = answered(&[("full_page_writes", "off")], window(), &["wal_log_hints=on"]);
        let answer = &record.answers[0];
        assert!(answer.wal.as_ref().unwrap().extra_bytes_per_second.upper.abs() < 1e-9);
        assert!(answer.reason.as_ref().unwrap().contains("full_page_writes"));
    }

    #[test]
    fn off_is_a_saving_of_cpu_and_of_wal_that_is_not_known() {
        let record = answered(&[("data_checksums", "on")], window(), &[]);
        let answer = &record.answers[0];
        assert_eq!((&*answer.today, &*answer.value), ("on", "off"));
        assert!(answer.wal.is_none() && answer.advice.is_none() && record.one_time.is_none());
        let cores = answer.cpu.as_ref().unwrap().cores;
        assert!(cores.lower < cores.estimate && cores.upper < 0.0, "{cores:?}");
        // Hints stay logged with the other setting.
        let both = [("data_checksums", "on"), ("wal_log_hints", "on")];
        let record = answered(&both, window(), &[]);
        let wal = record.answers[0].wal.as_ref().unwrap();
        assert!(wal.extra_bytes_per_second.lower.abs() < 1e-9);
    }

    #[test]
    fn a_server_without_work_is_measured_first() {
        let idle = WatchWindow { wal_bytes: 3_000, ..window() };
        let record = answered(&[], idle, &[]);
        let advice = record.answers[0].advice.as_ref().unwrap();
        assert_eq!(advice.action, AdvisedAction::MeasureFirst, "{advice:?}");
        assert!(record.notes.iter().any(|note| note.contains("watch it at work")));
    }

    #[test]
    fn without_a_census_whole_cycles_have_bounds_and_parts_have_none() {
        let blind = WatchWindow { census: None, select_dirtied: Some(600), ..window() };
        let wal = answered(&[], blind.clone(), &[]).answers[0].wal.clone().unwrap();
        assert_eq!(wal.basis, PredictionBasis::Statements);
        // It could be nothing, and all that was written: neither bound is one to act on.
        let blind_bounds = wal.images_per_second.unwrap();
        assert!(blind_bounds.lower <= 0.0 && blind_bounds.upper >= 0.0, "{blind_bounds:?}");
        let busy = WatchWindow { blocks_checkpointed: 40_000, ..blind.clone() };
        let action = |window| answered(&[], window, &[]).answers[0].advice.clone().unwrap().action;
        assert_eq!(action(busy.clone()), AdvisedAction::MeasureFirst);
        // A SELECT storm by statements does not decide either; a bound does.
        let storm = WatchWindow { select_dirtied: Some(40_000), ..busy };
        assert_eq!(action(storm), AdvisedAction::MeasureFirst);
        let little = WatchWindow { blocks_checkpointed: 20_500, ..blind.clone() };
        assert_eq!(action(little), AdvisedAction::TurnOn);
        let part = WatchWindow { is_cycle: false, ..blind };
        let answer = answered(&[], part, &[]).answers[0].clone();
        assert!(answer.wal.is_none() && answer.reason.is_some());
        assert_eq!(answer.advice.unwrap().action, AdvisedAction::MeasureFirst);
    }

    #[test]
    fn new_blocks_are_not_evictions() {
        let grown = WatchWindow { blocks_evicted: 5_000, blocks_extended: Some(5_000), ..window() };
        let images = |window| {
            let wal = answered(&[], window, &[]).answers[0].wal.clone().unwrap();
            wal.images_per_second.unwrap().estimate
        };
        assert!((images(grown) - images(window())).abs() < 1e-9);
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let watch = ServerWatch::default();
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        let record = prediction_record(provenance, Watched::now(server(&[]), watch), &[]);
        let answer = &record.answers[0];
        assert!(answer.wal.is_none() && answer.cpu.is_none());
        assert_eq!(answer.advice.as_ref().unwrap().action, AdvisedAction::MeasureFirst);
    }
}
