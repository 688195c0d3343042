//! A running server as a witness: its control file, its WAL, and what it says of a block.

use std::collections::{HashMap, HashSet};

use pgtoll_datadir::{Attached, DataDirectory, Postmaster, control_file};
use pgtoll_format::{ClusterState, ForkNumber, Lsn, RelationFork};
use pgtoll_wire::{Connection, Dsn, Error, Row};

use super::images::{ImagesInWal, WalImagesError, images_in_wal};
use super::witness::{ServerAnswer, WalHorizon, Witness};
use crate::defect::Unsettled;

/// The server that runs on a data directory, with a connection or without.
#[derive(Debug)]
pub struct RunningServer {
    data: DataDirectory,
    postmaster: Postmaster,
    threads: usize,
    connection: Option<Connected>,
}

#[derive(Debug)]
struct Connected {
    dsn: Dsn,
    main: Connection,
    /// The database of that connection.
    database: u32,
    sessions: HashMap<u32, Result<Session, Unsettled>>,
}

/// A connection to a database, and what is there to read blocks with.
#[derive(Debug)]
struct Session {
    connection: Connection,
    /// Schemas of the extensions.
    pageinspect: Option<String>,
    prewarm: Option<String>,
    buffercache: Option<String>,
    can_evict: bool,
}

/// A relation as the server knows it.
struct Known {
    oid: u32,
    kind: u8,
    name: String,
    literal: String,
}

impl RunningServer {
    /// The server that was attached to, whose connection it takes.
    pub fn attached(
        attached: &mut Attached,
        data: &DataDirectory,
        threads: usize,
    ) -> Result<Self, Error> {
        Self::new(data, attached.postmaster().clone(), threads, attached.take_connection())
    }

    /// The server that runs there, and a connection to it where there is one.
    pub fn new(
        data: &DataDirectory,
        postmaster: Postmaster,
        threads: usize,
        connection: Option<(Dsn, Connection)>,
    ) -> Result<Self, Error> {
        let connected = |(dsn, mut main): (Dsn, Connection)| {
            main.execute(QUIETLY)?;
            let database = main.query_one(OWN_DATABASE)?.parse("oid")?;
            Ok::<_, Error>(Connected { dsn, main, database, sessions: HashMap::new() })
        };
        let connection = connection.map(connected).transpose()?;
        Ok(Self { data: data.clone(), postmaster, threads, connection })
    }

    /// Returns the ends of inserted and of flushed WAL.
    pub(crate) fn wal_positions(&mut self) -> Result<(Lsn, Lsn), Unsettled> {
        let connected = self.connection.as_mut().ok_or(Unsettled::NoServer)?;
        let row = connected.main.query_one(POSITIONS).map_err(|error| refused(&error))?;
        let read = || Ok::<_, Error>((row.parse("inserted")?, row.parse("flushed")?));
        read().map_err(|error| refused(&error))
    }

    /// Whether the server has this block in memory, as the extension `pg_buffercache` says where it
    /// is installed.
    pub fn has_in_memory(&mut self, fork: RelationFork, block: u32) -> Result<bool, Unsettled> {
        let connected = self.connection.as_mut().ok_or(Unsettled::NoServer)?;
        for database in [fork.relation.database, connected.database] {
            let session = connected.session(database);
            if let Some(found) = session.ok().and_then(|session| session.has_in_memory(fork, block))
            {
                return found;
            }
        }
        Err(Unsettled::NoWay)
    }
}

impl Witness for RunningServer {
    fn now(&mut self) -> Result<WalHorizon, Unsettled> {
        let not_ready = |why: String| Unsettled::NotReady(why);
        let control =
            control_file(&self.data.path).map_err(|error| not_ready(error.to_string()))?;
        // In another container its process cannot be seen; there it has to answer.
        let is_same = Postmaster::read(&self.data.path).as_ref() == Some(&self.postmaster);
        let is_seen = || self.data.server().ok().flatten() == Some(self.postmaster.pid);
        if !is_same || (self.connection.is_none() && !is_seen()) {
            return Err(not_ready("the server has stopped".to_owned()));
        }
        let is_standby = control.state == ClusterState::InArchiveRecovery;
        if !is_standby && control.state != ClusterState::InProduction {
            return Err(not_ready(format!("the server is not up: {}", control.state)));
        }
        let last = control.last_checkpoint;
        let mut horizon = WalHorizon {
            redo: last.redo,
            wal_end: None,
            full_page_writes: last.full_page_writes,
            // Only the server knows whether it was promoted lately.
            replays: is_standby || self.connection.is_none(),
            first_lsn: Lsn(u64::from(control.wal_segment_bytes)),
        };
        if let Some(connected) = &mut self.connection {
            let message = connected.main.query_one(MOMENT).and_then(|row| {
                horizon.wal_end = Some(row.parse("wal_end")?);
                horizon.full_page_writes &= row.text("full_page_writes")? == "on";
                let timeline = row.value("segment")?.and_then(|name| name.get(..8));
                let timeline = timeline.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                horizon.replays |= timeline != Some(last.timeline);
                Ok(())
            });
            message.map_err(|error| not_ready(format!("the server does not answer: {error}")))?;
        }
        Ok(horizon)
    }

