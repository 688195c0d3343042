//! The plan of a drill, printed before it is done.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use pgtoll_cluster::{ClusterError, Confinement, GuardOptions, Installation};
use pgtoll_format::{ByteSize, ControlFile, MajorFacts};
use pgtoll_record::{DrillDisk, Provenance};
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::choice::WalChoice;
use crate::combine::{COMBINE, combined_bytes};
use crate::layout::CopyLayout;
use crate::pages::PageChecks;
use crate::source::{DrillSource, SourceForm};
use crate::target::DrillTarget;
use crate::writer::CopyWriter;

/// How a backup is drilled.
#[derive(Debug)]
pub struct DrillOptions {
    /// The places of WAL outside of the backup: directories and files, compressed or not.
    pub wal: Vec<PathBuf>,
    /// How far it is recovered.
    pub target: DrillTarget,
    /// Files that are read at once.
    pub jobs: NonZeroUsize,
    /// How long the server may do nothing before it has started.
    pub patience: Duration,
    /// The server.
    pub installation: Installation,
    /// The directory and the user of the copy.
    pub guard: GuardOptions,
    /// The server, which runs code that is in the backup, can do what its user can.
    pub unconfined: bool,
}

/// The plan of a drill.
#[derive(Debug)]
pub struct DrillPlan {
    pub(crate) source: DrillSource,
    pub(crate) options: DrillOptions,
    pub(crate) facts: &'static MajorFacts,
    pub(crate) layout: CopyLayout,
    pub(crate) disk: DrillDisk,
    /// The WAL that recovery is given; `None`: the control file, which says how it is laid out, cannot
    /// be read.
    pub(crate) wal: Option<(WalChoice, ControlFile)>,
    /// How far this kernel confines the server; `None`: it is not confined.
    pub(crate) confinement: Option<Confinement>,
}

impl DrillPlan {
    /// Looks at what there is, and whether there is room for the copy. Nothing is written.
    pub fn new(
        source: DrillSource,
        options: DrillOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, DrillError> {
        let facts = options.installation.version.facts().map_err(ClusterError::from)?;
        let confined = (!options.unconfined).then(Confinement::of_this_kernel);
        let confinement =
            confined.transpose().map_err(|reason| DrillError::Unconfined { reason })?;
        let layout = match &source.form {
            SourceForm::Directory => CopyLayout::new(&source.path, source.major)?,
            SourceForm::Tars(survey) => CopyLayout::of_tars(survey),
            SourceForm::Repository(survey) => CopyLayout::of_repository(&source.path, survey),
            SourceForm::Chain(members) => chain_layout(members, &options)?,
        };
        let wal = match &source.control {
            Ok(control) => {
                let choice =
                    WalChoice::choose(&source, control, &options.wal, options.target, interrupt);
                Some((choice?, control.clone()))
            }
            Err(_) => None,
        };
        let wal_bytes = wal.as_ref().map_or(0, |(choice, control)| {
            let segment_bytes = u64::from(control.wal_segment_bytes);
            // Copied, restored by the server, and at worst as much in new blocks.
            (choice.segments.len() as u64 * 3 + NEW_SEGMENTS) * segment_bytes
        });
        let needed_bytes =
            layout.bytes.saturating_add(layout.staged_bytes).saturating_add(wal_bytes + MADE_BYTES);
        let work_dir = &options.guard.base;
        // A directory that is not there is the guard's to report.
        let free = statvfs(work_dir)
            .map(|statistics| statistics.blocks_available() * statistics.fragment_size());
        let free_bytes = free.unwrap_or(u64::MAX);
        if free_bytes < needed_bytes {
            let work_dir = work_dir.clone();
            return Err(DrillError::NoSpace { needed_bytes, free_bytes, work_dir });
        }
        let disk = DrillDisk { needed_bytes, free_bytes };
        Ok(Self { source, options, facts, layout, disk, wal, confinement })
    }

    /// Returns the steps, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let size = |bytes| ByteSize(bytes).rounded();
        let Self { source, options, layout, disk, wal, .. } = self;
        let segments = wal.as_ref().map_or(0, |(choice, _)| choice.segments.len());
        let plural = if segments == 1 { "" } else { "s" };
        let copied = match &source.form {
            SourceForm::Directory => format!("{} are copied", size(layout.bytes)),
            SourceForm::Tars(survey) => {
                let count = survey.files.all().count();
                let tars =
                    if count == 1 { "1 tar is".to_owned() } else { format!("{count} tars are") };
                format!("{tars} unpacked to {}", size(layout.bytes))
            }
            SourceForm::Repository(survey) => {
                let files = survey.files();
                let bytes = size(layout.bytes);
                format!("{files} files of a repository of pgBackRest are unpacked to {bytes}")
            }
            SourceForm::Chain(members) => {
                let count = members.len();
                let bytes = size(layout.bytes);
                match layout.staged_bytes {
                    0 => format!("{count} backups are combined to {bytes}"),
                    staged => {
                        format!(
                            "{count} backups, {} unpacked, are combined to {bytes}",
                            size(staged)
                        )
                    }
                }
            }
        };
        vec![
            format!("{}: {copied}, with {segments} segment{plural} of WAL", source.path.display()),
            format!(
                "at most {} of {} free in {}, removed at the end",
                size(disk.needed_bytes),
                size(disk.free_bytes),
                options.guard.base.display()
            ),
            format!(
                "a server of PostgreSQL {} recovers it as user {}: target {}; then every table is read",
                options.installation.version, options.guard.user.name, options.target
            ),
            self.confinement_sentence(),
        ]
    }

