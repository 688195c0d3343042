//! Rows of the catalogs that name relations, and the map of those whose files `pg_class` does not
//! name.
//!
//! A catalog's columns and their order differ between major versions; [`MAJORS`](crate::MAJORS)
//! has those of each. What is read stands before the first column that can be null or has no fixed
//! length.

use std::collections::BTreeMap;

use crate::bytes::u32_at;
use crate::heap::HeapTuple;

/// `pg_class`: relations. Each database has one, whose files its map names.
pub const PG_CLASS: u32 = 1259;
/// `pg_database`: databases. Shared; its files are named by the map in `global`.
pub const PG_DATABASE: u32 = 1262;
/// `pg_tablespace`: tablespaces. Shared, as `pg_database`.
pub const PG_TABLESPACE: u32 = 1213;
/// `pg_authid`: roles. Shared, as `pg_database`.
pub const PG_AUTHID: u32 = 1260;
/// The role that `initdb` makes (`BOOTSTRAP_SUPERUSERID`).
pub const FIRST_SUPERUSER: u32 = 10;
/// `pg_namespace`: schemas. Each database has one, whose files its `pg_class` names.
pub const PG_NAMESPACE: u32 = 2615;
/// `pg_index`: which table an index is of. As `pg_namespace`.
pub const PG_INDEX: u32 = 2610;
/// The access method of PostgreSQL's own tables (`HEAP_TABLE_AM_OID`).
pub const HEAP: u32 = 2;
/// The access method of B-trees (`BTREE_AM_OID`).
pub const BTREE: u32 = 403;

/// The tablespace `pg_default`: `base` in the data directory.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// The tablespace `pg_global`, of shared relations: `global` in the data directory.
pub const GLOBAL_TABLESPACE: u32 = 1664;

/// Bytes of a name (`NAMEDATALEN`); the rest is zero.
pub const NAME_BYTES: usize = 64;

/// The differences between the catalogs' files of major versions. Sources: `postgres.bki` and
/// `relmapper.c` of each.
#[derive(Debug, PartialEq, Eq)]
pub struct CatalogFacts {
    /// `CATALOG_VERSION_NO`: tablespaces' directories have it in their names.
    pub version: u32,
    /// Entries that `pg_filenode.map` has room for: 62, since 16 64.
    pub relation_map_entries: usize,
    /// The columns of `pg_class`.
    pub class: ClassColumns,
    /// The columns of `pg_database`.
    pub database: DatabaseColumns,
    /// The columns of `pg_index`.
    pub index: IndexColumns,
}