    fn images(
        &mut self,
        forks: &HashSet<(RelationFork, u32)>,
        from: Lsn,
    ) -> Result<ImagesInWal, WalImagesError> {
        let segment_bytes = self.data.control.wal_segment_bytes;
        images_in_wal(&self.data.path, forks, from, segment_bytes, self.threads)
    }

    fn ask(&mut self, fork: RelationFork, block: u32) -> ServerAnswer {
        match &mut self.connection {
            Some(connected) => connected.ask(fork, block).unwrap_or_else(ServerAnswer::Nothing),
            None => ServerAnswer::Nothing(Unsettled::NoServer),
        }
    }
}

impl Connected {
    fn ask(&mut self, fork: RelationFork, block: u32) -> Result<ServerAnswer, Unsettled> {
        let own = self.database;
        // What all databases share can be read in each.
        let database = if fork.relation.database == 0 { own } else { fork.relation.database };
        let relation = known(&mut self.session(database)?.connection, fork)?;
        let Some(sql) = self.session(database)?.reading(&relation, fork, block) else {
            return Err(Unsettled::NoWay);
        };
        let mut from_disk = false;
        for place in [database, own] {
            if !from_disk && let Ok(session) = self.session(place) {
                from_disk = session.forget(fork, block);
            }
        }
        match self.session(database)?.connection.execute(&sql) {
            Ok(()) => Ok(ServerAnswer::Takes { from_disk }),
            Err(error) if is_refusal(&error, fork, block) => Ok(ServerAnswer::Refuses),
            Err(error) => Err(refused(&error)),
        }
    }

    fn session(&mut self, database: u32) -> Result<&mut Session, Unsettled> {
        if !self.sessions.contains_key(&database) {
            let session = self.open(database);
            self.sessions.insert(database, session);
        }
        let none = || Unsettled::NoServer;
        self.sessions.get_mut(&database).ok_or_else(none)?.as_mut().map_err(|why| why.clone())
    }

    fn open(&mut self, database: u32) -> Result<Session, Unsettled> {
        let sql =
            format!("SELECT datname FROM pg_database WHERE datallowconn AND oid = {database}");
        let rows = self.main.query(&sql).map_err(|error| refused(&error))?;
        let Some(row) = rows.first() else {
            return Err(Unsettled::Refused("its database takes no connections".to_owned()));
        };
        let name = row.text("datname").map_err(|error| refused(&error))?;
        Session::open(&self.dsn.with_database(name))
    }
}

impl Session {
    fn open(dsn: &Dsn) -> Result<Self, Unsettled> {
        let mut connection = dsn.connect().map_err(|error| refused(&error))?;
        let opened = connection.execute(QUIETLY).and_then(|()| {
            // Only some may say so, and only where somebody has said otherwise it matters.
            let _ = connection.execute("SET zero_damaged_pages = off");
            let _ = connection.execute("SET ignore_checksum_failure = off");
            connection.query_one(HONEST)?.text("honest").map(|text| text == "t")
        });
        if !opened.map_err(|error| refused(&error))? {
            let settings = "zero_damaged_pages or ignore_checksum_failure is on";
            return Err(Unsettled::Refused(settings.to_owned()));
        }
        let rows = connection.query(EXTENSIONS).map_err(|error| refused(&error))?;
        let schema = |name: &str| {
            let row = rows.iter().find(|row| row.text("extname").is_ok_and(|text| text == name));
            row.and_then(|row| row.text("schema").ok().map(str::to_owned))
        };
        let can_evict = rows.iter().any(|row| row.text("evicts").is_ok_and(|text| text == "t"));
        let pageinspect = schema("pageinspect");
        let prewarm = schema("pg_prewarm");
        let buffercache = schema("pg_buffercache");
        Ok(Self { connection, pageinspect, prewarm, buffercache, can_evict })
    }

    /// SQL that has the server read the block, and no other where it can be helped.
    fn reading(&self, item: &Known, fork: RelationFork, block: u32) -> Option<String> {
        let Known { oid, kind, name, literal } = item;
        let fork_name = fork.number.name()?;
        if let Some(schema) = &self.pageinspect {
            let page = format!("{schema}.get_raw_page({literal}, '{fork_name}', {block})");
            return Some(format!("SELECT length({page})"));
        }
        if let Some(schema) = &self.prewarm {
            let range = format!("'{fork_name}', {block}, {block}");
            return Some(format!("SELECT {schema}.pg_prewarm({oid}::regclass, 'buffer', {range})"));
        }
        match (fork.number, kind) {
            (ForkNumber::MAIN, b'r' | b'm' | b't') => {
                Some(format!("SELECT 1 FROM ONLY {name} WHERE ctid = '({block},1)'"))
            }
            (ForkNumber::MAIN, b'S') => Some(format!("SELECT last_value FROM {name}")),
            _ => None,
        }
    }

