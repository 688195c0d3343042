//! The WAL that recovery needs, and its place.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pgtoll_format::wal::rmgr::XLOG_BACKUP_END;
use pgtoll_format::wal::{Parts, Record, RecordType};
use pgtoll_format::{ControlFile, Lsn};
use pgtoll_record::DrilledKind;
use pgtoll_system::Interrupt;
use pgtoll_wal::{Archive, Collect, SegmentFile, WalBound, WalReadError, files, scan_with};

use crate::DrillError;
use crate::error::with_source;
use crate::source::DrillSource;
use crate::target::DrillTarget;
use crate::tars::is_history;

/// The segments that the server is given.
#[derive(Debug)]
pub(crate) struct WalChoice {
    /// The places that were searched.
    pub(crate) sources: Vec<String>,
    pub(crate) timeline: u32,
    /// The start of recovery.
    pub(crate) start: Lsn,
    /// The end of the backup; `None`: its WAL does not say.
    pub(crate) stop: Option<Lsn>,
    /// One after the other, from that of the start on.
    pub(crate) segments: Vec<SegmentFile>,
    /// The name of the first segment that is missing behind them, and that is needed.
    pub(crate) missing: Option<String>,
    /// Why WAL of the backup's own cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Histories of timelines, by their names.
    pub(crate) histories: BTreeMap<String, Vec<u8>>,
}

impl WalChoice {
    /// Chooses the WAL that this backup needs from the available files.
    pub(crate) fn choose(
        source: &DrillSource,
        control: &ControlFile,
        wal: &[PathBuf],
        target: DrillTarget,
        interrupt: &Interrupt,
    ) -> Result<Self, DrillError> {
        let (start, label_timeline) = match source.label {
            Some(label) => (label.start.unwrap_or(Lsn::INVALID), label.timeline),
            None => (control.last_checkpoint.redo, None),
        };
        let timeline = label_timeline.unwrap_or(control.last_checkpoint.timeline);
        let SegmentsAtHand { places, segments, unreadable } = SegmentsAtHand::list(wal, source)?;
        interrupt.check()?;
        let mut choice = Self {
            sources: places.iter().map(|path| path.display().to_string()).collect(),
            timeline,
            start,
            stop: stop(source, control),
            segments: Vec::new(),
            missing: None,
            unreadable,
            histories: histories(&places),
        };
        choice.histories.extend(source.histories.clone());
        if start == Lsn::INVALID {
            return Ok(choice);
        }
        let archive = match target {
            DrillTarget::Consistency => on_timeline(segments, timeline)?,
            DrillTarget::Latest | DrillTarget::Bound(_) => Archive::new(segments, None)?.segments,
        };
        choice.take(&archive, control.wal_segment_bytes.into(), target);
        if choice.stop.is_none() && source.kind == DrilledKind::BaseBackup {
            choice.find_stop(interrupt)?;
            choice.take(&archive, control.wal_segment_bytes.into(), target);
        }
        Ok(choice)
    }

    /// Takes the segments from that of the start on, up to the last that is needed or there.
    fn take(&mut self, archive: &[SegmentFile], segment_bytes: u64, target: DrillTarget) {
        let by_number: BTreeMap<u64, &SegmentFile> = archive
            .iter()
            .filter(|file| !file.name.is_partial)
            .map(|file| (file.name.begin(segment_bytes).segment_number(segment_bytes), file))
            .collect();
        let first = self.start.segment_number(segment_bytes);
        let needed =
            self.stop.map(|stop| Lsn(stop.0.saturating_sub(1)).segment_number(segment_bytes));
        let last_there = by_number.keys().next_back().copied().unwrap_or(first);
        let last = match target {
            DrillTarget::Consistency => needed.unwrap_or(last_there),
            // The record at which a server ends may begin behind the place.
            DrillTarget::Bound(WalBound::Lsn(lsn)) => {
                (lsn.segment_number(segment_bytes) + 1).min(last_there).max(needed.unwrap_or(first))
            }
            DrillTarget::Latest | DrillTarget::Bound(WalBound::Time(_)) => {
                last_there.max(needed.unwrap_or(first))
            }
        };
        let run = (first..=last).map_while(|number| by_number.get(&number).copied().cloned());
        self.segments = run.collect();
        let next = first + self.segments.len() as u64;
        self.missing = (next <= last).then(|| segment_name(self.timeline, next, segment_bytes));
    }

    /// Looks for the record that ends the backup.
    fn find_stop(&mut self, interrupt: &Interrupt) -> Result<(), DrillError> {
        let is_found = Arc::new(AtomicBool::new(false));
        let new = || BackupEnd { start: self.start, stop: None, is_found: Arc::clone(&is_found) };
        let watch = &mut |_| {
            let is_over = is_found.load(Ordering::Relaxed) || interrupt.signal().is_some();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if self.segments.is_empty() {
            return Ok(());
        }
        // What cannot be read is found again, and reported, when its copy is read.
        if let Ok((summary, _)) = scan_with(&self.segments, 1, new, watch) {
            self.stop = summary.collected.stop;
        }
        Ok(interrupt.check()?)
    }
}

/// The record that ends the backup which began there.
struct BackupEnd {
    start: Lsn,
    stop: Option<Lsn>,
    is_found: Arc<AtomicBool>,
}

impl Collect for BackupEnd {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if is_backup_end(record, parts, self.start) {
            self.stop = Some(record.end);
            self.is_found.store(true, Ordering::Relaxed);
        }
    }

