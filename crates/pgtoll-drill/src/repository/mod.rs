//! A backup in a repository of pgBackRest, which is not changed: its manifest lists the files, and each
//! is unpacked by itself, so that one that is damaged hides no other.
//!
//! A manifest may come from anybody. What becomes of a file depends on its name alone, as in tars
//! (`tars/members.rs`); links that a manifest lists are not made.

mod stored;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pgtoll_datadir::DatadirError;
use pgtoll_format::{CONTROL_FILE_BYTES, ControlFile};
use pgtoll_record::{DrillCheck, DrillFinding};
use pgtoll_verify::{PGBACKREST_MANIFEST, PgBackRestFile, PgBackRestManifest, PgBackRestPlace};
use pgtoll_wal::{Packing, SegmentFile, TarMember, TarMemberKind};

use self::stored::StoredFiles;
use crate::tars::{DISK_BLOCK, Placement, Sorters, mapped_oids};

/// The known facts about a backup before it is unpacked.
#[derive(Debug)]
pub(crate) struct RepositorySurvey {
    stored: StoredFiles,
    files: Vec<ListedFile>,
    directories: Vec<Destination>,
    /// OIDs of the tablespaces that the manifest lists.
    pub(crate) tablespaces: BTreeSet<u32>,
    /// Those that only `tablespace_map` lists.
    pub(crate) missing_tablespaces: BTreeSet<u32>,
    /// Bytes of the files that are unpacked, each in whole blocks of the disk.
    pub(crate) bytes: u64,
    /// WAL among the files: of a server that was stopped, or copied there (`archive-copy`).
    pub(crate) segments: Vec<SegmentFile>,
    /// The findings about stored files.
    pub(crate) findings: Vec<DrillFinding>,
}

/// The facts of the backup by its stored files.
#[derive(Debug)]
pub(crate) struct RepositoryFacts {
    /// The control file, or why it cannot be read.
    pub(crate) control: Result<ControlFile, DatadirError>,
    pub(crate) label: Option<Vec<u8>>,
}

/// A file that is unpacked.
#[derive(Debug)]
struct ListedFile {
    to: Destination,
    /// As the manifest calls it.
    name: String,
    /// Bytes, unpacked.
    bytes: u64,
    /// `None`: it is empty, and nothing is stored.
    place: Option<PgBackRestPlace>,
    checksum: Option<String>,
}

/// The destination of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Destination {
    /// Its tablespace; `None`: in the data directory.
    tablespace: Option<u32>,
    path: PathBuf,
}

impl RepositorySurvey {
    /// Looks at what a manifest lists: every stored file is looked for, and few are read.
    pub(crate) fn from_manifest(
        stanza: &Path,
        manifest: PgBackRestManifest,
    ) -> (Self, RepositoryFacts) {
        let PgBackRestManifest { packing, files, directories, tablespaces, .. } = manifest;
        let mut survey = Self {
            stored: StoredFiles { stanza: stanza.to_owned(), packing },
            files: Vec::with_capacity(files.len()),
            directories: Vec::with_capacity(directories.len()),
            tablespaces: tablespaces.into_iter().collect(),
            missing_tablespaces: BTreeSet::new(),
            bytes: 0,
            segments: Vec::new(),
            findings: Vec::new(),
        };
        let mut sorters = Sorters::new(false);
        for path in directories {
            survey.directory(&path, &mut sorters);
        }
        for file in files {
            survey.file(file, &mut sorters);
        }
        survey.find_missing();
        let facts = survey.facts();
        (survey, facts)
    }

