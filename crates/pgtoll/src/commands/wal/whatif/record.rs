//! From outcomes to the record: shares, ranges, the knee, the recommendation.

use std::fmt::Write as _;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_model::{Compression, Outcome};
use pgtoll_record as form;
use pgtoll_record::{
    WalWhatIfRecord, WhatIfClass, WhatIfRecommendation, WhatIfRedoPoint, WhatIfRow,
    WhatIfSourceSettings,
};
use pgtoll_wal::{End, RedoPoint};

use crate::arguments::WalWhatIfArguments;
use crate::commands::wal::record::kind_of;
use crate::commands::wal::whatif::grid::Asked;
use crate::commands::wal::whatif::{Worked, between};
use pgtoll_format::shell_quoted;

pub(super) fn of(arguments: &WalWhatIfArguments, worked: &Worked, end: &End) -> WalWhatIfRecord {
    let Worked { today: settings, grid, summary } = worked;
    let answer = &summary.collected;
    let source = Source::of(worked);
    let mut outcomes = answer.outcomes.iter();
    let mut made = |asked: &[Asked]| -> Vec<WhatIfRow> {
        asked.iter().zip(outcomes.by_ref()).map(|(asked, of)| source.row(asked, of)).collect()
    };
    let today = made(std::slice::from_ref(&grid.today)).swap_remove(0);
    let (asked, curve, compressed) = (made(&grid.rows), made(&grid.curve), made(&grid.compressed));
    // Beyond all the WAL that there is nothing happens any more.
    let shown = 1 + curve.iter().take_while(|of| of.checkpoints_by_volume > 0).count();
    let curve: Vec<WhatIfRow> = curve.into_iter().take(shown).collect();
    let knee = knee(&curve);
    let recommendation = recommendation(&today, &curve, &compressed, knee, &source);
    WalWhatIfRecord {
        schema: form::WAL_WHATIF_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        made: jiff::Timestamp::now().to_string(),
        source: wal_source(arguments, worked),
        end: form::WalEnd { kind: kind_of(end), at: end.at(), words: end.to_string() },
        bytes: source.bytes,
        seconds: source.seconds,
        redo_points: answer.redo_points.iter().map(redo_point).collect(),
        source_settings: WhatIfSourceSettings {
            by: settings.by.clone(),
            max_wal_size_bytes: settings.max_wal_size.0,
            checkpoint_timeout_s: settings.timeout.0.as_secs_f64(),
            checkpoint_completion_target: settings.completion_target,
            hints: settings.hints,
        },
        check: form::WhatIfCheck {
            references: answer.check.references,
            images: answer.check.images,
            absent: answer.check.absent,
            unpredicted: answer.check.unpredicted,
            bytes_error: ratio(today.bytes, source.bytes) - 1.0,
        },
        today,
        rows: asked,
        curve,
        knee,
        recommendation,
        compressed_one_in: if arguments.exact { 1 } else { SAMPLED },
        blocks: answer.blocks.0,
        block_memory_bytes: answer.blocks.1,
        notes: notes(worked),
    }
}

const SAMPLED: u32 = 16;

/// What the source is like, as far as estimates hang on it.
struct Source {
    bytes: u64,
    seconds: Option<f64>,
    segment_bytes: u64,
    /// The shortest and the longest way from one redo point to the next.
    cycles: Option<(u64, u64)>,
    hints: bool,
    timeout: TimeSpan,
}

impl Source {
    fn of(worked: &Worked) -> Self {
        let answer = &worked.summary.collected;
        let redo = &answer.redo_points;
        let lengths = redo.windows(2).map(|pair| between(Some(pair[0].at), Some(pair[1].at)));
        // What was forced soon after another says nothing about the rule.
        let lengths: Vec<u64> = lengths
            .zip(&redo[1.min(redo.len())..])
            .filter(|(_, to)| !to.is_forced)
            .map(|of| of.0)
            .collect();
        let seconds = answer.times_us.map(|(first, last)| (last - first).max(0));
        #[expect(clippy::cast_precision_loss, reason = "microseconds of years are below 2^53")]
        let seconds = seconds.filter(|us| *us > 0).map(|us| us as f64 / 1e6);
        Self {
            bytes: between(answer.from, answer.to),
            seconds,
            segment_bytes: u64::from(worked.summary.segment_bytes),
            cycles: lengths.iter().min().copied().zip(lengths.iter().max().copied()),
            hints: worked.today.hints,
            timeout: worked.today.timeout,
        }
    }

