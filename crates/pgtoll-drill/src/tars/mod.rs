//! A base backup in tars, as `pg_basebackup -Ft` writes it: found, looked through, unpacked.
//!
//! Tars may come from anybody. What becomes of a member depends on its name and kind alone
//! (`members.rs`): no link is made of a tar, no name leads out of the copy, and what no server puts into
//! a backup is not unpacked.

mod members;
mod metered;
mod survey;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pgtoll_system::Interrupt;
use pgtoll_wal::{Packing, TarStream};

pub(crate) use self::members::{Placement, Sorters};
use self::metered::Metered;
pub(crate) use self::survey::{DISK_BLOCK, SurveyLimits, TarFacts, TarSurvey, mapped_oids};
pub(crate) use self::unpack::UnpackTarget;
use crate::DrillError;

/// The files of a base backup in tars.
#[derive(Clone, Debug)]
pub(crate) struct TarFiles {
    pub(crate) base: PackedTar,
    /// By OID.
    pub(crate) tablespaces: BTreeMap<u32, PackedTar>,
    /// The further tars of the data directory, or of a tablespace.
    parts: Vec<(Option<u32>, PackedTar)>,
    /// Signs that a tar is missing.
    gaps: Vec<String>,
    /// OIDs of tablespaces that are listed beside the tars.
    listed: BTreeSet<u32>,
    /// Its WAL, where it has a tar of its own.
    pub(crate) wal: Option<PathBuf>,
    /// The manifest beside the tars.
    pub(crate) manifest: Option<PathBuf>,
}

/// A tar, and how it is compressed.
#[derive(Clone, Debug)]
pub(crate) struct PackedTar {
    pub(crate) path: PathBuf,
    pub(crate) packing: Packing,
}

impl TarFiles {
    /// The tars at this path: a directory with a `base.tar`, or that tar. `None`: there is none.
    pub(crate) fn at(path: &Path) -> Result<Option<Self>, DrillError> {
        let is_directory = fs::metadata(path).map_err(DrillError::read(path))?.is_dir();
        let (directory, named) = match path.parent() {
            Some(parent) if !is_directory => (parent, PackedTar::from_path(path)),
            _ => (path, None),
        };
        if !is_directory && named.is_none() {
            return Ok(None);
        }
        let is_alone = named.as_ref().is_some_and(|tar| tar.stem() != Some(BASE));
        let mut found = Found::default();
        if !is_alone {
            for entry in fs::read_dir(directory).map_err(DrillError::read(directory))? {
                found.add(&entry.map_err(DrillError::read(directory))?.path());
            }
        }
        let base = match (named, found.bases.pop()) {
            (Some(named), _) => named,
            (None, Some(_)) if !found.bases.is_empty() => {
                return Err(DrillError::SeveralBases { path: path.to_owned() });
            }
            (None, Some(base)) => base,
            (None, None) => return Ok(None),
        };
        let Found { tablespaces, wal, manifest, .. } = found;
        let parts = Vec::new();
        let gaps = Vec::new();
        let listed = BTreeSet::new();
        Ok(Some(Self { base, tablespaces, parts, gaps, listed, wal, manifest }))
    }

    /// barman's tars in this directory: `data.tar` and one a tablespace, each followed by parts like
    /// `data_0001.tar` if it is long. `None`: there is no `data.tar`.
    pub(crate) fn of_barman(
        directory: &Path,
        listed: BTreeSet<u32>,
    ) -> Result<Option<Self>, DrillError> {
        let mut tars = Vec::new();
        for entry in fs::read_dir(directory).map_err(DrillError::read(directory))? {
            let path = entry.map_err(DrillError::read(directory))?.path();
            tars.extend(PackedTar::from_path(&path));
        }
        tars.sort_by(|one, other| one.path.cmp(&other.path));
        let mut base = None;
        let mut tablespaces = BTreeMap::new();
        let mut parts = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut gaps = Vec::new();
        for tar in tars {
            let stem = tar.stem().unwrap_or_default();
            let (name, number) = stem.split_once('_').unwrap_or((stem, "0"));
            let oid = pgtoll_datadir::decimal(name).filter(|oid| *oid > 0);
            let Ok(number) = number.parse::<u64>() else { continue };
            if name != BARMAN_BASE && oid.is_none() {
                continue;
            }
            let next = numbers.insert(oid, number + 1).unwrap_or_default();
            if number != next {
                gaps.push(format!("{} is there, and the part before it is missing", tar.name()));
            }
            match oid {
                None if base.is_none() => base = Some(tar),
                Some(oid) if !tablespaces.contains_key(&oid) => drop(tablespaces.insert(oid, tar)),
                oid => parts.push((oid, tar)),
            }
        }
        let wal = None;
        let manifest = None;
        let pick = |base| Self { base, tablespaces, parts, gaps, listed, wal, manifest };
        Ok(base.map(pick))
    }

