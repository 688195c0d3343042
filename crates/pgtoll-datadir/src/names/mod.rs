//! Names of relations: who a file, or a block in WAL, belongs to.

mod read;
mod server;
mod transactions;

pub(crate) use read::major;
pub use read::{Database, databases, first_superuser, has_version};
pub use server::{ServerNames, names_of_server};

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ControlFile, RelFileLocator};

use crate::DatadirError;

/// The names of a cluster's relations, by their files.
#[derive(Clone, Debug, Default)]
pub struct Names {
    relations: HashMap<RelFileLocator, RelationName>,
    databases: HashMap<u32, Arc<str>>,
    tablespaces: HashMap<u32, Arc<str>>,
    btrees: HashMap<RelFileLocator, RelFileLocator>,
    unready: HashSet<RelFileLocator>,
    /// `pg_class.relpages` of tables of PostgreSQL's own kind.
    heap_blocks: HashMap<RelFileLocator, u32>,
    unread: Unread,
}

/// The name and the kind of a relation. Names are as their owners chose them: they can have
/// any characters in them but NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationName {
    /// Its number in its database's `pg_class`.
    pub oid: u32,
    /// Its database; `None` where all have it in common, or where the name could not be read.
    pub database: Option<Arc<str>>,
    /// Its schema; `None` where the name could not be read.
    pub schema: Option<Arc<str>>,
    /// Its own name.
    pub relation: String,
    /// Its kind.
    pub kind: RelationKind,
    /// Whether it is logged.
    pub persistence: Persistence,
    /// The table that it serves: of an index its table; of a TOAST table, and of its index, the
    /// table whose long values it has.
    pub of: Option<TableName>,
}

/// The name of a table, in the database in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Its schema; `None` where the name could not be read.
    pub schema: Option<Arc<str>>,
    /// Its own name.
    pub relation: String,
}

/// The catalogs that could not be read: their names are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Pages of catalogs that are damaged, cut off, or that the system could not read.
    pub pages: u64,
    /// Catalogs whose first file is not there.
    pub catalogs: u64,
    /// Files `pg_filenode.map` that are missing or damaged.
    pub maps: u64,
    /// Databases whose directory is not there.
    pub databases: u64,
}

/// The control file of a data directory.
pub fn control_file(data: &Path) -> Result<ControlFile, DatadirError> {
    read::control_file(&data.join("global/pg_control"))
}

impl Names {
    /// The names that a caller has from elsewhere, from a running server say.
    pub fn new(relations: impl IntoIterator<Item = (RelFileLocator, RelationName)>) -> Self {
        Self { relations: relations.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn add_database(&mut self, oid: u32, name: Arc<str>) {
        self.databases.insert(oid, name);
    }

    pub(crate) fn add(&mut self, files: RelFileLocator, name: RelationName) {
        self.relations.insert(files, name);
    }

    pub(crate) fn add_heap(&mut self, files: RelFileLocator, blocks: u32) {
        self.heap_blocks.insert(files, blocks);
    }

    pub(crate) fn add_btree(&mut self, index: RelFileLocator, table: RelFileLocator) {
        self.btrees.insert(index, table);
    }

    pub(crate) fn add_unready(&mut self, index: RelFileLocator) {
        self.unready.insert(index);
    }

    /// Takes other names too, which are newer.
    pub fn extend(&mut self, newer: Self) {
        self.btrees.extend(newer.btrees);
        self.unready.extend(newer.unready);
        self.relations.extend(newer.relations);
        self.databases.extend(newer.databases);
        self.tablespaces.extend(newer.tablespaces);
        self.heap_blocks.extend(newer.heap_blocks);
    }

    /// Reads the names from the files of a data directory, without a server: of all databases, in
    /// all tablespaces.
    ///
    /// They are the names that the files know. A running server has newer ones in memory: what was
    /// created, renamed or rewritten since its last checkpoint may be missing or be called as
    /// before. So it is after a crash, whose recovery is still to come.
    ///
    /// A damaged page, a missing file or database is no error: [`unread`](Self::unread) counts it.
    pub fn of_data_directory(data: &Path) -> Result<Self, DatadirError> {
        read::names(data)
    }

    /// The relation that these files belong to; `None`: unknown, or none.
    pub fn relation(&self, files: RelFileLocator) -> Option<&RelationName> {
        self.relations.get(&files)
    }

    /// The name of a database, where it is known.
    pub fn database(&self, oid: u32) -> Option<&str> {
        self.databases.get(&oid).map(|name| &**name)
    }

    /// The name of a tablespace, where it is known.
    pub fn tablespace(&self, oid: u32) -> Option<&str> {
        self.tablespaces.get(&oid).map(|name| &**name)
    }

    /// B-trees that are in use, each with the table whose rows it leads to, in no order. Known only
    /// of PostgreSQL's own kind of tables.
    pub fn btrees(&self) -> impl Iterator<Item = (RelFileLocator, RelFileLocator)> {
        self.btrees.iter().map(|(index, table)| (*index, *table))
    }

    /// Whether it is an index that is being made or removed, or where that failed: nothing relies on
    /// what its files hold.
    pub fn is_unready(&self, files: RelFileLocator) -> bool {
        self.unready.contains(&files)
    }

    /// How many blocks a table, materialized view or TOAST table had when `VACUUM` or `ANALYZE` counted
    /// them last; 0: never, or none. `None`: it is something else, or not of PostgreSQL's own access
    /// method.
    pub fn heap_blocks(&self, files: RelFileLocator) -> Option<u32> {
        self.heap_blocks.get(&files).copied()
    }

    /// Returns the catalogs that could not be read.
    pub fn unread(&self) -> Unread {
        self.unread
    }

    /// All relations, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (RelFileLocator, &RelationName)> {
        self.relations.iter().map(|(files, name)| (*files, name))
    }

    /// The relations that a user means by this name, with the indexes and TOAST tables of tables:
    /// `orders`, `public.orders` and `shop.public.orders` mean the same table.
    pub fn meant_by<'a>(&'a self, name: &'a str) -> impl Iterator<Item = RelFileLocator> + 'a {
        self.iter().filter(move |(_, relation)| relation.is_meant_by(name)).map(|(files, _)| files)
    }

    /// How many relations have a name.
    pub fn len(&self) -> usize {
        self.relations.len()
    }

    /// No relation has a name.
    pub fn is_empty(&self) -> bool {
        self.relations.is_empty()
    }
}

impl fmt::Display for RelationName {
    /// `shop.public.orders`: without a database where all have it in common, `?` for a schema whose
    /// name is not known. The name is as its owner chose it: who prints it escapes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{database}.")?;
        }
        write_table(f, self.schema.as_deref(), &self.relation)
    }
}