    /// `None`: the extension is not there.
    fn has_in_memory(&mut self, fork: RelationFork, block: u32) -> Option<Result<bool, Unsettled>> {
        let schema = self.buffercache.as_ref()?;
        let whose = buffer_of(fork, block);
        let sql = format!("SELECT 1 FROM {schema}.pg_buffercache b WHERE {whose}");
        let rows = self.connection.query(&sql);
        Some(rows.map(|rows| !rows.is_empty()).map_err(|error| refused(&error)))
    }

    /// Makes the server forget the block, writing it if need be; true: it does not have it now.
    fn forget(&mut self, fork: RelationFork, block: u32) -> bool {
        let Some(schema) = &self.buffercache else { return false };
        let whose = buffer_of(fork, block);
        let sql = if self.can_evict {
            format!(
                "SELECT e.* FROM {schema}.pg_buffercache b, \
                 LATERAL {schema}.pg_buffercache_evict(b.bufferid) e WHERE {whose}"
            )
        } else {
            format!("SELECT false FROM {schema}.pg_buffercache b WHERE {whose}")
        };
        let is_evicted =
            |row: &Row| row.values().first().is_some_and(|row| row.as_deref() == Some("t"));
        self.connection.query(&sql).is_ok_and(|rows| rows.iter().all(is_evicted))
    }
}

/// Returns the row of `pg_buffercache` for a block.
fn buffer_of(fork: RelationFork, block: u32) -> String {
    let relation = fork.relation;
    format!(
        "b.relfilenode = {} AND b.reltablespace = {} AND b.reldatabase = {} \
         AND b.relforknumber = {} AND b.relblocknumber = {block}",
        relation.rel_number, relation.tablespace, relation.database, fork.number.0
    )
}

/// Returns the server's present name for it.
fn known(connection: &mut Connection, fork: RelationFork) -> Result<Known, Unsettled> {
    let relation = fork.relation;
    let sql = format!(
        "SELECT c.oid, c.relkind, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name, \
         quote_literal(quote_ident(n.nspname) || '.' || quote_ident(c.relname)) AS literal \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = pg_filenode_relation({}, {})",
        relation.tablespace, relation.rel_number
    );
    let rows = connection.query(&sql).map_err(|error| refused(&error))?;
    let row = rows.first().ok_or(Unsettled::Unnamed)?;
    let read = || -> Result<Known, Error> {
        Ok(Known {
            oid: row.parse("oid")?,
            kind: row.text("relkind")?.bytes().next().unwrap_or_default(),
            name: row.text("name")?.to_owned(),
            literal: row.text("literal")?.to_owned(),
        })
    };
    read().map_err(|error| refused(&error))
}

/// Returns whether the error is about this very block: the catalogs that are read on the way to it may be damaged too. The words
/// are in the server's language, the numbers are not.
fn is_refusal(error: &Error, fork: RelationFork, block: u32) -> bool {
    let Error::Server(output) = error else { return false };
    let numbers = output.message.split(|c: char| !c.is_ascii_digit());
    let numbers: HashSet<&str> = numbers.collect();
    output.sqlstate == DATA_CORRUPTED
        && numbers.contains(&*block.to_string())
        && numbers.contains(&*fork.relation.rel_number.to_string())
}

fn refused(error: &Error) -> Unsettled {
    Unsettled::Refused(error.to_string())
}

/// Names that others have given to what PostgreSQL calls so are not used; nobody waits long.
const QUIETLY: &str = "\
    SET search_path = pg_catalog; SET statement_timeout = '60s'; SET lock_timeout = '2s';
    SET enable_seqscan = off; SET enable_tidscan = on; SET max_parallel_workers_per_gather = 0";
const OWN_DATABASE: &str = "SELECT oid FROM pg_database WHERE datname = current_database()";
const HONEST: &str = "\
    SELECT current_setting('zero_damaged_pages') = 'off'
        AND current_setting('ignore_checksum_failure') = 'off' AS honest";
const EXTENSIONS: &str = "\
    SELECT e.extname, quote_ident(n.nspname) AS schema,
        to_regprocedure(quote_ident(n.nspname) || '.pg_buffercache_evict(integer)') IS NOT NULL
            AS evicts
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname IN ('pageinspect', 'pg_prewarm', 'pg_buffercache')";
const MOMENT: &str = "\
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
            ELSE pg_current_wal_insert_lsn() END AS wal_end,
        current_setting('full_page_writes') AS full_page_writes,
        CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn()) END
            AS segment";
const POSITIONS: &str =
    "SELECT pg_current_wal_insert_lsn() AS inserted, pg_current_wal_flush_lsn() AS flushed";
const DATA_CORRUPTED: &str = "XX001";
