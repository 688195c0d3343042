//! The files of a data directory that hold relations: by their places and names, and by nothing
//! else.

use std::fmt;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use pgtoll_format::catalog::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pgtoll_format::{ControlFile, ForkNumber, RelFileLocator};

/// The name of a relation's file (`parse_filename_for_nontemp_relation`, and the names of
/// temporary relations).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFileName {
    /// The number of the files (`relfilenode`).
    pub number: u32,
    /// The number of the relation's fork.
    pub fork: ForkNumber,
    /// The number of the fork's file, from 0.
    pub segment: u32,
    /// The backend's number where the relation is temporary.
    pub backend: Option<u32>,
}

impl RelationFileName {
    /// Takes a name apart; `None` where no relation's file is called so: numbers have no leading
    /// zero, and the first segment has no number.
    pub fn parse(name: &str) -> Option<Self> {
        let (backend, name) = match name.strip_prefix('t') {
            Some(rest) => {
                let (backend, rest) = rest.split_once('_')?;
                (Some(decimal(backend)?), rest)
            }
            None => (None, name),
        };
        let (name, segment) = match name.split_once('.') {
            Some((name, segment)) => (name, decimal(segment).filter(|&decimal| decimal > 0)?),
            None => (name, 0),
        };
        let (name, fork) = match name.split_once('_') {
            Some((name, suffix)) => (name, ForkNumber::from_suffix(suffix)?),
            None => (name, ForkNumber::MAIN),
        };
        let number = decimal(name).filter(|&decimal| decimal > 0)?;
        Some(Self { number, fork, segment, backend })
    }
}

/// As it stands in the directory.
impl fmt::Display for RelationFileName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.backend {
            write!(to, "t{backend}_")?;
        }
        write!(to, "{}", self.number)?;
        if let Some(suffix) = self.fork.suffix() {
            write!(to, "_{suffix}")?;
        }
        if self.segment > 0 {
            write!(to, ".{}", self.segment)?;
        }
        Ok(())
    }
}

/// A number as PostgreSQL prints it.
pub fn decimal(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    digits.parse().ok().filter(|_| plain && !leading_zero)
}

/// A file of a relation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationFile {
    /// Whose it is.
    pub relation: RelFileLocator,
    /// The parts of its name.
    pub name: RelationFileName,
    /// Its place.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

impl RelationFile {
    /// The number of the file's first block in its fork; `None` where no block can have so high a
    /// number.
    pub fn first_block(&self, control: &ControlFile) -> Option<u32> {
        self.name.segment.checked_mul(control.file_blocks)
    }
}

/// The files in the directories of relations.
#[derive(Debug, Default)]
pub struct RelationFileList {
    /// Files of relations, those of a fork one after the other.
    pub files: Vec<RelationFile>,
    /// Files of other programs or of extensions.
    pub foreign: Vec<PathBuf>,
    /// Unreadable directories: there may be more files.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// Looks for the relations of a data directory: in `global`, `base` and the tablespaces in
/// `pg_tblspc`, links or not, there in the directories of this very cluster's version.
///
/// While a server runs, files come and go; one that went meanwhile is left out.
pub fn relation_files(data: &Path, control: &ControlFile) -> RelationFileList {
    let mut list = RelationFileList::default();
    for place in relation_directories(data, control, &mut list) {
        place.visit(&mut list);
    }
    list.files.sort_unstable();
    list.foreign.sort_unstable();
    list
}

/// Receives what lies in the directories of relations, entry by entry.
pub trait FileVisitor {
    /// A file of a relation.
    fn file(
        &mut self,
        dir: &RelationDir,
        name: RelationFileName,
        entry: &DirEntry,
        found: &Metadata,
    );
    /// Files of other programs.
    fn foreign(&mut self, path: PathBuf);
    /// Notes an unreadable directory.
    fn unreadable(&mut self, path: PathBuf, error: io::Error);
}

impl FileVisitor for RelationFileList {
    fn file(
        &mut self,
        dir: &RelationDir,
        name: RelationFileName,
        entry: &DirEntry,
        found: &Metadata,
    ) {
        let relation = dir.relation(name.number);
        self.files.push(RelationFile { relation, name, path: entry.path(), bytes: found.len() });
    }

    fn foreign(&mut self, path: PathBuf) {
        self.foreign.push(path);
    }

    fn unreadable(&mut self, path: PathBuf, error: io::Error) {
        self.unreadable.push((path, error));
    }
}

/// A directory that holds the relations of a database, or the shared ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationDir {
    /// The tablespace's OID.
    pub tablespace: u32,
    /// The database's OID; 0: shared relations.
    pub database: u32,
    /// The directory.
    pub path: PathBuf,
}

