//! The catalogs of a data directory, read from their files.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pgtoll_format::catalog::{
    BTREE, CatalogFacts, ClassRow, DEFAULT_TABLESPACE, DatabaseRow, FIRST_SUPERUSER,
    GLOBAL_TABLESPACE, HEAP, IndexRow, NAME_BYTES, NamedRow, PG_AUTHID, PG_CLASS, PG_DATABASE,
    PG_INDEX, PG_NAMESPACE, PG_TABLESPACE, Persistence, RelationMap,
};
use pgtoll_format::heap::{HeapTuple, heap_tuples};
use pgtoll_format::{
    ControlError, ControlFile, MAJORS, MajorFacts, RelFileLocator, UnsupportedMajor,
};

use super::transactions::TransactionFiles;
use super::{Names, RelationName, TableName};
use crate::DatadirError;

pub(super) fn names(data: &Path) -> Result<Names, DatadirError> {
    let mut reader = Reader::open(data)?;
    let shared = reader.map(&data.join("global"));
    let mut databases = reader.shared(&shared, PG_DATABASE, DatabaseRow::read);
    let tablespaces = reader.shared(&shared, PG_TABLESPACE, |row, _| NamedRow::read(row));
    for row in tablespaces {
        reader.names.tablespaces.insert(row.oid, row.name.into());
    }
    for row in &databases {
        reader.names.databases.insert(row.oid, row.name.as_str().into());
    }
    if !reader.names.unread.is_empty() {
        databases.extend(reader.unnamed_databases());
    }
    for database in &databases {
        reader.database(database, &shared);
    }
    Ok(reader.names)
}

/// A database that `pg_database` lists, and the directory that has its catalogs.
#[derive(Clone, Debug)]
pub struct Database {
    /// Its row.
    pub row: DatabaseRow,
    /// The directory.
    pub path: PathBuf,
}

/// The databases of a data directory. A row that could not be read is missing.
pub fn databases(data: &Path) -> Result<Vec<Database>, DatadirError> {
    let mut reader = Reader::open(data)?;
    let shared = reader.map(&data.join("global"));
    let rows = reader.shared(&shared, PG_DATABASE, DatabaseRow::read);
    let path = |row: &DatabaseRow| reader.directory(row.tablespace, row.oid);
    Ok(rows.into_iter().map(|row| Database { path: path(&row), row }).collect())
}

/// The name of the superuser that `initdb` made; `None` where its row could not be read.
pub fn first_superuser(data: &Path) -> Result<Option<String>, DatadirError> {
    let mut reader = Reader::open(data)?;
    let shared = reader.map(&data.join("global"));
    let roles = reader.shared(&shared, PG_AUTHID, |row, _| NamedRow::read(row));
    let first = roles.into_iter().find(|row| row.oid == FIRST_SUPERUSER);
    Ok(first.map(|row| row.name))
}

/// Whether `PG_VERSION` names a major version: without it no server starts.
pub fn has_version(data: &Path) -> bool {
    version(data).is_some()
}

/// A data directory, and what was read of it so far.
struct Reader<'a> {
    data: &'a Path,
    control: ControlFile,
    facts: &'static MajorFacts,
    transactions: TransactionFiles,
    names: Names,
}

impl<'a> Reader<'a> {
    fn open(data: &'a Path) -> Result<Self, DatadirError> {
        let control = control_file(&data.join("global/pg_control"))?;
        let facts = major(data, &control)?;
        if control.name_bytes as usize != NAME_BYTES {
            let path = data.to_owned();
            let bytes = control.name_bytes;
            return Err(DatadirError::NameBytes { path, bytes });
        }
        let transactions = TransactionFiles::new(data, &control, &facts.control);
        Ok(Self { data, control, facts, transactions, names: Names::default() })
    }

    /// The live rows of a shared catalog.
    fn shared<T>(&mut self, map: &RelationMap, catalog: u32, read: ReadRow<T>) -> Vec<T> {
        // Without a map it is where `initdb` put it, unless it was rewritten since.
        let number = map.files(catalog).unwrap_or(catalog);
        self.rows(
            RelFileLocator { tablespace: GLOBAL_TABLESPACE, database: 0, rel_number: number },
            read,
        )
    }

