//! Repair while the server runs: the damage itself is the lock.
//!
//! A server that refuses a page gives it to nobody, so nobody can change it. What could still take the
//! block away (a truncation, a new file) is kept out by locks for the moment of the write. The server is
//! asked before and after, by the caller's [`AskBlock`].

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgtoll_datadir::{DataDirectory, control_file};
use pgtoll_format::{ForkNumber, Lsn, RelationFork, unhex};
use pgtoll_wire::{Connection, Dsn, Error, Row};

use super::install::{PageState, RepairStep, RepairUndo, UndoPage};
use super::refusal::BlockRefusal;
use super::{RepairError, proof};
use crate::hold::become_owner_of;

/// A server's answer when it was made to read a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockAnswer {
    /// It refuses it (`XX001`).
    Refuses,
    /// It has it, from the disk or in memory.
    Takes,
    /// There is no answer, and why.
    Unknown(String),
}

/// Has a running server read a block.
pub type AskBlock<'a> = &'a mut dyn FnMut(RelationFork, u32) -> BlockAnswer;

/// A primary that runs on the data directory that is repaired.
pub struct RunningTarget<'a> {
    data: DataDirectory,
    dsn: Dsn,
    main: Connection,
    sessions: HashMap<u32, Result<Connection, BlockRefusal>>,
    ask: AskBlock<'a>,
}

impl fmt::Debug for RunningTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTarget").field("dsn", &self.dsn).finish_non_exhaustive()
    }
}

/// The WAL positions of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Horizon {
    /// The start of the record of the last completed checkpoint.
    pub(super) checkpoint: Lsn,
    /// The insert position; all WAL before it is on disk.
    pub(super) insert: Lsn,
}

impl<'a> RunningTarget<'a> {
    /// The server at `dsn`, which runs on `data`; an error where pages cannot be repaired while it runs.
    pub fn open(data: &DataDirectory, dsn: &Dsn, ask: AskBlock<'a>) -> Result<Self, RepairError> {
        let mut main = connect(dsn)?;
        let row = main.query_one(CONDITIONS)?;
        if let Some(reason) = unfit_server(&row, data)? {
            return Err(RepairError::NotOnline { path: data.path.clone(), reason });
        }
        let data = data.clone();
        let dsn = dsn.clone();
        Ok(Self { data, dsn, main, sessions: HashMap::new(), ask })
    }

    /// Returns its WAL positions, after a flush.
    #[expect(clippy::disallowed_methods, reason = "the WAL writer reports nothing to wait for")]
    pub(super) fn horizon(&mut self) -> Result<Horizon, RepairError> {
        let insert: Lsn = self.main.query_one(INSERTED)?.parse("inserted")?;
        let begun = Instant::now();
        let mut is_nudged = false;
        loop {
            let flushed: Lsn = self.main.query_one(FLUSHED)?.parse("flushed")?;
            if flushed >= insert {
                break;
            }
            if !is_nudged && begun.elapsed() > NUDGE {
                // Of a server at rest the WAL writer leaves a page that is not full until somebody
                // commits: this commits nothing but a transaction's number.
                self.main.execute("SELECT pg_current_xact_id()")?;
                is_nudged = true;
            }
            if begun.elapsed() > FLUSH {
                let reason = format!("its WAL up to {insert} is not on disk yet");
                return Err(RepairError::NotOnline { path: self.data.path.clone(), reason });
            }
            // The WAL writer reports nothing: it is asked again.
            sleep(FLUSH_STEP);
        }
        let checkpoint = control_file(&self.data.path)?.checkpoint;
        Ok(Horizon { checkpoint, insert })
    }

    /// Lets it make a checkpoint.
    pub(super) fn checkpoint(&mut self) -> Result<(), RepairError> {
        Ok(self.main.execute("SET statement_timeout = 0; CHECKPOINT")?)
    }

    /// Why a block cannot be repaired while the server runs; `None`: it can, and the server refuses it.
    pub(super) fn unfit(&mut self, fork: RelationFork, block: u32) -> Option<BlockRefusal> {
        if fork.number != ForkNumber::MAIN {
            return Some(BlockRefusal::OtherFork);
        }
        match self.known(fork) {
            Ok(known) => known.unfit().or_else(|| self.unfit_block(fork, block)),
            Err(reason) => Some(reason),
        }
    }

    fn unfit_block(&mut self, fork: RelationFork, block: u32) -> Option<BlockRefusal> {
        match (self.ask)(fork, block) {
            BlockAnswer::Refuses => None,
            BlockAnswer::Takes => Some(BlockRefusal::Taken),
            BlockAnswer::Unknown(why) => Some(BlockRefusal::NotAsked(why)),
        }
    }

    fn session(&mut self, database: u32) -> Result<&mut Connection, BlockRefusal> {
        if !self.sessions.contains_key(&database) {
            let opened = self.open_session(database);
            self.sessions.insert(database, opened);
        }
        let session = self.sessions.get_mut(&database).ok_or(BlockRefusal::ClosedDatabase)?;
        session.as_mut().map_err(|why| why.clone())
    }

