//! The files that are verified, in little memory: there may be millions.

use std::fs::{DirEntry, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgtoll_format::{ControlFile, ForkNumber, RelFileLocator, RelationFork};
use serde::{Deserialize, Serialize};

use pgtoll_datadir::{FileVisitor, RelationDir, relation_directories};
use pgtoll_datadir::{RelationFile, RelationFileName};

/// Files of relations, in the order of forks and segments.
#[derive(Debug, Default)]
pub(super) struct Listing {
    directories: Vec<Directory>,
    files: Vec<Entry>,
}

#[derive(Debug)]
struct Directory {
    place: RelationDir,
    /// The index of its first file.
    begin: usize,
}

/// 16 bytes a file; all else is made of them when it is asked for.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    segment: u32,
    /// Its length, and in the last two bits its fork.
    bytes_and_fork: u64,
}

/// A place in a list of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Position {
    /// The number of the file, from 0.
    pub(super) file: usize,
    /// The byte in it.
    pub(super) at: u64,
}

/// A file of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) fork: RelationFork,
    /// The number of the fork's file, from 0.
    pub(super) segment: u32,
    pub(super) bytes: u64,
}

impl From<&RelationFile> for Listed {
    fn from(file: &RelationFile) -> Self {
        let fork = RelationFork { relation: file.relation, number: file.name.fork };
        Self { fork, segment: file.name.segment, bytes: file.bytes }
    }
}

/// The other entries beside the files.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Files of temporary relations.
    pub(super) temporary: u64,
    /// Files of other programs.
    pub(super) foreign: Vec<PathBuf>,
    /// Files and directories that could not be read.
    pub(super) unlisted: Vec<(PathBuf, io::Error)>,
    /// A fingerprint of every file's name, length and time of change.
    pub(super) fingerprint: u64,
}

impl Listing {
    /// Those of a data directory that are wanted: relations of which a file is at one of these
    /// paths or below (none: all), and that `wanted` takes.
    pub(super) fn new(
        data: &Path,
        control: &ControlFile,
        only_below: &[PathBuf],
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) -> (Self, Beside) {
        let mut taken = Taken { files: Vec::new(), beside: Beside::default(), control };
        let mut listing = Self::default();
        for place in relation_directories(data, control, &mut taken) {
            place.visit(&mut taken);
            listing.add(place, &mut taken.files, only_below, wanted);
        }
        listing.files.shrink_to_fit();
        taken.beside.foreign.sort_unstable();
        (listing, taken.beside)
    }

    /// Takes the files of a directory.
    fn add(
        &mut self,
        place: RelationDir,
        files: &mut Vec<Entry>,
        only_below: &[PathBuf],
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) {
        files.sort_unstable_by_key(|file| (file.number, file.fork(), file.segment));
        let is_all = only_below.is_empty()
            || only_below.iter().any(|only_below| place.path.starts_with(only_below));
        let is_any =
            is_all || only_below.iter().any(|only_below| only_below.parent() == Some(&place.path));
        let is_below =
            |entry: &Entry| is_all || only_below.contains(&place.path.join(entry.name()));
        let begin = self.files.len();
        // What one file says is judged by the others: all of a relation are read, or none.
        for of_relation in files.chunk_by(|one, next| one.number == next.number) {
            let relation = place.relation(of_relation[0].number);
            if is_any && of_relation.iter().any(is_below) && wanted(relation) {
                self.files.extend_from_slice(of_relation);
            }
        }
        files.clear();
        self.directories.push(Directory { place, begin });
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes()).sum()
    }

    /// How long the file is; `None`: there are not this many.
    pub(super) fn bytes_of(&self, file: usize) -> Option<u64> {
        self.files.get(file).map(|file| file.bytes())
    }

    /// Behind all files.
    pub(super) fn end(&self) -> Position {
        Position { file: self.len(), at: 0 }
    }

    /// Whether something is to be read at this place, or it is the end.
    pub(super) fn has(&self, place: Position) -> bool {
        let Position { file, at } = place;
        self.bytes_of(file).map_or(file == self.len() && at == 0, |bytes| at <= bytes)
    }

    pub(super) fn file(&self, file: usize) -> Listed {
        self.files[file].listed(&self.directory(file).place)
    }

    pub(super) fn path(&self, file: usize) -> PathBuf {
        self.directory(file).place.path.join(self.files[file].name())
    }

    /// All in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Listed> + '_ {
        let ends = self
            .directories
            .iter()
            .skip(1)
            .map(|directory| directory.begin)
            .chain([self.files.len()]);
        self.directories.iter().zip(ends).flat_map(|(directory, end)| {
            let files = self.files.get(directory.begin..end).unwrap_or_default();
            files.iter().map(|file| file.listed(&directory.place))
        })
    }

    /// The files of a fork, by their places in the list.
    pub(super) fn of_fork(&self, fork: RelationFork) -> Range<usize> {
        let RelationFork { relation, number: fork } = fork;
        let key = (relation.tablespace, relation.database);
        let pick = |directory: &Directory| (directory.place.tablespace, directory.place.database);
        let after = self.directories.partition_point(|directory| pick(directory) <= key);
        let found = after.checked_sub(1).map(|at| &self.directories[at]);
        let Some(directory) = found.filter(|directory| pick(directory) == key) else { return 0..0 };
        let end = self.directories.get(after).map_or(self.files.len(), |next| next.begin);
        let files = &self.files[directory.begin..end];
        let key = (relation.rel_number, fork);
        let first = files.partition_point(|file| (file.number, file.fork()) < key);
        let count = files[first..].partition_point(|file| (file.number, file.fork()) == key);
        let first = directory.begin + first;
        first..first + count
    }

    /// The first file that is not before this one in the list's order: this one, where it is there.
    pub(super) fn first_from(&self, fork: RelationFork, segment: u32) -> usize {
        let RelationFork { relation, number } = fork;
        let key = (relation.tablespace, relation.database);
        let pick = |directory: &Directory| (directory.place.tablespace, directory.place.database);
        let at = self.directories.partition_point(|directory| pick(directory) < key);
        let Some(directory) = self.directories.get(at) else { return self.files.len() };
        if pick(directory) != key {
            return directory.begin;
        }
        let end = self.directories.get(at + 1).map_or(self.files.len(), |next| next.begin);
        let key = (relation.rel_number, number, segment);
        let files = &self.files[directory.begin..end];
        directory.begin
            + files.partition_point(|file| (file.number, file.fork(), file.segment) < key)
    }

    fn directory(&self, file: usize) -> &Directory {
        let after = self.directories.partition_point(|directory| directory.begin <= file);
        // Of empty directories with the same begin the last one has the file.
        &self.directories[after - 1]
    }
}

