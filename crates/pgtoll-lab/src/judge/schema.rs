//! The schema that the judge writes to: its own, known by a comment with the run's id.

use pgtoll_wire::{Connection, Error};

use super::error::JudgeError;
use super::node::{NODE_EXPRESSION, NODE_EXPRESSION_WITHOUT_TIMELINE};

const PREFIX: &str = "pgtoll_judge_";

/// A schema that an earlier run left, or that one uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverSchema {
    /// Its name.
    pub name: String,
    /// Its comment, which says since when.
    pub comment: String,
}

impl LeftoverSchema {
    /// The statement that removes it.
    pub fn removal(&self) -> String {
        format!("DROP SCHEMA {} CASCADE", self.name)
    }
}

/// The name of a run's schema.
pub(crate) fn schema_name(run: u64) -> String {
    format!("{PREFIX}{run:016x}")
}

fn comment_mark(run: u64) -> String {
    format!("pgtoll lab judge, run {run:016x}")
}

/// Refuses servers that nothing can be written to.
pub(crate) fn check_writable(connection: &mut Connection) -> Result<(), JudgeError> {
    let row = connection.query_one(
        "SELECT pg_catalog.pg_is_in_recovery() AS standby, \
         pg_catalog.current_setting('transaction_read_only') AS read_only",
    )?;
    if row.text("standby")? == "t" {
        return Err(JudgeError::Standby);
    }
    if row.text("read_only")? == "on" {
        return Err(JudgeError::ReadOnly);
    }
    Ok(())
}

/// The expression that this server can evaluate: some that speak PostgreSQL's protocol write no
/// WAL files.
pub(crate) fn node_expression(connection: &mut Connection) -> Result<&'static str, Error> {
    match connection.query(&format!("SELECT {NODE_EXPRESSION}")) {
        Ok(_) => Ok(NODE_EXPRESSION),
        Err(Error::Server(_)) => Ok(NODE_EXPRESSION_WITHOUT_TIMELINE),
        Err(error) => Err(error),
    }
}

/// Makes the schema with the table of transactions, all or nothing. The index is for readers; it is
/// not unique, so that rows that came twice are there twice.
pub(crate) fn create(connection: &mut Connection, run: u64, began: &str) -> Result<(), JudgeError> {
    let name = schema_name(run);
    let node = node_expression(connection)?;
    let sql = format!(
        "BEGIN; \
         CREATE SCHEMA {name}; \
         COMMENT ON SCHEMA {name} IS '{}, begun {began}; no run, no use: DROP SCHEMA {name} CASCADE'; \
         CREATE TABLE {name}.transactions (client bigint NOT NULL, sequence bigint NOT NULL, \
         payload bigint NOT NULL, node text DEFAULT {node}); \
         CREATE INDEX ON {name}.transactions (client, sequence); \
         CREATE TABLE {name}.pairs (pair bigint NOT NULL, half bigint NOT NULL); \
         CREATE INDEX ON {name}.pairs (pair); \
         COMMIT",
        comment_mark(run)
    );
    connection.execute(&sql).map_err(|source| JudgeError::Schema { name, source: Box::new(source) })
}

/// Schemas of the judge's that are there.
pub(crate) fn leftovers(connection: &mut Connection) -> Result<Vec<LeftoverSchema>, Error> {
    let rows = connection.query(
        "SELECT nspname, pg_catalog.obj_description(oid, 'pg_namespace') AS comment \
         FROM pg_catalog.pg_namespace WHERE nspname LIKE 'pgtoll\\_judge\\_%' ORDER BY nspname",
    )?;
    let mut found = Vec::new();
    for row in rows {
        let name = row.text("nspname")?;
        let comment = row.value("comment")?.unwrap_or_default();
        if is_ours(name, comment) {
            found.push(LeftoverSchema { name: name.to_owned(), comment: comment.to_owned() });
        }
    }
    Ok(found)
}

/// Only a schema whose comment has the id that its name has was made by a run.
fn is_ours(name: &str, comment: &str) -> bool {
    let run = name.strip_prefix(PREFIX).and_then(|id| u64::from_str_radix(id, 16).ok());
    run.is_some_and(|run| schema_name(run) == name && comment.starts_with(&comment_mark(run)))
}

/// Removes the run's schema. Returns whether it was there.
pub(crate) fn remove(connection: &mut Connection, run: u64) -> Result<bool, Error> {
    let name = schema_name(run);
    if !leftovers(connection)?.iter().any(|leftover| leftover.name == name) {
        return Ok(false);
    }
    connection.execute("SET lock_timeout = '10s'")?;
    connection.execute(&format!("DROP SCHEMA {name} CASCADE"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_with_the_runs_own_comment_are_ours() {
        let name = schema_name(0xabc);
        let comment = comment_mark(0xabc);
        assert_eq!(name, "pgtoll_judge_0000000000000abc");
        assert!(is_ours(&name, &format!("{comment}, begun today")));
        assert!(!is_ours(&name, ""));
        assert!(!is_ours(&name, &comment_mark(0xabd)));
        assert!(!is_ours("pgtoll_judge_abc", &comment));
        assert!(!is_ours("public", &comment));
    }
}