    fn open_session(&mut self, database: u32) -> Result<Connection, BlockRefusal> {
        let sql =
            format!("SELECT datname FROM pg_database WHERE datallowconn AND oid = {database}");
        let rows = self.main.query(&sql)?;
        let row = rows.first().ok_or(BlockRefusal::ClosedDatabase)?;
        Ok(connect(&self.dsn.with_database(row.text("datname")?))?)
    }

    fn known(&mut self, fork: RelationFork) -> Result<Known, BlockRefusal> {
        if fork.relation.database == 0 {
            return Err(BlockRefusal::Catalog);
        }
        let sql = known_sql(fork);
        let session = self.session(fork.relation.database)?;
        let rows = session.query(&sql)?;
        let row = rows.first().ok_or(BlockRefusal::UnknownRelation("server"))?;
        Ok(Known::from_row(row)?)
    }

    /// Writes a page while the server refuses the block. The error is why it was not written, or not
    /// accepted.
    fn install(&mut self, page: &UndoPage, file: &File) -> Result<(), BlockRefusal> {
        let fork = page.fork().ok_or(BlockRefusal::UnknownFork)?;
        let known = self.known(fork)?;
        let session = self.session(fork.relation.database)?;
        let locked = session.execute(&known.locks());
        let written = match locked {
            Ok(()) => self.install_locked(page, file, fork, &known),
            Err(error) => Err(BlockRefusal::NotLocked(error.to_string())),
        };
        let session = self.session(fork.relation.database)?;
        // The locks go with the connection, too.
        let _ = session.execute("ROLLBACK");
        written
    }

    fn install_locked(
        &mut self,
        page: &UndoPage,
        file: &File,
        fork: RelationFork,
        known: &Known,
    ) -> Result<(), BlockRefusal> {
        if self.known(fork)? != *known {
            return Err(BlockRefusal::RelationChanged);
        }
        if let Some(reason) = self.unfit_block(fork, page.block()) {
            return Err(reason);
        }
        let now = page.read(file).map_err(|error| BlockRefusal::Told(error.to_string()))?;
        if page.state(&now) != Some(PageState::Before) {
            return Err(BlockRefusal::BlockChanged);
        }
        let after = unhex(page.after()).unwrap_or_default();
        let write = || {
            file.write_all_at(&after, page.at())?;
            file.sync_data()
        };
        write().map_err(|error| BlockRefusal::NotWritten {
            path: page.file().to_owned(),
            error: error.to_string(),
        })?;
        match (self.ask)(fork, page.block()) {
            BlockAnswer::Takes => Ok(()),
            BlockAnswer::Refuses => Err(BlockRefusal::RefusedStill),
            BlockAnswer::Unknown(why) => Err(BlockRefusal::NotAskedAgain(why)),
        }
    }
}

/// Pages that were not written while the server ran: their places in the undo file, and why.
pub type NotWritten = Vec<(usize, BlockRefusal)>;

impl RepairUndo {
    /// Writes the pages while the server runs, each once it was found as it was when the plan was made
    /// and the server refuses it still. `done` is notified of each that the server accepts now.
    ///
    /// A process of root becomes the directory's owner for good.
    pub fn apply_running(
        &self,
        target: &mut RunningTarget<'_>,
        done: &mut dyn FnMut(RepairStep),
    ) -> Result<NotWritten, RepairError> {
        let data = target.data.clone();
        self.check_cluster(&data.control)?;
        become_owner_of(&data.path)?;
        done(RepairStep::Checked);
        let mut not_written = Vec::new();
        for (number, page) in self.pages.iter().enumerate() {
            let file = page.open(&data.path, &data.control)?;
            match target.install(page, &file) {
                Ok(()) => done(RepairStep::Written(number)),
                Err(reason) => not_written.push((number, reason)),
            }
        }
        Ok(not_written)
    }
}

/// A relation as the server knows it now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    oid: u32,
    kind: String,
    access_method: String,
    /// Quoted, with its schema.
    name: String,
    /// Its table: of an index the one that it is of, of a TOAST table and its index the main table.
    parent: String,
    parent_kind: String,
    /// The TOAST table, where it is one or an index of one.
    toast: Option<String>,
}

