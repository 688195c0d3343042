//! A run from its begin to its record.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pgtoll_record::{JudgeRecord, JudgedServer, Provenance};
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Dsn, Interruption};

use super::error::{FileError, JudgeError};
use super::events::{
    EventLog, JournalHeader, make_directory, read_events, read_header, write_header,
};
use super::fault::JudgeFault;
use super::final_read::{FinalReadError, FinalSnapshot, two_primaries};
use super::history::HistoryFile;
use super::journal::{JournalReader, journal_path};
use super::observations::observe;
use super::plan::JudgePlan;
use super::progress::{JudgeProgress, OnProgress};
use super::record::{FinalReading, RunHistory, judge_record};
use super::schema::{check_writable, create, leftovers, remove, schema_name};
use super::session::run_clients;
use super::shared::JudgeState;
use super::verdict::{LossSplit, SetComparison};

/// Lets clients write to a server, does something to it, and judges what became of the
/// transactions. The schema that is made for that is removed again; where the ids could not be
/// read, schema and journals stay, for [`conclude`].
pub fn judge(
    plan: &JudgePlan,
    fault: Option<JudgeFault>,
    provenance: Provenance,
    interrupt: &Interrupt,
    on_progress: &mut OnProgress<'_>,
) -> Result<JudgeRecord, JudgeError> {
    let run = run_number()?;
    let began = Timestamp::now().to_string();
    let dsn = plan.dsn.with_default_connect_timeout(plan.connect_timeout);
    let mut connection = dsn.connect()?;
    connection.wait_until(Instant::now().checked_add(PREPARATION_LIMIT));
    check_writable(&mut connection)?;
    for leftover in leftovers(&mut connection)? {
        on_progress(JudgeProgress::Leftover(&leftover));
    }
    let directory = plan.journal.clone().unwrap_or_else(|| default_directory(run));
    let history = plan.history.as_deref().map(HistoryFile::open_new).transpose()?;
    make_directory(&directory)?;
    let mut header =
        JournalHeader::new(run, server(&dsn, &mut connection)?, plan.design(&schema_name(run)));
    header.read_dsn = plan.read_dsn.as_ref().map(Dsn::redacted);
    header.began.clone_from(&began);
    header.command.clone_from(&provenance.command);
    write_header(&directory, &header)?;
    let state = JudgeState::new(run, plan.clients, EventLog::create(&directory)?);
    create(&mut connection, run, &began)?;
    connection.close();
    let worked = Interruption::new().map_err(JudgeError::Sockets).and_then(|waits| {
        run_clients(plan, &state, fault, &directory, &waits, interrupt, on_progress)
    });
    if let Err(error) = worked {
        // Nothing is judged, so nothing is needed any more.
        let _ = dsn.connect().map(|mut connection| remove(&mut connection, run));
        return Err(error);
    }
    on_progress(JudgeProgress::Event("reading which transactions are there"));
    let limit = if interrupt.signal().is_some() { INTERRUPTED_LIMIT } else { plan.heal_limit };
    let last =
        FinalStep { dsn: &dsn, directory: &directory, limit, interrupt, takes_old_primary: false };
    last.finish(plan.journal.is_some(), history, provenance)
}

/// Judges a run that ended before it could be judged: from its journals, and the ids that are there
/// now. Removes the run's schema. `history`: a new file for a history of Jepsen's.
pub fn conclude(
    dsn: &Dsn,
    directory: &Path,
    limit: Duration,
    history: Option<&Path>,
    provenance: Provenance,
    interrupt: &Interrupt,
) -> Result<JudgeRecord, JudgeError> {
    let dsn = dsn.with_default_connect_timeout(limit.min(PREPARATION_LIMIT));
    let header = read_header(directory)?;
    let mut connection = dsn.connect()?;
    connection.wait_until(Instant::now().checked_add(PREPARATION_LIMIT));
    check_writable(&mut connection)?;
    let name = schema_name(header.run);
    // After a run's own end the table may be lost; here it may as well be another database.
    if !leftovers(&mut connection)?.iter().any(|leftover| leftover.name == name) {
        return Err(JudgeError::NoSchema { name });
    }
    connection.close();
    let history = history.map(HistoryFile::open_new).transpose()?;
    // Whoever names a server then has chosen it.
    FinalStep { dsn: &dsn, directory, limit, interrupt, takes_old_primary: true }
        .finish(true, history, provenance)
}

