//! A client that writes: one transaction after the other, each in its journal before it is sent and
//! after it is answered. What is unknown is never sent again.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgtoll_wire::{Connection, Dsn, Error};

use super::error::FileError;
use super::journal::{AttemptOutcome, JournalEntry, JournalWriter, journal_path};
use super::outcome::of_commit;
use super::schedule::DueSchedule;
use super::schema::schema_name;
use super::shared::JudgeState;
use super::verdict::payload;

/// A client that writes.
pub(crate) struct WriterClient<'a> {
    client: u32,
    run: u64,
    dsn: Dsn,
    reply_timeout: Option<Duration>,
    schedule: DueSchedule,
    state: &'a JudgeState,
    journal: JournalWriter,
    connection: Option<Connection>,
    next_sequence: u64,
    /// The server that answered last, in its own words, with its number.
    node: (String, Option<u16>),
}

/// Clients that are to be served again try at least so often.
const HEAL_DISTANCE_NS: u64 = 500_000_000;

/// The outcome of an attempt; `None`: the run ended while the client waited.
type Answer = Option<(AttemptOutcome, Option<u16>, [u8; 5])>;

impl<'a> WriterClient<'a> {
    pub(crate) fn new(
        client: u32,
        dsn: Dsn,
        reply_timeout: Option<Duration>,
        schedule: DueSchedule,
        state: &'a JudgeState,
        directory: &Path,
    ) -> Result<Self, FileError> {
        let run = state.run;
        let path = journal_path(directory, u64::from(client));
        let journal = JournalWriter::create(&path, run, u64::from(client))
            .map_err(|source| FileError { action: "make", path, source })?;
        Ok(Self {
            client,
            run,
            dsn,
            reply_timeout,
            schedule,
            state,
            journal,
            connection: None,
            next_sequence: 0,
            node: (String::new(), None),
        })
    }

    /// Connects before the first transaction is due. Why it could not shows with the transaction.
    pub(crate) fn connect(&mut self) {
        self.connection = self.dsn.connect().ok();
    }

    /// Works until it was served once after healing began, or until the run is stopped.
    pub(crate) fn work(&mut self) {
        let mut arrival = 0;
        let mut begun_ns = None;
        loop {
            let heal_from_ns = self.state.heal_from_ns();
            let (is_healing, distance_ns) = match heal_from_ns {
                u64::MAX => (false, self.schedule.least_distance_ns()),
                _ => (true, self.schedule.least_distance_ns().min(HEAL_DISTANCE_NS)),
            };
            let earliest_ns = begun_ns.map_or(0, |begun: u64| begun.saturating_add(distance_ns));
            let scheduled_ns = self.schedule.due_ns(arrival);
            // Healing does not wait for the next transaction that is due, which may be far away.
            let due_ns = if is_healing { heal_from_ns.max(earliest_ns) } else { scheduled_ns };
            self.state.wait_until(due_ns.max(earliest_ns), heal_from_ns);
            if self.state.is_stopped() {
                break;
            }
            let now_ns = self.state.now_ns();
            if self.state.heal_from_ns() != heal_from_ns || now_ns < due_ns.max(earliest_ns) {
                continue;
            }
            let outcome = self.transact(due_ns, now_ns);
            arrival += 1;
            begun_ns = Some(now_ns);
            match outcome {
                None => break,
                Some(outcome) if outcome.is_acknowledged() && is_healing => break,
                Some(_) => {}
            }
        }
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }

    fn transact(&mut self, due_ns: u64, now_ns: u64) -> Option<AttemptOutcome> {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.note(&JournalEntry::Begun { sequence, at_ns: now_ns, due_ns })?;
        let (outcome, node, code) = self.attempt(sequence)?;
        let at_ns = self.state.now_ns();
        self.note(&JournalEntry::Ended { sequence, at_ns, outcome, node, code })?;
        if outcome.is_acknowledged() {
            self.state.acknowledge(self.client as usize, sequence, at_ns);
        } else {
            self.state.failed_total.fetch_add(1, Ordering::Relaxed);
        }
        Some(outcome)
    }

    fn note(&mut self, entry: &JournalEntry) -> Option<()> {
        match self.journal.append(entry) {
            Ok(()) => Some(()),
            Err(source) => {
                let path = format!("journal of client {}", self.client).into();
                self.state.fail(FileError { action: "write", path, source });
                None
            }
        }
    }

    fn attempt(&mut self, sequence: u64) -> Answer {
        if self.connection.is_none() {
            match self.dsn.connect() {
                Ok(connection) => self.connection = Some(connection),
                Err(Error::Interrupted) if self.state.is_stopped() => return None,
                Err(error) => {
                    return Some((AttemptOutcome::Refused, None, self.state.note_error(&error)));
                }
            }
        }
        let insert = self.insert(sequence);
        let connection = self.connection.as_mut()?;
        let deadline = self.reply_timeout.and_then(|time| Instant::now().checked_add(time));
        connection.wait_until(deadline);
        match connection.complete(&insert) {
            Ok(inserted) => {
                let text = inserted.value.unwrap_or_default();
                if text != self.node.0 {
                    self.node = (text.clone(), self.state.node_number(&text));
                }
            }
            Err(Error::Interrupted) if self.state.is_stopped() => return None,
            // COMMIT was not sent, so there is nothing to be committed.
            Err(error) => {
                let code = self.state.note_error(&error);
                self.roll_back();
                return Some((AttemptOutcome::Failed, None, code));
            }
        }
        self.commit()
    }

    fn commit(&mut self) -> Answer {
        let connection = self.connection.as_mut()?;
        let answer = connection.complete("COMMIT");
        if self.state.is_stopped() && matches!(answer, Err(Error::Interrupted)) {
            return None;
        }
        let outcome = of_commit(&answer, connection.in_transaction());
        let code = answer.as_ref().err().map_or([0; 5], |error| self.state.note_error(error));
        if outcome.is_acknowledged() {
            return Some((outcome, self.node.1, code));
        }
        self.roll_back();
        Some((outcome, None, code))
    }

    fn insert(&self, sequence: u64) -> String {
        let client = u64::from(self.client);
        format!(
            "BEGIN; INSERT INTO {}.transactions (client, sequence, payload) \
             VALUES ({client}, {sequence}, {}) RETURNING node",
            schema_name(self.run),
            payload(self.run, client, sequence)
        )
    }

    /// Leaves the connection as it was before the transaction, or gives it up.
    fn roll_back(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let is_usable = connection.execute("ROLLBACK").is_ok() && !connection.in_transaction();
        self.connection = is_usable.then_some(connection);
    }
}