    /// How the files are compressed, in PostgreSQL's words; `None`: not.
    pub(crate) fn packing(&self) -> Option<&'static str> {
        match self.stored.packing {
            Packing::Plain => None,
            Packing::Gzip => Some("gzip"),
            Packing::Lz4 => Some("lz4"),
            Packing::Zstd => Some("zstd"),
            Packing::Unread => Some("compressed"),
        }
    }

    /// How many files are unpacked.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    fn directory(&mut self, path: &str, sorters: &mut Sorters) {
        let (tablespace, below) = self.split(path);
        let kind = TarMemberKind::Directory;
        let member = TarMember { path: below.to_owned(), bytes: 0, kind };
        match sorters.sorter_mut(tablespace).place(&member) {
            Placement::Directory(path) => {
                self.bytes = self.bytes.saturating_add(DISK_BLOCK);
                self.directories.push(Destination { tablespace, path });
            }
            Placement::Refused { reason, is_damage } => self.refuse(path, reason, is_damage),
            _ => {}
        }
    }

    fn file(&mut self, file: PgBackRestFile, sorters: &mut Sorters) {
        let PgBackRestFile { path: name, bytes, place, checksum } = file;
        let (tablespace, below) = self.split(&name);
        let member = TarMember { path: below.to_owned(), bytes, kind: TarMemberKind::File };
        match sorters.sorter_mut(tablespace).place(&member) {
            Placement::File(path) => {
                let disk_bytes = bytes.checked_next_multiple_of(DISK_BLOCK).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(disk_bytes);
                let to = Destination { tablespace, path };
                self.files.push(ListedFile { to, name, bytes, place, checksum });
            }
            Placement::Refused { reason, is_damage } => self.refuse(&name, reason, is_damage),
            Placement::Segment => {
                let name = below.rsplit('/').next().unwrap_or_default();
                let stored = &self.stored;
                self.segments.extend(place.and_then(|place| stored.segment(name, place)));
            }
            // It belongs to the server that was backed up.
            _ => {}
        }
    }

    /// The tablespace that a path is in, and the path there.
    fn split<'a>(&self, path: &'a str) -> (Option<u32>, &'a str) {
        let below = path.strip_prefix("pg_tblspc/").unwrap_or_default();
        let (name, rest) = below.split_once('/').unwrap_or((below, ""));
        match pgtoll_datadir::decimal(name).filter(|oid| self.tablespaces.contains(oid)) {
            Some(oid) => (Some(oid), rest),
            None => (None, path),
        }
    }

    fn refuse(&mut self, path: &str, reason: &str, is_damage: bool) {
        self.find(&format!("{PGBACKREST_MANIFEST}: {path} {reason}: not unpacked"), is_damage);
    }

    /// Looks for everything that is stored.
    fn find_missing(&mut self) {
        let mut places: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
        for file in &self.files {
            if let Some(place) = &file.place {
                places.entry(&place.key).or_insert((&file.name, 0)).1 += 1;
            }
        }
        let mut found = Vec::new();
        for (key, (first, files)) in places {
            let whose = match files {
                1 => first.to_owned(),
                more => format!("{more} files of the backup, such as {first}"),
            };
            match fs::symlink_metadata(self.stored.stanza.join(key)) {
                Ok(symlink_metadata) if symlink_metadata.is_file() => {}
                Ok(_) => found.push((format!("{key} is not a file; it should have {whose}"), true)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    found.push((format!("{key} is missing; it should have {whose}"), true));
                }
                Err(error) => found.push((format!("{key} cannot be read: {error}"), false)),
            }
        }
        for (words, is_damage) in found {
            self.find(&words, is_damage);
        }
    }

    fn facts(&mut self) -> RepositoryFacts {
        let place = self.data_file(CONTROL).and_then(|file| file.place.as_ref());
        let path = self.stored.stanza.join(place.map_or(CONTROL, |place| &place.key));
        let control = match self.content(CONTROL, CONTROL_FILE_BYTES as u64) {
            Ok(bytes) => {
                ControlFile::read(&bytes).map_err(|source| DatadirError::Control { path, source })
            }
            Err(source) => Err(DatadirError::Read { path, source }),
        };
        if let Ok(text) = self.content("tablespace_map", MAP_BYTES_MAX) {
            let mapped = mapped_oids(&String::from_utf8_lossy(&text));
            self.missing_tablespaces = mapped.difference(&self.tablespaces).copied().collect();
        }
        RepositoryFacts { control, label: self.content("backup_label", LABEL_BYTES_MAX).ok() }
    }

    /// The first bytes of a file of the data directory, `most` of them or all.
    fn content(&self, path: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.data_file(path).ok_or(io::ErrorKind::NotFound)?;
        file.place.as_ref().map_or(Ok(Vec::new()), |place| self.stored.begin(place, most))
    }

    fn data_file(&self, path: &str) -> Option<&ListedFile> {
        let is_it =
            |file: &&ListedFile| file.to.tablespace.is_none() && file.to.path == Path::new(path);
        self.files.iter().find(is_it)
    }

    fn find(&mut self, words: &str, is_damage: bool) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding(words, is_damage));
        }
    }
}

