//! Treatment of a tar's member: decided by its name and kind alone, with no look at any file.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

use pgtoll_wal::{SegmentFile, TarMember, TarMemberKind};

use super::is_history;

/// The placement of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It is a file at this path, below the directory that it is unpacked to.
    File(PathBuf),
    /// It is a directory.
    Directory(PathBuf),
    /// A segment of WAL, which is read where it lies.
    Segment,
    /// The history of a timeline, of this name.
    History(String),
    /// It belongs to the server that made the backup.
    LeftOut,
    /// A member that no backup of a server has, or that cannot be unpacked.
    Refused {
        /// Why, behind its name.
        reason: &'static str,
        /// False: it is a file that another program would unpack.
        is_damage: bool,
    },
}

/// Decides about the members of tars of one directory, one after the other.
#[derive(Debug, Default)]
pub(crate) struct MemberSorter {
    is_tablespace: bool,
    /// The manifest is beside the tars.
    has_manifest: bool,
    files: HashSet<PathBuf>,
    directories: HashSet<PathBuf>,
}

/// One for the data directory, and one for each tablespace: each may have several tars.
#[derive(Debug)]
pub(crate) struct Sorters {
    has_manifest: bool,
    by_tablespace: BTreeMap<Option<u32>, MemberSorter>,
}

impl Sorters {
    pub(crate) fn new(has_manifest: bool) -> Self {
        Self { has_manifest, by_tablespace: BTreeMap::new() }
    }

    pub(crate) fn sorter_mut(&mut self, tablespace: Option<u32>) -> &mut MemberSorter {
        let new = || MemberSorter::new(tablespace.is_some(), self.has_manifest);
        self.by_tablespace.entry(tablespace).or_insert_with(new)
    }
}

impl MemberSorter {
    fn new(is_tablespace: bool, has_manifest: bool) -> Self {
        Self { is_tablespace, has_manifest, ..Self::default() }
    }

    pub(crate) fn place(&mut self, member: &TarMember) -> Placement {
        let path = match clean(&member.path) {
            Ok(path) => path,
            Err(reason) => return refused(reason),
        };
        if path.as_os_str().is_empty() {
            return Placement::LeftOut;
        }
        match member.kind {
            TarMemberKind::Directory => self.directory(path),
            TarMemberKind::File => self.file(path),
            TarMemberKind::Sparse => {
                let reason = "is a sparse file of GNU tar, whose holes pgtoll does not put back";
                Placement::Refused { reason, is_damage: false }
            }
            // Tablespaces have tars of their own, and links that the drill makes.
            TarMemberKind::Link if !self.is_tablespace && is_tablespace_link(&path) => {
                Placement::LeftOut
            }
            TarMemberKind::Link => refused("is a link, which no server puts there"),
            TarMemberKind::Other => refused("is neither a file nor a directory"),
        }
    }

    fn directory(&mut self, path: PathBuf) -> Placement {
        if self.files.contains(&path) || !self.take_parents(&path) {
            return refused("is a file, too");
        }
        self.directories.insert(path.clone());
        if self.is_left_out(&path) { Placement::LeftOut } else { Placement::Directory(path) }
    }

    fn file(&mut self, path: PathBuf) -> Placement {
        if self.directories.contains(&path) || !self.take_parents(&path) {
            return refused("is a directory, too");
        }
        if !self.files.insert(path.clone()) {
            return refused("is there twice");
        }
        if self.files.len() > FILES_MAX {
            return refused("is one file more than any backup has");
        }
        if let Ok(name) = path.strip_prefix("pg_wal")
            && !self.is_tablespace
        {
            let name = name.to_string_lossy().into_owned();
            return match SegmentFile::from_path(&path) {
                Some(_) => Placement::Segment,
                None if is_history(&name) => Placement::History(name),
                None => Placement::LeftOut,
            };
        }
        if self.is_left_out(&path) { Placement::LeftOut } else { Placement::File(path) }
    }

    /// Takes the directories above; false: one of them is a file, and none is taken.
    fn take_parents(&mut self, path: &Path) -> bool {
        let is_new =
            |path: &&Path| !path.as_os_str().is_empty() && !self.directories.contains(*path);
        let new: Vec<&Path> = path.ancestors().skip(1).take_while(is_new).collect();
        if new.iter().any(|parent| self.files.contains(*parent)) {
            return false;
        }
        self.directories.extend(new.into_iter().map(Path::to_owned));
        true
    }

    /// A tablespace has a directory for each version of a server that uses it; else what a running
    /// server leaves, and what is beside the tar.
    fn is_left_out(&self, path: &Path) -> bool {
        let first = path.iter().next().unwrap_or_default().to_string_lossy();
        if self.is_tablespace {
            return !first.starts_with("PG_");
        }
        matches!(&*first, "postmaster.pid" | "postmaster.opts" | "pg_wal")
            || (self.has_manifest && first == "backup_manifest")
    }
}