impl fmt::Display for TableName {
    /// `public.orders`, as [`RelationName`] is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, self.schema.as_deref(), &self.relation)
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, schema: Option<&str>, name: &str) -> fmt::Result {
    write!(f, "{}.{name}", schema.unwrap_or("?"))
}

impl Unread {
    /// Everything was read.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RelationName {
    /// Whether this name means it, or the table that it belongs to.
    fn is_meant_by(&self, name: &str) -> bool {
        let own = TableName { schema: self.schema.clone(), relation: self.relation.clone() };
        [Some(&own), self.of.as_ref()].into_iter().flatten().any(|table| {
            let in_schema =
                table.schema.as_ref().map(|schema| format!("{schema}.{}", table.relation));
            let in_database = self.database.as_ref().zip(in_schema.as_ref());
            let in_database = in_database.map(|(database, table)| format!("{database}.{table}"));
            table.relation == name
                || in_schema.as_deref() == Some(name)
                || in_database.as_deref() == Some(name)
        })
    }
}

impl fmt::Display for Unread {
    /// `2 catalog pages and 1 database could not be read`; nothing where everything was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.pages, "catalog page"),
            (self.catalogs, "catalog"),
            (self.maps, "file map"),
            (self.databases, "database"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, label)| format!("{count} {label}{}", if count == 1 { "" } else { "s" }))
            .collect();
        match parts.split_last() {
            None => Ok(()),
            Some((only, [])) => write!(f, "{only} could not be read"),
            Some((last, first)) => write!(f, "{} and {last} could not be read", first.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(database: Option<&str>, schema: Option<&str>, relation: &str) -> RelationName {
        RelationName {
            oid: 1,
            database: database.map(Into::into),
            schema: schema.map(Into::into),
            relation: relation.to_owned(),
            kind: RelationKind::Table,
            persistence: Persistence::Permanent,
            of: None,
        }
    }

    #[test]
    fn names_have_their_database_and_schema() {
        let check = |name: &RelationName, expected: &str| assert_eq!(name.to_string(), expected);
        check(&name(Some("shop"), Some("public"), "Größen"), "shop.public.Größen");
        check(&name(None, Some("pg_catalog"), "pg_database"), "pg_catalog.pg_database");
        check(&name(Some("shop"), None, "a\u{1b}[31m"), "shop.?.a\u{1b}[31m");
    }

    #[test]
    fn what_was_not_read_is_counted_in_words() {
        let check = |unread: Unread, expected: &str| assert_eq!(unread.to_string(), expected);
        check(Unread::default(), "");
        check(Unread { pages: 1, ..Unread::default() }, "1 catalog page could not be read");
        check(
            Unread { pages: 2, maps: 1, databases: 3, ..Unread::default() },
            "2 catalog pages, 1 file map and 3 databases could not be read",
        );
    }

    #[test]
    fn a_name_means_a_table_and_what_belongs_to_it() {
        let orders = name(Some("shop"), Some("public"), "orders");
        let table = TableName { schema: Some("public".into()), relation: "orders".into() };
        let index = RelationName { of: Some(table), ..name(Some("shop"), Some("public"), "pk") };
        for meant in ["orders", "public.orders", "shop.public.orders"] {
            assert!(orders.is_meant_by(meant) && index.is_meant_by(meant), "{meant}");
        }
        for other in ["order", "shop.orders", "private.orders", "other.public.orders", ""] {
            assert!(!orders.is_meant_by(other) && !index.is_meant_by(other), "{other}");
        }
        assert!(index.is_meant_by("pk") && !orders.is_meant_by("pk"));
        assert!(name(None, None, "orders").is_meant_by("orders"));
    }

    #[test]
    fn names_from_elsewhere_are_found() {
        let files = RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
        let names = Names::new([(files, name(Some("shop"), Some("public"), "orders"))]);
        assert_eq!(names.relation(files).unwrap().relation, "orders");
        assert_eq!(names.relation(RelFileLocator { rel_number: 16385, ..files }), None);
        assert_eq!((names.len(), names.is_empty(), names.unread()), (1, false, Unread::default()));
    }
}