/// A catalog's column: its name and its type.
type Column = (&'static str, Type);

/// A type of fixed length.
#[derive(Clone, Copy, Debug)]
enum Type {
    Bool,
    Char,
    Float4,
    Int2,
    Int4,
    Name,
    Oid,
    Xid,
}

impl Type {
    /// Its length and what it is aligned to (`typlen` and `typalign` of `pg_type`).
    const fn bytes(self) -> (usize, usize) {
        match self {
            Self::Bool | Self::Char => (1, 1),
            Self::Int2 => (2, 2),
            Self::Float4 | Self::Int4 | Self::Oid | Self::Xid => (4, 4),
            Self::Name => (NAME_BYTES, 1),
        }
    }
}

/// Returns the offset of the column of this name behind the row's header, and how many columns there are up
/// to it. Run by the compiler, which refuses a name that is not there.
const fn column_offset(columns: &[Column], name: &str) -> ColumnOffset {
    let mut number = 0;
    let mut at = 0;
    loop {
        let (column, kind) = columns[number];
        let (bytes, alignment) = kind.bytes();
        let begin = usize::next_multiple_of(at, alignment);
        number += 1;
        if is_same(column, name) {
            return ColumnOffset { at: begin, number };
        }
        at = begin + bytes;
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let other = other.as_bytes();
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The place of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ColumnOffset {
    /// Bytes behind the row's header.
    at: usize,
    /// Its number, from 1.
    number: usize,
}

/// The places of the columns of `pg_class`.
#[derive(Debug, PartialEq, Eq)]
pub struct ClassColumns {
    oid: ColumnOffset,
    relname: ColumnOffset,
    relnamespace: ColumnOffset,
    relfilenode: ColumnOffset,
    relam: ColumnOffset,
    reltablespace: ColumnOffset,
    relpages: ColumnOffset,
    reltoastrelid: ColumnOffset,
    relisshared: ColumnOffset,
    relpersistence: ColumnOffset,
    relkind: ColumnOffset,
}

impl ClassColumns {
    const fn from_columns(columns: &[Column]) -> Self {
        Self {
            oid: column_offset(columns, "oid"),
            relname: column_offset(columns, "relname"),
            relnamespace: column_offset(columns, "relnamespace"),
            relfilenode: column_offset(columns, "relfilenode"),
            relam: column_offset(columns, "relam"),
            reltablespace: column_offset(columns, "reltablespace"),
            relpages: column_offset(columns, "relpages"),
            reltoastrelid: column_offset(columns, "reltoastrelid"),
            relisshared: column_offset(columns, "relisshared"),
            relpersistence: column_offset(columns, "relpersistence"),
            relkind: column_offset(columns, "relkind"),
        }
    }
}

/// The places of the columns of `pg_database`.
#[derive(Debug, PartialEq, Eq)]
pub struct DatabaseColumns {
    oid: ColumnOffset,
    datname: ColumnOffset,
    datconnlimit: ColumnOffset,
    dattablespace: ColumnOffset,
}

impl DatabaseColumns {
    const fn from_columns(columns: &[Column]) -> Self {
        Self {
            oid: column_offset(columns, "oid"),
            datname: column_offset(columns, "datname"),
            datconnlimit: column_offset(columns, "datconnlimit"),
            dattablespace: column_offset(columns, "dattablespace"),
        }
    }
}

/// `pg_class` since 18.
pub(crate) const CLASS_18: ClassColumns = ClassColumns::from_columns(&[
    ("oid", Type::Oid),
    ("relname", Type::Name),
    ("relnamespace", Type::Oid),
    ("reltype", Type::Oid),
    ("reloftype", Type::Oid),
    ("relowner", Type::Oid),
    ("relam", Type::Oid),
    ("relfilenode", Type::Oid),
    ("reltablespace", Type::Oid),
    ("relpages", Type::Int4),
    ("reltuples", Type::Float4),
    ("relallvisible", Type::Int4),
    ("relallfrozen", Type::Int4),
    ("reltoastrelid", Type::Oid),
    ("relhasindex", Type::Bool),
    ("relisshared", Type::Bool),
    ("relpersistence", Type::Char),
    ("relkind", Type::Char),
]);

/// `pg_class` until 17.
pub(crate) const CLASS_UNTIL_17: ClassColumns = ClassColumns::from_columns(&[
    ("oid", Type::Oid),
    ("relname", Type::Name),
    ("relnamespace", Type::Oid),
    ("reltype", Type::Oid),
    ("reloftype", Type::Oid),
    ("relowner", Type::Oid),
    ("relam", Type::Oid),
    ("relfilenode", Type::Oid),
    ("reltablespace", Type::Oid),
    ("relpages", Type::Int4),
    ("reltuples", Type::Float4),
    ("relallvisible", Type::Int4),
    ("reltoastrelid", Type::Oid),
    ("relhasindex", Type::Bool),
    ("relisshared", Type::Bool),
    ("relpersistence", Type::Char),
    ("relkind", Type::Char),
]);

/// `pg_database` since 17.
pub(crate) const DATABASE_17: DatabaseColumns = DatabaseColumns::from_columns(&[
    ("oid", Type::Oid),
    ("datname", Type::Name),
    ("datdba", Type::Oid),
    ("encoding", Type::Int4),
    ("datlocprovider", Type::Char),
    ("datistemplate", Type::Bool),
    ("datallowconn", Type::Bool),
    ("dathasloginevt", Type::Bool),
    ("datconnlimit", Type::Int4),
    ("datfrozenxid", Type::Xid),
    ("datminmxid", Type::Xid),
    ("dattablespace", Type::Oid),
]);

/// `pg_database` of 15 and 16.
pub(crate) const DATABASE_15: DatabaseColumns = DatabaseColumns::from_columns(&[
    ("oid", Type::Oid),
    ("datname", Type::Name),
    ("datdba", Type::Oid),
    ("encoding", Type::Int4),
    ("datlocprovider", Type::Char),
    ("datistemplate", Type::Bool),
    ("datallowconn", Type::Bool),
    ("datconnlimit", Type::Int4),
    ("datfrozenxid", Type::Xid),
    ("datminmxid", Type::Xid),
    ("dattablespace", Type::Oid),
]);

/// `pg_database` until 14.
pub(crate) const DATABASE_UNTIL_14: DatabaseColumns = DatabaseColumns::from_columns(&[
    ("oid", Type::Oid),
    ("datname", Type::Name),
    ("datdba", Type::Oid),
    ("encoding", Type::Int4),
    ("datcollate", Type::Name),
    ("datctype", Type::Name),
    ("datistemplate", Type::Bool),
    ("datallowconn", Type::Bool),
    ("datconnlimit", Type::Int4),
    ("datlastsysoid", Type::Oid),
    ("datfrozenxid", Type::Xid),
    ("datminmxid", Type::Xid),
    ("dattablespace", Type::Oid),
]);

/// The begin of `pg_namespace` and `pg_tablespace`, in all versions.
const NAMED: [Column; 2] = [("oid", Type::Oid), ("name", Type::Name)];
const NAMED_OID: ColumnOffset = column_offset(&NAMED, "oid");
const NAMED_NAME: ColumnOffset = column_offset(&NAMED, "name");

/// The places of the columns of `pg_index`.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexColumns {
    indexrelid: ColumnOffset,
    indrelid: ColumnOffset,
    indisready: ColumnOffset,
}

impl IndexColumns {
    const fn from_columns(columns: &[Column]) -> Self {
        Self {
            indexrelid: column_offset(columns, "indexrelid"),
            indrelid: column_offset(columns, "indrelid"),
            indisready: column_offset(columns, "indisready"),
        }
    }
}

/// `pg_index` since 15.
pub(crate) const INDEX_15: IndexColumns = IndexColumns::from_columns(&[
    ("indexrelid", Type::Oid),
    ("indrelid", Type::Oid),
    ("indnatts", Type::Int2),
    ("indnkeyatts", Type::Int2),
    ("indisunique", Type::Bool),
    ("indnullsnotdistinct", Type::Bool),
    ("indisprimary", Type::Bool),
    ("indisexclusion", Type::Bool),
    ("indimmediate", Type::Bool),
    ("indisclustered", Type::Bool),
    ("indisvalid", Type::Bool),
    ("indcheckxmin", Type::Bool),
    ("indisready", Type::Bool),
]);

/// `pg_index` until 14.
pub(crate) const INDEX_UNTIL_14: IndexColumns = IndexColumns::from_columns(&[
    ("indexrelid", Type::Oid),
    ("indrelid", Type::Oid),
    ("indnatts", Type::Int2),
    ("indnkeyatts", Type::Int2),
    ("indisunique", Type::Bool),
    ("indisprimary", Type::Bool),
    ("indisexclusion", Type::Bool),
    ("indimmediate", Type::Bool),
    ("indisclustered", Type::Bool),
    ("indisvalid", Type::Bool),
    ("indcheckxmin", Type::Bool),
    ("indisready", Type::Bool),
]);

/// A row of `pg_class`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRow {
    /// The relation.
    pub oid: u32,
    /// Its name. What is not UTF-8 is replaced; see [`name`](NamedRow::name).
    pub name: String,
    /// Its schema.
    pub schema: u32,
    /// The number of its files; 0: the map tells it, or it has none.
    pub files: u32,
    /// Its access method; 0: it has none.
    pub access_method: u32,
    /// Its tablespace; 0: its database's.
    pub tablespace: u32,
    /// Blocks that it had when `VACUUM` or `ANALYZE` counted them last; 0: none, or never counted.
    pub blocks: u32,
    /// Its TOAST table; 0: none.
    pub toast: u32,
    /// All databases have it in common.
    pub is_shared: bool,
    /// Whether it is logged.
    pub persistence: Persistence,
    /// Its kind.
    pub kind: RelationKind,
}

impl ClassRow {
    /// Reads a version of a row; `None` where it is too short.
    pub fn read(row: &HeapTuple<'_>, facts: &CatalogFacts) -> Option<Self> {
        let columns = &facts.class;
        let row = Row::new(row, columns.relkind)?;
        Some(Self {
            oid: row.oid(columns.oid)?,
            name: row.name(columns.relname)?,
            schema: row.oid(columns.relnamespace)?,
            files: row.oid(columns.relfilenode)?,
            access_method: row.oid(columns.relam)?,
            tablespace: row.oid(columns.reltablespace)?,
            blocks: row.oid(columns.relpages)?,
            toast: row.oid(columns.reltoastrelid)?,
            is_shared: row.byte(columns.relisshared)? != 0,
            persistence: Persistence::from_letter(row.byte(columns.relpersistence)?),
            kind: RelationKind::from_letter(row.byte(columns.relkind)?),
        })
    }
}

/// A row of `pg_database`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRow {
    /// The database.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// The tablespace where its catalogs are, and every relation that names no other.
    pub tablespace: u32,
    /// `DROP DATABASE` has begun to remove it, and was interrupted (`DATCONNLIMIT_INVALID_DB`).
    pub is_invalid: bool,
}

