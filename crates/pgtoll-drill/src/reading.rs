//! The restored server reads all: every table once, every B-tree beside its table, every row's
//! structure.

use std::time::Instant;

use pgtoll_record::{DrillCheck, DrillFinding, DrilledDatabase};
use pgtoll_wire::Row;

use crate::DrillError;
use crate::session::{Failure, ServerOfDrill, Session};

/// The databases that were read, and their errors.
#[derive(Debug, Default)]
pub(crate) struct ReadDatabases {
    pub(crate) databases: Vec<DrilledDatabase>,
    pub(crate) findings: Vec<DrillFinding>,
    pub(crate) more_findings: u64,
}

/// A database as `pg_database` has it.
struct ListedDatabase {
    name: String,
    encoding: String,
    /// Why nobody connects to it.
    closed: Option<&'static str>,
}

/// A relation of a database.
struct ListedRelation {
    oid: String,
    /// Quoted, with its schema.
    name: String,
    /// Its columns, quoted, for those that are read.
    columns: String,
}

impl ReadDatabases {
    /// Reads all databases that take connections. `progress` is given what is read.
    pub(crate) fn read_all(
        server: ServerOfDrill<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, DrillError> {
        let mut read = Self::default();
        let databases = match databases(server)? {
            Ok(databases) => databases,
            Err(failure) => {
                read.add(None, None, DrillCheck::Connect, failure);
                return Ok(read);
            }
        };
        let mut is_first = true;
        for database in databases {
            progress(&database.name);
            let done = match database.closed {
                Some(why) => skipped(&database.name, why),
                None => read.database(server, &database, &mut is_first)?,
            };
            read.databases.push(done);
        }
        Ok(read)
    }

    fn database(
        &mut self,
        server: ServerOfDrill<'_>,
        database: &ListedDatabase,
        is_first: &mut bool,
    ) -> Result<DrilledDatabase, DrillError> {
        let name = &database.name;
        let mut session = match server.session(name)? {
            Ok(session) => session,
            Err(failure) => {
                let why = failure.words.clone();
                self.add(Some(name), None, DrillCheck::Connect, failure);
                return Ok(skipped(name, &why));
            }
        };
        self.roll_back_prepared(&mut session, name)?;
        let mut done = skipped(name, "");
        done.skipped = None;
        let begin = Instant::now();
        // Catalogs that all databases share are read once.
        let tables = if *is_first { TABLES.to_owned() } else { format!("{TABLES} {NOT_SHARED}") };
        *is_first = false;
        for table in self.listed(&mut session, name, &tables)? {
            let ListedRelation { name: relation, columns, .. } = &table;
            let encoding = &database.encoding;
            let sql = format!(
                "COPY (SELECT {columns} FROM ONLY {relation}) TO '/dev/null' (ENCODING '{encoding}')"
            );
            match session.ask(&sql)? {
                Ok(_) => done.tables += 1,
                Err(failure) => self.add(Some(name), Some(relation), DrillCheck::Read, failure),
            }
        }
        done.tables_seconds = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        self.check(&mut session, &mut done)?;
        done.checks_seconds = begin.elapsed().as_secs_f64();
        Ok(done)
    }

    /// They hold locks that nobody here will let go.
    fn roll_back_prepared(
        &mut self,
        session: &mut Session<'_>,
        database: &str,
    ) -> Result<(), DrillError> {
        let prepared = session.ask(
            "SELECT quote_literal(gid) AS gid FROM pg_prepared_xacts WHERE database = current_database()",
        )?;
        match prepared {
            Ok(rows) => {
                for gid in rows.iter().filter_map(|row| row.text("gid").ok()) {
                    if let Err(failure) = session.ask(&format!("ROLLBACK PREPARED {gid}"))? {
                        self.add(Some(database), None, DrillCheck::Connect, failure);
                    }
                }
            }
            Err(failure) => self.add(Some(database), None, DrillCheck::Connect, failure),
        }
        Ok(())
    }

    /// Has amcheck look at B-trees and rows, where the installation has it.
    fn check(
        &mut self,
        session: &mut Session<'_>,
        done: &mut DrilledDatabase,
    ) -> Result<(), DrillError> {
        let name = done.name.clone();
        let amcheck = match Amcheck::made(session)? {
            Ok(Some(amcheck)) => amcheck,
            Ok(None) => return Ok(()),
            Err(failure) => {
                self.add(Some(&name), None, DrillCheck::Index, failure);
                return Ok(());
            }
        };
        let schema = &amcheck.schema;
        let mut checked = 0;
        for index in self.listed(session, &name, BTREES)? {
            let sql = format!("SELECT {schema}.bt_index_check({}::oid::regclass, true)", index.oid);
            match session.ask(&sql)? {
                Ok(_) => checked += 1,
                Err(failure) => {
                    self.add(Some(&name), Some(&index.name), DrillCheck::Index, failure);
                }
            }
        }
        done.indexes = Some(checked);
        if !amcheck.checks_tables {
            return Ok(());
        }
        let mut checked = 0;
        for table in self.listed(session, &name, HEAPS)? {
            let sql = format!(
                "SELECT blkno, offnum, attnum, msg FROM {schema}.verify_heapam({}::oid::regclass) \
                 LIMIT {}",
                table.oid, FINDINGS_OF_RELATION
            );
            match session.ask(&sql)? {
                Ok(rows) => {
                    checked += 1;
                    for row in rows {
                        let failure = structure_failure(&row);
                        self.add(Some(&name), Some(&table.name), DrillCheck::Structure, failure);
                    }
                }
                Err(failure) => {
                    self.add(Some(&name), Some(&table.name), DrillCheck::Structure, failure);
                }
            }
        }
        done.structures = Some(checked);
        Ok(())
    }

    fn listed(
        &mut self,
        session: &mut Session<'_>,
        database: &str,
        sql: &str,
    ) -> Result<Vec<ListedRelation>, DrillError> {
        let rows = match session.ask(sql)? {
            Ok(rows) => rows,
            Err(failure) => {
                self.add(Some(database), None, DrillCheck::Connect, failure);
                return Ok(Vec::new());
            }
        };
        let text = |row: &Row, column| row.text(column).unwrap_or_default().to_owned();
        let listed = rows.iter().map(|row| ListedRelation {
            oid: text(row, "oid"),
            name: text(row, "name"),
            columns: text(row, "columns"),
        });
        Ok(listed.collect())
    }

    fn add(
        &mut self,
        database: Option<&str>,
        relation: Option<&str>,
        check: DrillCheck,
        failure: Failure,
    ) {
        if self.findings.len() >= FINDINGS_MAX {
            self.more_findings += 1;
            return;
        }
        let Failure { words, sqlstate, is_damage } = failure;
        self.findings.push(DrillFinding {
            database: database.map(str::to_owned),
            relation: relation.map(str::to_owned),
            check,
            is_damage,
            words: words.chars().take(WORDS_MAX).collect(),
            sqlstate,
        });
    }
}

fn skipped(name: &str, why: &str) -> DrilledDatabase {
    DrilledDatabase {
        name: name.to_owned(),
        tables: 0,
        indexes: None,
        structures: None,
        skipped: Some(why.to_owned()),
        tables_seconds: 0.0,
        checks_seconds: 0.0,
    }
}

/// One of these two is in every cluster, and takes connections in most.
fn databases(
    server: ServerOfDrill<'_>,
) -> Result<Result<Vec<ListedDatabase>, Failure>, DrillError> {
    let mut last = None;
    for name in ["postgres", "template1"] {
        let answer = match server.session(name)? {
            Ok(mut session) => session.ask(DATABASES)?,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(rows) => return Ok(Ok(rows.iter().map(listed_database).collect())),
            Err(failure) => last = last.or(Some(failure)),
        }
    }
    Ok(Err(last.unwrap_or_else(|| Failure {
        words: "no database takes connections".to_owned(),
        sqlstate: None,
        is_damage: true,
    })))
}

fn listed_database(row: &Row) -> ListedDatabase {
    let text = |column| row.text(column).unwrap_or_default().to_owned();
    let closed = match (text("allows").as_str(), text("connection_limit").as_str()) {
        (_, "-2") => Some("it is what DROP DATABASE left of it"),
        ("t", _) => None,
        _ => Some("it takes no connections"),
    };
    ListedDatabase { name: text("name"), encoding: text("encoding"), closed }
}

/// The extension in a database.
struct Amcheck {
    /// Its schema, quoted.
    schema: String,
    /// It has `verify_heapam`.
    checks_tables: bool,
}

impl Amcheck {
    /// Makes the extension in the restored database; `None`: the installation has none.
    fn made(session: &mut Session<'_>) -> Result<Result<Option<Self>, Failure>, DrillError> {
        let present = match session.ask(AMCHECK)? {
            Ok(rows) => rows,
            Err(failure) => return Ok(Err(failure)),
        };
        let value = |rows: &[Row], column: &str| -> Option<String> {
            rows.first().and_then(|row| row.value(column).ok().flatten().map(str::to_owned))
        };
        if value(&present, "available").as_deref() != Some("t") {
            return Ok(Ok(None));
        }
        let make = match value(&present, "schema") {
            // It may be of an earlier release.
            Some(_) => vec!["ALTER EXTENSION amcheck UPDATE"],
            None => {
                vec!["CREATE SCHEMA pgtoll_drill", "CREATE EXTENSION amcheck SCHEMA pgtoll_drill"]
            }
        };
        for sql in make {
            if let Err(failure) = session.ask(sql)? {
                return Ok(Err(failure));
            }
        }
        Ok(session.ask(AMCHECK)?.map(|rows| {
            let schema = value(&rows, "schema")?;
            let checks_tables = value(&rows, "checks_tables").as_deref() == Some("t");
            Some(Self { schema, checks_tables })
        }))
    }
}

fn structure_failure(row: &Row) -> Failure {
    let value = |column| row.value(column).ok().flatten().unwrap_or("?").to_owned();
    let attribute = row.value("attnum").ok().flatten();
    let attribute = attribute.map_or(String::new(), |number| format!(", column {number}"));
    let place = format!("block {}, line pointer {}{attribute}", value("blkno"), value("offnum"));
    Failure { words: format!("{place}: {}", value("msg")), sqlstate: None, is_damage: true }
}

const DATABASES: &str = "\
    SELECT datname AS name, datallowconn AS allows, datconnlimit AS connection_limit, \
    pg_encoding_to_char(encoding) AS encoding FROM pg_database ORDER BY datname";

/// Tables, materialized views and sequences with all their columns but those that are computed when
/// they are read. Long values come with them.
const TABLES: &str = "\
    SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, \
    coalesce((SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) \
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
        AND a.attgenerated <> 'v'), '') AS columns \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't' AND c.relispopulated";
