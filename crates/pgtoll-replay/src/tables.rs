//! The state of tables, to compare a replay's end with another database.

use std::collections::BTreeSet;

use pgtoll_record::ReplayTable;
use pgtoll_wire::{Connection, Dsn, Error, Row};

use crate::ReplayError;

/// A table whose state is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedTable {
    /// Its name, with its schema or without, as SQL has it.
    pub name: String,
    /// Columns that are left out: their values cannot be the same, such as `CURRENT_TIMESTAMP`'s.
    pub without: BTreeSet<String>,
}

impl ComparedTable {
    /// Several of [`Self::parse`], with commas between them.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        let mut in_columns = false;
        let parts = text.split(|c: char| {
            in_columns = c == '(' || (in_columns && c != ')');
            c == ',' && !in_columns
        });
        parts.map(Self::parse).collect()
    }

    /// `name` or `name(-column,-column)`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, columns) = match text.strip_suffix(')') {
            Some(rest) => rest.split_once('(')?,
            None => (text, ""),
        };
        let columns = columns.split(',').map(str::trim).filter(|column| !column.is_empty());
        let without: Option<BTreeSet<String>> =
            columns.map(|column| column.strip_prefix('-').map(str::to_owned)).collect();
        let without = without?;
        let is_name = !name.trim().is_empty() && !name.contains(['(', ')', ',']);
        (is_name && !without.contains("")).then(|| Self { name: name.trim().to_owned(), without })
    }

    /// As it is parsed.
    pub fn text(&self) -> String {
        let columns: Vec<String> =
            self.without.iter().map(|without| format!("-{without}")).collect();
        if columns.is_empty() {
            return self.name.clone();
        }
        format!("{}({})", self.name, columns.join(","))
    }
}

/// Rows of a table, and what they hash to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableState {
    rows: u64,
    hash: String,
}

impl TableState {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    #[cfg(test)]
    pub(crate) fn new(rows: u64, hash: String) -> Self {
        Self { rows, hash }
    }
}

/// The states of the tables in a database, in one snapshot.
///
/// The hash of a table is that of its rows in any order: each row's SHA-256 as two numbers of 64 bits, added
/// up. Rows are texts of their columns by name, so that the order of columns makes no difference.
pub(crate) fn table_states(
    dsn: &Dsn,
    tables: &[ComparedTable],
) -> Result<Vec<TableState>, ReplayError> {
    let failed =
        |action: String| move |source| ReplayError::Server { action, source: Box::new(source) };
    let database = dsn.database().to_owned();
    let mut connection =
        dsn.connect().map_err(failed(format!("connect to database \"{database}\"")))?;
    for sql in [TEXTS, SNAPSHOT] {
        let look = format!("look at database \"{database}\"");
        connection.execute(sql).map_err(failed(look))?;
    }
    let mut states = Vec::new();
    for table in tables {
        let look = format!("read table {} of database \"{database}\"", table.name);
        let columns = columns(&mut connection, table).map_err(failed(look.clone()))?;
        let missing = table.without.iter().find(|column| !columns.contains(*column));
        if let Some(column) = missing {
            return Err(ReplayError::NoColumn {
                table: table.name.clone(),
                column: column.clone(),
                database,
            });
        }
        states.push(state(&mut connection, table, &columns).map_err(failed(look))?);
    }
    connection.close();
    Ok(states)
}

/// The tables with their states, and those that they should have.
pub(crate) fn compared(
    tables: &[ComparedTable],
    states: Vec<TableState>,
    expected: Option<&[TableState]>,
) -> Vec<ReplayTable> {
    let one = |(index, (table, state)): (usize, (&ComparedTable, TableState))| {
        let expected = expected.and_then(|expected| expected.get(index)).cloned();
        ReplayTable {
            name: table.name.clone(),
            without: table.without.iter().cloned().collect(),
            rows: state.rows,
            same: expected.as_ref().map(|expected| *expected == state),
            hash: state.hash,
            expected_rows: expected.as_ref().map(|expected| expected.rows),
            expected_hash: expected.map(|expected| expected.hash),
        }
    };
    tables.iter().zip(states).enumerate().map(one).collect()
}

/// The columns by name.
fn columns(connection: &mut Connection, table: &ComparedTable) -> Result<BTreeSet<String>, Error> {
    let sql = format!(
        "SELECT attname::text AS name FROM pg_catalog.pg_attribute \
         WHERE attrelid = {}::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped",
        literal(&table.name)
    );
    let name = |row: &Row| row.text("name").map(str::to_owned);
    connection.query(&sql)?.iter().map(name).collect()
}

fn state(
    connection: &mut Connection,
    table: &ComparedTable,
    columns: &BTreeSet<String>,
) -> Result<TableState, Error> {
    let kept: Vec<String> = columns
        .iter()
        .filter(|column| !table.without.contains(*column))
        .map(|column| format!("r.\"{}\"", column.replace('"', "\"\"")))
        .collect();
    // The server's own name of the table, quoted: what was given is no SQL of ours.
    let sql = format!("SELECT {}::pg_catalog.regclass::text AS name", literal(&table.name));
    let name = connection.query_one(&sql)?.text("name")?.to_owned();
    let row = connection.query_one(&format!(
        "SELECT count(*)::text AS rows, concat_ws(' ', coalesce(sum(('x' || substr(hash, 1, 16))\
         ::bit(64)::bigint), 0), coalesce(sum(('x' || substr(hash, 17, 16))::bit(64)::bigint), 0)) \
         AS hash FROM (SELECT encode(sha256(convert_to(ROW({})::text, 'UTF8')), 'hex') AS hash \
         FROM {name} AS r) AS hashes",
        kept.join(", ")
    ))?;
    Ok(TableState { rows: row.parse("rows")?, hash: row.text("hash")?.to_owned() })
}

pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Values have the same text on every server.
const TEXTS: &str = "SET standard_conforming_strings = on; SET datestyle = 'ISO, YMD'; \
    SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET extra_float_digits = 3; \
    SET bytea_output = 'hex'; SET lc_monetary = 'C'";

const SNAPSHOT: &str = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_with_the_columns_that_are_left_out() {
        let check = |text: &str, name: &str, without: &[&str]| {
            let table = ComparedTable::parse(text).unwrap();
            let columns: Vec<&str> = table.without.iter().map(String::as_str).collect();
            assert_eq!((&*table.name, &*columns), (name, without), "{text}");
            assert_eq!(ComparedTable::parse(&table.text()), Some(table), "{text}");
        };
        check("orders", "orders", &[]);
        check("public.orders(-id, -made)", "public.orders", &["id", "made"]);
        let list = ComparedTable::parse_list("a(-b,-c),d").unwrap();
        let names: Vec<String> = list.iter().map(ComparedTable::text).collect();
        assert_eq!(names, ["a(-b,-c)", "d"]);
        for wrong in ["", "(-a)", "a(b)", "a(-)", "a(-b", "a(-b)c", "a,b"] {
            assert_eq!(ComparedTable::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tables_without_an_expected_state_are_neither_the_same_nor_different() {
        let tables = [ComparedTable::parse("t(-x)").unwrap()];
        let state = |rows| TableState { rows, hash: "1 2".to_owned() };
        assert_eq!(compared(&tables, vec![state(1)], None)[0].same, None);
        assert_eq!(compared(&tables, vec![state(1)], Some(&[state(1)]))[0].same, Some(true));
        let different = &compared(&tables, vec![state(1)], Some(&[state(2)]))[0];
        assert_eq!((different.same, different.expected_rows), (Some(false), Some(2)));
    }
}