    /// Reads the names of a database's relations.
    fn database(&mut self, database: &DatabaseRow, shared: &RelationMap) {
        let directory = self.directory(database.tablespace, database.oid);
        if !directory.is_dir() {
            // `DROP DATABASE` marks it before it removes the directory.
            self.names.unread.databases += u64::from(!database.is_invalid);
            return;
        }
        let own = self.map(&directory);
        let number = own.files(PG_CLASS).unwrap_or(PG_CLASS);
        let tablespace = database.tablespace;
        let oid = database.oid;
        let of_class = RelFileLocator { tablespace, database: oid, rel_number: number };
        let classes = self.rows(of_class, ClassRow::read);
        let place = |class: &ClassRow| place(class, database, &own, shared);
        let schemas = self.of_database(&classes, PG_NAMESPACE, place, |row, _| NamedRow::read(row));
        let indexes = self.of_database(&classes, PG_INDEX, place, IndexRow::read);
        let relations = Relations {
            database: self.names.databases.get(&database.oid).cloned(),
            schemas: schemas.into_iter().map(|row| (row.oid, row.name.into())).collect(),
            tables: indexes.iter().map(|row| (row.index, row.table)).collect(),
            toasted: classes.iter().map(|class| (class.toast, class)).collect(),
            by_oid: classes.iter().map(|class| (class.oid, class)).collect(),
        };
        for class in classes.iter().filter(|class| class.kind.has_files()) {
            let Some(files) = place(class) else { continue };
            // A temporary relation's files have other names, so that it may have a number that a
            // permanent one has too; that one is asked for.
            if class.persistence == Persistence::Temporary
                && self.names.relations.contains_key(&files)
            {
                continue;
            }
            self.names.relations.insert(files, relations.name(class));
            if class.access_method == HEAP {
                self.names.add_heap(files, class.blocks);
            }
        }
        let files = |oid, method: Option<u32>| {
            let class = relations.by_oid.get(&oid)?;
            let is_asked = method.is_none_or(|method| class.access_method == method)
                && class.persistence != Persistence::Temporary;
            place(class).filter(|_| is_asked)
        };
        for index in &indexes {
            if index.is_ready {
                let item = files(index.index, Some(BTREE)).zip(files(index.table, Some(HEAP)));
                self.names.btrees.extend(item);
            } else {
                self.names.unready.extend(files(index.index, None));
            }
        }
    }

    /// The live rows of a catalog that `pg_class` names.
    fn of_database<T>(
        &mut self,
        classes: &[ClassRow],
        catalog: u32,
        place: impl Fn(&ClassRow) -> Option<RelFileLocator>,
        read: ReadRow<T>,
    ) -> Vec<T> {
        let class = classes.iter().find(|class| class.oid == catalog);
        let Some(files) = class.and_then(place) else {
            self.names.unread.catalogs += 1;
            return Vec::new();
        };
        self.rows(files, read)
    }

    /// The databases that have a directory and no name: the row may be what could not be read.
    fn unnamed_databases(&self) -> Vec<DatabaseRow> {
        let links = numbers_in(&self.data.join("pg_tblspc"));
        let mut found = Vec::new();
        for tablespace in links.into_iter().chain([DEFAULT_TABLESPACE]) {
            for oid in numbers_in(&self.tablespace(tablespace)) {
                // Where a database only has relations, and not its catalogs, there is no map.
                let map = self.directory(tablespace, oid).join(MAP);
                if !self.names.databases.contains_key(&oid) && map.is_file() {
                    let name = String::new();
                    let is_invalid = false;
                    found.push(DatabaseRow { oid, name, tablespace, is_invalid });
                }
            }
        }
        found
    }

    fn tablespace(&self, oid: u32) -> PathBuf {
        match oid {
            DEFAULT_TABLESPACE => self.data.join("base"),
            GLOBAL_TABLESPACE => self.data.join("global"),
            _ => {
                let major = self.facts.major;
                let version = self.control.catalog_version;
                self.data.join(format!("pg_tblspc/{oid}/PG_{major}_{version}"))
            }
        }
    }

    /// Returns the directory of a database's files in a tablespace.
    fn directory(&self, tablespace: u32, database: u32) -> PathBuf {
        let path = self.tablespace(tablespace);
        if database == 0 { path } else { path.join(database.to_string()) }
    }

    /// The directory's map; an empty one where it cannot be read.
    fn map(&mut self, directory: &Path) -> RelationMap {
        let bytes =
            pgtoll_system::open(&directory.join(MAP)).and_then(|file| begin(&file, MAP_BYTES_MAX));
        let map = bytes.ok().and_then(|bytes| RelationMap::read(&bytes, &self.facts.catalog).ok());
        map.unwrap_or_else(|| {
            self.names.unread.maps += 1;
            RelationMap::default()
        })
    }

    /// The live rows of a catalog's files.
    fn rows<T>(&mut self, files: RelFileLocator, read: ReadRow<T>) -> Vec<T> {
        let first =
            self.directory(files.tablespace, files.database).join(files.rel_number.to_string());
        let mut rows = Vec::new();
        for number in 0_u32.. {
            let path =
                if number == 0 { first.clone() } else { first.with_extension(number.to_string()) };
            match pgtoll_system::open(&path) {
                Ok(file) => self.rows_of_file(&file, read, &mut rows),
                Err(error) if number > 0 && error.kind() == io::ErrorKind::NotFound => break,
                Err(_) => {
                    self.names.unread.catalogs += 1;
                    break;
                }
            }
        }
        rows
    }

    fn rows_of_file<T>(&mut self, file: &File, read: ReadRow<T>, rows: &mut Vec<T>) {
        let block_bytes = u64::from(self.control.block_bytes);
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let blocks = bytes.div_ceil(block_bytes).min(self.control.file_blocks.into());
        let mut page = vec![0; self.control.block_bytes as usize];
        for block in 0..blocks {
            let taken = file.read_exact_at(&mut page, block * block_bytes).is_ok();
            match heap_tuples(&page).ok().filter(|_| taken) {
                Some(tuples) => self.rows_of_page(&tuples, read, rows),
                None => self.names.unread.pages += 1,
            }
        }
    }

