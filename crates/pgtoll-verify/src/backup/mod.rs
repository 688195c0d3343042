//! Base backups that are no plain data directories: tars, packed or not, and incremental files.
//!
//! A tar is read from its beginning to its end. What its pages are judged by, the control file,
//! comes last in it: until then it is taken for one with the usual sizes and with checksums, and
//! read again if it was not.

mod beside;
mod catalogs;
mod complete;
mod content;
mod images;
mod judge;
mod member;
mod member_path;
mod opener;
mod run;
mod settle;
mod source;
mod wal_place;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pgtoll_format::{ControlFile, Lsn, MAJORS, RelFileLocator};

use self::beside::BackupFacts;
pub use self::beside::describes_backup;
use self::content::Content;
use self::judge::Rules;
use self::member_path::{MemberKind, MemberPath};
pub use self::opener::{OpenInput, TarInput};
use self::run::{Known, Wanted, run};
pub use self::settle::{BackupWal, TarChecks, WalAtHand};
pub(super) use self::source::IncrementalFile;
use self::source::{Source, TarFile};
pub use self::wal_place::{FindSegments, WalPlace, WalStretch};
use crate::found::Verified;
use crate::settings::{VerifyProgress, VerifySettings};
use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::DatadirError;
use pgtoll_datadir::RelationFileName;
use pgtoll_datadir::backup_label_start;
use pgtoll_wal::Packing;
use pgtoll_wal::TarStream;

/// A base backup in tars.
#[derive(Clone, Debug)]
pub struct TarBackup {
    /// The directory that holds them, or the only one that is meant.
    pub path: PathBuf,
    tars: Vec<TarFile>,
    /// Tars of the same backup that are read only for what they say of these.
    beside: Vec<TarFile>,
    /// The manifest beside tars that are no files.
    manifest: Option<Arc<dyn OpenInput>>,
    /// The place of the WAL of tars that are not files.
    wal: Option<WalPlace>,
}

/// The findings in tars, and the backup that they belong to.
#[derive(Debug, Default)]
pub struct VerifiedTars {
    /// The pages that were read, and their findings.
    pub verified: Verified,
    /// The control file; `None` where none was found: the usual sizes and checksums were assumed.
    pub control: Option<ControlFile>,
    /// The major version, where it is known.
    pub major: Option<u32>,
    /// The start of the backup; `None`: it has no `backup_label`.
    pub start: Option<Lsn>,
    /// The files of each tar.
    contents: Vec<Content>,
}

impl TarBackup {
    /// The tars at this path: a tar itself, or a directory with a `base.tar`, packed or not, and
    /// with those of its tablespaces. `None`: there is none.
    pub fn at(path: &Path) -> Result<Option<Self>, DatadirError> {
        let read = |source| DatadirError::Read { path: path.to_owned(), source };
        if !fs::metadata(path).map_err(read)?.is_dir() {
            let tar = TarFile::from_path(path).transpose()?;
            let tars: Vec<TarFile> = tar.into_iter().collect();
            return Ok((!tars.is_empty()).then(|| Self {
                path: path.to_owned(),
                tars,
                beside: Vec::new(),
                manifest: None,
                wal: None,
            }));
        }
        let mut tars = Vec::new();
        for entry in fs::read_dir(path).map_err(read)? {
            let entry = entry.map_err(read)?.path();
            let is_base = complete::is_base(&entry);
            let tar = TarFile::from_path(&entry).transpose()?;
            tars.extend(tar.filter(|tar| is_base || tar.tablespace.is_some()));
        }
        // The data directory's first.
        tars.sort_by_key(|tar| (tar.tablespace, tar.path.clone()));
        let has_base = tars.first().is_some_and(|tar| tar.tablespace.is_none());
        let path = path.to_owned();
        Ok(has_base.then(|| Self { path, tars, beside: Vec::new(), manifest: None, wal: None }))
    }

    /// The tars of a backup that are no files, and the manifest beside them: `name` is what the backup
    /// is called in records.
    pub fn of_inputs(
        name: &str,
        inputs: Vec<TarInput>,
        manifest: Option<Arc<dyn OpenInput>>,
    ) -> Result<Self, UnreadTar> {
        let mut tars = tars_of(inputs)?;
        tars.sort_by_key(|tar| (tar.tablespace, tar.path.clone()));
        Ok(Self { path: PathBuf::from(name), tars, beside: Vec::new(), manifest, wal: None })
    }

    /// The same as a part of a backup, of which these are other tars. Where pages of the part look wrong
    /// and it has no control file or no `backup_label`, they are read for these, in this order, and not
    /// further than until both are found.
    pub fn with_beside(self, inputs: Vec<TarInput>) -> Result<Self, UnreadTar> {
        Ok(Self { beside: tars_of(inputs)?, ..self })
    }

    /// The same, with the place where its WAL is archived.
    #[must_use]
    pub fn with_wal(self, wal: Option<WalPlace>) -> Self {
        Self { wal, ..self }
    }

