//! How commands read WAL: with progress, until a signal comes, and again where a running server
//! moved it meanwhile.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgtoll_format::Lsn;
use pgtoll_interrupt::Interrupt;
use pgtoll_wal::{End, SegmentFile, WalReadError, segments};

use crate::exit::Status;
use crate::printer::Printer;

/// Told how many segments have been read.
pub(super) type Watch<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// Reads what `paths` name. A server that runs removes and renames segments while they are read:
/// what looks damaged there is read again, since a busy one may do so each time.
pub(super) fn files<T>(
    paths: &[PathBuf],
    interrupt: &Interrupt,
    printer: &mut Printer,
    mut scan: impl FnMut(&[SegmentFile], Watch<'_>) -> Result<(T, End), WalReadError>,
) -> Result<(T, End), WalReadError> {
    let mut once = || {
        let files = segments(paths)?;
        let all = files.len() as u64;
        scan(&files, &mut |done| {
            printer.progress(&what(&files, done), done as u64, all);
            go_on(interrupt)
        })
    };
    let mut read = once();
    for _ in 0..READ_AGAIN {
        let is_sound = read.as_ref().is_ok_and(|(_, end)| end.is_whole());
        let is_used = || paths.iter().any(|path| is_used(path));
        if is_sound || interrupt.signal().is_some() || !is_used() {
            break;
        }
        read = once();
    }
    read
}

/// How often what a running server has is read again.
const READ_AGAIN: u32 = 3;

/// What watches a server's stream.
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
                let (passed, all) = (began.elapsed().as_secs(), time.as_secs());
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

/// What it comes to that reading ended there.
pub(super) fn ended(end: &End, printer: &Printer) -> Status {
    if end.is_whole() {
        return Status::Done;
    }
    printer.warn(&format!("pgtoll: {end}; what is before it is shown"));
    if let Some(hint) = end.hint() {
        printer.warn(&format!("hint: {hint}"));
    }
    Status::CouldNotTell
}

fn what(files: &[SegmentFile], done: usize) -> String {
    let name = files.get(done.saturating_sub(1)).and_then(|file| file.path.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A server may be running on the directory, or on the one that it is the `pg_wal` of.
fn is_used(path: &Path) -> bool {
    [Some(path.to_owned()), above(path)]
        .iter()
        .flatten()
        .any(|of| of.join("postmaster.pid").exists())
}

/// The directory that this one, or the one behind this link, is in.
pub(super) fn above(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

/// So many segments at once: as many as are asked for, else a core's each.
pub(super) fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}