impl DatabaseRow {
    /// Reads a version of a row; `None` where it is too short.
    pub fn read(row: &HeapTuple<'_>, facts: &CatalogFacts) -> Option<Self> {
        let columns = &facts.database;
        let row = Row::new(row, columns.dattablespace)?;
        Some(Self {
            oid: row.oid(columns.oid)?,
            name: row.name(columns.datname)?,
            tablespace: row.oid(columns.dattablespace)?,
            is_invalid: row.oid(columns.datconnlimit)?.cast_signed() == INVALID,
        })
    }
}

/// `datconnlimit` of a database that is being dropped.
const INVALID: i32 = -2;

/// A row of `pg_namespace` or of `pg_tablespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRow {
    /// The schema or the tablespace.
    pub oid: u32,
    /// Its name, in the encoding of its database; what is not UTF-8 is replaced. It can have any
    /// characters in it.
    pub name: String,
}

impl NamedRow {
    /// Reads a version of a row; `None` where it is too short.
    pub fn read(row: &HeapTuple<'_>) -> Option<Self> {
        let row = Row::new(row, NAMED_NAME)?;
        Some(Self { oid: row.oid(NAMED_OID)?, name: row.name(NAMED_NAME)? })
    }
}

/// A row of `pg_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// The index.
    pub index: u32,
    /// Its table.
    pub table: u32,
    /// Rows of the table are put into it, and `VACUUM` takes them out again; not so while it is
    /// made or removed, or where that failed.
    pub is_ready: bool,
}