/// Preparing takes some statements.
const PREPARATION_LIMIT: Duration = Duration::from_secs(60);
/// Somebody waits for the end.
const INTERRUPTED_LIMIT: Duration = Duration::from_secs(5);
/// Between attempts to read the ids.
const RETRY: Duration = Duration::from_millis(200);

/// The reading of the ids, and what follows from them.
struct FinalStep<'a> {
    dsn: &'a Dsn,
    directory: &'a Path,
    limit: Duration,
    interrupt: &'a Interrupt,
    /// The ids are read on a primary whose successor has answered, too.
    takes_old_primary: bool,
}

type ReadOnce = Result<Result<FinalReading, FinalReadError>, JudgeError>;

impl FinalStep<'_> {
    fn finish(
        &self,
        keep: bool,
        mut file: Option<HistoryFile>,
        provenance: Provenance,
    ) -> Result<JudgeRecord, JudgeError> {
        let events = read_events(self.directory)?;
        let history = RunHistory::new(read_header(self.directory)?, events);
        let mut conclusion = self.read_until(&history, file.as_mut())?;
        let is_read = conclusion.sets.is_some();
        if is_read {
            conclusion.schema_left = remove_schema(self.dsn, history.header.run);
        }
        if keep || !is_read {
            conclusion.journal = Some(self.directory.display().to_string());
        } else {
            std::fs::remove_dir_all(self.directory).map_err(|source| FileError {
                action: "remove",
                path: self.directory.to_owned(),
                source,
            })?;
        }
        Ok(judge_record(&history, conclusion, provenance))
    }

    /// Tries to read the ids until the time is over, or a signal comes that is not the one which
    /// ended the run.
    fn read_until(
        &self,
        history: &RunHistory,
        mut file: Option<&mut HistoryFile>,
    ) -> Result<FinalReading, JudgeError> {
        let waits = Interruption::new().map_err(JudgeError::Sockets)?;
        let on_signal = waits.clone();
        let was_interrupted = self.interrupt.signal().is_some();
        let _registered =
            (!was_interrupted).then(|| self.interrupt.on_signal(move || on_signal.interrupt()));
        let dsn = self.dsn.with_interruption(&waits);
        let until = Instant::now() + self.limit;
        // After a signal nothing but time ends these waits; a second one ends the process.
        let pause = if was_interrupted { &Interrupt::new() } else { self.interrupt };
        loop {
            let failure = match self.read_once(&dsn, history, file.as_deref_mut())? {
                Ok(conclusion) => return Ok(conclusion),
                Err(failure) => failure,
            };
            if Instant::now() + RETRY >= until || pause.wait(RETRY).is_err() {
                let observations = observe(&history.frame(None), self.journals(history)?);
                let is_old = matches!(failure, FinalReadError::OldPrimary { .. });
                let finding = is_old.then(|| failure.to_string());
                let unread = Some(failure.to_string());
                return Ok(FinalReading {
                    observations,
                    unread,
                    finding,
                    ..FinalReading::default()
                });
            }
        }
    }

    fn read_once(
        &self,
        dsn: &Dsn,
        history: &RunHistory,
        file: Option<&mut HistoryFile>,
    ) -> ReadOnce {
        let run = history.header.run;
        let snapshot = match FinalSnapshot::open(dsn, run, self.limit) {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(Err(error)),
        };
        let frame = history.frame(Some(snapshot.node.clone()));
        let latest = frame.nodes.iter().filter_map(|node| node.timeline).max();
        let mut finding = None;
        if let (Some(timeline), Some(latest)) = (snapshot.node.timeline, latest)
            && timeline < latest
        {
            if !self.takes_old_primary {
                return Ok(Err(FinalReadError::OldPrimary { timeline, latest }));
            }
            finding = Some(two_primaries(timeline, latest));
        }
        let observations = observe(&frame, self.journals(history)?);
        let split = LossSplit {
            fault_ns: history.split_ns(observations.outage.as_ref()),
            sides: history.header.design.sides.len() as u64,
            deposed: observations.nodes.iter().map(|node| node.deposed).collect(),
        };
        let read_on = Some(snapshot.node.clone());
        let open = |client| journal(self.directory, run, client);
        let clients = u64::from(history.header.design.clients);
        let mut comparison = SetComparison::new(run, clients, split, open);
        let path = file.as_ref().map(|file| file.path().to_owned()).unwrap_or_default();
        let unwritten = |source| FileError { action: "write", path: path.clone(), source };
        let mut writer = match file {
            Some(file) => Some(file.begin(self.journals(history)?).map_err(unwritten)?),
            None => None,
        };
        let on_id = |id| {
            if let Some(writer) = &mut writer {
                writer.present(id);
            }
            comparison.present(id)
        };
        let is_there = match snapshot.each_id(on_id) {
            Ok(is_there) => is_there?,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(writer) = writer {
            writer.finish().map_err(unwritten)?;
        }
        let sets = Some(comparison.finish()?);
        let table_lost = !is_there;
        let found =
            FinalReading { observations, sets, read_on, table_lost, ..FinalReading::default() };
        Ok(Ok(FinalReading { finding, ..found }))
    }

    fn journals(&self, history: &RunHistory) -> Result<Vec<Journal>, FileError> {
        let clients = u64::from(history.header.design.clients);
        let run = history.header.run;
        (0..clients).map(|client| journal(self.directory, run, client)).collect()
    }
}