impl RelationDir {
    /// The relation whose files here have this number (`relfilenode`).
    pub fn relation(&self, number: u32) -> RelFileLocator {
        RelFileLocator { tablespace: self.tablespace, database: self.database, rel_number: number }
    }

    /// Passes each entry to `to` as it is read: there may be a million files.
    pub fn visit(&self, to: &mut dyn FileVisitor) {
        entries(&self.path, to, &mut |entry, name, is_directory, to| {
            let Some(parsed) = RelationFileName::parse(name).filter(|_| !is_directory) else {
                if !is_servers_own(name) {
                    to.foreign(entry.path());
                }
                return;
            };
            match metadata(entry) {
                Ok(found) if found.is_file() => to.file(self, parsed, entry, &found),
                // A pipe would be waited for.
                Ok(_) => to.foreign(entry.path()),
                Err(error) => {
                    let path = entry.path();
                    if error.kind() != io::ErrorKind::NotFound || is_link(&path) {
                        to.unreadable(path, error);
                    }
                }
            }
        });
    }
}

/// The directories of a data directory that hold relations, in the order of what they hold.
pub fn relation_directories(
    data: &Path,
    control: &ControlFile,
    to: &mut dyn FileVisitor,
) -> Vec<RelationDir> {
    let tablespace = GLOBAL_TABLESPACE;
    let database = 0;
    let mut places = vec![RelationDir { tablespace, database, path: data.join("global") }];
    databases(&data.join("base"), DEFAULT_TABLESPACE, to, &mut places);
    entries(&data.join("pg_tblspc"), to, &mut |entry, name, is_directory, to| match decimal(name)
        .filter(|&oid| oid > 0 && is_directory)
    {
        Some(oid) => {
            tablespace_places(&entry.path(), oid, control.catalog_version, to, &mut places);
        }
        None => to.foreign(entry.path()),
    });
    places.sort_unstable();
    // Two directories for one: no server looks into the second.
    let is_again = |dir: &RelationDir, kept: &RelationDir| {
        (dir.tablespace, dir.database) == (kept.tablespace, kept.database)
    };
    places.dedup_by(|place, kept| {
        let again = is_again(place, kept);
        if again {
            to.foreign(place.path.clone());
        }
        again
    });
    places
}

/// A tablespace can be shared by clusters of several versions, one directory each.
fn tablespace_places(
    path: &Path,
    oid: u32,
    catalog_version: u32,
    to: &mut dyn FileVisitor,
    places: &mut Vec<RelationDir>,
) {
    entries(path, to, &mut |entry, name, is_directory, to| match tablespace_version(name) {
        Some((_, found)) if found == catalog_version && is_directory => {
            databases(&entry.path(), oid, to, places);
        }
        Some(_) => {}
        None => to.foreign(entry.path()),
    });
}

/// The major version and the catalogs' one of `PG_15_202209061`.
fn tablespace_version(name: &str) -> Option<(u32, u32)> {
    let (major, catalog) = name.strip_prefix("PG_")?.split_once('_')?;
    Some((decimal(major)?, decimal(catalog)?))
}

fn databases(
    path: &Path,
    tablespace: u32,
    to: &mut dyn FileVisitor,
    places: &mut Vec<RelationDir>,
) {
    entries(path, to, &mut |entry, name, is_directory, to| match decimal(name)
        .filter(|&oid| oid > 0 && is_directory)
    {
        Some(database) => places.push(RelationDir { tablespace, database, path: entry.path() }),
        None if is_servers_own(name) => {}
        None => to.foreign(entry.path()),
    });
}

/// Tells of what a directory holds, with each its name and whether it is a directory (behind a
/// link too).
fn entries(
    directory: &Path,
    to: &mut dyn FileVisitor,
    each: &mut dyn FnMut(&DirEntry, &str, bool, &mut dyn FileVisitor),
) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return to.unreadable(directory.to_owned(), error),
    };
    for entry in entries {
        match entry.and_then(|entry| Ok((entry.file_type()?, entry))) {
            Ok((kind, entry)) => {
                // A dangling link is reported when it is followed.
                let is_directory = kind.is_dir()
                    || (kind.is_symlink()
                        && fs::metadata(entry.path()).map_or(true, |metadata| metadata.is_dir()));
                each(&entry, &entry.file_name().to_string_lossy(), is_directory, to);
            }
            Err(error) => to.unreadable(directory.to_owned(), error),
        }
    }
}