    /// Returns a sentence on what code in the backup can do while the server runs.
    fn confinement_sentence(&self) -> String {
        let user = &self.options.guard.user.name;
        let confined = "that server writes only there, reads no other data and opens no connection";
        match self.confinement {
            Some(Confinement::Whole) => format!("{confined}, and signals no other process"),
            Some(Confinement::WithoutSignals) => format!(
                "{confined}; it could signal other processes of user {user}: Linux forbids that from 6.12 on"
            ),
            None => format!(
                "that server is not confined: code in the backup can do what user {user} can"
            ),
        }
    }

    /// For the record, where the server was not confined in all.
    pub(crate) fn confinement_note(&self) -> Option<String> {
        (self.confinement != Some(Confinement::Whole)).then(|| self.confinement_sentence())
    }

    /// How pages are verified: with the WAL that was named, and the backup's own where it does not lie beside
    /// them.
    pub(crate) fn checks<'a>(
        &'a self,
        provenance: &'a Provenance,
        interrupt: &'a Interrupt,
    ) -> PageChecks<'a> {
        self.checks_with(&self.source.wal, provenance, interrupt)
    }

    /// The same with the WAL of one backup of a chain.
    pub(crate) fn checks_with<'a>(
        &'a self,
        own: &[PathBuf],
        provenance: &'a Provenance,
        interrupt: &'a Interrupt,
    ) -> PageChecks<'a> {
        let wal = self.options.wal.iter().chain(own).cloned().collect();
        PageChecks { jobs: self.options.jobs, wal, provenance, interrupt }
    }
}

/// Returns the layout of a combined chain. `pg_combinebackup` reads the backups as the servers' user.
fn chain_layout(members: &[DrillSource], options: &DrillOptions) -> Result<CopyLayout, DrillError> {
    options.installation.program(COMBINE)?;
    let user = &options.guard.user;
    for member in members.iter().filter(|member| matches!(member.form, SourceForm::Directory)) {
        if CopyWriter::from_user(user).can_read(&member.path, "backup_label").is_err() {
            let path = member.path.clone();
            let user = user.name.clone();
            return Err(DrillError::Unreadable { path, user });
        }
    }
    let (combined, staged_bytes) = combined_bytes(members)?;
    let tablespaces = match members.last().map(|last| (&last.form, last)) {
        Some((SourceForm::Tars(survey), _)) => CopyLayout::of_tars(survey).tablespaces,
        Some((SourceForm::Directory, last)) => CopyLayout::new(&last.path, last.major)?.tablespaces,
        Some((SourceForm::Repository(_) | SourceForm::Chain(_), _)) | None => Vec::new(),
    };
    Ok(CopyLayout::of_chain(tablespaces, combined, staged_bytes))
}

/// Segments that a server makes again: of the new timeline, and ahead of it.
const NEW_SEGMENTS: u64 = 4;
/// The bytes of a server's own files, and of extensions in each database.
const MADE_BYTES: u64 = 32 << 20;
