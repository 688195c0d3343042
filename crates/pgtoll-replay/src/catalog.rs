//! Facts of a target's catalog about tables, beyond a statement's text.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_wire::{Connection, Error};

/// Tables that a write to one of them reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableFacts {
    /// Tables with triggers, rules, or that are views: a write to them may do anything.
    pub(crate) unknown: BTreeSet<String>,
    /// Tables by the one that stands for all with which foreign keys or inheritance connect them.
    group: BTreeMap<String, String>,
}

impl TableFacts {
    /// Reads the catalog of the connection's database.
    pub(crate) fn read(&mut self, connection: &mut Connection) -> Result<(), Error> {
        for row in connection.query(UNKNOWN)? {
            self.unknown.insert(row.text("name")?.to_owned());
        }
        for row in connection.query(CONNECTED)? {
            self.connect(row.text("one")?, row.text("other")?);
        }
        Ok(())
    }

    /// The table that stands for this one and all that are connected with it, if there are others.
    pub(crate) fn group_of(&self, table: &str) -> Option<&str> {
        self.group.get(table).map(String::as_str)
    }

    fn connect(&mut self, one: &str, other: &str) {
        let group = |other_one: &Self, name: &str| {
            other_one.group.get(name).map_or(name, String::as_str).to_owned()
        };
        let into = group(self, one);
        let from = group(self, other);
        for name in self.group.values_mut().filter(|name| **name == from) {
            name.clone_from(&into);
        }
        for name in [one, other] {
            self.group.insert(name.to_owned(), into.clone());
        }
    }
}

/// Internal triggers are those of foreign keys.
const UNKNOWN: &str = "\
    SELECT c.relname AS name FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%' \
    AND (c.relkind IN ('v', 'f') OR c.relhasrules OR EXISTS (SELECT FROM pg_catalog.pg_trigger t \
    WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))";

const CONNECTED: &str = "\
    SELECT a.relname AS one, b.relname AS other FROM pg_catalog.pg_constraint k \
    JOIN pg_catalog.pg_class a ON a.oid = k.conrelid JOIN pg_catalog.pg_class b ON b.oid = k.confrelid \
    WHERE k.contype = 'f' \
    UNION SELECT a.relname, b.relname FROM pg_catalog.pg_inherits i \
    JOIN pg_catalog.pg_class a ON a.oid = i.inhrelid JOIN pg_catalog.pg_class b ON b.oid = i.inhparent \
    WHERE a.relkind IN ('r', 'p')";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connected_tables_have_one_that_stands_for_them() {
        let mut facts = TableFacts::default();
        facts.connect("a", "b");
        facts.connect("c", "d");
        assert_ne!(facts.group_of("a"), facts.group_of("c"));
        facts.connect("b", "d");
        for name in ["b", "c", "d"] {
            assert_eq!(facts.group_of("a"), facts.group_of(name));
        }
        assert_eq!(facts.group_of("e"), None);
    }
}
