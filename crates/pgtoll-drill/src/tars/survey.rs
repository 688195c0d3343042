//! Tars, looked through before anything is unpacked: what they hold, how large that is, and what is
//! wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pgtoll_datadir::DatadirError;
use pgtoll_format::{CONTROL_FILE_BYTES, ControlFile, MAJORS};
use pgtoll_record::{DrillCheck, DrillFinding};
use pgtoll_system::Interrupt;
use pgtoll_wal::{Packing, TarError, TarMember, TarStream};

use super::members::{MemberSorter, Placement, Sorters};
use super::metered::Metered;
use super::{HISTORIES_MAX, HISTORY_BYTES_MAX, PackedTar, TarFiles, small};
use crate::DrillError;
use crate::incremental_files::{combined_member_bytes, is_incremental};

/// The known facts about tars before they are unpacked.
#[derive(Debug)]
pub(crate) struct TarSurvey {
    pub(crate) files: TarFiles,
    /// OIDs of tablespaces that the backup should have.
    pub(super) mapped: BTreeSet<u32>,
    /// Bytes of the files that are unpacked, each in whole blocks of the disk.
    pub(crate) bytes: u64,
    /// The same with what incremental files become when they are combined.
    pub(crate) combined_bytes: u64,
    /// The faults of the tars; the first of very many.
    pub(crate) findings: Vec<DrillFinding>,
    /// Tars that cannot be read to their ends.
    pub(crate) broken: BTreeSet<PathBuf>,
}

/// The facts of the backup in tars.
#[derive(Debug)]
pub(crate) struct TarFacts {
    /// The control file, or why it cannot be read.
    pub(crate) control: Result<ControlFile, DatadirError>,
    pub(crate) label: Option<Vec<u8>>,
    /// The major version; `None`: nothing says it.
    pub(crate) major: Option<u32>,
    /// The data directory's tar has WAL.
    pub(crate) has_wal: bool,
    /// Histories of timelines in the data directory's tar.
    pub(crate) histories: BTreeMap<String, Vec<u8>>,
}

/// The limits of a survey.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyLimits<'a> {
    /// Bytes that are free where the tars are to be unpacked.
    pub(crate) free_bytes: u64,
    /// Its place.
    pub(crate) work_dir: &'a Path,
    pub(crate) interrupt: &'a Interrupt,
}

/// The content that is found on the way.
#[derive(Default)]
struct Contents {
    control: Option<Vec<u8>>,
    label: Option<Vec<u8>>,
    version: Option<u32>,
    mapped: BTreeSet<u32>,
    bytes: u64,
    combined_bytes: u64,
    has_wal: bool,
    histories: BTreeMap<String, Vec<u8>>,
    findings: Vec<DrillFinding>,
    broken: BTreeSet<PathBuf>,
}

impl TarSurvey {
    /// Looks through tars. `progress` is given bytes of the tars as they lie: those that were read, and
    /// all.
    pub(crate) fn read(
        files: TarFiles,
        limits: SurveyLimits<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, TarFacts), DrillError> {
        let meter = Metered::default();
        let all = files.packed_bytes();
        let manifest = files.manifest.iter().filter_map(|path| fs::metadata(path).ok());
        let bytes = manifest.map(|manifest| manifest.len().next_multiple_of(DISK_BLOCK)).sum();
        let mut contents = Contents { bytes, ..Contents::default() };
        files.gaps.iter().for_each(|words| contents.find(words, true));
        let mut watch = || progress(meter.bytes(), all);
        let mut sorters = Sorters::new(files.manifest.is_some());
        for (oid, tar) in files.all() {
            let sorter = sorters.sorter_mut(oid);
            let ended = if tar.packing == Packing::Plain {
                let file = tar.file()?;
                let mut stream = TarStream::seeking(&file).map_err(DrillError::read(&tar.path))?;
                contents.read(tar, sorter, &mut stream, limits, &mut watch)?
            } else {
                let mut stream = tar.open(&meter, limits.interrupt)?;
                contents.read(tar, sorter, &mut stream, limits, &mut watch)?
            };
            limits.interrupt.check()?;
            if let Err(error) = ended {
                contents.break_off(tar, &error);
            }
        }
        Ok(contents.sorted(files))
    }
}