    fn rows_of_page<T>(&mut self, tuples: &[HeapTuple<'_>], read: ReadRow<T>, rows: &mut Vec<T>) {
        let before = rows.len();
        for tuple in tuples.iter().filter(|tuple| tuple.is_live(&mut self.transactions)) {
            let Some(row) = read(tuple, &self.facts.catalog) else {
                // A row too short for its columns: the page is not what it seems.
                rows.truncate(before);
                self.names.unread.pages += 1;
                return;
            };
            rows.push(row);
        }
    }
}

type ReadRow<T> = fn(&HeapTuple<'_>, &CatalogFacts) -> Option<T>;

/// The pieces of the names of a database's relations.
struct Relations<'a> {
    database: Option<Arc<str>>,
    schemas: HashMap<u32, Arc<str>>,
    /// An index's table.
    tables: HashMap<u32, u32>,
    /// The table whose long values a TOAST table has.
    toasted: HashMap<u32, &'a ClassRow>,
    by_oid: HashMap<u32, &'a ClassRow>,
}

impl Relations<'_> {
    fn name(&self, class: &ClassRow) -> RelationName {
        RelationName {
            oid: class.oid,
            database: if class.is_shared { None } else { self.database.clone() },
            schema: self.schemas.get(&class.schema).cloned(),
            relation: class.name.clone(),
            kind: class.kind,
            persistence: class.persistence,
            of: self.table(class.oid).map(|table| TableName {
                schema: self.schemas.get(&table.schema).cloned(),
                relation: table.name.clone(),
            }),
        }
    }

    /// The table that a relation serves.
    fn table(&self, oid: u32) -> Option<&ClassRow> {
        let table = self.tables.get(&oid).copied();
        let toasted = self.toasted.get(&table.unwrap_or(oid)).copied();
        toasted.or_else(|| self.by_oid.get(&table?).copied())
    }
}

/// The place of a relation's files; `None`: it has none, or it is not known.
fn place(
    class: &ClassRow,
    database: &DatabaseRow,
    own: &RelationMap,
    shared: &RelationMap,
) -> Option<RelFileLocator> {
    let map = if class.is_shared { shared } else { own };
    let number = if class.files == 0 { map.files(class.oid)? } else { class.files };
    let tablespace = if class.tablespace == 0 { database.tablespace } else { class.tablespace };
    let item = if class.is_shared { 0 } else { database.oid };
    Some(RelFileLocator { tablespace, database: item, rel_number: number })
}

pub(super) fn control_file(path: &Path) -> Result<ControlFile, DatadirError> {
    let mut read = Err(ControlError::Crc);
    for _ in 0..CONTROL_READS {
        let bytes = pgtoll_system::open(path).and_then(|file| begin(&file, CONTROL_BYTES_MAX));
        let bytes = bytes.map_err(|source| DatadirError::Read { path: path.to_owned(), source })?;
        read = ControlFile::read(&bytes);
        // A running server may have written it meanwhile.
        if read != Err(ControlError::Crc) {
            break;
        }
    }
    read.map_err(|source| DatadirError::Control { path: path.to_owned(), source })
}

/// The major version by the file `PG_VERSION`, else by the format of the catalogs.
pub(crate) fn major(
    data: &Path,
    control: &ControlFile,
) -> Result<&'static MajorFacts, DatadirError> {
    if let Some(major) = version(data) {
        let known = MAJORS.iter().find(|facts| facts.major == major);
        let path = data.to_owned();
        let source = UnsupportedMajor { major };
        return known.ok_or(DatadirError::Major { path, source });
    }
    let found = control.catalog_version;
    let known = MAJORS.iter().find(|facts| facts.catalog.version == found);
    known.ok_or_else(|| DatadirError::Catalogs { path: data.to_owned(), found })
}

fn version(data: &Path) -> Option<u32> {
    let bytes = pgtoll_system::open(&data.join("PG_VERSION"))
        .and_then(|file| begin(&file, VERSION_BYTES_MAX));
    String::from_utf8(bytes.ok()?).ok()?.trim().parse().ok()
}

/// The first bytes of a file, of which there are `most` at most.
fn begin(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, most), &mut bytes)?;
    Ok(bytes)
}

/// The entries of a directory whose names are numbers; none where it cannot be read.
fn numbers_in(directory: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

const MAP: &str = "pg_filenode.map";
/// It has 524 bytes at most.
const MAP_BYTES_MAX: u64 = 4096;
/// It has 8192 bytes.
const CONTROL_BYTES_MAX: u64 = 65536;
/// It has a line of two digits.
const VERSION_BYTES_MAX: u64 = 64;
/// As often as PostgreSQL's own programs read a control file whose CRC does not fit.
const CONTROL_READS: u32 = 10;
