//! Sources of pages: directories with files of the same cluster, and pages that were fetched
//! before.
//! before.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use pgtoll_datadir::{
    DataDirectory, RelationFileList, RelationFileName, backup_label_start, relation_directories,
};
use pgtoll_format::{ClusterState, ControlFile, Lsn, RelationFork};
use pgtoll_record::RepairSourceKind;
use pgtoll_wal::{BlockReferences, Lineage};

use super::RepairError;
use super::fetched::{FetchedPages, RebuiltPages};
use super::proof::SourceHistory;
use super::refusal::{BlockRefusal, SourceRefusal};
use super::standby::{Replayed, RestartPoint};

/// The relations' files of a data directory, found by their places and names.
#[derive(Clone, Debug)]
pub(super) struct RelationBlocks {
    directories: HashMap<(u32, u32), PathBuf>,
    block_bytes: usize,
    file_blocks: u32,
}

impl RelationBlocks {
    pub(super) fn from_data(data: &DataDirectory) -> Self {
        let control = &data.control;
        let places = relation_directories(&data.path, control, &mut RelationFileList::default());
        let directories = places
            .into_iter()
            .map(|place| ((place.tablespace, place.database), place.path))
            .collect();
        let block_bytes = control.block_bytes as usize;
        let file_blocks = control.file_blocks.max(1);
        Self { directories, block_bytes, file_blocks }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Blocks of a file but for the last one of a fork.
    pub(super) fn file_blocks(&self) -> u32 {
        self.file_blocks
    }

    /// The file that has this block, and where in it; `None`: there is no such directory.
    pub(super) fn place(&self, fork: RelationFork, block: u32) -> Option<(PathBuf, u64)> {
        let RelationFork { relation, number } = fork;
        let directory = self.directories.get(&(relation.tablespace, relation.database))?;
        let name = RelationFileName {
            number: relation.rel_number,
            fork: number,
            segment: block / self.file_blocks,
            backend: None,
        };
        let at = u64::from(block % self.file_blocks) * self.block_bytes as u64;
        Some((directory.join(name.to_string()), at))
    }

    /// A block's page, and the file that it is in; `None`: there is no such block.
    pub(super) fn read(
        &self,
        fork: RelationFork,
        block: u32,
    ) -> io::Result<Option<(File, Vec<u8>)>> {
        let Some((path, at)) = self.place(fork, block) else { return Ok(None) };
        let file = match pgtoll_system::open_unlinked(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut page = vec![0; self.block_bytes];
        match file.read_exact_at(&mut page, at) {
            Ok(()) => Ok(Some((file, page))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A source of pages.
#[derive(Debug)]
pub(super) struct PageSource {
    pages: SourcePages,
    /// The place of its WAL.
    pub(super) wal: Option<PathBuf>,
    contains: Lsn,
    timeline_end: Lsn,
    /// As [`SourceHistory::taken`].
    taken: Lsn,
    /// The record of its last checkpoint: where it begins, its redo point, and when it was made; `None`:
    /// it was made from the cluster's WAL.
    checkpoint: Option<RestartPoint>,
    /// It may have replayed more than that checkpoint.
    goes_on: bool,
    /// The possible defect of a refused page.
    pub(super) note: Option<String>,
}

#[derive(Debug)]
enum SourcePages {
    Files(RelationBlocks),
    Fetched(FetchedPages),
}

impl PageSource {
    /// The pages that a standby had when it had replayed so much, of the past up to a restartpoint.
    pub(super) fn of_standby(
        pages: FetchedPages,
        replayed: Replayed,
        timeline_end: Lsn,
        checkpoint: RestartPoint,
    ) -> Self {
        let Replayed { to, is_paused } = replayed;
        let paused = if is_paused { ", and its replay is paused" } else { "" };
        Self {
            pages: SourcePages::Fetched(pages),
            wal: None,
            contains: to.min(timeline_end),
            timeline_end,
            taken: Lsn::INVALID,
            checkpoint: Some(checkpoint),
            goes_on: true,
            note: Some(format!("the standby has replayed WAL up to {to}{paused}")),
        }
    }

    /// The pages of a base backup in tars, which has all changes before its begin. The error is why
    /// nothing may be taken from it.
    pub(super) fn of_backup(
        pages: FetchedPages,
        control: &ControlFile,
        contains: Lsn,
        timeline: u32,
        wal: Option<PathBuf>,
        target: &DataDirectory,
        lineage: &Lineage,
    ) -> Result<Self, SourceRefusal> {
        Self::of_copy(
            SourcePages::Fetched(pages),
            control,
            contains,
            timeline,
            wal,
            target,
            lineage,
        )
    }

    fn of_copy(
        pages: SourcePages,
        control: &ControlFile,
        contains: Lsn,
        timeline: u32,
        wal: Option<PathBuf>,
        target: &DataDirectory,
        lineage: &Lineage,
    ) -> Result<Self, SourceRefusal> {
        let Some(timeline_end) = lineage.end_of(timeline) else {
            let own = target.control.last_checkpoint.timeline;
            return Err(SourceRefusal::OtherTimeline { timeline, own });
        };
        let checkpoint = control.checkpoint;
        let own = target.control.checkpoint;
        if checkpoint > own {
            return Err(SourceRefusal::Ahead { checkpoint, own });
        }
        let last = control.last_checkpoint;
        let contains = contains.min(timeline_end);
        Ok(Self {
            pages,
            wal,
            contains,
            timeline_end,
            taken: contains,
            checkpoint: Some((control.checkpoint, last.redo, last.time)),
            goes_on: false,
            note: None,
        })
    }

    /// Pages that were made again from the cluster's own WAL: of its own past.
    pub(super) fn of_redo(rebuilt: RebuiltPages) -> Self {
        Self {
            pages: SourcePages::Fetched(rebuilt.pages),
            wal: None,
            contains: rebuilt.from,
            timeline_end: Lsn::MAX,
            taken: Lsn::INVALID,
            checkpoint: None,
            goes_on: false,
            note: None,
        }
    }

    /// Opens a directory. The error within is why nothing may be taken from it.
    pub(super) fn open(
        kind: RepairSourceKind,
        path: &Path,
        target: &DataDirectory,
        lineage: &Lineage,
    ) -> Result<Result<Self, SourceRefusal>, RepairError> {
        let data = DataDirectory::open(path)?;
        if let Some(reason) = foreign(&data, target) {
            return Ok(Err(reason));
        }
        if let Some(process) = data.server()? {
            return Ok(Err(SourceRefusal::Running(process)));
        }
        let left = match kind {
            RepairSourceKind::Backup => backup(&data),
            _ => stopped(&data),
        };
        let (contains, timeline) = match left {
            Ok(left) => left,
            Err(reason) => return Ok(Err(reason)),
        };
        let pages = SourcePages::Files(RelationBlocks::from_data(&data));
        let wal = Some(path.join("pg_wal"));
        Ok(Self::of_copy(pages, &data.control, contains, timeline, wal, target, lineage))
    }

    /// Its pages contain all changes by WAL before this.
    pub(super) fn contains(&self) -> Lsn {
        self.contains
    }

    /// Its past, seen beside the cluster's WAL; an error: they are not of one past.
    pub(super) fn history(
        &self,
        wal: Option<&BlockReferences>,
    ) -> Result<SourceHistory, SourceRefusal> {
        let Self { contains, timeline_end, taken, .. } = *self;
        let Some((at, redo, time)) = self.checkpoint else {
            let is_anchored = true;
            let anchor = Lsn::MAX;
            return Ok(SourceHistory { contains, timeline_end, taken, is_anchored, anchor });
        };
        let is_read =
            |references: &&BlockReferences| references.first().is_some_and(|first| first <= at);
        let is_anchored = match wal.filter(is_read) {
            None => false,
            Some(wal) if wal.checkpoint_at(at) == Some((redo, time)) => true,
            Some(_) => return Err(SourceRefusal::OtherPast(at)),
        };
        let anchor = if self.goes_on { at } else { Lsn::MAX };
        Ok(SourceHistory { contains, timeline_end, taken, is_anchored, anchor })
    }

    /// A block's page. The error within is why there is none.
    pub(super) fn page(
        &self,
        fork: RelationFork,
        block: u32,
        target: &File,
    ) -> Result<Vec<u8>, BlockRefusal> {
        let files = match &self.pages {
            SourcePages::Files(files) => files,
            SourcePages::Fetched(pages) => {
                let page = pages.get(&(fork, block)).cloned();
                return page.unwrap_or(Err(BlockRefusal::NoBlock));
            }
        };
        let unreadable = |error: io::Error| BlockRefusal::Unreadable(error.to_string());
        let read = files.read(fork, block).map_err(unreadable)?;
        let (file, page) = read.ok_or(BlockRefusal::NoBlock)?;
        let identity =
            |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        if identity(&file).is_none() || identity(&file) == identity(target) {
            return Err(BlockRefusal::DamagedFile);
        }
        Ok(page)
    }
}

/// Why a directory's pages are not comparable with the cluster's.
fn foreign(data: &DataDirectory, target: &DataDirectory) -> Option<SourceRefusal> {
    let real = |directory: &DataDirectory| fs::canonicalize(&directory.path).ok();
    if real(data).is_none() || real(data) == real(target) {
        return Some(SourceRefusal::Itself);
    }
    let is_other = || (data.major != target.major).then_some(SourceRefusal::OtherLayout);
    foreign_control(&data.control, &target.control).or_else(is_other)
}

/// Why the pages of a directory with this control file are not comparable with the cluster's.
pub(super) fn foreign_control(
    control_file: &ControlFile,
    own: &ControlFile,
) -> Option<SourceRefusal> {
    if own.system_identifier != control_file.system_identifier {
        let found = control_file.system_identifier;
        let own = own.system_identifier;
        return Some(SourceRefusal::OtherCluster { found, own });
    }
    let layout = |file: &ControlFile| (file.block_bytes, file.file_blocks, file.catalog_version);
    if layout(control_file) != layout(own) {
        return Some(SourceRefusal::OtherLayout);
    }
    (control_file.checksum_version != 1).then_some(SourceRefusal::NoChecksums)
}

/// Up to where a base backup has all changes, and its timeline.
fn backup(data: &DataDirectory) -> Result<(Lsn, u32), SourceRefusal> {
    let path = data.path.join("backup_label");
    let label = pgtoll_system::read_to_string(&path, LABEL_BYTES_MAX);
    let label = label.map_err(SourceRefusal::NoLabel)?;
    let start = backup_label_start(&label).filter(|start| *start > Lsn(0));
    let start = start.ok_or(SourceRefusal::LabelWithoutBegin)?;
    let timeline = label_timeline(&label);
    // The checkpoint of the begin is done when the copying begins: all before its redo point is in
    // the files.
    Ok((start, timeline.unwrap_or(data.control.last_checkpoint.timeline)))
}

/// The timeline that a `backup_label` names.
pub(super) fn label_timeline(label: &str) -> Option<u32> {
    let line = label.lines().find_map(|line| line.strip_prefix("START TIMELINE: "))?;
    line.trim().parse().ok()
}

const LABEL_BYTES_MAX: u64 = 1 << 16;

/// Up to where the files of a stopped server have all changes, and its timeline.
fn stopped(data: &DataDirectory) -> Result<(Lsn, u32), SourceRefusal> {
    let control = &data.control;
    if data.backup_start.is_some() {
        return Err(SourceRefusal::BaseBackup);
    }
    let last = control.last_checkpoint;
    match control.state {
        ClusterState::ShutDown => Ok((last.redo, last.timeline)),
        // What is newer than the restartpoint may be in memory only when a standby stops.
        ClusterState::ShutDownInRecovery
            if control.backup_start == Lsn(0) && control.backup_end == Lsn(0) =>
        {
            Ok((last.redo, last.timeline.max(control.minimum_recovery_timeline)))
        }
        state => Err(SourceRefusal::NotStopped(state)),
    }
}
