//! The server's WAL as one more source: streamed beside the watching into the what-if.
//!
//! One thread reads WAL by the replication protocol, without a slot and without confirming anything,
//! and replays it under all settings that are asked about. The session that watches continues as without
//! it; when it ends, so does the reading.

mod interim;
mod plan;
mod reader;
mod watched;

use std::thread::{self, ScopedJoinHandle};

use pgtoll_record::{ServerWatch, WATCHED_WAL, WatchedServer, WatchedWal};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use interim::Interim;
use plan::WalQuestion;
use reader::{ReadWal, Stop, WalReader};
use watched::watched_wal;

use crate::server::identify;
use crate::session::{APPLICATION, WatchSession};
use crate::{PredictError, SettingQuestion, WatchPlan, WatchProgress, watch};

/// As [`watch()`], and reads the server's WAL meanwhile, to replay it with the settings of the
/// questions. Fails at once where the role may not stream WAL. Progress has the WAL that was read
/// until then, of each window a moment after its end. A connection that is lost is opened again, and
/// reading resumes where it was.
pub fn watch_with_wal(
    dsn: &Dsn,
    plan: &WatchPlan,
    questions: &[SettingQuestion],
    interrupt: &Interrupt,
    on_progress: &mut dyn FnMut(&WatchProgress<'_>),
) -> Result<(WatchedServer, ServerWatch), PredictError> {
    let mut session = WatchSession::open(dsn, APPLICATION)?;
    let (server, facts, privileges) = identify(&mut session)?;
    if !privileges.streams {
        return Err(PredictError::NoReplication {
            role: dsn.user().to_owned(),
            remedy: privileges.stream_remedy,
        });
    }
    let page_bytes =
        session.query_one("SELECT current_setting('wal_block_size') AS bytes")?.parse("bytes")?;
    let postmaster = session.postmaster();
    session.close();
    let requested = WalQuestion::new(&server, &facts.wal, page_bytes, questions);
    let stop = Stop::default();
    let interim = Interim::default();
    let reader =
        WalReader { dsn, asked: &requested, postmaster, stop: &stop, interrupt, interim: &interim };
    let mut passed_on = PassedOn { asked: &requested, interim: &interim, read: None };
    let (server, mut seen, read) = thread::scope(|scope| {
        // Whatever ends this function ends the other thread.
        let _stops = stop.when_dropped();
        let running = reader.start(scope, &privileges.stream_remedy)?;
        let mut on_look = |progress: &WatchProgress<'_>| passed_on.pass(progress, on_progress);
        let (server, seen) = watch(dsn, plan, interrupt, &mut on_look)?;
        stop.at(end_of_wal(dsn, interrupt));
        Ok::<_, PredictError>((server, seen, joined(running)?))
    })?;
    add(&server, &mut seen, &requested, read);
    Ok((server, seen))
}

/// Progress with the WAL that was read until then: it is asked for at the end of each window, and comes
/// a moment later.
struct PassedOn<'a> {
    asked: &'a WalQuestion,
    interim: &'a Interim<ReadWal>,
    /// The last result.
    read: Option<WatchedWal>,
}

impl PassedOn<'_> {
    fn pass(
        &mut self,
        progress: &WatchProgress<'_>,
        on_progress: &mut dyn FnMut(&WatchProgress<'_>),
    ) {
        if progress.window_ended {
            self.interim.ask();
        }
        let is_of_server = |read: &ReadWal| !is_of_another(read, progress.server);
        let newer = self.interim.take().filter(is_of_server);
        let newer = newer.and_then(|read| watched_wal(self.asked, read));
        let has_news = progress.has_news || newer.is_some();
        self.read = newer.or(self.read.take());
        match self.read.clone().filter(|_| has_news) {
            None => on_progress(progress),
            Some(read) => {
                let mut seen = progress.watch.clone();
                add_wal(&mut seen, Some(read));
                on_progress(&WatchProgress { watch: &seen, has_news, ..*progress });
            }
        }
    }
}

/// Returns the present end of the server's WAL; `None` if it cannot be queried, or the wait was interrupted.
fn end_of_wal(dsn: &Dsn, interrupt: &Interrupt) -> Option<pgtoll_format::Lsn> {
    if interrupt.signal().is_some() {
        return None;
    }
    let mut session = WatchSession::open(dsn, APPLICATION).ok()?;
    let row = session.query_one("SELECT pg_current_wal_flush_lsn() AS at").ok()?;
    session.close();
    row.parse("at").ok()
}

/// A role that may not read the server's identifier is not told of another's.
fn is_of_another(read: &ReadWal, server: &WatchedServer) -> bool {
    let identifier = read.streamed.summary.system_identifier.to_string();
    !server.system_identifier.is_empty() && identifier != server.system_identifier
}

fn joined(
    running: ScopedJoinHandle<'_, Result<ReadWal, PredictError>>,
) -> Result<ReadWal, PredictError> {
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Adds what was read to what was seen.
fn add(server: &WatchedServer, seen: &mut ServerWatch, requested: &WalQuestion, read: ReadWal) {
    let has_any = read.streamed.summary.from.is_some();
    if has_any && is_of_another(&read, server) {
        seen.discarded.push("the WAL that was sent is of another cluster".to_owned());
        return;
    }
    if !has_any {
        let why = read.ended.unwrap_or_else(|| "no record came".to_owned());
        seen.discarded.push(format!("WAL: {why}"));
        return;
    }
    add_wal(seen, watched_wal(requested, read));
}

fn add_wal(seen: &mut ServerWatch, wal: Option<WatchedWal>) {
    seen.wal = wal;
    for source in seen.sources.iter_mut().filter(|source| source.name == WATCHED_WAL) {
        (source.available, source.remedy) = (true, None);
    }
}