    fn append(&mut self, later: Self) {
        self.stop = self.stop.or(later.stop);
    }
}

/// Whether this record ends the backup that began there.
pub(crate) fn is_backup_end(record: &Record<'_>, parts: &Parts, start: Lsn) -> bool {
    if RecordType::from_header(&record.header) != XLOG_BACKUP_END {
        return false;
    }
    let data = record.bytes.get(parts.main_data.clone()).and_then(<[u8]>::first_chunk);
    data.map(|bytes| Lsn(u64::from_le_bytes(*bytes))) == Some(start)
}

/// A segment's name.
pub(crate) fn segment_name(timeline: u32, number: u64, segment_bytes: u64) -> String {
    let of_part = (1_u64 << 32) / segment_bytes.max(1);
    format!("{timeline:08X}{:08X}{:08X}", number / of_part.max(1), number % of_part.max(1))
}

/// The end of the backup, as far as that is known without its WAL.
fn stop(source: &DrillSource, control: &ControlFile) -> Option<Lsn> {
    match source.kind {
        // The record of the checkpoint has to be there.
        DrilledKind::ColdCopy => Some(control.checkpoint.saturating_add(1)),
        DrilledKind::BaseBackup | DrilledKind::WithoutLabel => {
            let is_from_standby = source.label.is_some_and(|label| label.from_standby);
            let of_standby = Some(control.minimum_recovery_end).filter(|_| is_from_standby);
            source.stop.or(of_standby).filter(|stop| *stop > Lsn::INVALID)
        }
    }
}

/// Segments where they may be, in any order.
struct SegmentsAtHand {
    /// The places where they were found.
    places: Vec<PathBuf>,
    segments: Vec<SegmentFile>,
    /// Why WAL of the backup's own cannot be read.
    unreadable: Option<String>,
}

impl SegmentsAtHand {
    /// Lists files; of two for the same place it takes the last one: the backup's own.
    fn list(named: &[PathBuf], source: &DrillSource) -> Result<Self, WalReadError> {
        let mut at_hand = Self { places: named.to_vec(), segments: Vec::new(), unreadable: None };
        for path in named {
            at_hand.segments.extend(files(path)?);
            if at_hand.segments.is_empty() {
                return Err(WalReadError::NoSegments { path: path.clone() });
            }
        }
        for path in &source.wal {
            match files(path) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    at_hand.segments.extend(found);
                    at_hand.places.push(path.clone());
                }
                Err(error) => at_hand.unreadable = Some(with_source(&error)),
            }
        }
        if !source.segments.is_empty() {
            at_hand.segments.extend(source.segments.iter().cloned());
            at_hand.places.push(source.path.clone());
        }
        Ok(at_hand)
    }
}

fn on_timeline(
    segments: Vec<SegmentFile>,
    timeline: u32,
) -> Result<Vec<SegmentFile>, WalReadError> {
    match Archive::new(segments, Some(timeline)) {
        Ok(archive) => Ok(archive.segments),
        Err(WalReadError::NoTimeline { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Histories of timelines in these directories.
fn histories(places: &[PathBuf]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in places.iter().flat_map(fs::read_dir).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_history(&name)
            && let Some(text) = history(&entry.path())
        {
            found.insert(name, text);
        }
    }
    found
}

fn history(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = pgtoll_system::open(path).ok()?;
    file.take(HISTORY_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

/// A history has a line for each timeline.
const HISTORY_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_named_as_servers_do() {
        assert_eq!(segment_name(1, 2, 1 << 24), "000000010000000000000002");
        assert_eq!(segment_name(26, 0x101, 1 << 24), "0000001A0000000100000001");
        assert_eq!(segment_name(1, 7, 1 << 30), "000000010000000100000003");
    }

    #[test]
    fn segments_are_taken_up_to_the_first_that_is_missing() {
        use DrillTarget::{Bound, Consistency, Latest};
        let file = |number: u64| {
            let name = segment_name(1, number, 1 << 24);
            SegmentFile::from_path(Path::new(&name)).unwrap()
        };
        let check =
            |there: &[u64], stop: Option<u64>, target, taken: usize, missing: Option<u64>| {
                let mut choice = WalChoice {
                    sources: Vec::new(),
                    timeline: 1,
                    start: Lsn(0x0200_0028),
                    stop: stop.map(Lsn),
                    segments: Vec::new(),
                    missing: None,
                    unreadable: None,
                    histories: BTreeMap::new(),
                };
                let archive: Vec<SegmentFile> = there.iter().map(|number| file(*number)).collect();
                choice.take(&archive, 1 << 24, target);
                let name = missing.map(|number| segment_name(1, number, 1 << 24));
                assert_eq!((choice.segments.len(), choice.missing), (taken, name), "{there:?}");
            };
        check(&[1, 2, 3, 4], Some(0x0300_0100), Consistency, 2, None);
        check(&[1, 2, 3, 4], Some(0x0300_0000), Consistency, 1, None);
        check(&[1, 3, 4], Some(0x0300_0100), Consistency, 0, Some(2));
        check(&[2], Some(0x0300_0100), Consistency, 1, Some(3));
        check(&[2, 3], None, Consistency, 2, None);
        check(&[2, 3, 5], Some(0x0300_0100), Latest, 2, Some(4));
        check(&[2, 3, 4, 5, 6], Some(0x0300_0100), Bound(WalBound::Lsn(Lsn(0x0400_0000))), 4, None);
        check(&[], Some(0x0300_0100), Latest, 0, Some(2));
    }
}