    /// The data directory's tar, then those of tablespaces, each with the OID, then further parts.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<u32>, &PackedTar)> {
        let tablespaces = self.tablespaces.iter().map(|(oid, tar)| (Some(*oid), tar));
        let parts = self.parts.iter().map(|(oid, tar)| (*oid, tar));
        [(None, &self.base)].into_iter().chain(tablespaces).chain(parts)
    }

    /// Bytes of those tars, as they are packed.
    pub(crate) fn packed_bytes(&self) -> u64 {
        self.all().filter_map(|(_, tar)| fs::metadata(&tar.path).ok()).map(|item| item.len()).sum()
    }

    /// How they are compressed, in PostgreSQL's words; `None`: not.
    pub(crate) fn packing(&self) -> Option<&'static str> {
        self.all().find_map(|(_, tar)| match tar.packing {
            Packing::Plain => None,
            Packing::Gzip => Some("gzip"),
            Packing::Lz4 => Some("lz4"),
            Packing::Zstd => Some("zstd"),
            Packing::Unread => Some("compressed"),
        })
    }
}

/// The parts of a backup in a directory.
#[derive(Default)]
struct Found {
    bases: Vec<PackedTar>,
    tablespaces: BTreeMap<u32, PackedTar>,
    wal: Option<PathBuf>,
    manifest: Option<PathBuf>,
}

impl Found {
    fn add(&mut self, path: &Path) {
        if path.file_name().is_some_and(|name| name == "backup_manifest") {
            self.manifest = Some(path.to_owned());
        }
        let Some(tar) = PackedTar::from_path(path) else { return };
        match tar.stem() {
            Some(BASE) => self.bases.push(tar),
            Some("pg_wal") => self.wal = Some(tar.path),
            Some(name) => {
                if let Some(oid) = pgtoll_datadir::decimal(name).filter(|oid| *oid > 0) {
                    self.tablespaces.insert(oid, tar);
                }
            }
            None => {}
        }
    }
}

impl PackedTar {
    fn from_path(path: &Path) -> Option<Self> {
        Some(Self { packing: Packing::of_tar(path)?, path: path.to_owned() })
    }

    /// The name without its endings.
    fn stem(&self) -> Option<&str> {
        let name = self.path.file_name()?.to_str()?;
        let (stem, _) = name.split_once(".tar").or_else(|| name.split_once(".tgz"))?;
        Some(stem)
    }

    /// The name alone.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The tar from its beginning, decompressed. `meter` counts what is read of the file; a signal ends
    /// it.
    fn open(
        &self,
        meter: &Metered,
        interrupt: &Interrupt,
    ) -> Result<TarStream<Box<dyn Read + Send>>, DrillError> {
        let file = self.file()?;
        let input = self.packing.open(Box::new(meter.reader(file, interrupt)));
        input.map(TarStream::new).map_err(DrillError::read(&self.path))
    }

    fn file(&self) -> Result<File, DrillError> {
        pgtoll_system::open(&self.path).map_err(DrillError::read(&self.path))
    }
}