impl Contents {
    /// Reads a tar to its end. The error within is why there is none.
    fn read<R: Read>(
        &mut self,
        tar: &PackedTar,
        sorter: &mut MemberSorter,
        stream: &mut TarStream<R>,
        limits: SurveyLimits<'_>,
        watch: &mut dyn FnMut(),
    ) -> Result<Result<(), TarError>, DrillError> {
        loop {
            limits.interrupt.check()?;
            watch();
            let member = match stream.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = self.member(tar, &member, sorter.place(&member), stream) {
                return Ok(Err(error));
            }
            if self.bytes > limits.free_bytes {
                return Err(DrillError::NoSpace {
                    needed_bytes: self.bytes,
                    free_bytes: limits.free_bytes,
                    work_dir: limits.work_dir.to_owned(),
                });
            }
        }
    }

    fn member<R: Read>(
        &mut self,
        tar: &PackedTar,
        member: &TarMember,
        placement: Placement,
        stream: &mut TarStream<R>,
    ) -> Result<(), TarError> {
        match placement {
            Placement::File(path) => {
                let bytes = member.bytes.next_multiple_of(DISK_BLOCK);
                self.bytes = self.bytes.saturating_add(bytes);
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let combined = if is_incremental(&name) {
                    combined_member_bytes(member, stream)?
                } else {
                    bytes
                };
                self.combined_bytes = self.combined_bytes.saturating_add(combined);
                match path.to_str().unwrap_or_default() {
                    "global/pg_control" => {
                        self.control = Some(small(stream, CONTROL_FILE_BYTES)?);
                    }
                    "backup_label" => self.label = Some(small(stream, LABEL_BYTES_MAX)?),
                    "tablespace_map" => {
                        let text = small(stream, MAP_BYTES_MAX)?;
                        self.mapped = mapped_oids(&String::from_utf8_lossy(&text));
                    }
                    name if name.ends_with("PG_VERSION") && self.version.is_none() => {
                        let text = small(stream, 64)?;
                        self.version = String::from_utf8_lossy(&text).trim().parse().ok();
                    }
                    _ => {}
                }
            }
            Placement::Directory(_) => self.bytes += DISK_BLOCK,
            Placement::Segment => self.has_wal = true,
            Placement::History(name) if self.histories.len() < HISTORIES_MAX => {
                self.histories.insert(name, small(stream, HISTORY_BYTES_MAX)?);
            }
            Placement::Refused { reason, is_damage } => {
                let words = format!("{}: {} {reason}: not unpacked", tar.name(), member.path);
                self.find(&words, is_damage);
            }
            Placement::History(_) | Placement::LeftOut => {}
        }
        Ok(())
    }

    /// Ends a tar; an error of the system says nothing about the tar.
    fn break_off(&mut self, tar: &PackedTar, error: &TarError) {
        let of_system = |source: &io::Error| source.raw_os_error().is_some();
        let is_unread = matches!(error, TarError::Read { source, .. } if of_system(source));
        self.find(&format!("{}: {error}", tar.name()), !is_unread);
        self.broken.insert(tar.path.clone());
    }

    fn find(&mut self, words: &str, is_damage: bool) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(DrillFinding {
                database: None,
                relation: None,
                check: DrillCheck::Tar,
                is_damage,
                words: words.chars().take(WORDS_MAX).collect(),
                sqlstate: None,
            });
        }
    }

    fn sorted(self, files: TarFiles) -> (TarSurvey, TarFacts) {
        let path = files.base.path.join("global/pg_control");
        let control = match &self.control {
            Some(bytes) => {
                ControlFile::read(bytes).map_err(|source| DatadirError::Control { path, source })
            }
            None => Err(DatadirError::Read { path, source: io::ErrorKind::NotFound.into() }),
        };
        let catalogs = control.as_ref().ok().map(|control| control.catalog_version);
        let known = MAJORS.iter().find(|facts| Some(facts.catalog.version) == catalogs);
        let facts = TarFacts {
            control,
            label: self.label,
            major: known.map(|facts| facts.major).or(self.version),
            has_wal: self.has_wal,
            histories: self.histories,
        };
        let Self { mut mapped, bytes, combined_bytes, findings, broken, .. } = self;
        mapped.extend(&files.listed);
        (TarSurvey { files, mapped, bytes, combined_bytes, findings, broken }, facts)
    }
}

/// The OIDs that a `tablespace_map` lists.
pub(crate) fn mapped_oids(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok()).collect()
}

/// A file takes up whole ones, in most file systems.
pub(crate) const DISK_BLOCK: u64 = 4096;
/// Bytes of a `backup_label` at most; a server writes some 300.
const LABEL_BYTES_MAX: usize = 1 << 16;
/// Bytes of a `tablespace_map` at most: a line for each tablespace.
const MAP_BYTES_MAX: usize = 16 << 20;
/// Findings that are kept.
const FINDINGS_MAX: usize = 1000;
/// Characters of one that are kept.
const WORDS_MAX: usize = 500;