/// Why the schema stays; `None` where it does not.
fn remove_schema(dsn: &Dsn, run: u64) -> Option<String> {
    let removed = dsn.connect().and_then(|mut connection| {
        connection.wait_until(Instant::now().checked_add(PREPARATION_LIMIT));
        remove(&mut connection, run)
    });
    removed.err().map(|error| error.to_string())
}

type Journal = JournalReader<BufReader<File>>;

fn journal(directory: &Path, run: u64, client: u64) -> Result<Journal, FileError> {
    let path = journal_path(directory, client);
    let open = || {
        let reader = JournalReader::new(BufReader::new(File::open(&path)?))?;
        if (reader.run(), reader.client()) != (run, client) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "journal of another client"));
        }
        Ok(reader)
    };
    open().map_err(|source| FileError { action: "read", path: path.clone(), source })
}

/// A number that no other run has.
fn run_number() -> Result<u64, FileError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| FileError { action: "read", path: path.to_owned(), source })?;
    Ok(u64::from_le_bytes(bytes))
}

fn default_directory(run: u64) -> PathBuf {
    std::env::temp_dir().join(format!("pgtoll-judge-{run:016x}"))
}

/// Settings on which losses depend.
const SETTINGS: [&str; 7] = [
    "synchronous_commit",
    "synchronous_standby_names",
    "fsync",
    "full_page_writes",
    "wal_level",
    "data_checksums",
    "cluster_name",
];

fn server(dsn: &Dsn, connection: &mut Connection) -> Result<JudgedServer, JudgeError> {
    let mut server = JudgedServer { dsn: dsn.redacted(), ..JudgedServer::default() };
    for name in SETTINGS.into_iter().chain(["server_version"]) {
        let row = connection
            .query_one(&format!("SELECT pg_catalog.current_setting('{name}', true) AS value"))?;
        let Some(value) = row.value("value")? else { continue };
        if name == "server_version" {
            value.clone_into(&mut server.version);
        } else {
            server.settings.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(server)
}