impl Known {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            oid: row.parse("oid")?,
            kind: row.text("kind")?.to_owned(),
            access_method: row.text("method")?.to_owned(),
            name: row.text("name")?.to_owned(),
            parent: row.text("parent")?.to_owned(),
            parent_kind: row.text("parent_kind")?.to_owned(),
            toast: row.value("toast")?.map(str::to_owned),
        })
    }

    fn unfit(&self) -> Option<BlockRefusal> {
        if self.oid < FIRST_USER_OID {
            return Some(BlockRefusal::Catalog);
        }
        (self.access_method == "hash").then_some(BlockRefusal::HashIndex)
    }

    /// Locks against truncation, new files and VACUUM. They keep no reader and no writer out, and no
    /// standby is notified of them.
    fn locks(&self) -> String {
        let lock = if self.parent_kind == "r" {
            format!("LOCK TABLE ONLY {} IN SHARE UPDATE EXCLUSIVE MODE;", self.parent)
        } else {
            // Sequences and materialized views: only what would replace or cut the file is kept out.
            format!("SELECT 1 FROM {} LIMIT 0;", self.parent)
        };
        // VACUUM of a TOAST table does not ask for the main table's lock.
        let toast = self.toast.as_ref().map(|name| format!("SELECT 1 FROM {name} LIMIT 0;"));
        format!("BEGIN; SET LOCAL lock_timeout = '3s'; {lock} {}", toast.unwrap_or_default())
    }
}

fn connect(dsn: &Dsn) -> Result<Connection, Error> {
    let mut connection = dsn.connect()?;
    connection.execute(QUIETLY)?;
    Ok(connection)
}

/// Why no page of this server is repaired while it runs.
fn unfit_server(row: &Row, data: &DataDirectory) -> Result<Option<String>, Error> {
    let is = |column: &str| row.text(column).map(|text| text == "t");
    if is("standby")? {
        return Ok(Some(
            "it is a standby: repair its primary, then rebuild the standby".to_owned(),
        ));
    }
    if row.text("checksums")? != "on" || !data.has_checksums() {
        return Ok(Some("it has no data checksums: no page can be shown to be sound".to_owned()));
    }
    if !is("superuser")? {
        return Ok(Some("its role is not a superuser; the locks require one".to_owned()));
    }
    if let Some(names) = row.value("lax")? {
        return Ok(Some(format!("{names} is on somewhere: damaged pages may be written there")));
    }
    if is("copied")? {
        return Ok(Some("a base backup is being taken, which may copy half of a page".to_owned()));
    }
    let timeline = row.text("segment")?.get(..8);
    let timeline = timeline.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    if timeline != Some(data.control.last_checkpoint.timeline) {
        return Ok(Some("it was promoted, and has made no checkpoint since".to_owned()));
    }
    Ok(None)
}

fn known_sql(fork: RelationFork) -> String {
    let relation = fork.relation;
    format!(
        "SELECT c.oid, c.relkind AS kind, coalesce(a.amname, '') AS method, \
         quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name, \
         quote_ident(pn.nspname) || '.' || quote_ident(p.relname) AS parent, \
         p.relkind AS parent_kind, \
         CASE WHEN t.relkind = 't' THEN 'pg_toast.' || quote_ident(t.relname) END AS toast \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_am a ON a.oid = c.relam \
         LEFT JOIN pg_index i ON i.indexrelid = c.oid \
         JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid) \
         LEFT JOIN pg_class m ON t.relkind = 't' AND m.reltoastrelid = t.oid \
         JOIN pg_class p ON p.oid = coalesce(m.oid, t.oid) \
         JOIN pg_namespace pn ON pn.oid = p.relnamespace \
         WHERE c.oid = pg_filenode_relation({}, {})",
        relation.tablespace, relation.rel_number
    )
}

impl UndoPage {
    /// Its fork.
    fn fork(&self) -> Option<RelationFork> {
        proof::fork_of(self.proof())
    }
}

impl From<Error> for RepairError {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

/// Relations with a lower OID are the system's (`FirstNormalObjectId`).
const FIRST_USER_OID: u32 = 16384;
/// How long the WAL writer is waited for.
const FLUSH: Duration = Duration::from_secs(10);
/// How long before it is made to write what is there.
const NUDGE: Duration = Duration::from_millis(300);
const FLUSH_STEP: Duration = Duration::from_millis(5);

const QUIETLY: &str = "\
    SET search_path = pg_catalog; SET statement_timeout = '60s'; SET lock_timeout = '3s'";
const INSERTED: &str = "SELECT pg_current_wal_insert_lsn() AS inserted";
const FLUSHED: &str = "SELECT pg_current_wal_flush_lsn() AS flushed";
const CONDITIONS: &str = "\
    SELECT pg_is_in_recovery() AS standby, current_setting('data_checksums') AS checksums,
        (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
        (SELECT string_agg(name, ', ') FROM (
            SELECT name FROM pg_settings
            WHERE name IN ('zero_damaged_pages', 'ignore_checksum_failure')
                AND 'on' IN (setting, reset_val)
            UNION SELECT split_part(of, '=', 1) FROM pg_db_role_setting, unnest(setconfig) of
            WHERE of ~ '^(zero_damaged_pages|ignore_checksum_failure)='
                AND of !~* '=(off|false|no|0|f|n)$') s) AS lax,
        EXISTS (SELECT FROM pg_stat_progress_basebackup) AS copied,
        CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn())
            ELSE '' END AS segment";
