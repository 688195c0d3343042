//! The kind of a backup's file, by its path alone.

use pgtoll_format::RelFileLocator;
use pgtoll_format::catalog::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};

use pgtoll_datadir::RelationFileName;
use pgtoll_datadir::{decimal, is_servers_own};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberPath<'a> {
    /// The start of the data directory in the tar: mostly nowhere.
    pub(super) root: &'a str,
    /// From there on.
    pub(super) path: &'a str,
    /// Its kind.
    pub(super) kind: MemberKind,
    /// In a tablespace, of which catalogs' format the directory is.
    pub(super) catalog_version: Option<u32>,
}

/// The kind of a backup's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    /// A file of a relation, whole.
    Relation(RelFileLocator, RelationFileName),
    /// Some blocks of a relation's file.
    Incremental(RelFileLocator, RelationFileName),
    /// `global/pg_control`.
    Control,
    /// `backup_label`.
    Label,
    /// PostgreSQL's own, and not a relation's.
    Own,
    /// A file of an extension, or of people.
    Foreign,
}

impl<'a> MemberPath<'a> {
    /// Makes the path of a tar's member. A tablespace's tar has its number for a name.
    pub(super) fn new(member: &'a str, tablespace: Option<u32>) -> Self {
        let member = member.trim_start_matches("./").trim_start_matches('/');
        let mut slashes = member.rmatch_indices('/').map(|(at, _)| at);
        let mut parts: Vec<&str> = member.rsplitn(6, '/').collect();
        // The data directory may be anywhere in the tar: members are recognized by the end of their path.
        let found = within(&parts, tablespace);
        let Some((depth, kind, catalog_version)) = found else {
            let kind = match parts.swap_remove(0) {
                "backup_label" => MemberKind::Label,
                _ => MemberKind::Own,
            };
            let at = slashes.next();
            let root = at.map_or("", |at| &member[..at]);
            let path = &member[at.map_or(0, |at| at + 1)..];
            return Self { root, path, kind, catalog_version: None };
        };
        let at = slashes.nth(depth - 1);
        let root = at.map_or("", |at| &member[..at]);
        let path = &member[at.map_or(0, |at| at + 1)..];
        Self { root, path, kind, catalog_version }
    }
}

/// The place of relations: how many parts of the path belong to the data directory, and what it is.
fn within(parts: &[&str], tablespace: Option<u32>) -> Option<(usize, MemberKind, Option<u32>)> {
    let found = |tablespace, database, name| kind_of(tablespace, database, name);
    match (parts, tablespace) {
        ([name, database, version, ..], Some(oid)) => {
            let database = oid_of(database)?;
            let version = catalog_version(version)?;
            Some((3, found(oid, database, name), Some(version)))
        }
        (_, Some(_)) => None,
        (["pg_control", "global", ..], _) => Some((2, MemberKind::Control, None)),
        ([name, "global", ..], _) => Some((2, found(GLOBAL_TABLESPACE, 0, name), None)),
        ([name, database, "base", ..], _) => {
            Some((3, found(DEFAULT_TABLESPACE, oid_of(database)?, name), None))
        }
        ([name, database, version, oid, "pg_tblspc", ..], _) => {
            let oid = oid_of(oid)?;
            let database = oid_of(database)?;
            Some((5, found(oid, database, name), Some(catalog_version(version)?)))
        }
        _ => None,
    }
}

/// `PG_17_202406281`
fn catalog_version(name: &str) -> Option<u32> {
    let (major, catalog) = name.strip_prefix("PG_")?.split_once('_')?;
    decimal(major).and(decimal(catalog))
}

fn oid_of(name: &str) -> Option<u32> {
    decimal(name).filter(|&oid| oid > 0)
}

fn kind_of(tablespace: u32, database: u32, name: &str) -> MemberKind {
    let files = |number| RelFileLocator { tablespace, database, rel_number: number };
    if let Some(item) = RelationFileName::parse(name) {
        return MemberKind::Relation(files(item.number), item);
    }
    match name.strip_prefix("INCREMENTAL.").and_then(RelationFileName::parse) {
        Some(item) => MemberKind::Incremental(files(item.number), item),
        // Directories have members of their own, whose names end in nothing.
        None if is_servers_own(name) || name.is_empty() => MemberKind::Own,
        None => MemberKind::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(member: &str, tablespace: Option<u32>, root: &str, path: &str, expected: &str) {
        let place = MemberPath::new(member, tablespace);
        let kind = match place.kind {
            MemberKind::Relation(kind, name) => {
                format!(
                    "{}/{}/{} {} {}",
                    kind.tablespace, kind.database, kind.rel_number, name.fork.0, name.segment
                )
            }
            MemberKind::Incremental(kind, name) => {
                format!(
                    "{}/{}/{}+{}",
                    kind.tablespace, kind.database, kind.rel_number, name.segment
                )
            }
            other => format!("{other:?}"),
        };
        assert_eq!((place.root, place.path, kind.as_str()), (root, path, expected), "{member}");
    }

    #[test]
    fn members_are_told_by_their_paths() {
        check("base/5/1259", None, "", "base/5/1259", "1663/5/1259 0 0");
        check("./base/5/1259_vm.2", None, "", "base/5/1259_vm.2", "1663/5/1259 2 2");
        check("global/1262", None, "", "global/1262", "1664/0/1262 0 0");
        check("global/pg_control", None, "", "global/pg_control", "Control");
        check("main/global/pg_control", None, "main", "global/pg_control", "Control");
        check("/var/15/main/base/5/1", None, "var/15/main", "base/5/1", "1663/5/1 0 0");
        check("base/5/INCREMENTAL.1259.1", None, "", "base/5/INCREMENTAL.1259.1", "1663/5/1259+1");
        check("base/5/pg_filenode.map", None, "", "base/5/pg_filenode.map", "Own");
        check("base/5/readme", None, "", "base/5/readme", "Foreign");
        check("backup_label", None, "", "backup_label", "Label");
        check("pg_wal/000000010000000000000002", None, "pg_wal", "000000010000000000000002", "Own");
        check("PG_15_202209061/5/16501", Some(99), "", "PG_15_202209061/5/16501", "99/5/16501 0 0");
        let member = "pg_tblspc/16500/PG_15_202209061/5/16501";
        check(member, None, "", member, "16500/5/16501 0 0");
        assert_eq!(MemberPath::new(member, None).catalog_version, Some(202_209_061));
        check("base/x/1259", None, "base/x", "1259", "Own");
        check("", None, "", "", "Own");
    }

    proptest! {
        #[test]
        fn any_path_is_something(path in "[a-z0-9/._]{0,40}|.*", tablespace: Option<u32>) {
            let _ = MemberPath::new(&path, tablespace);
        }
    }
}
