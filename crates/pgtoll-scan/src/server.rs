//! What a running server tells: its WAL as it sends it, and the names of its relations.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgtoll_format::Lsn;
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::wal::{RelationFiles, WalError};
use pgtoll_wire::{Connection, Dsn, Error, Row, StreamEnd, WalMessage};

use crate::collect::Collect;
use crate::end::End;
use crate::names::{Names, RelationName, TableName};
use crate::scan::{Contents, WalSummary};
use crate::stream::WalStream;

/// WAL could not be had from a server, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server, or the way to it.
    #[error(transparent)]
    Wire(#[from] Error),
    /// The server does not send its WAL.
    #[error(transparent)]
    Replication(Error),
    /// What it sent is no WAL that is known.
    #[error("the server sent {0}")]
    Wal(#[from] WalError),
}

impl ServerError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Wire(error) => error.hint(),
            Self::Replication(error) => match error.sqlstate() {
                // No such role, no line in pg_hba.conf, not the role for it, or no place.
                Some("28000" | "42501" | "53300") => Some(
                    "it takes a role with REPLICATION, a line for database replication in \
                     pg_hba.conf, and a free place among max_wal_senders",
                ),
                _ => error.hint(),
            },
            Self::Wal(WalError::UnknownMagic { .. }) => {
                Some("pgtoll reads the WAL of released PostgreSQL 13 to 18 and of 19rc1")
            }
            Self::Wal(_) => None,
        }
    }
}

/// How often `watch` is asked while nothing comes.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a server's WAL consists of; see [`stream_with`].
pub fn stream(
    dsn: &Dsn,
    time: Option<Duration>,
    watch: &mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>,
) -> Result<(WalSummary<Contents>, End), ServerError> {
    let (summary, end) = stream_with(dsn, time, <_>::default, watch)?;
    Ok((contents(summary), end))
}

/// Reads a server's WAL, from the segment in which its last checkpoint began, into collectors that
/// `new` makes.
///
/// It is streamed as to a standby, without a slot and without any confirmation, so that no commit
/// waits for it and nothing is kept for it. Read is what was there when it began or, with `time`,
/// what comes within that time. `watch` is told where reading is, and where it shall end.
pub fn stream_with<C: Collect>(
    dsn: &Dsn,
    time: Option<Duration>,
    new: impl Fn() -> C + 'static,
    watch: &mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), ServerError> {
    let redo = redo_point(&mut dsn.connect()?)?;
    let refused = ServerError::Replication;
    let mut connection = dsn.connect_replication().map_err(refused)?;
    let segment_bytes = connection.wal_segment_size().map_err(refused)?.max(1);
    let server = connection.identify_system().map_err(refused)?;
    let begin = redo.0.min(server.position) / segment_bytes * segment_bytes;
    let until = time.is_none().then_some(Lsn(server.position));
    let mut streaming = connection.start(begin, server.timeline).map_err(refused)?;
    let mut wal = WalStream::new(new, until);
    let limit = time.and_then(|time| Instant::now().checked_add(time));
    let end = loop {
        let at = Lsn(streaming.position());
        let is_over = limit.is_some_and(|limit| Instant::now() >= limit);
        if is_over || until.is_some_and(|until| at >= until) {
            break End::Asked(at);
        }
        if watch(at, until).is_break() {
            break End::Interrupted;
        }
        match streaming.receive(Some(PATIENCE)).map_err(refused)? {
            Some(WalMessage::Data(data)) => wal.feed(data.bytes)?,
            Some(WalMessage::End(StreamEnd::Shutdown)) => break End::ServerStopped(at),
            Some(WalMessage::End(StreamEnd::Timeline { .. })) => break End::TimelineEnd(at),
            Some(WalMessage::Keepalive(_)) | None => {}
        }
    };
    streaming.close();
    Ok((wal.finish(), end))
}

/// Where the server's last checkpoint began.
fn redo_point(connection: &mut Connection) -> Result<Lsn, Error> {
    let row = connection.query_one("SELECT redo_lsn FROM pg_control_checkpoint()")?;
    row.parse("redo_lsn")
}