    fn row(&self, asked: &Asked, of: &Outcome) -> WhatIfRow {
        let settings = &asked.settings;
        let class = self.class(asked, of);
        let compresses = !matches!(settings.compression, Compression::AsStored | Compression::Off);
        // The source's own redo points make the source's own bytes.
        let (less, more) =
            if asked.rule.is_some() { range(class, compresses) } else { (0.001, Some(0.001)) };
        WhatIfRow {
            max_wal_size_bytes: asked.rule.map(|of| of.0.0),
            checkpoint_timeout_s: asked.rule.and_then(|of| of.1).map(|of| of.0.as_secs_f64()),
            checkpoint_completion_target: asked.rule.map(|of| of.2),
            wal_compression: name(settings.compression).to_owned(),
            hints: settings.hints,
            full_page_writes: settings.full_page_writes,
            bytes: of.bytes,
            low_bytes: scaled(of.bytes, 1.0 - less),
            high_bytes: more.map(|more| scaled(of.bytes, 1.0 + more)),
            class,
            bytes_per_second: self.seconds.map(|seconds| float(of.bytes) / seconds),
            images: of.images,
            image_bytes: of.image_bytes,
            checkpoints_by_volume: of.by_volume,
            checkpoints_by_time: of.by_time,
            checkpoints_forced: of.forced,
            archive_bytes: of.segments * self.segment_bytes,
            longest_cycle_bytes: of.longest_cycle,
            replay_bytes: of.replay_most,
        }
    }

    /// How far apart its checkpoints are beside the source's, and whether that is in the source.
    fn class(&self, asked: &Asked, of: &Outcome) -> WhatIfClass {
        if asked.rule.is_none() {
            return WhatIfClass::Exact;
        }
        let Some((shortest, longest)) = self.cycles else { return WhatIfClass::Extrapolated };
        if asked.settings.hints && !self.hints {
            return WhatIfClass::LowerBound;
        }
        let cycle = of.longest_cycle;
        if of.by_volume + of.by_time == 0 || self.bytes < cycle.saturating_mul(2) {
            return WhatIfClass::Extrapolated;
        }
        // Steps are whole segments.
        if cycle + self.segment_bytes < shortest {
            return if asked.settings.hints {
                WhatIfClass::ShorterWithHints
            } else {
                WhatIfClass::Shorter
            };
        }
        if cycle <= longest + self.segment_bytes { WhatIfClass::Exact } else { WhatIfClass::Longer }
    }
}

/// How much less, and how much more, it may be in truth. They were set by the trial's runs of 15, and
/// those of 18 show how well they hold (`docs/src/whatif.md`).
fn range(class: WhatIfClass, compresses: bool) -> (f64, Option<f64>) {
    let (less, more) = match class {
        WhatIfClass::Exact => (0.04, Some(0.04)),
        WhatIfClass::Longer | WhatIfClass::Shorter => (0.05, Some(0.05)),
        WhatIfClass::ShorterWithHints => (0.04, Some(0.12)),
        WhatIfClass::LowerBound => (0.04, None),
        WhatIfClass::Extrapolated => (0.55, None),
    };
    // An image that is compressed is sampled, and its size is that of another moment.
    if compresses { (less + 0.04, more.map(|more| more + 0.04)) } else { (less, more) }
}

/// The first point from which on no distance saves a twentieth by being doubled; `None` where the
/// last that is known still does.
fn knee(curve: &[WhatIfRow]) -> Option<usize> {
    let known = known(curve);
    let saves = |place: &usize| {
        let here = &curve[*place];
        let twice = here.max_wal_size_bytes.unwrap_or(0).saturating_mul(2);
        let there = curve.iter().find(|of| of.max_wal_size_bytes >= Some(twice));
        there.is_none_or(|there| float(there.bytes) <= float(here.bytes) * 0.95)
    };
    let last = (0..known).rev().find(saves);
    last.map_or(Some(0), |last| Some(last + 1)).filter(|place| *place < known)
}

/// How many of the points are more than extrapolated.
fn known(curve: &[WhatIfRow]) -> usize {
    curve.iter().take_while(|of| of.class != WhatIfClass::Extrapolated).count()
}

/// `max_wal_size` at the knee, else as large as the WAL can tell of; with LZ4 where that saves much
/// besides.
fn recommendation(
    today: &WhatIfRow,
    curve: &[WhatIfRow],
    compressed: &[WhatIfRow],
    knee: Option<usize>,
    source: &Source,
) -> Option<WhatIfRecommendation> {
    let place = knee.or_else(|| known(curve).checked_sub(1))?;
    let plain = curve.get(place)?;
    let lz4 = compressed.get(place).filter(|lz4| float(lz4.bytes) < float(plain.bytes) * 0.9);
    let row = lz4.unwrap_or(plain);
    let is_worth_it = |row: &WhatIfRow| float(row.bytes) <= float(today.bytes) * 0.95;
    if !is_worth_it(row) {
        return None;
    }
    let size = ByteSize(plain.max_wal_size_bytes?);
    let mut settings = Vec::new();
    // A larger distance that saves nothing costs the time of a recovery for nothing.
    if is_worth_it(plain) {
        settings.push(format!("max_wal_size = '{size}'"));
        // Time should not begin checkpoints before that.
        let timeout = row.bytes_per_second.filter(|rate| *rate > 0.0).map(|rate| {
            let seconds = float(row.longest_cycle_bytes) / rate * 1.2;
            (seconds / 300.0).ceil() * 300.0
        });
        if let Some(seconds) = timeout.filter(|of| *of > source.timeout.0.as_secs_f64()) {
            settings.push(format!("checkpoint_timeout = '{}min'", seconds.min(86_400.0) / 60.0));
        }
    }
    if lz4.is_some() {
        settings.push("wal_compression = 'lz4'".to_owned());
    }
    let percent = |part: u64| 100.0 * (1.0 - ratio(part, today.bytes));
    let mut reason = if is_worth_it(plain) {
        format!(
            "checkpoints {} apart make {:.0} % less WAL; {}",
            ByteSize(plain.longest_cycle_bytes).rounded(),
            percent(plain.bytes),
            match knee {
                Some(_) => "twice the distance would save less than 5 % more",
                None =>
                    "longer distances would save more, and this WAL is too short to say how much",
            }
        )
    } else {
        "no distance of checkpoints saves a twentieth".to_owned()
    };
    if lz4.is_some() {
        let _ = write!(reason, "; with LZ4 it is {:.0} % less in all", percent(row.bytes));
    }
    let price = format!(
        "after a crash up to {} of WAL to replay (today {}), about {size} for pg_wal{}",
        ByteSize(row.replay_bytes).rounded(),
        ByteSize(today.replay_bytes).rounded(),
        if lz4.is_some() { ", and the CPU that compresses images" } else { "" },
    );
    Some(WhatIfRecommendation { settings, row: row.clone(), reason, price })
}