fn refused(reason: &'static str) -> Placement {
    Placement::Refused { reason, is_damage: true }
}

fn is_tablespace_link(path: &Path) -> bool {
    let name = path.strip_prefix("pg_tblspc").ok().and_then(Path::to_str);
    name.and_then(pgtoll_datadir::decimal).is_some()
}

/// The path of a member below the directory that it is unpacked to.
fn clean(name: &str) -> Result<PathBuf, &'static str> {
    if name.len() > PATH_BYTES_MAX || name.chars().any(char::is_control) {
        return Err("is called as no file of a server is");
    }
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) if part.len() <= NAME_BYTES_MAX => path.push(part),
            Component::Normal(_) => return Err("is called as no file of a server is"),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                return Err("leads out of the backup");
            }
        }
    }
    Ok(path)
}

/// `NAME_MAX` of Linux.
const NAME_BYTES_MAX: usize = 255;
/// `MAXPGPATH` of PostgreSQL: a server opens no longer path.
const PATH_BYTES_MAX: usize = 1024;
/// Files of one tar whose names are kept.
const FILES_MAX: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(path: &str, kind: TarMemberKind) -> TarMember {
        TarMember { path: path.to_owned(), bytes: 0, kind }
    }

    fn reason(placement: &Placement) -> &'static str {
        match placement {
            Placement::Refused { reason, .. } => reason,
            _ => "",
        }
    }

    #[test]
    fn names_and_kinds_decide() {
        use TarMemberKind::{Directory, File, Link, Other, Sparse};
        let mut sorter = MemberSorter::new(false, true);
        let mut check = |path: &str, kind, expected: Placement| {
            assert_eq!(sorter.place(&member(path, kind)), expected, "{path}");
        };
        let file = |path: &str| Placement::File(path.into());
        check("./", Directory, Placement::LeftOut);
        check("./backup_label", File, file("backup_label"));
        check("base/5/", Directory, Placement::Directory("base/5".into()));
        check("base//5/./1259", File, file("base/5/1259"));
        check("pg_tblspc/16400", Link, Placement::LeftOut);
        check("pg_tblspc/16401/PG_17_1/5/1", File, file("pg_tblspc/16401/PG_17_1/5/1"));
        check("pg_wal/000000010000000000000002", File, Placement::Segment);
        check("pg_wal/00000002.history", File, Placement::History("00000002.history".into()));
        check("pg_wal/archive_status/x.done", File, Placement::LeftOut);
        for left in ["backup_manifest", "postmaster.pid"] {
            check(left, File, Placement::LeftOut);
        }
        let mut check = |path: &str, kind, expected: &str| {
            let found = sorter.place(&member(path, kind));
            assert!(reason(&found).contains(expected), "{path}: {found:?}");
        };
        for path in ["/etc/passwd", "../x", "base/../../x", "..", "base/.."] {
            check(path, File, "leads out");
        }
        check("base/5/1259", File, "is there twice");
        check("base/5", File, "is a directory");
        check("base/5/1259/1", File, "is a directory");
        check("base/5/1259", Directory, "is a file");
        check("base/5/1", Link, "is a link");
        check("pg_tblspc/etc", Link, "is a link");
        check("base/5/dev", Other, "neither a file");
        check("base/5/holes", Sparse, "sparse");
        check("base/a\u{7}", File, "is called as no file");
        check(&format!("base/{}", "a".repeat(300)), File, "is called as no file");
        check(&"a/".repeat(600), File, "is called as no file");
        let mut under_file = MemberSorter::new(false, false);
        assert_eq!(under_file.place(&member("base", File)), file("base"));
        for path in ["base/1/1259", "base/1/1259", "base/1/2/3"] {
            let found = under_file.place(&member(path, File));
            assert!(reason(&found).contains("is a directory"), "{path}: {found:?}");
        }
        let mut space = MemberSorter::new(true, true);
        let found = space.place(&member("PG_17_202406281/5/16401", File));
        assert_eq!(found, file("PG_17_202406281/5/16401"));
        assert_eq!(space.place(&member("lost+found/x", File)), Placement::LeftOut);
        assert!(reason(&space.place(&member("PG_17_1/16400", Link))).contains("is a link"));
    }

    proptest! {
        /// Whatever a member is called, it stays below the directory.
        #[test]
        fn nothing_leads_out(paths in prop::collection::vec("[./a\\\\~ ]{0,12}", 0..8)) {
            let mut sorter = MemberSorter::new(false, false);
            for path in paths {
                for kind in [TarMemberKind::File, TarMemberKind::Directory] {
                    if let Placement::File(path) | Placement::Directory(path) =
                        sorter.place(&member(&path, kind))
                    {
                        let is_below = path.components().all(|component| matches!(component, Component::Normal(_)));
                        prop_assert!(is_below && !path.as_os_str().is_empty(), "{}", path.display());
                    }
                }
            }
        }
    }
}
