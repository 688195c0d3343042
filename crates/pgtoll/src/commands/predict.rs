//! `pgtoll predict`: what other settings would cost a server that is only watched.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_alter::EnableOptions;
use pgtoll_predict::{
    SettingQuestion, WatchPlan, WatchProgress, Watched, costs_of, prediction_record, watch,
    watch_with_wal,
};
use pgtoll_record::{EnablePass, PredictionRecord, ServerWatch, Status, WatchedServer};
use pgtoll_report::{FinishedRecord, RecordKind, ReportedRecord as _, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use crate::again;
use crate::arguments::{PredictArguments, PredictWal};
use crate::commands::server_waits::ServerWaits;
use crate::commands::{output, record_text, thresholds};
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(arguments: &PredictArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<PredictionRecord>().formats(),
    )?;
    let questions = arguments.setting.iter().map(|text| SettingQuestion::parse(text));
    let questions: Vec<SettingQuestion> = questions.collect::<Result<_, _>>()?;
    let thresholds = thresholds::of_prediction(&arguments.fail_if, &questions)?;
    let watched = match (&arguments.from, &arguments.dsn) {
        (Some(path), _) => Watched::of_record(earlier(path)?),
        (None, Some(dsn)) => watched(dsn, arguments, &questions, printer)?,
        (None, None) => return Err(Usage::error("name a server", "like --dsn 'host=db1'")),
    };
    let record = prediction_record(again::provenance(), watched, &questions);
    if let Some(path) = &arguments.record {
        output::write(path, &record.json())?;
    }
    if let Some(ended) = &record.watch.ended {
        printer.warn(&format!("pgtoll: watching ended early: {ended}"));
    }
    let table = TableOptions::default();
    let output = arguments.output.output.as_ref();
    let status = output::finish(record.clone(), format, &table, output, printer)?;
    Ok(Status::worst([status, thresholds::judge_prediction(&thresholds, &record, printer)]))
}

fn watched(
    dsn: &Dsn,
    arguments: &PredictArguments,
    questions: &[SettingQuestion],
    printer: &mut Printer,
) -> anyhow::Result<Watched> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let plan = plan(arguments);
    let mut unwritten = None;
    let mut costs = None;
    let mut on_progress = |progress: &WatchProgress<'_>| {
        show_progress(progress, &plan, printer);
        // What was seen until now outlives whatever ends this process.
        if let Some(path) = arguments.record.as_ref().filter(|_| progress.has_news) {
            let server = progress.server.clone();
            let watch = progress.watch.clone();
            let page_costs = costs.get_or_insert_with(|| costs_of(&server)).clone();
            let watched = Watched { server, watch, page_costs };
            let record = prediction_record(again::provenance(), watched, questions);
            unwritten = output::write(path, &record.json()).err();
        }
    };
    let dsn = waits.limit_waits(dsn);
    let (server, seen) = match arguments.wal {
        PredictWal::None => watch(&dsn, &plan, &interrupt, &mut on_progress)?,
        PredictWal::Stream => watch_with_wal(&dsn, &plan, questions, &interrupt, &mut on_progress)?,
    };
    if let Some(error) = unwritten {
        printer.warn(&format!("pgtoll: warning: {error}"));
    }
    let page_costs = costs.unwrap_or_else(|| costs_of(&server));
    let pass = if arguments.gentle { None } else { enable_pass(&server) };
    Ok(Watched { server, watch: ServerWatch { pass, ..seen }, page_costs })
}

/// How long turning checksums on takes here, where the server's files are here and can be read.
fn enable_pass(server: &WatchedServer) -> Option<EnablePass> {
    let data = server.settings.get("data_directory").filter(|_| server.local)?;
    let options = EnableOptions { jobs: 1, sync: true, verify: false };
    let found = pgtoll_alter::dry_run(Path::new(data), &options, "").ok()?;
    // Another cluster may be at this place of another root directory.
    let is_this = found.system_identifier == server.system_identifier;
    let sample_bytes = found.sample.filter(|_| is_this)?.pages * server.block_bytes;
    Some(EnablePass { bytes: found.bytes, seconds: found.predicted_seconds?, sample_bytes })
}

/// Without a time, as long as it takes to see the cycles; without either, two cycles or half an hour.
fn plan(arguments: &PredictArguments) -> WatchPlan {
    let time = arguments.r#for.map(|span| span.0);
    let (time, cycles) = match (time, arguments.cycles) {
        (None, None) => (DEFAULT_TIME, Some(DEFAULT_CYCLES)),
        (None, cycles) => (LONGEST, cycles),
        (Some(time), cycles) => (time, cycles),
    };
    WatchPlan { time, cycles, gentle: arguments.gentle, with_queries: arguments.with_queries }
}

const DEFAULT_TIME: Duration = Duration::from_secs(1800);
const DEFAULT_CYCLES: u32 = 2;
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

fn show_progress(progress: &WatchProgress<'_>, plan: &WatchPlan, printer: &mut Printer) {
    let windows = progress.watch.windows.iter().filter(|window| window.is_cycle).count();
    let words = format!("watch, {windows} checkpoint cycles seen");
    match plan.cycles {
        Some(cycles) if plan.time == LONGEST => {
            printer.progress(&words, windows as u64, u64::from(cycles));
        }
        _ => {
            let all = plan.time.as_secs();
            printer.progress(&words, progress.elapsed.as_secs().min(all), all);
        }
    }
    if progress.window_ended {
        printer.milestone(&words);
    }
}

fn earlier(path: &Path) -> anyhow::Result<PredictionRecord> {
    let read = || format!("read {}", path.display());
    let found = FinishedRecord::parse(&record_text(path)?).with_context(read)?;
    let other = match found.map(|found| (found.kind(), found.downcast())) {
        Some((_, Some(record))) => return Ok(record),
        Some((kind, None)) => kind.title(),
        None => "no record of predict",
    };
    let message = format!("{} is {other}", path.display());
    Err(Usage::error(message, "name a file that pgtoll predict --record wrote"))
}