fn notes(worked: &Worked) -> Vec<String> {
    let answer = &worked.summary.collected;
    let mut notes = Vec::new();
    if answer.redo_points.len() < 2 {
        notes.push(
            "The WAL has fewer than two redo points: all but today's figures are extrapolated."
                .to_owned(),
        );
    }
    if worked.today.hints {
        notes.push(
            "Hints are logged once a page and checkpoint. Where checkpoints follow each other \
             faster than in this WAL, hints come to be logged of which it has no trace: how often \
             readers set them is estimated from those that it logs."
                .to_owned(),
        );
    }
    if answer.late > 0 {
        notes.push(format!(
            "{} redo points came to light too late to be replayed where they were: too much WAL \
             lies between a checkpoint's begin and its end.",
            answer.late
        ));
    }
    notes
}

fn redo_point(of: &RedoPoint) -> WhatIfRedoPoint {
    let time = of.time_us.and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    WhatIfRedoPoint {
        at: of.at,
        time: time.map(|time| time.to_string()),
        forced: of.is_forced,
        inferred: of.is_inferred,
    }
}

fn wal_source(arguments: &WalWhatIfArguments, worked: &Worked) -> form::WalSource {
    let Worked { summary, .. } = worked;
    let names = match (arguments.paths.as_slice(), &arguments.dsn) {
        ([], Some(dsn)) => vec![dsn.redacted()],
        (paths, _) => paths.iter().map(|path| path.display().to_string()).collect(),
    };
    let time = |us| jiff::Timestamp::from_microsecond(us).ok().map(|time| time.to_string());
    let times = summary.collected.times_us;
    form::WalSource {
        names,
        major: summary.major,
        system_identifier: summary.system_identifier,
        segments: summary.segments as u64,
        segment_bytes: u64::from(summary.segment_bytes),
        timelines: summary.timelines.iter().copied().collect(),
        from: summary.from,
        to: summary.to,
        first_time: times.and_then(|of| time(of.0)),
        last_time: times.and_then(|of| time(of.1)),
    }
}

/// The command that makes it again, without secrets.
fn command(arguments: &WalWhatIfArguments) -> Vec<String> {
    let mut command: Vec<String> = ["pgtoll", "wal", "whatif"].map(str::to_owned).to_vec();
    command.extend(arguments.paths.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    let mut option =
        |name: &str, value: &str| command.extend([name.to_owned(), shell_quoted(value)]);
    if let Some(dsn) = &arguments.dsn {
        option("--dsn", &dsn.redacted());
    }
    if let Some(time) = arguments.r#for {
        option("--for", &time.to_string());
    }
    let mut list = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            option(name, &values.join(","));
        }
    };
    list("--max-wal-size", arguments.max_wal_size.iter().map(ToString::to_string).collect());
    list(
        "--checkpoint-timeout",
        arguments.checkpoint_timeout.iter().map(ToString::to_string).collect(),
    );
    let targets = &arguments.checkpoint_completion_target;
    list("--checkpoint-completion-target", targets.iter().map(ToString::to_string).collect());
    let small = |of: String| of.to_lowercase();
    list(
        "--wal-compression",
        arguments.wal_compression.iter().map(|of| small(format!("{of:?}"))).collect(),
    );
    list("--hints", arguments.hints.iter().map(|of| small(format!("{of:?}"))).collect());
    list(
        "--full-page-writes",
        arguments.full_page_writes.iter().map(|of| small(format!("{of:?}"))).collect(),
    );
    for (name, value) in &arguments.today {
        option("--today", &format!("{name}={value}"));
    }
    if arguments.exact {
        command.push("--exact".to_owned());
    }
    command
}

fn name(of: Compression) -> &'static str {
    match of {
        Compression::AsStored => "as stored",
        Compression::Off => "off",
        Compression::Pglz => "pglz",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { float(part) / float(whole) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u64")]
fn scaled(bytes: u64, by: f64) -> u64 {
    (float(bytes) * by).max(0.0) as u64
}
