//! The names of a running server's relations, by SQL.

use std::sync::Arc;

use pgtoll_format::RelFileLocator;
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_wire::{Dsn, Error, Row};

use super::{Names, RelationName, TableName};

const DATABASES: &str = "SELECT oid, datname FROM pg_database WHERE datallowconn ORDER BY oid";

/// The query of relations: shared ones have database 0. TOAST tables and their indexes belong to the table whose long
/// values they have.
const RELATIONS: &str = "\
    SELECT c.oid, coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
        CASE WHEN c.relisshared THEN 0 ELSE d.oid END AS database,
        pg_relation_filenode(c.oid) AS files, n.nspname, c.relname, c.relkind, c.relpersistence,
        CASE c.relam WHEN 2 THEN c.relpages END AS heap_blocks, i.indisready AS is_ready,
        CASE WHEN c.relam = 403 AND indexed.relam = 2 THEN pg_relation_filenode(i.indrelid) END
            AS btree_of,
        coalesce(nullif(indexed.reltablespace, 0), d.dattablespace) AS indexed_tablespace,
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

/// The names of a server's relations.
#[derive(Clone, Debug)]
pub struct ServerNames {
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// The names of all databases that accept connections.
    pub names: Names,
    /// The errors of the others.
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
    let mut names = Names::default();
    let mut missing = Vec::new();
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
        let files = RelFileLocator {
            tablespace: row.parse("tablespace")?,
            database: row.parse("database")?,
            rel_number: row.parse("files")?,
        };
        names.add(files, relation(&row, files, database)?);
        if let Some(blocks) = row.value("heap_blocks")? {
            names.add_heap(files, blocks.parse().unwrap_or_default());
        }
        add_index(names, &row, files)
    })?;
    connection.close();
    Ok(())
}

/// A relation that is an index: one that is not ready, or a B-tree of a table of PostgreSQL's own kind.
fn add_index(names: &mut Names, row: &Row, files: RelFileLocator) -> Result<(), Error> {
    match (row.value("is_ready")?, row.value("btree_of")?) {
        (Some("f"), _) => names.add_unready(files),
        (Some(_), Some(_)) => {
            let tablespace = row.parse("indexed_tablespace")?;
            let table = RelFileLocator { tablespace, rel_number: row.parse("btree_of")?, ..files };
            names.add_btree(files, table);
        }
        _ => {}
    }
    Ok(())
}

/// About two million relations.
const NAMES_BYTES_MAX: usize = 1 << 30;

fn relation(row: &Row, files: RelFileLocator, database: &Arc<str>) -> Result<RelationName, Error> {
    let letter = |column| Ok::<u8, Error>(row.text(column)?.bytes().next().unwrap_or_default());
    let item = row.value("of")?.map(|relation| {
        let schema = row.value("of_schema").ok().flatten().map(Into::into);
        TableName { schema, relation: relation.to_owned() }
    });
    Ok(RelationName {
        oid: row.parse("oid")?,
        database: (files.database != 0).then(|| database.clone()),
        schema: Some(row.text("nspname")?.into()),
        relation: row.text("relname")?.to_owned(),
        kind: RelationKind::from_letter(letter("relkind")?),
        persistence: Persistence::from_letter(letter("relpersistence")?),
        of: item,
    })
}