fn finding(words: &str, is_damage: bool) -> DrillFinding {
    DrillFinding {
        database: None,
        relation: None,
        check: DrillCheck::Repository,
        is_damage,
        words: words.chars().take(WORDS_MAX).collect(),
        sqlstate: None,
    }
}

/// The control file, below the data directory.
const CONTROL: &str = "global/pg_control";
/// Bytes of a `backup_label` at most; a server writes some 300.
const LABEL_BYTES_MAX: u64 = 1 << 16;
/// Bytes of a `tablespace_map` at most: a line for each tablespace.
const MAP_BYTES_MAX: u64 = 16 << 20;
/// Findings that are kept.
const FINDINGS_MAX: usize = 1000;
/// Characters of one that are kept.
const WORDS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use pgtoll_system::Interrupt;
    use sha1::{Digest as _, Sha1};

    use super::*;
    use crate::tars::UnpackTarget;
    use crate::writer::CopyWriter;

    const LABEL: &str = "20261126-122617F";

    /// A stanza with these stored files, and a manifest that lists each with this content.
    fn stanza(
        stored: &[(&str, &str)],
        listed: &[(&str, &str)],
    ) -> (tempfile::TempDir, PgBackRestManifest) {
        let place = tempfile::tempdir().unwrap();
        for (key, content) in stored {
            let path = place.path().join(LABEL).join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let file = |(path, content): &(&str, &str)| {
            let key = if path.starts_with("pg_tblspc/7/") {
                format!("{LABEL}/{path}")
            } else {
                format!("{LABEL}/pg_data/{path}")
            };
            let checksum = pgtoll_format::hex(&Sha1::digest(content));
            PgBackRestFile {
                path: (*path).to_owned(),
                bytes: content.len() as u64,
                place: Some(PgBackRestPlace { key, offset: 0, bytes: None }),
                checksum: Some(checksum),
            }
        };
        let manifest = PgBackRestManifest {
            packing: Packing::Plain,
            files: listed.iter().map(file).collect(),
            directories: ["base", "pg_wal", "pg_tblspc", "pg_tblspc/7"].map(str::to_owned).into(),
            tablespaces: vec![7],
            archive: None,
            major: Some(17),
            stop: None,
            is_online: true,
        };
        (place, manifest)
    }

    fn unpacked(place: &Path, manifest: PgBackRestManifest) -> (PathBuf, Vec<String>) {
        let (survey, _) = RepositorySurvey::from_manifest(place, manifest);
        let directory = place.join("copy");
        fs::create_dir(&directory).unwrap();
        let target = UnpackTarget {
            directory: &directory,
            major: 17,
            writer: CopyWriter::own(),
            interrupt: &Interrupt::new(),
        };
        let found = survey.unpack(target, &mut |_, _| {}).unwrap();
        let words =
            survey.findings.iter().chain(&found).map(|finding| finding.words.clone()).collect();
        (directory, words)
    }

    #[test]
    fn files_are_unpacked_into_the_drills_own_directories() {
        let files = [
            ("base/1/1259", "page"),
            ("backup_label", "START WAL LOCATION: 0/2000028\n"),
            ("tablespace_map", "7 /srv/production\n8 /srv/other\n"),
            ("pg_tblspc/7/PG_17_1/5/4", "of the tablespace"),
            ("pg_tblspc/7/PG_15_1/5/4", "another server's"),
            ("pg_wal/000000010000000000000002", "WAL"),
            ("postmaster.pid", "1"),
        ];
        let stored = files.map(|(path, content)| {
            let key = if path.starts_with("pg_tblspc/") {
                path.to_owned()
            } else {
                format!("pg_data/{path}")
            };
            (key, content)
        });
        let stored = stored.each_ref().map(|(key, content)| (&**key, *content));
        let (place, manifest) = stanza(&stored, &files);
        let (survey, facts) = RepositorySurvey::from_manifest(place.path(), manifest.clone());
        assert_eq!(survey.missing_tablespaces, [8].into());
        let [segment] = &*survey.segments else { panic!("{:?}", survey.segments) };
        let mut wal = String::new();
        io::Read::read_to_string(&mut segment.open().unwrap(), &mut wal).unwrap();
        assert_eq!(wal, "WAL");
        assert!(facts.label.unwrap().starts_with(b"START WAL") && facts.control.is_err());
        let (copy, words) = unpacked(place.path(), manifest);
        assert_eq!(words, Vec::<String>::new());
        let text = |path: &str| fs::read_to_string(copy.join(path)).unwrap_or_default();
        assert_eq!(text("data/base/1/1259"), "page");
        assert_eq!(text("data/pg_tblspc/7/PG_17_1/5/4"), "of the tablespace");
        for oid in ["7", "8"] {
            let target = fs::read_link(copy.join("data/pg_tblspc").join(oid)).unwrap();
            assert_eq!(target, copy.join("tablespaces").join(oid));
        }
        let absent = [
            "tablespaces/7/PG_15_1",
            "data/pg_wal/000000010000000000000002",
            "data/postmaster.pid",
        ];
        for path in absent {
            assert!(!copy.join(path).exists(), "{path}");
        }
    }

    #[test]
    fn what_is_not_as_it_is_listed_is_found() {
        let stored = [
            ("pg_data/short", "shor"),
            ("pg_data/long", "longer"),
            ("pg_data/other", "another"),
            ("pg_data/twice", "twice"),
            ("pg_data/base", "a file"),
            ("pg_data/PG_VERSION", "17\n"),
        ];
        let listed = [
            ("short", "short"),
            ("long", "long"),
            ("other", "content"),
            ("twice", "twice"),
            ("twice", "twice"),
            ("base", "a file"),
            ("lost", "lost"),
            ("linked", "linked"),
            ("line\u{7}", "x"),
            ("PG_VERSION", "17\n"),
        ];
        let (place, manifest) = stanza(&stored, &listed);
        symlink("/etc/passwd", place.path().join(LABEL).join("pg_data/linked")).unwrap();
        let (copy, words) = unpacked(place.path(), manifest);
        let expected = [
            "backup.manifest: twice is there twice",
            "backup.manifest: base is a directory, too",
            "line\u{7} is called as no file of a server is",
            "pg_data/linked is not a file",
            "pg_data/lost is missing",
            "short (in 20261126-122617F/pg_data/short): shorter than",
            "long (in 20261126-122617F/pg_data/long): longer than",
            "its SHA-1 is not the one",
        ];
        for output in expected {
            assert!(words.iter().any(|words| words.contains(output)), "{output}: {words:#?}");
        }
        assert!(!copy.join("data/lost").exists() && !copy.join("data/linked").exists());
        assert_eq!(fs::read_to_string(copy.join("data/PG_VERSION")).unwrap(), "17\n");
    }
}
