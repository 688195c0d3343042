//! Whether data directories of several servers hold the same rows.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_wire::Dsn;

use super::ComparisonError;
use super::server_error;
use crate::ReplayError;
use crate::tables::{ComparedTable, TableState, table_states};

/// Tables and indexes of the databases of the work.
pub(super) struct Content(BTreeMap<String, DatabaseContent>);

struct DatabaseContent {
    tables: BTreeMap<String, TableState>,
    /// As `CREATE INDEX` statements.
    indexes: BTreeSet<String>,
}

impl Content {
    /// Reads all rows of all tables of these databases.
    pub(super) fn read<'a>(
        server: &Dsn,
        databases: impl IntoIterator<Item = &'a str>,
        arm: &str,
    ) -> Result<Self, ComparisonError> {
        let databases = databases.into_iter().map(|database| {
            let found = DatabaseContent::read(&server.with_database(database), arm)?;
            Ok((database.to_owned(), found))
        });
        databases.collect::<Result<_, ComparisonError>>().map(Self)
    }

    /// The first table whose rows are others, and in what: `None` where there is none.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        self.0.iter().find_map(|(database, own)| {
            let difference = own.difference(other.0.get(database)?)?;
            Some(format!("database \"{database}\": {difference}"))
        })
    }

    /// Indexes that one has and the other has not.
    pub(super) fn differing_indexes(&self, other: &Self) -> Vec<String> {
        let both = self.0.iter().filter_map(|(name, own)| Some((own, other.0.get(name)?)));
        both.flat_map(|(own, other)| own.indexes.symmetric_difference(&other.indexes).cloned())
            .collect()
    }
}

impl DatabaseContent {
    fn read(dsn: &Dsn, arm: &str) -> Result<Self, ComparisonError> {
        let action = format!("list the tables of database \"{}\"", dsn.database());
        let failed = || server_error(&action, arm);
        let mut connection = dsn.connect().map_err(failed())?;
        let mut names = |sql: &str| -> Result<Vec<String>, pgtoll_wire::Error> {
            connection.query(sql)?.iter().map(|row| row.text("name").map(str::to_owned)).collect()
        };
        let tables = names(TABLES).map_err(failed())?;
        let indexes = names(INDEXES).map_err(failed())?;
        connection.close();
        let table = |name: &String| ComparedTable { name: name.clone(), without: BTreeSet::new() };
        let compared: Vec<ComparedTable> = tables.iter().map(table).collect();
        let states = table_states(dsn, &compared);
        let states = states.map_err(|source: ReplayError| ComparisonError::Replay {
            arm: arm.to_owned(),
            source,
        })?;
        let indexes = indexes.into_iter().collect();
        Ok(Self { tables: tables.into_iter().zip(states).collect(), indexes })
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let missing = self.tables.keys().find(|name| !other.tables.contains_key(*name));
        if let Some(name) = missing {
            return Some(format!("no table {name}"));
        }
        if let Some(name) = other.tables.keys().find(|name| !self.tables.contains_key(*name)) {
            return Some(format!("table {name} is not in the baseline's"));
        }
        let mut both = self.tables.iter().filter_map(|(name, own)| {
            let other = other.tables.get(name)?;
            (own != other).then_some((name, own, other))
        });
        let (name, own, other) = both.next()?;
        Some(if own.rows() == other.rows() {
            format!("table {name} has other values in its {} rows", own.rows())
        } else {
            format!("table {name} has {} rows instead of {}", other.rows(), own.rows())
        })
    }
}

const TABLES: &str = "SELECT pg_catalog.quote_ident(n.nspname) || '.' \
    || pg_catalog.quote_ident(c.relname) AS name FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' \
    AND c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
    AND n.nspname NOT LIKE 'pg\\_toast%'";

const INDEXES: &str = "SELECT pg_catalog.pg_get_indexdef(i.indexrelid) AS name \
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%'";

#[cfg(test)]
mod tests {
    use super::*;

    fn content(tables: &[(&str, u64, &str)], indexes: &[&str]) -> Content {
        let tables = tables.iter().map(|(name, rows, hash)| {
            ((*name).to_owned(), TableState::new(*rows, (*hash).to_owned()))
        });
        let indexes = indexes.iter().map(|index| (*index).to_owned()).collect();
        Content([("shop".to_owned(), DatabaseContent { tables: tables.collect(), indexes })].into())
    }

    #[test]
    fn a_table_with_other_rows_is_named() {
        let own = content(&[("public.a", 3, "1 2"), ("public.b", 4, "5 6")], &["i"]);
        let check = |tables: &[(&str, u64, &str)], expected: Option<&str>| {
            let found = own.difference(&content(tables, &[]));
            assert_eq!(found.as_deref(), expected);
        };
        check(&[("public.a", 3, "1 2"), ("public.b", 4, "5 6")], None);
        check(&[("public.a", 3, "1 2")], Some("database \"shop\": no table public.b"));
        check(
            &[("public.a", 3, "1 2"), ("public.b", 5, "5 7")],
            Some("database \"shop\": table public.b has 5 rows instead of 4"),
        );
        check(
            &[("public.a", 3, "1 3"), ("public.b", 4, "5 6")],
            Some("database \"shop\": table public.a has other values in its 3 rows"),
        );
        check(
            &[("public.a", 3, "1 2"), ("public.b", 4, "5 6"), ("public.c", 0, "0 0")],
            Some("database \"shop\": table public.c is not in the baseline's"),
        );
        assert_eq!(own.differing_indexes(&content(&[], &["i", "j"])), ["j"]);
    }
}