impl Entry {
    fn new(name: RelationFileName, bytes: u64) -> Self {
        let RelationFileName { number, segment, fork, .. } = name;
        Self { number, segment, bytes_and_fork: bytes << FORK_BITS | u64::from(fork.0) }
    }

    fn bytes(self) -> u64 {
        self.bytes_and_fork >> FORK_BITS
    }

    fn fork(self) -> ForkNumber {
        ForkNumber(self.bytes_and_fork.to_le_bytes()[0] & ((1 << FORK_BITS) - 1))
    }

    fn listed(self, place: &RelationDir) -> Listed {
        let fork = RelationFork { relation: place.relation(self.number), number: self.fork() };
        Listed { fork, segment: self.segment, bytes: self.bytes() }
    }

    fn name(self) -> String {
        let Self { number, segment, .. } = self;
        RelationFileName { number, fork: self.fork(), segment, backend: None }.to_string()
    }
}

/// There are four forks; no file system has files of more than 2^62 bytes.
const FORK_BITS: u32 = 2;

/// The files of one directory, and the other entries beside all.
struct Taken<'a> {
    files: Vec<Entry>,
    beside: Beside,
    control: &'a ControlFile,
}

impl FileVisitor for Taken<'_> {
    fn file(
        &mut self,
        dir: &RelationDir,
        name: RelationFileName,
        entry: &DirEntry,
        found: &Metadata,
    ) {
        if name.backend.is_some() {
            self.beside.temporary += 1;
        } else if name.segment.checked_mul(self.control.file_blocks).is_none() {
            // No block has so high a number, and no server would look there.
            self.beside.foreign.push(entry.path());
        } else {
            // A sum: directories list their files in any order.
            let own = fingerprint(dir, name, found);
            self.beside.fingerprint = self.beside.fingerprint.wrapping_add(own);
            self.files.push(Entry::new(name, found.len()));
        }
    }

    fn foreign(&mut self, path: PathBuf) {
        self.beside.foreign.push(path);
    }

    fn unreadable(&mut self, path: PathBuf, error: io::Error) {
        self.beside.unlisted.push((path, error));
    }
}

/// FNV-1a over whole numbers, mixed at the end. It has to stay: resume files hold it.
fn fingerprint(dir: &RelationDir, name: RelationFileName, found: &Metadata) -> u64 {
    let numbers = [
        u64::from(dir.tablespace) << 32 | u64::from(dir.database),
        u64::from(name.number) << 32 | u64::from(name.segment),
        u64::from(name.fork.0),
        found.len(),
        found.mtime().cast_unsigned(),
        found.mtime_nsec().cast_unsigned(),
    ];
    let hash = numbers.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, number| {
        let mixed = (hash ^ number).wrapping_mul(0x0000_0100_0000_01B3);
        mixed ^ mixed >> 29
    });
    (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
