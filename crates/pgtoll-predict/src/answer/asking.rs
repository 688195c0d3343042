//! An answer to a question.

use pgtoll_format::wal::Compression;
use pgtoll_model::prediction::{
    Bounded, ImageWork, PageWork, compressed_share, compression_cost_ns, cpu_cores,
};
use pgtoll_record::{
    PageCosts, PredictedCpu, PredictedWal, PredictionAnswer, PredictionBasis, WatchedServer,
    WatchedWal,
};

use crate::answer::advice::{self, advice};
use crate::answer::change::{hint_wal, wal_change};
use crate::answer::digest::WatchDigest;
use crate::answer::whatif;
use crate::question::{AskedValue, SettingQuestion};
use crate::{bounded, interval};

/// A question and what it is about.
pub(super) struct Asking<'a> {
    pub(super) server: &'a WatchedServer,
    pub(super) costs: &'a PageCosts,
    pub(super) question: &'a SettingQuestion,
    pub(super) today: String,
    /// `None`: not read, or it has no images to leave out.
    pub(super) wal: Option<&'a WatchedWal>,
}

/// The change with hints.
enum HintChange {
    /// Their images come on top.
    Added,
    /// Their images go.
    Gone,
    /// Nothing, and why.
    None(String),
}

impl Asking<'_> {
    pub(super) fn unanswered(&self) -> PredictionAnswer {
        PredictionAnswer {
            setting: self.question.name.to_owned(),
            today: self.today.clone(),
            value: self.question.value.describe(),
            headline: String::new(),
            reason: None,
            wal: None,
            io_bytes_per_second: None,
            cpu: None,
            advice: None,
            windows: Vec::new(),
        }
    }

    pub(super) fn answer(&self, digest: Option<&WatchDigest>) -> PredictionAnswer {
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

    pub(super) fn fill(&self, answer: &mut PredictionAnswer, digest: &WatchDigest) {
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
        answer.wal = Some(wal_change(digest, Bounded::ZERO, PredictionBasis::AlreadySo));
        answer.cpu = Some(self.cpu(digest, &PageWork::default(), Bounded::ZERO));
    }

    fn cpu(&self, digest: &WatchDigest, pages: &PageWork, images: Bounded) -> PredictedCpu {
        let work = ImageWork { images, cost_ns: bounded(self.costs.image_ns) };
        let cores = cpu_cores(pages, &work);
        let pick = |(rate, cost): (f64, Bounded)| rate * cost.estimate / 1e9;
        let busy = digest.busy_cores();
        PredictedCpu {
            cores: interval(cores),
            share_of_busy: busy.map(|busy| interval(cores.scaled(1.0 / busy))),
            read_cores: pick(pages.read),
            write_cores: pick(pages.write),
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
                answer.wal =
                    Some(wal_change(digest, Bounded::ZERO, PredictionBasis::AlreadyLogged));
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

    /// Returns the WAL when it is replayed with the requested value.
    fn replayed(&self, digest: &WatchDigest) -> Option<PredictedWal> {
        let read = self.wal.filter(|_| digest.settings.full_page_writes)?;
        let change = whatif::changed(digest, read, self.question.value)?;
        Some(wal_change(digest, change, PredictionBasis::WhatIf))
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
                "checkpoints came sooner than the settings begin them (CHECKPOINT, backups): the effect of other settings is unknown"
                    .to_owned(),
            );
            return;
        }
        let change = load.with_other_distance(timeout_s, trigger_bytes);
        answer.wal = Some(wal_change(digest, change, PredictionBasis::ClosedForm));
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
                "how well these pages compress is unknown: --wal stream, or `pgtoll wal whatif`, \
                 compresses the images that are in the WAL"
                    .to_owned(),
            );
        }
        answer.wal = replayed.or_else(|| {
            let change = compressed(load.image_bytes_per_second, today, kind);
            Some(wal_change(digest, change, PredictionBasis::ClosedForm))
        });
        let cost = Bounded::sum(&[compression_cost_ns(kind), compression_cost_ns(today).negated()]);
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
            "hints are logged already (wal_log_hints = on), so that WAL is already paid".to_owned(),
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
        "counters do not show how much WAL that saves: {}--wal stream, or `pgtoll wal whatif \
         --hints off`, works it out from the WAL itself; CPU is without images",
        bound.unwrap_or_default()
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, not negative")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}

/// Returns the process that verifies pages that are read.
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
