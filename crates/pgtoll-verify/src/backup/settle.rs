//! Wrong pages of a base backup that its own WAL replaces.
//!
//! The server writes pages while they are copied, so that a copy may have the begin of one version
//! and the end of another. Recovery replaces such a page: as long as a backup continues, the first
//! record that changes a page has an image of it. Only that image is an excuse; an LSN is none,
//! since damage can have any.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_format::{ControlFile, Fault, Lsn};
use rustc_hash::FxHashSet;
use serde::Deserialize;

use super::images::{Block, ImagesRead, images_of};
use super::opener::spooled;
use super::wal_place::{WalPlace, WalStretch};
use super::{TarBackup, VerifiedTars};
use crate::defect::{BlockFinding, Defect, DefectCounts};
use crate::found::Verified;
use crate::settings::{VerifyProgress, VerifySettings};
use pgtoll_datadir::DataDirectory;

/// The WAL that a base backup needs to be recovered, and where it is.
#[derive(Clone, Debug)]
pub struct BackupWal {
    /// The cluster's identifier, which its WAL has too.
    system_identifier: u64,
    segment_bytes: u64,
    start: Lsn,
    /// The end of the backup, by its manifest.
    stop: Option<Lsn>,
    /// The places where it may be: the first that has it counts.
    places: Vec<WalPlace>,
}

/// The known facts about the WAL that a backup needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WalAtHand {
    /// No page was wrong that it could have replaced.
    #[default]
    NotAsked,
    /// All of it was read.
    Whole,
    /// It is not there, or not all of it.
    Missing,
}

impl BackupWal {
    /// Makes the WAL of a plain base backup; `None` if the directory is not a backup.
    pub fn of_directory(data: &DataDirectory) -> Option<Self> {
        let start = data.backup_start.filter(|start| *start > Lsn(0))?;
        let stop = stop_at(&data.path.join("backup_manifest"), start);
        let places = vec![WalPlace::Paths(vec![data.path.join("pg_wal")])];
        let (system_identifier, segment_bytes) = of_cluster(&data.control);
        Some(Self { system_identifier, segment_bytes, start, stop, places })
    }

    /// Makes the WAL of a backup in tars; `None` without label or control file.
    pub fn of_tars(backup: &TarBackup, found: &VerifiedTars) -> Option<Self> {
        let start = found.start.filter(|start| *start > Lsn(0))?;
        let (system_identifier, segment_bytes) = of_cluster(found.control.as_ref()?);
        let first = backup.tars.first()?;
        if !first.from.is_file() {
            let manifest = backup.manifest.as_ref().and_then(|manifest| spooled(&**manifest).ok());
            let stop = manifest.and_then(|file| stop_in(file, start));
            let places = backup.wal.iter().cloned().collect();
            return Some(Self { system_identifier, segment_bytes, start, stop, places });
        }
        let base = &first.path;
        let beside = base.parent().unwrap_or(Path::new("."));
        let stop = stop_at(&beside.join("backup_manifest"), start);
        let names = ["pg_wal.tar", "pg_wal.tar.gz", "pg_wal.tar.lz4", "pg_wal.tar.zst"];
        let own = names.iter().map(|name| beside.join(name)).filter(|path| path.exists());
        let places = own.chain([base.clone()]).map(|path| WalPlace::Paths(vec![path])).collect();
        Some(Self { system_identifier, segment_bytes, start, stop, places })
    }

    /// Makes the WAL of a base backup with this control file, whose label says that it began there and whose manifest
    /// is this file. Its WAL is to be looked for [elsewhere](Self::or_at).
    pub fn of_manifest(control: &ControlFile, start: Lsn, manifest: &Path) -> Self {
        let (system_identifier, segment_bytes) = of_cluster(control);
        let stop = stop_at(manifest, start);
        Self { system_identifier, segment_bytes, start, stop, places: Vec::new() }
    }

    /// The end of the backup, as its manifest says.
    pub fn stop(&self) -> Option<Lsn> {
        self.stop
    }

    /// There, or at these places, which are looked at first.
    #[must_use]
    pub fn or_at(mut self, places: &[WalPlace]) -> Self {
        self.places.splice(0..0, places.iter().cloned());
        self
    }

    /// Returns the effect of replay on these blocks, by the first place that has its start.
    fn images(&self, blocks: &FxHashSet<Block>, threads: usize) -> Option<ImagesRead> {
        let is_own = |read: &ImagesRead| {
            read.system_identifier == self.system_identifier
                && read.range.is_some_and(|(from, _)| from <= self.start)
        };
        let to = self.stop.unwrap_or_else(|| self.start.saturating_add(STRETCH_BYTES));
        let stretch = WalStretch { from: self.start, to, segment_bytes: self.segment_bytes };
        self.places.iter().find_map(|place| {
            let segments = place.segments(&stretch)?;
            images_of(&segments, blocks.clone(), self.start, threads).ok().filter(is_own)
        })
    }
}

/// How far behind its begin the end of a backup is looked for in a store, where nothing says where it is.
const STRETCH_BYTES: u64 = 1 << 30;

fn of_cluster(control: &ControlFile) -> (u64, u64) {
    (control.system_identifier, u64::from(control.wal_segment_bytes))
}

/// The checks beside the pages that were read.
#[derive(Clone, Copy, Debug)]
pub struct TarChecks<'a> {
    /// All relations were read: whether files are missing can be said.
    pub is_whole: bool,
    /// The checksums of the manifest are compared, too, for which the tars are read once more.
    pub manifest_checksums: bool,
    /// The places of its WAL, if outside of the backup.
    pub wal: &'a [WalPlace],
}