const NOT_SHARED: &str = "AND NOT c.relisshared";

/// B-trees that are kept up to date.
const BTREES: &str = "\
    SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, '' AS columns \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
    JOIN pg_am m ON m.oid = c.relam JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE m.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence <> 't' \
    AND i.indisready AND i.indisvalid";

/// Tables of PostgreSQL's own access method, and those that hold their long values.
const HEAPS: &str = "\
    SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, '' AS columns \
    FROM pg_class c JOIN pg_am m ON m.oid = c.relam \
    JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE m.amname = 'heap' AND c.relkind IN ('r', 'm', 't') AND c.relpersistence <> 't'";

const AMCHECK: &str = "\
    SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'amcheck') AS available, \
    (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n \
        ON n.oid = e.extnamespace WHERE e.extname = 'amcheck') AS schema, \
    EXISTS (SELECT FROM pg_proc p JOIN pg_extension e ON e.extnamespace = p.pronamespace \
        WHERE e.extname = 'amcheck' AND p.proname = 'verify_heapam') AS checks_tables";

/// Findings that are kept; the others are counted.
const FINDINGS_MAX: usize = 1000;
/// Findings of one table's structure.
const FINDINGS_OF_RELATION: u32 = 20;
/// Characters of a message that are kept.
const WORDS_MAX: usize = 500;