fn contents(summary: WalSummary<(crate::WalStatistics, crate::Course)>) -> WalSummary<Contents> {
    summary.map(|(statistics, course)| {
        // What was streamed is gone.
        let (cycles, pieces, cycles_are_exact) = course.finish(|_, _| None);
        Contents { statistics, cycles, cycles_are_exact, pieces }
    })
}

const DATABASES: &str = "SELECT oid, datname FROM pg_database WHERE datallowconn ORDER BY oid";

/// What is shared has database 0. TOAST tables and their indexes belong to the table whose long
/// values they have.
const RELATIONS: &str = "\
    SELECT c.oid, coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
        CASE WHEN c.relisshared THEN 0 ELSE d.oid END AS database,
        pg_relation_filenode(c.oid) AS files, n.nspname, c.relname, c.relkind, c.relpersistence,
        parents.nspname AS of_schema, coalesce(owner.relname, indexed.relname) AS of
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_database d ON d.datname = current_database()
    LEFT JOIN pg_index i ON i.indexrelid = c.oid
    LEFT JOIN pg_class indexed ON indexed.oid = i.indrelid
    LEFT JOIN pg_class owner
        ON owner.reltoastrelid = coalesce(i.indrelid, c.oid) AND owner.reltoastrelid <> 0
    LEFT JOIN pg_namespace parents
        ON parents.oid = coalesce(owner.relnamespace, indexed.relnamespace)
    WHERE pg_relation_filenode(c.oid) IS NOT NULL";

/// What a server calls its relations.
#[derive(Clone, Debug)]
pub struct ServerNames {
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// Of all databases that can be connected to.
    pub names: Names,
    /// What went wrong with the others.
    pub missing: Vec<String>,
}

/// The names of a server's relations.
pub fn names_of_server(dsn: &Dsn) -> Result<ServerNames, Error> {
    let mut connection = dsn.connect()?;
    let databases = connection.query(DATABASES)?;
    let cluster = connection.query_one("SELECT system_identifier FROM pg_control_system()")?;
    // SQL has no number as large as an identifier may be: it prints it with a sign.
    let system_identifier = cluster.parse::<i64>("system_identifier")?.cast_unsigned();
    connection.close();
    let (mut names, mut missing) = (Names::default(), Vec::new());
    let mut bytes_left = NAMES_BYTES_MAX;
    for row in &databases {
        let name: Arc<str> = row.text("datname")?.into();
        names.add_database(row.parse("oid")?, name.clone());
        let in_database = dsn.with_database(&name);
        match add_relations(&mut names, &in_database, &name, &mut bytes_left) {
            Ok(()) => {}
            Err(error @ (Error::Interrupted | Error::TooMuch { .. })) => return Err(error),
            Err(error) => missing.push(format!("names of database {name} are missing: {error}")),
        }
    }
    Ok(ServerNames { system_identifier, names, missing })
}

fn add_relations(
    names: &mut Names,
    dsn: &Dsn,
    database: &Arc<str>,
    bytes_left: &mut usize,
) -> Result<(), Error> {
    let mut connection = dsn.connect()?;
    connection.query_each(RELATIONS, |row, bytes| {
        let Some(left) = bytes_left.checked_sub(bytes) else {
            return Err(Error::TooMuch { limit: "1 GB of names" });
        };
        *bytes_left = left;
        let files = RelationFiles {
            tablespace: row.parse("tablespace")?,
            database: row.parse("database")?,
            number: row.parse("files")?,
        };
        names.add(files, relation(&row, files, database)?);
        Ok(())
    })?;
    connection.close();
    Ok(())
}

/// About two million relations.
const NAMES_BYTES_MAX: usize = 1 << 30;

fn relation(row: &Row, files: RelationFiles, database: &Arc<str>) -> Result<RelationName, Error> {
    let letter = |column| Ok::<u8, Error>(row.text(column)?.bytes().next().unwrap_or_default());
    let of = row.value("of")?.map(|relation| {
        let schema = row.value("of_schema").ok().flatten().map(Into::into);
        TableName { schema, relation: relation.to_owned() }
    });
    Ok(RelationName {
        oid: row.parse("oid")?,
        database: (files.database != 0).then(|| database.clone()),
        schema: Some(row.text("nspname")?.into()),
        relation: row.text("relname")?.to_owned(),
        kind: RelationKind::of(letter("relkind")?),
        persistence: Persistence::of(letter("relpersistence")?),
        of,
    })
}