impl VerifiedTars {
    /// Says whether the backup is complete, and removes findings that its own WAL replaces.
    pub fn check(
        &mut self,
        backup: &TarBackup,
        checks: TarChecks<'_>,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> WalAtHand {
        if checks.is_whole {
            self.check_complete(backup, checks.manifest_checksums, settings, progress);
        }
        if checks.manifest_checksums {
            self.verified.require_manifest_checksums();
        }
        let wal = BackupWal::of_tars(backup, self).filter(|_| !self.verified.is_interrupted);
        let settled =
            wal.map(|wal| self.verified.settle(&wal.or_at(checks.wal), settings.jobs.get()));
        settled.unwrap_or_default()
    }

    /// True where there is something to name. To find names the tars are read once more: only damage is
    /// worth it.
    pub fn is_damaged(&self) -> bool {
        !self.verified.counts.is_empty() && !self.verified.is_interrupted
    }
}

impl Verified {
    /// Removes findings that the backup's own WAL replaces during recovery, and marks those that it
    /// may replace where that WAL is not at hand.
    pub fn settle(&mut self, wal: &BackupWal, threads: usize) -> WalAtHand {
        let pick = |finding: &BlockFinding| (finding.fork, finding.block);
        let is_wrong = |finding: &&BlockFinding| matches!(finding.defect, Defect::Invalid { .. });
        let blocks: FxHashSet<Block> = self.findings.iter().filter(is_wrong).map(pick).collect();
        if blocks.is_empty() {
            return WalAtHand::NotAsked;
        }
        let read = wal.images(&blocks, threads);
        let stop = wal.stop.or(read.as_ref().and_then(|read| read.backup_end));
        let end = read.as_ref().and_then(|read| read.range).map(|(_, to)| to);
        let is_whole = stop.zip(end).is_some_and(|(stop, end)| end >= stop);
        for mut finding in std::mem::take(&mut self.findings) {
            let Defect::Invalid { fault, lsn } = finding.defect else {
                self.findings.push(finding);
                continue;
            };
            // What happens behind the backup's end need not be replayed.
            let remade = read.as_ref().and_then(|read| read.remade.get(&pick(&finding)));
            let is_remade = remade.is_some_and(|at| stop.is_none_or(|stop| *at < stop));
            let may_be_torn = !is_whole && is_plausible(fault, lsn, wal.start, stop);
            let counts = self.counts.entry(finding.fork).or_default();
            if is_remade {
                counts.failures = counts.failures.saturating_sub(1);
                self.healed_by_replay += 1;
                continue;
            }
            if may_be_torn {
                counts.failures = counts.failures.saturating_sub(1);
                counts.unverified += 1;
                finding.defect = Defect::MayBeTorn { fault, lsn };
            }
            self.findings.push(finding);
        }
        self.counts.retain(|_, counts| *counts != DefectCounts::default());
        if is_whole { WalAtHand::Whole } else { WalAtHand::Missing }
    }
}

/// Whether the page can be one that the server changed while the backup was made.
fn is_plausible(fault: Fault, lsn: Lsn, start: Lsn, stop: Option<Lsn>) -> bool {
    matches!(fault, Fault::Checksum { header_is_plausible: true, .. })
        && lsn >= start
        && stop.is_none_or(|stop| lsn <= stop)
}

/// A stretch of WAL that a backup needs, as its manifest says.
#[derive(Debug, Deserialize)]
struct WalRange {
    #[serde(rename = "End-LSN")]
    end: String,
}

/// The end of the backup with this manifest: it follows the files, of which there can
/// be very many.
fn stop_at(manifest: &Path, start: Lsn) -> Option<Lsn> {
    stop_in(pgtoll_system::open(manifest).ok()?, start)
}

fn stop_in(manifest: File, start: Lsn) -> Option<Lsn> {
    let text = ending(manifest).ok()?;
    let (_, ranges) = text.rsplit_once("\"WAL-Ranges\":")?;
    let (ranges, _) = ranges.split_once(']')?;
    let ranges: Vec<WalRange> = serde_json::from_str(&format!("{ranges}]")).ok()?;
    let ends = ranges.iter().filter_map(|range| range.end.parse::<Lsn>().ok());
    ends.max().filter(|end| *end >= start)
}

fn ending(mut file: File) -> io::Result<String> {
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(ENDING)))?;
    let mut text = Vec::new();
    file.take(ENDING).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

const ENDING: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backups_end_stands_in_its_manifest() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("backup_manifest");
        let text = r#"{ "PostgreSQL-Backup-Manifest-Version": 1,
"Files": [
{ "Path": "backup_label", "Size": 225 }
],
"WAL-Ranges": [
{ "Timeline": 1, "Start-LSN": "0/2000028", "End-LSN": "0/2000100" }
],
"Manifest-Checksum": "00"}
"#;
        std::fs::write(&path, text).unwrap();
        assert_eq!(stop_at(&path, Lsn(0x0200_0028)), Some(Lsn(0x0200_0100)));
        assert_eq!(stop_at(&path, Lsn(0x0300_0028)), None, "another backup's");
        std::fs::write(&path, "WAL-Ranges").unwrap();
        assert_eq!(stop_at(&path, Lsn(1)), None);
    }
}