/// The member's first bytes, `most` of them or all.
fn small<R: Read>(stream: &mut TarStream<R>, most: usize) -> Result<Vec<u8>, pgtoll_wal::TarError> {
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match stream.read(&mut bytes[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Histories of timelines in a tar of WAL, by their names. What cannot be read is found when its
/// segments are.
pub(crate) fn histories_in_tar(path: &Path, interrupt: &Interrupt) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let read = |found: &mut BTreeMap<String, Vec<u8>>| -> Option<()> {
        let tar = PackedTar::from_path(path)?;
        let mut stream = tar.open(&Metered::default(), interrupt).ok()?;
        while let Some(member) = stream.next_member().ok()? {
            let name = member.path.trim_start_matches("./").to_owned();
            if is_history(&name) && found.len() < HISTORIES_MAX {
                found.insert(name, small(&mut stream, HISTORY_BYTES_MAX).ok()?);
            }
        }
        Some(())
    };
    read(&mut found);
    found
}

/// Whether this is what the history of a timeline is called.
pub(crate) fn is_history(name: &str) -> bool {
    name.strip_suffix(".history").is_some_and(|timeline| {
        timeline.len() == 8 && timeline.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// An I/O error that carries another error as its source.
fn unreadable(error: pgtoll_wal::TarError) -> io::Error {
    io::Error::other(error)
}

/// barman's tar of the data directory.
const BARMAN_BASE: &str = "data";
/// The data directory's tar, without its endings.
const BASE: &str = "base";
/// A history has a line for each timeline.
const HISTORY_BYTES_MAX: usize = 1 << 20;
/// Timelines of a backup, at most: each promotion makes one.
const HISTORIES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tars_of_a_backup_are_told_by_their_names() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(place.path().join(name), "").unwrap();
        assert!(TarFiles::at(place.path()).unwrap().is_none());
        for name in ["16400.tar.gz", "pg_wal.tar", "backup_manifest", "other.tar", "0.tar"] {
            write(name);
        }
        assert!(TarFiles::at(place.path()).unwrap().is_none());
        write("base.tar.gz");
        let found = TarFiles::at(place.path()).unwrap().unwrap();
        assert_eq!(found.tablespaces.keys().copied().collect::<Vec<u32>>(), [16_400]);
        assert!(found.wal.is_some() && found.manifest.is_some());
        assert_eq!(found.packing(), Some("gzip"));
        write("base.tar");
        let error = TarFiles::at(place.path()).unwrap_err();
        assert!(error.to_string().contains("several"), "{error}");
        let named = TarFiles::at(&place.path().join("base.tar")).unwrap().unwrap();
        assert_eq!((named.base.name().as_str(), named.tablespaces.len()), ("base.tar", 1));
        let alone = TarFiles::at(&place.path().join("other.tar")).unwrap().unwrap();
        assert!(alone.tablespaces.is_empty() && alone.wal.is_none());
        assert!(TarFiles::at(&place.path().join("backup_manifest")).unwrap().is_none());
    }

    #[test]
    fn barmans_tars_may_have_parts() {
        let place = tempfile::tempdir().unwrap();
        let found = |more: &[&str]| {
            for name in more {
                fs::write(place.path().join(name), "").unwrap();
            }
            TarFiles::of_barman(place.path(), [16_400].into()).unwrap()
        };
        assert!(found(&["backup.info", "16400.tar", "other.tar"]).is_none());
        let tars = found(&["data_0001.tar", "data.tar", "16400_0001.tar"]).unwrap();
        let names: Vec<(Option<u32>, String)> =
            tars.all().map(|(oid, tar)| (oid, tar.name())).collect();
        let expected = [
            (None, "data.tar"),
            (Some(16_400), "16400.tar"),
            (Some(16_400), "16400_0001.tar"),
            (None, "data_0001.tar"),
        ];
        assert_eq!(names, expected.map(|(oid, name)| (oid, name.to_owned())));
        assert!(tars.gaps.is_empty(), "{:?}", tars.gaps);
        let gaps = found(&["data_0003.tar"]).unwrap().gaps;
        assert_eq!(gaps, ["data_0003.tar is there, and the part before it is missing"]);
    }
}