impl IndexRow {
    /// Reads a version of a row; `None` where it is too short.
    pub fn read(row: &HeapTuple<'_>, facts: &CatalogFacts) -> Option<Self> {
        let columns = &facts.index;
        let row = Row::new(row, columns.indisready)?;
        Some(Self {
            index: row.oid(columns.indexrelid)?,
            table: row.oid(columns.indrelid)?,
            is_ready: row.byte(columns.indisready)? != 0,
        })
    }
}

/// A row whose columns stand at their places.
struct Row<'a>(&'a [u8]);

impl<'a> Row<'a> {
    /// The row, if no column up to `last` is null.
    fn new(row: &HeapTuple<'a>, last: ColumnOffset) -> Option<Self> {
        (!row.has_null_among(last.number)).then_some(Self(row.data))
    }

    fn oid(&self, column: ColumnOffset) -> Option<u32> {
        u32_at(self.0, column.at)
    }

    fn byte(&self, column: ColumnOffset) -> Option<u8> {
        self.0.get(column.at).copied()
    }

    fn name(&self, column: ColumnOffset) -> Option<String> {
        let bytes = self.0.get(column.at..column.at + NAME_BYTES)?;
        let bytes = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The kind of a relation (`relkind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RelationKind {
    /// A table.
    Table,
    /// An index.
    Index,
    /// The place of the long values of a table.
    Toast,
    /// A sequence.
    Sequence,
    /// A materialized view.
    MaterializedView,
    /// One without files: a view, a type, a foreign or a partitioned table, …
    WithoutFiles(u8),
}

impl RelationKind {
    /// The kind with this letter.
    pub fn from_letter(letter: u8) -> Self {
        match letter {
            b'r' => Self::Table,
            b'i' => Self::Index,
            b't' => Self::Toast,
            b'S' => Self::Sequence,
            b'm' => Self::MaterializedView,
            other => Self::WithoutFiles(other),
        }
    }

    /// Whether relations of this kind have files.
    pub fn has_files(self) -> bool {
        !matches!(self, Self::WithoutFiles(_))
    }
}

/// Whether a relation is logged (`relpersistence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Persistence {
    /// It is.
    Permanent,
    /// Not: it is empty after a crash.
    Unlogged,
    /// Not: it is its session's own. Its files have names of another form.
    Temporary,
}

impl Persistence {
    /// The persistence with this letter; a relation with an unknown one is logged.
    pub fn from_letter(letter: u8) -> Self {
        match letter {
            b'u' => Self::Unlogged,
            b't' => Self::Temporary,
            _ => Self::Permanent,
        }
    }
}

/// `pg_filenode.map`: which files the catalogs have that `pg_class` cannot name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelationMap {
    files: BTreeMap<u32, u32>,
}

impl RelationMap {
    /// Reads the file's bytes.
    pub fn read(bytes: &[u8], facts: &CatalogFacts) -> Result<Self, RelationMapError> {
        let crc_at = ENTRIES_AT + facts.relation_map_entries * ENTRY_BYTES;
        let too_short = RelationMapError::TooShort { bytes: bytes.len() };
        let crc = u32_at(bytes, crc_at).ok_or(too_short)?;
        let covered = bytes.get(..crc_at).ok_or(too_short)?;
        let magic = u32_at(bytes, 0).ok_or(too_short)?;
        if magic != MAP_MAGIC {
            return Err(RelationMapError::Magic { found: magic });
        }
        if crate::crc32c(covered) != crc {
            return Err(RelationMapError::Crc);
        }
        let count = u32_at(bytes, 4).ok_or(too_short)?;
        let used = usize::try_from(count).ok().filter(|used| *used <= facts.relation_map_entries);
        let used = used.ok_or(RelationMapError::Count { found: count })?;
        let entries = covered[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(used);
        let files = entries.filter_map(|entry| Some((u32_at(entry, 0)?, u32_at(entry, 4)?)));
        Ok(Self { files: files.collect() })
    }

    /// The number of the relation's files.
    pub fn files(&self, relation: u32) -> Option<u32> {
        self.files.get(&relation).copied()
    }
}

/// `RELMAPPER_FILEMAGIC`.
const MAP_MAGIC: u32 = 0x0059_2717;
/// Before them stand the magic and how many are used.
const ENTRIES_AT: usize = 8;
/// A relation and its files.
const ENTRY_BYTES: usize = 8;

/// The bytes are no `pg_filenode.map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelationMapError {
    /// The file ends too early.
    #[error("it is only {bytes} bytes long")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// It begins otherwise.
    #[error("it begins with {found:#x}")]
    Magic {
        /// With what.
        found: u32,
    },
    /// The CRC does not fit.
    #[error("its CRC is wrong")]
    Crc,
    /// It has more entries than room.
    #[error("it cannot have {found} entries")]
    Count {
        /// How many it says.
        found: u32,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAJORS;

    #[test]
    fn columns_stand_where_a_c_compiler_puts_them() {
        assert_eq!(CLASS_18.relfilenode, ColumnOffset { at: 88, number: 8 });
        assert_eq!(CLASS_18.relkind, ColumnOffset { at: 119, number: 18 });
        assert_eq!(CLASS_UNTIL_17.relkind, ColumnOffset { at: 115, number: 17 });
        assert_eq!(DATABASE_17.dattablespace, ColumnOffset { at: 92, number: 12 });
        assert_eq!(DATABASE_17.datconnlimit, ColumnOffset { at: 80, number: 9 });
        assert_eq!(DATABASE_15.dattablespace, ColumnOffset { at: 92, number: 11 });
        assert_eq!(DATABASE_UNTIL_14.dattablespace, ColumnOffset { at: 224, number: 13 });
        assert_eq!(INDEX_15.indrelid, ColumnOffset { at: 4, number: 2 });
        assert_eq!(INDEX_15.indisready, ColumnOffset { at: 20, number: 13 });
        assert_eq!(INDEX_UNTIL_14.indisready, ColumnOffset { at: 19, number: 12 });
    }

    /// A row without nulls, of this many columns.
    fn row(columns: u8, data: &[u8]) -> Vec<u8> {
        let mut row = vec![0; 24];
        (row[18], row[22]) = (columns, 24);
        row.extend(data);
        row
    }

    fn map(entries: usize, files: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; ENTRIES_AT + entries * ENTRY_BYTES];
        bytes[..4].copy_from_slice(&MAP_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::try_from(files.len()).unwrap().to_le_bytes());
        for (place, (relation, number)) in bytes[ENTRIES_AT..].chunks_exact_mut(8).zip(files) {
            place[..4].copy_from_slice(&relation.to_le_bytes());
            place[4..].copy_from_slice(&number.to_le_bytes());
        }
        let crc = ::crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn a_map_is_read_back(
            files in prop::collection::btree_map(any::<u32>(), any::<u32>(), 0..62),
            major in 0..MAJORS.len(),
            place in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let facts = &MAJORS[major].catalog;
            let entries: Vec<(u32, u32)> = files.clone().into_iter().collect();
            let mut bytes = map(facts.relation_map_entries, &entries);
            let read = RelationMap::read(&bytes, facts).unwrap();
            prop_assert_eq!(read, RelationMap { files });
            bytes[place.index(facts.relation_map_entries * 8 + 12)] ^= 1_u8 << bit;
            prop_assert!(RelationMap::read(&bytes, facts).is_err());
        }

        #[test]
        fn any_bytes_are_a_map_or_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..600),
            used: u32,
        ) {
            for major in &MAJORS {
                let _ = RelationMap::read(&bytes, &major.catalog);
                let crc_at = ENTRIES_AT + major.catalog.relation_map_entries * ENTRY_BYTES;
                if bytes.len() >= crc_at + 4 {
                    bytes[..4].copy_from_slice(&MAP_MAGIC.to_le_bytes());
                    bytes[4..8].copy_from_slice(&used.to_le_bytes());
                    let crc = ::crc32c::crc32c(&bytes[..crc_at]);
                    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
                    let read = RelationMap::read(&bytes, &major.catalog);
                    let fits = used as usize <= major.catalog.relation_map_entries;
                    prop_assert_eq!(read.is_ok(), fits);
                }
            }
        }

        #[test]
        fn any_row_is_read_or_not(
            data in prop::collection::vec(any::<u8>(), 0..300),
            columns: u8,
            mut bytes in prop::collection::vec(any::<u8>(), 23..300),
        ) {
            let bytes_of_header = bytes[22];
            bytes[22] = bytes_of_header % 40;
            for bytes in [row(columns, &data), bytes] {
                let Some(row) = HeapTuple::read(&bytes) else { continue };
                for major in &MAJORS {
                    let class = ClassRow::read(&row, &major.catalog);
                    prop_assert!(class.is_none() || row.data.len() >= 116);
                    let _ = DatabaseRow::read(&row, &major.catalog);
                    let _ = IndexRow::read(&row, &major.catalog);
                }
                let _ = NamedRow::read(&row);
            }
        }
    }
}