    /// How its tars are packed, in PostgreSQL's words; `None`: not.
    pub fn packing(&self) -> Option<&'static str> {
        match self.tars.first()?.packing {
            Packing::Plain | Packing::Unread => None,
            Packing::Gzip => Some("gzip"),
            Packing::Lz4 => Some("lz4"),
            Packing::Zstd => Some("zstd"),
        }
    }

    /// The control file, where it can be found without reading all that is before it.
    fn control_ahead(&self) -> Option<ControlFile> {
        let tar = self.tars.iter().find(|tar| tar.tablespace.is_none())?;
        let is_seekable = tar.packing == Packing::Plain && tar.from.is_file();
        let file = pgtoll_system::open(&tar.path).ok().filter(|_| is_seekable)?;
        let mut stream = TarStream::seeking(&file).ok()?;
        while let Some(member) = stream.next_member().ok()? {
            if MemberPath::new(&member.path, None).kind == MemberKind::Control {
                let mut bytes = vec![0; 8192];
                let read = stream.read(&mut bytes).ok()?;
                return ControlFile::read(&bytes[..read]).ok();
            }
        }
        None
    }
}

/// An input that is not called like a tar, or is packed in another way: its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is packed in a way that pgtoll does not read")]
pub struct UnreadTar(pub String);

fn tars_of(inputs: Vec<TarInput>) -> Result<Vec<TarFile>, UnreadTar> {
    let tar = |input: TarInput| {
        let name = input.name.clone();
        let tar = TarFile::of_input(input).filter(|tar| tar.packing != Packing::Unread);
        tar.ok_or(UnreadTar(name))
    };
    inputs.into_iter().map(tar).collect()
}

/// Reads the relations in these tars, those for which `wanted` is true, and says what is wrong.
/// Nothing that is wrong ends it, but `progress` can.
pub fn verify_tars(
    backup: &TarBackup,
    settings: &VerifySettings,
    wanted: Wanted<'_>,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifiedTars, DatadirError> {
    let sources: Vec<Source> = backup.tars.iter().cloned().map(Source::Tar).collect();
    let mut control = backup.control_ahead();
    let mut beside = None;
    loop {
        let known = Known::from_control(control.as_ref());
        let mut verified = Verified::default();
        let read = run(&sources, known, settings, wanted, &mut verified, progress);
        let mut facts = BackupFacts::in_contents(&read);
        let is_damaged = !verified.counts.is_empty() && !verified.is_interrupted;
        if !backup.beside.is_empty() && is_damaged && !facts.is_complete() {
            let (others, reason) = beside.get_or_insert_with(|| backup.facts_beside());
            facts = facts.or(others);
            verified.incomplete.extend(reason.clone().filter(|_| facts.control.is_none()));
        }
        let found = facts.control.as_ref().map(control_in).transpose()?;
        let seen = read.iter().flat_map(|run| &run.catalog_versions).copied();
        let catalog_version = seen.clone().max();
        let others =
            |own: u32| known.catalog_version.is_none() && seen.clone().any(|seen| seen != own);
        if let Some(found) = &found
            && (Known::from_control(Some(found)).rules != known.rules
                || others(found.catalog_version))
            && !verified.is_interrupted
            && control.is_none()
        {
            control = Some(found.clone());
            continue;
        }
        verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
        verified.foreign.sort_unstable();
        let text = |label: &[u8]| backup_label_start(&String::from_utf8_lossy(label));
        let start = facts.label.map(|label| text(&label).unwrap_or(Lsn(0)));
        let catalog_version = found.as_ref().map(|item| item.catalog_version).or(catalog_version);
        let major = MAJORS.iter().find(|facts| Some(facts.catalog.version) == catalog_version);
        let major = major.map(|facts| facts.major);
        let contents = read.into_iter().map(|item| item.content).collect();
        return Ok(VerifiedTars { verified, control: found.or(control), major, start, contents });
    }
}

fn control_in((path, bytes): &(PathBuf, Vec<u8>)) -> Result<ControlFile, DatadirError> {
    ControlFile::read(bytes).map_err(|source| DatadirError::Control { path: path.clone(), source })
}

impl Known {
    fn from_control(control: Option<&ControlFile>) -> Self {
        let rules = control.map_or(USUAL, |control| Rules {
            block_bytes: control.block_bytes,
            file_blocks: control.file_blocks,
            has_checksums: control.checksum_version == 1,
        });
        Self { rules, catalog_version: control.map(|control| control.catalog_version) }
    }
}

/// As all packages are built, with checksums.
const USUAL: Rules = Rules { block_bytes: 8192, file_blocks: 131_072, has_checksums: true };

/// The incremental files among what is foreign to a plain backup, which are taken out of there.
pub(super) fn incremental_files(
    data: &DataDirectory,
    foreign: &mut Vec<PathBuf>,
) -> Vec<IncrementalFile> {
    let pick = |path: &Path| -> Option<(RelFileLocator, RelationFileName)> {
        let within = path.strip_prefix(&data.path).ok()?.to_str()?;
        match MemberPath::new(within, None).kind {
            MemberKind::Incremental(relation, name) => Some((relation, name)),
            _ => None,
        }
    };
    let mut files = Vec::new();
    for path in foreign.extract_if(.., |path| pick(path).is_some()) {
        if let Some((relation, name)) = pick(&path) {
            // A file that cannot be opened is reported when it is read.
            let bytes = fs::metadata(&path).map_or(0, |found| found.len());
            files.push(IncrementalFile { path, relation, name, bytes });
        }
    }
    files
}

/// Reads incremental files of a plain backup.
pub(super) fn read_incremental(
    files: Vec<IncrementalFile>,
    data: &DataDirectory,
    settings: &VerifySettings,
    verified: &mut Verified,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) {
    if files.is_empty() || verified.is_interrupted {
        return;
    }
    let sources: Vec<Source> = files.into_iter().map(Source::Incremental).collect();
    let known = Known::from_control(Some(&data.control));
    run(&sources, known, settings, &|_| true, verified, progress);
}
