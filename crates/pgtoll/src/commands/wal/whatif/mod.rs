//! `pgtoll wal whatif`: how much WAL the same work would have made with other settings.

mod grid;
mod record;
mod today;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use pgtoll_format::{Lsn, ServerVersion, WalFacts};
use pgtoll_interrupt::Interrupt;
use pgtoll_model::Geometry;
use pgtoll_record::WalWhatIfRecord;
use pgtoll_wal::{
    Answer, Asked, Compressing, End, Glance, Question, SegmentFile, WalReadError, WalSummary,
    first_header, scan_with, stream_with,
};
use pgtoll_wire::Dsn;

use crate::arguments::{WalFormat, WalWhatIfArguments};
use crate::commands::Usage;
use crate::commands::output::{self, deliver, ending};
use crate::commands::server_waits::ServerWaits;
use crate::commands::wal::reading::{ended, files, stream_watch, threads};
use crate::exit::Status;
use crate::printer::Printer;
use grid::Grid;
use today::{Settings, Today};

/// What was asked, and what came out.
#[derive(Debug)]
struct Worked {
    today: Today,
    grid: Grid,
    summary: WalSummary<Answer>,
}

pub(crate) fn run(arguments: &WalWhatIfArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let dsn = arguments.dsn.as_ref().map(|dsn| waits.of(dsn));
    let settings = Settings::find(&arguments.today, dsn.as_ref(), &arguments.paths)?;
    let (worked, end) = match (&dsn, arguments.paths.is_empty()) {
        (Some(dsn), true) => streamed(dsn, arguments, &settings, &interrupt, printer)?,
        _ => read(arguments, &settings, &interrupt, printer)?,
    };
    if worked.summary.from.is_none() && !matches!(end, End::Interrupted) {
        let hint = "name a data directory, an archive or segments with records in them";
        return Err(Usage::error(format!("no record was read: {end}"), hint));
    }
    let record = record::of(arguments, &worked, &end);
    deliver(&shown(&record, arguments)?, arguments.output.as_ref(), printer)?;
    Ok(ended(&end, printer))
}

fn read(
    arguments: &WalWhatIfArguments,
    settings: &Settings,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> Result<(Worked, End), WalReadError> {
    let threads = threads(arguments.threads);
    files(&arguments.paths, interrupt, printer, |files, watch| {
        let (header, facts) = first_header(files)?;
        let segment_bytes = u64::from(header.segment_bytes);
        let geometry = Geometry { segment_bytes, page_bytes: u64::from(header.page_bytes) };
        let glance = if settings.are_known() {
            Glance::default()
        } else {
            glance(files, threads, interrupt)?
        };
        let today = settings.with(&glance, facts, segment_bytes);
        let (grid, question) = question(arguments, &today, geometry, facts);
        let question = Arc::new(question);
        let new = || Asked::new(question.clone());
        let (summary, end) = scan_with(files, threads, new, watch)?;
        Ok((Worked { today, grid, summary: summary.map(Asked::finish) }, end))
    })
}

/// Looks at the first checkpoints of the WAL.
fn glance(
    files: &[SegmentFile],
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Glance, WalReadError> {
    let seen = Arc::new(AtomicUsize::new(0));
    let new = || Glance::counting(seen.clone());
    let (summary, _) = scan_with(files, threads, new, &mut |_| {
        let is_enough = seen.load(Ordering::Relaxed) >= ENOUGH;
        if is_enough || interrupt.signal().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(summary.collected)
}

/// Checkpoints that show what they follow.
const ENOUGH: usize = 8;

fn question(
    arguments: &WalWhatIfArguments,
    today: &Today,
    geometry: Geometry,
    facts: &'static WalFacts,
) -> (Grid, Question) {
    let has_lz4 = facts.image_compressions.lz4 != 0;
    let grid = Grid::of(arguments, today, geometry.segment_bytes, has_lz4);
    let settings = grid.settings();
    let question = Question {
        geometry,
        facts,
        compressing: Compressing::for_settings(&settings, arguments.exact),
        settings,
        today: Some(today.schedule()),
    };
    (grid, question)
}

fn streamed(
    dsn: &Dsn,
    arguments: &WalWhatIfArguments,
    settings: &Settings,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<(Worked, End)> {
    let mut connection = dsn.connect()?;
    let version = connection.parameter("server_version").unwrap_or_default();
    let version: ServerVersion = version.parse().context("read the server's version")?;
    let row = connection
        .query_one("SELECT pg_size_bytes(current_setting('wal_segment_size')) AS bytes")?;
    let segment_bytes = row.parse("bytes")?;
    let row = connection.query_one("SELECT current_setting('wal_block_size') AS bytes")?;
    let geometry = Geometry { segment_bytes, page_bytes: row.parse("bytes")? };
    connection.close();
    let facts = &version.facts()?.wal;
    let today = settings.with(&Glance::default(), facts, segment_bytes);
    let (grid, question) = question(arguments, &today, geometry, facts);
    let question = Arc::new(question);
    let time = arguments.r#for.map(|span| span.0);
    let mut watch = stream_watch(time, interrupt, printer);
    let (summary, end) = stream_with(dsn, time, move || Asked::new(question.clone()), &mut watch)?;
    Ok((Worked { today, grid, summary: summary.map(Asked::finish) }, end))
}

fn shown(record: &WalWhatIfRecord, arguments: &WalWhatIfArguments) -> anyhow::Result<String> {
    let by_name = ending(arguments.output.as_ref()).and_then(|ending| match ending.as_str() {
        "html" | "htm" => Some(WalFormat::Html),
        "json" => Some(WalFormat::Json),
        _ => None,
    });
    let json = arguments.json.then_some(WalFormat::Json);
    Ok(match arguments.format.or(json).or(by_name).unwrap_or(WalFormat::Table) {
        WalFormat::Table => pgtoll_report::wal_whatif_text(record),
        WalFormat::Json => output::json(record)?,
        WalFormat::Html => pgtoll_report::wal_whatif_html(record),
    })
}

/// Bytes from one place to another.
fn between(from: Option<Lsn>, to: Option<Lsn>) -> u64 {
    to.zip(from).and_then(|(to, from)| to.bytes_since(from)).unwrap_or(0)
}
