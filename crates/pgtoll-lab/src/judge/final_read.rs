//! The ids present at the end: read in one snapshot, on a server that is a primary.

use std::time::{Duration, Instant};

use pgtoll_record::NodeIdentity;
use pgtoll_wire::{Connection, Dsn, Error, Row};

use super::node::identity;
use super::schema::{node_expression, schema_name};
use super::verdict::PresentId;

/// Why the ids could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FinalReadError {
    #[error(transparent)]
    Wire(#[from] Error),
    /// A standby may lack what the primary has.
    #[error("the server that answers is a standby, which may lack what the primary has")]
    Standby,
    /// An old primary lacks what its successor has.
    #[error("{}", two_primaries(*timeline, *latest))]
    OldPrimary { timeline: u32, latest: u32 },
    /// The role, or the pooler, or a row of a stranger's.
    #[error("a row is not of the judge's table")]
    Row,
}

/// Somebody has to end one of them.
pub(crate) fn two_primaries(timeline: u32, latest: u32) -> String {
    format!(
        "the server that answers in the end writes timeline {timeline}, though a primary of timeline \
         {latest} has answered: there are two primaries, or the later one is gone"
    )
}

/// Longer than reading takes where it makes headway.
const READ_LIMIT: Duration = Duration::from_secs(600);

/// A session with the primary, within the snapshot that the ids are read in.
pub(crate) struct FinalSnapshot {
    connection: Connection,
    run: u64,
    /// The server.
    pub(crate) node: NodeIdentity,
}

impl FinalSnapshot {
    pub(crate) fn open(dsn: &Dsn, run: u64, limit: Duration) -> Result<Self, FinalReadError> {
        let mut connection = dsn.connect()?;
        connection.wait_until(Instant::now().checked_add(limit));
        let expression = node_expression_of_primary(&mut connection)?;
        // Rows are counted from the table itself, whatever the index says.
        connection.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
             SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; \
             SET LOCAL enable_bitmapscan = off",
        )?;
        let row = connection.query_one(&format!(
            "SELECT pg_catalog.pg_is_in_recovery() AS standby, {expression} AS node"
        ))?;
        if row.text("standby")? == "t" {
            return Err(FinalReadError::Standby);
        }
        let node = identity(row.text("node")?);
        connection.wait_until(Instant::now().checked_add(READ_LIMIT));
        Ok(Self { connection, run, node })
    }

    /// Hands on all ids, by client and transaction. Returns whether the table is there at all.
    pub(crate) fn each_id<E>(
        mut self,
        mut on_id: impl FnMut(PresentId) -> Result<(), E>,
    ) -> Result<Result<bool, E>, FinalReadError> {
        let sql = format!(
            "SELECT client, sequence, payload FROM {}.transactions ORDER BY client, sequence",
            schema_name(self.run)
        );
        let mut failed = None;
        let mut is_foreign = false;
        let read = self.connection.query_each(&sql, |row, _| {
            match present_id(&row) {
                Some(id) if failed.is_none() => failed = on_id(id).err(),
                Some(_) => {}
                None => is_foreign = true,
            }
            Ok(())
        });
        match read {
            Ok(()) => {}
            // The schema is gone with the rest.
            Err(error) if matches!(error.sqlstate(), Some("42P01" | "3F000")) => {
                return Ok(Ok(false));
            }
            Err(error) => return Err(error.into()),
        }
        if is_foreign {
            return Err(FinalReadError::Row);
        }
        self.connection.execute("COMMIT")?;
        self.connection.close();
        Ok(failed.map_or(Ok(true), Err))
    }
}

fn node_expression_of_primary(connection: &mut Connection) -> Result<&'static str, FinalReadError> {
    let row = connection.query_one("SELECT pg_catalog.pg_is_in_recovery() AS standby")?;
    if row.text("standby")? == "t" {
        return Err(FinalReadError::Standby);
    }
    Ok(node_expression(connection)?)
}

/// `None` where a value is no number. A negative number is no client's: such rows come as those of
/// a client that there is not.
fn present_id(row: &Row) -> Option<PresentId> {
    let number = |column| row.parse::<i64>(column).ok();
    let client = number("client")?;
    let sequence = number("sequence")?;
    let is_possible = client >= 0 && sequence >= 0;
    Some(PresentId {
        client: if is_possible { client.cast_unsigned() } else { u64::MAX },
        sequence: sequence.cast_unsigned(),
        payload: number("payload")?,
    })
}
