//! WAL as commands read it: with progress, until a signal comes, and again where a running server
//! moved it meanwhile.
//! moved it meanwhile.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgtoll_format::Lsn;
use pgtoll_system::Interrupt;
use pgtoll_wal::{
    Archive, End, Gap, SegmentFile, WalRange, WalReadError, WalSummary, locate_range,
};
use pgtoll_wire::Dsn;

use crate::arguments::WalRangeArguments;
use crate::commands::url;
use crate::hints::hint_of_reader;
use crate::printer::Printer;

/// Told how many segments have been read.
pub(super) type Watch<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// The result of reading files.
pub(super) struct FilesRead<T> {
    pub(super) summary: WalSummary<T>,
    pub(super) end: End,
    /// Notes on other content of the files.
    pub(super) notes: Vec<String>,
}

/// Reads the part that was asked for of what `paths` name. A server that runs removes and renames segments while they are read:
/// what looks damaged there is read again, since a busy one may do so each time.
pub(super) fn files<T>(
    paths: &[PathBuf],
    arguments: &WalRangeArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
    mut scan: impl FnMut(
        &[SegmentFile],
        &Range<Lsn>,
        Watch<'_>,
    ) -> Result<(WalSummary<T>, End), WalReadError>,
) -> anyhow::Result<FilesRead<T>> {
    let mut once = || {
        let archive = Archive::new(segments(paths, interrupt)?, arguments.timeline)?;
        let notes = archive.notes();
        let files = archive.segments;
        let range = locate_range(&files, &WalRange { from: arguments.from, to: arguments.to })?;
        let all = files.len() as u64;
        let (summary, end) = scan(&files, &range, &mut |done| {
            printer.progress(&progress_label(&files, done), done as u64, all);
            go_on(interrupt)
        })?;
        Ok(FilesRead { summary, end, notes })
    };
    let mut read = once();
    for _ in 0..READ_AGAIN {
        let is_sound =
            read.as_ref().is_ok_and(|read| read.end.is_whole() && read.summary.gaps.is_empty());
        let is_used = || paths.iter().any(|path| is_used(path));
        if is_sound || interrupt.signal().is_some() || !is_used() {
            break;
        }
        read = once();
    }
    read
}

/// The segments that paths and URLs name, in no order.
fn segments(paths: &[PathBuf], interrupt: &Interrupt) -> anyhow::Result<Vec<SegmentFile>> {
    let mut found = Vec::new();
    for path in paths {
        match url(path) {
            Some(url) => found.extend(pgtoll_fleet::stored_segments(&url?, interrupt)?),
            None => found.extend(pgtoll_wal::files(path)?),
        }
        if found.is_empty() {
            return Err(WalReadError::NoSegments { path: path.clone() }.into());
        }
    }
    Ok(found)
}

/// How often what a running server has is read again.
const READ_AGAIN: u32 = 3;

/// Returns the watch of a server's stream.
pub(super) fn stream_watch<'a>(
    time: Option<Duration>,
    interrupt: &'a Interrupt,
    printer: &'a mut Printer,
) -> impl FnMut(Lsn, Option<Lsn>) -> ControlFlow<()> + 'a {
    let began = Instant::now();
    let mut first = None;
    move |at, until| {
        let first = *first.get_or_insert(at);
        let done = at.bytes_since(first).unwrap_or(0);
        match (time, until.and_then(|until| until.bytes_since(first))) {
            (Some(time), _) => {
                let passed = began.elapsed().as_secs();
                let all = time.as_secs();
                printer.progress(&format!("stream, at {at}"), passed.min(all), all);
            }
            (None, Some(all)) => printer.progress(&format!("stream, at {at}"), done, all),
            (None, None) => {}
        }
        go_on(interrupt)
    }
}

fn go_on(interrupt: &Interrupt) -> ControlFlow<()> {
    match interrupt.signal() {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    }
}

/// Says where reading ended early, which gaps it skipped, and what to do about it.
pub(super) fn tell_end(gaps: &[Gap], end: &End, printer: &Printer) {
    for gap in gaps.iter().take(GAPS) {
        printer.warn(&format!("pgtoll: {gap}"));
    }
    if gaps.len() > GAPS {
        printer.warn(&format!("pgtoll: {} more gaps", gaps.len() - GAPS));
    }
    if !end.is_whole() {
        printer.warn(&format!("pgtoll: {end}; the WAL before it is shown"));
    }
    let incomplete = Some(end).filter(|end| !end.is_whole());
    let Some(first) = gaps.first().map(|gap| &*gap.why).or(incomplete) else { return };
    let of_store = match first {
        End::Unreadable { source, .. } => hint_of_reader(source),
        _ => None,
    };
    if let Some(hint) = of_store.or_else(|| first.hint()) {
        printer.warn(&format!("hint: {hint}"));
    }
}

/// Gaps that have a line each.
const GAPS: usize = 10;

fn progress_label(files: &[SegmentFile], done: usize) -> String {
    let name = files.get(done.saturating_sub(1)).and_then(|file| file.path.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A server may be running on the directory, or on the one that it is the `pg_wal` of.
fn is_used(path: &Path) -> bool {
    [Some(path.to_owned()), above(path)]
        .iter()
        .flatten()
        .any(|item| item.join("postmaster.pid").exists())
}

/// The directory that this one, or the one behind this link, is in.
pub(super) fn above(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

/// Segments that are read in parallel: the number given, else one for each core.
pub(super) fn threads(requested: Option<u16>) -> usize {
    requested
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

/// The WAL's names: paths, or the server.
pub(super) fn source_names(paths: &[PathBuf], dsn: Option<&Dsn>) -> Vec<String> {
    match (paths, dsn) {
        ([], Some(dsn)) => vec![dsn.redacted()],
        (paths, _) => paths.iter().map(|path| path.display().to_string()).collect(),
    }
}
