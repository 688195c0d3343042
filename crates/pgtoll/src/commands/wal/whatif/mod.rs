//! `pgtoll wal whatif`: how much WAL the same work would have made with other settings.

mod today;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use pgtoll_format::{Lsn, ServerVersion, WalFacts};
use pgtoll_model::{AskedSettings, AskedValues, Geometry, Grid, GuessedSettings, SourceSettings};
use pgtoll_record::{Status, WalWhatIfRecord};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_wal::{
    Answer, CheckpointSurvey, Compressing, End, Question, SegmentFile, WalReadError,
    WhatIfCollector, WhatIfSource, first_header, scan_range_with, stream_with, whatif_record,
};
use pgtoll_wire::Dsn;

use crate::again;
use crate::arguments::{OnOff, WalWhatIfArguments};
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;

use crate::commands::wal::reading::{
    FilesRead, files, source_names, stream_watch, tell_end, threads,
};
use crate::mistakes::Usage;
use crate::printer::Printer;
use today::Today;

/// The question of the command line, and the WAL's server.
struct Inquiry<'a> {
    arguments: &'a WalWhatIfArguments,
    asked: AskedSettings,
    today: Today,
}

/// The question for this WAL.
struct Asked {
    settings: SourceSettings,
    guessed: GuessedSettings,
    settings_by: String,
    grid: Grid,
    question: Arc<Question>,
}

/// The question and the answer.
type Answered = (Asked, FilesRead<Answer>);

pub(crate) fn run(arguments: &WalWhatIfArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<WalWhatIfRecord>().formats(),
    )?;
    let wanted = request_from(arguments)?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
    let today = Today::find(&arguments.today, dsn.as_ref(), &arguments.paths)?;
    let inquiry = Inquiry { arguments, asked: wanted, today };
    let (requested, FilesRead { summary, end, notes }) = match (&dsn, arguments.paths.is_empty()) {
        (Some(dsn), true) => streamed(dsn, &inquiry, &interrupt, printer)?,
        _ => read(&inquiry, &interrupt, printer)?,
    };
    if summary.from.is_none() && !matches!(end, End::Interrupted) {
        let hint = "name a data directory, an archive or segments with records in them";
        return Err(Usage::error(format!("no record was read: {end}"), hint));
    }
    let source = WhatIfSource {
        names: source_names(&arguments.paths, arguments.dsn.as_ref()),
        settings: requested.settings,
        guessed: requested.guessed,
        settings_by: requested.settings_by,
        notes: inquiry.today.notes.into_iter().chain(notes).collect(),
    };
    let compressing = &requested.question.compressing;
    let record =
        whatif_record(again::provenance(), source, &requested.grid, compressing, &summary, &end);
    let table = TableOptions::default();
    tell_end(&summary.gaps, &end, printer);
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

/// The values of the options, unless their combinations are too many.
fn request_from(arguments: &WalWhatIfArguments) -> anyhow::Result<AskedSettings> {
    let switches = |switches: &[OnOff]| switches.iter().map(|switch| switch.is_on()).collect();
    let values = AskedValues {
        max_wal_size: arguments.max_wal_size.clone(),
        timeout: arguments.checkpoint_timeout.clone(),
        completion_target: arguments.checkpoint_completion_target.clone(),
        compression: arguments.wal_compression.clone(),
        hints: switches(&arguments.hints),
        full_page_writes: switches(&arguments.full_page_writes),
    };
    AskedSettings::new(values).map_err(|error| {
        Usage::error(error.to_string(), "name fewer values, or ask in several commands")
    })
}

fn read(
    inquiry: &Inquiry<'_>,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Answered> {
    let arguments = inquiry.arguments;
    let threads = threads(arguments.threads);
    let mut last = None;
    let range = &arguments.range;
    let read = files(&arguments.paths, range, interrupt, printer, |files, range, watch| {
        let (header, facts) = first_header(files)?;
        let segment_bytes = u64::from(header.segment_bytes);
        let geometry = Geometry { segment_bytes, page_bytes: u64::from(header.page_bytes) };
        let survey = if inquiry.today.known.are_complete() {
            CheckpointSurvey::default()
        } else {
            survey(files, range, threads, interrupt)?
        };
        let requested = last.insert(inquiry.answer(&survey, geometry, facts));
        let new = || WhatIfCollector::new(requested.question.clone());
        let (summary, end) = scan_range_with(files, range, threads, new, watch)?;
        Ok((summary.map(WhatIfCollector::finish), end))
    })?;
    let requested = last.context("nothing was read")?;
    Ok((requested, read))
}

/// Looks at the first checkpoints of the WAL.
fn survey(
    files: &[SegmentFile],
    range: &Range<Lsn>,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<CheckpointSurvey, WalReadError> {
    let seen = Arc::new(AtomicUsize::new(0));
    let new = || CheckpointSurvey::counting(seen.clone());
    let (summary, _) = scan_range_with(files, range, threads, new, &mut |_| {
        let is_enough = seen.load(Ordering::Relaxed) >= ENOUGH;
        if is_enough || interrupt.signal().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(summary.collected.finish())
}

/// Checkpoints that show what they follow.
const ENOUGH: usize = 8;

impl Inquiry<'_> {
    /// Returns the question for WAL of this geometry.
    fn answer(
        &self,
        survey: &CheckpointSurvey,
        geometry: Geometry,
        facts: &'static WalFacts,
    ) -> Asked {
        let segment_bytes = geometry.segment_bytes;
        let (settings, guessed, settings_by) = self.today.complete_by(survey, facts, segment_bytes);
        let has_lz4 = facts.image_compressions.lz4 != 0;
        let grid = Grid::new(&self.asked, &settings, segment_bytes, has_lz4);
        let all = grid.settings();
        let question = Question {
            geometry,
            facts,
            compressing: Compressing::for_settings(&all, self.arguments.exact),
            settings: all,
            today: Some(settings.rule().schedule()),
        };
        Asked { settings, guessed, settings_by, grid, question: Arc::new(question) }
    }
}

fn streamed(
    dsn: &Dsn,
    inquiry: &Inquiry<'_>,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Answered> {
    let mut connection = dsn.connect()?;
    let version = connection.parameter("server_version").unwrap_or_default();
    let version: ServerVersion = version.parse().context("read the server's version")?;
    let row = connection
        .query_one("SELECT pg_size_bytes(current_setting('wal_segment_size')) AS bytes")?;
    let segment_bytes = row.parse("bytes")?;
    let row = connection.query_one("SELECT current_setting('wal_block_size') AS bytes")?;
    let geometry = Geometry { segment_bytes, page_bytes: row.parse("bytes")? };
    connection.close();
    let requested = inquiry.answer(&CheckpointSurvey::default(), geometry, &version.facts()?.wal);
    let time = inquiry.arguments.r#for.map(|span| span.0);
    let mut watch = stream_watch(time, interrupt, printer);
    let question = requested.question.clone();
    let new = move || WhatIfCollector::new(question.clone());
    let (summary, end) = stream_with(dsn, time, new, &mut watch)?;
    let summary = summary.map(WhatIfCollector::finish);
    Ok((requested, FilesRead { summary, end, notes: Vec::new() }))
}