/// Returns the metadata of a file, or of a link's target.
fn metadata(entry: &DirEntry) -> io::Result<Metadata> {
    // Without the path's directories again, for every file.
    let found = entry.metadata()?;
    if found.is_symlink() { fs::metadata(entry.path()) } else { Ok(found) }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Returns whether PostgreSQL itself keeps the file beside relations.
pub fn is_servers_own(name: &str) -> bool {
    let names = ["PG_VERSION", "pg_control", "pg_filenode.map", "pg_filenode.map.tmp"];
    let prefixes = ["pg_internal.init", "pgsql_tmp"];
    names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, expected: Option<(u32, u8, u32, Option<u32>)>) {
        let found = RelationFileName::parse(name);
        let found = found.map(|item| (item.number, item.fork.0, item.segment, item.backend));
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn names_are_taken_apart() {
        check("1259", Some((1259, 0, 0, None)));
        check("4294967295_vm.32767", Some((u32::MAX, 2, 32767, None)));
        check("1259_fsm", Some((1259, 1, 0, None)));
        check("1259_init.123", Some((1259, 3, 123, None)));
        check("t3_16384_vm.1", Some((16384, 2, 1, Some(3))));
        check("t0_16384", Some((16384, 0, 0, Some(0))));
        for none in [
            "",
            "0",
            "01",
            "4294967296",
            "1259.0",
            "1259.01",
            "1259.",
            "1259_",
            "1259_main",
            "1259.1_vm",
            "1259_vm.1.2",
            "+1",
            "-1",
            "1 ",
            "t_1",
            "t1",
            "t01_2",
            "t1_2_3",
            "pg_control",
            "1259.zst",
            "１",
        ] {
            check(none, None);
        }
        let name =
            RelationFileName { number: 5, fork: ForkNumber::INIT, segment: 2, backend: Some(1) };
        assert_eq!(name.to_string(), "t1_5_init.2");
    }

    #[test]
    fn a_directory_is_listed() {
        let data = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let make = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for name in [
            "global/1262",
            "global/pg_control",
            "global/pg_filenode.map",
            "base/5/1259",
            "base/5/1259.1",
            "base/5/1259_vm",
            "base/5/pg_internal.init.77",
            "base/5/PG_VERSION",
            "base/5/16384.rum",
            "base/pgsql_tmp/1",
            "base/readme",
            "base/5/t3_16400",
            "pg_tblspc/16500/PG_15_202209061/5/16501",
        ] {
            make(&data.path().join(name));
        }
        fs::create_dir(data.path().join("base/5/16999")).unwrap();
        make(&elsewhere.path().join("PG_15_202209061/5/16502"));
        make(&elsewhere.path().join("PG_99_999999991/5/16503"));
        make(&elsewhere.path().join("lost+found/1"));
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, data.path().join(name)).unwrap();
        };
        link(elsewhere.path(), "pg_tblspc/16510");
        link(Path::new("/nowhere/at/all"), "pg_tblspc/16511");
        let mut control = control();
        control.catalog_version = 202_209_061;
        let list = relation_files(data.path(), &control);
        let short = |path: &Path| path.strip_prefix(data.path()).unwrap().display().to_string();
        let files: Vec<String> = list.files.iter().map(|file| short(&file.path)).collect();
        let expected = [
            "base/5/1259",
            "base/5/1259.1",
            "base/5/1259_vm",
            "base/5/t3_16400",
            "global/1262",
            "pg_tblspc/16500/PG_15_202209061/5/16501",
            "pg_tblspc/16510/PG_15_202209061/5/16502",
        ];
        assert_eq!(files, expected);
        let relation = RelFileLocator { tablespace: 16510, database: 5, rel_number: 16502 };
        assert_eq!(list.files[6].relation, relation);
        assert_eq!(list.files[1].first_block(&control), Some(131_072));
        let foreign: Vec<String> = list.foreign.iter().map(|path| short(path)).collect();
        let expected =
            ["base/5/16384.rum", "base/5/16999", "base/readme", "pg_tblspc/16510/lost+found"];
        assert_eq!(foreign, expected);
        let unreadable: Vec<String> =
            list.unreadable.iter().map(|(unreadable, _)| short(unreadable)).collect();
        assert_eq!(unreadable, ["pg_tblspc/16511"]);
    }

    fn control() -> ControlFile {
        ControlFile::read(&pgtoll_testing::control_file()).unwrap()
    }

    proptest! {
        #[test]
        fn any_name_is_taken_apart_or_not(name in ".*") {
            let _ = RelationFileName::parse(&name);
        }

        #[test]
        fn what_is_taken_apart_is_put_together_again(
            number in 1_u32.., fork in 0_u8..4, segment: u32, backend: Option<u32>,
        ) {
            let name = RelationFileName { number, fork: ForkNumber(fork), segment, backend };
            prop_assert_eq!(RelationFileName::parse(&name.to_string()), Some(name));
        }
    }
}
