//! The WAL that the server is given: copied, read through, and without what leads out of the copy.
//!
//! Replay of `CREATE TABLESPACE` links the directory that the record names, the production server's own,
//! and empties it. So all WAL is read before the server gets it. Such a record becomes one that does
//! nothing, and the tablespace a directory of the copy's; and what could not be read is not given to the
//! server at all.

use std::fmt::Display;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgtoll_format::wal::{Parts, RECORD_HEADER, Record, record_places};
use pgtoll_format::{ControlFile, Lsn};
use pgtoll_record::LoggedTablespace;
use pgtoll_system::Interrupt;
use pgtoll_wal::{Collect, End, SegmentFile, first_header, scan_with};
use sha1::{Digest as _, Sha1};

use crate::DrillError;
use crate::choice::{WalChoice, is_backup_end, segment_name};
use crate::error::with_source;
use crate::writer::CopyWriter;

/// The segments of the copy, and what was read of them.
#[derive(Debug, Default)]
pub(crate) struct CopiedWal {
    directory: PathBuf,
    segment_bytes: u64,
    page_bytes: u64,
    /// Each with its number.
    segments: Vec<(u64, PathBuf)>,
    /// Segments that were copied.
    pub(crate) copied: u64,
    /// Why no more were copied, though there are more.
    pub(crate) defect: Option<String>,
    /// The start of the first record.
    pub(crate) from: Option<Lsn>,
    /// The end of the last record that was read.
    pub(crate) to: Option<Lsn>,
    /// The end of the backup, as its WAL says.
    pub(crate) backup_end: Option<Lsn>,
    /// Why it was not read further; `None`: all was.
    pub(crate) ended: Option<String>,
    made: Vec<MadeTablespace>,
}

/// A record that makes a tablespace.
#[derive(Debug)]
struct MadeTablespace {
    at: Lsn,
    oid: u32,
    path: String,
    /// The header with which it does nothing.
    header: [u8; RECORD_HEADER],
}

impl CopiedWal {
    /// Copies the segments, unpacked, into this directory, and the timelines' histories.
    pub(crate) fn copy(
        choice: &WalChoice,
        control: &ControlFile,
        directory: &Path,
        writer: CopyWriter,
        interrupt: &Interrupt,
    ) -> Result<Self, DrillError> {
        let mut wal = Self {
            directory: directory.to_owned(),
            segment_bytes: control.wal_segment_bytes.into(),
            page_bytes: control.wal_block_bytes.into(),
            ..Self::default()
        };
        for (name, text) in &choice.histories {
            let path = directory.join(name);
            writer.write_new(&path, text).map_err(DrillError::write(&path))?;
        }
        let first = choice.start.segment_number(wal.segment_bytes);
        for (number, file) in (first..).zip(&choice.segments) {
            interrupt.check()?;
            let name = segment_name(file.name.timeline, number, wal.segment_bytes);
            let path = directory.join(name);
            wal.defect = wal.copy_segment(file, &path, writer)?;
            if wal.defect.is_none() {
                wal.defect = foreign(&path, file, control);
            }
            if wal.defect.is_some() {
                writer.remove(&path).map_err(DrillError::write(&path))?;
                break;
            }
            wal.segments.push((number, path));
            wal.copied += 1;
        }
        Ok(wal)
    }

    /// Copies a segment. What is wrong with it is no error, and it is not the server's then.
    fn copy_segment(
        &self,
        file: &SegmentFile,
        to: &Path,
        writer: CopyWriter,
    ) -> Result<Option<String>, DrillError> {
        let mut copy = writer.new_file(to).map_err(DrillError::write(to))?;
        let unreadable = |reason: &dyn Display| {
            Ok(Some(format!("{} cannot be read: {reason}", file.path.display())))
        };
        let input = match file.open() {
            Ok(input) => input,
            Err(error) => return unreadable(&error),
        };
        let mut buffer = Vec::new();
        // A segment is 1 GB at most, and 16 MB usually: it is copied in pieces.
        let mut input = input.take(self.segment_bytes + 1);
        let mut bytes = 0;
        let mut hash = file.named_sha1().map(|sum| (sum, Sha1::new()));
        loop {
            buffer.clear();
            let read = input.by_ref().take(PIECE_BYTES).read_to_end(&mut buffer);
            if let Err(error) = read {
                return unreadable(&error);
            }
            if buffer.is_empty() {
                break;
            }
            bytes += buffer.len() as u64;
            if let Some((_, hash)) = &mut hash {
                hash.update(&buffer);
            }
            io::Write::write_all(&mut copy, &buffer).map_err(DrillError::write(to))?;
        }
        if bytes != self.segment_bytes {
            let than = if bytes < self.segment_bytes { "shorter" } else { "longer" };
            return unreadable(&format!("it is {than} than a segment"));
        }
        let is_named = |(sum, hash): (&str, Sha1)| {
            pgtoll_format::hex(&hash.finalize()).eq_ignore_ascii_case(sum)
        };
        if hash.is_some_and(|hash| !is_named(hash)) {
            return unreadable(&"its SHA-1 is not the one in its name");
        }
        Ok(None)
    }

    /// Reads all of it, up to the first gap or damage.
    pub(crate) fn read(&mut self, start: Lsn, interrupt: &Interrupt) -> Result<(), DrillError> {
        let files: Vec<SegmentFile> =
            self.segments.iter().filter_map(|(_, path)| SegmentFile::from_path(path)).collect();
        if files.is_empty() {
            return Ok(());
        }
        let new = || ReplayedWal { start, backup_end: None, made: Vec::new() };
        let watch = &mut |_| match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        match scan_with(&files, 1, new, watch) {
            Err(error) => self.ended = Some(self.in_own_words(&with_source(&error))),
            Ok((summary, end)) => {
                self.from = summary.from;
                self.to = summary.to;
                self.ended = (!end.is_whole()).then(|| self.in_own_words(&describe(&end)));
                self.backup_end = summary.collected.backup_end;
                self.made = summary.collected.made;
            }
        }
        Ok(interrupt.check()?)
    }

    /// The copy's directory means nothing to a user.
    fn in_own_words(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.display()), "")
    }

    /// Leaves the server nothing that was not read, nothing from `until` on, and no record that makes a
    /// tablespace. Returns the tablespaces.
    pub(crate) fn make_safe(
        &mut self,
        until: Option<Lsn>,
        writer: CopyWriter,
    ) -> Result<Vec<LoggedTablespace>, DrillError> {
        let read = self.to.unwrap_or(Lsn::INVALID);
        let end = until.map_or(read, |until| until.min(read));
        for (number, path) in std::mem::take(&mut self.segments) {
            let begin = Lsn::from_segment(number, self.segment_bytes);
            match end.bytes_since(begin).filter(|left| *left > 0) {
                None => writer.remove(&path).map_err(DrillError::write(&path))?,
                Some(left) => {
                    if left < self.segment_bytes {
                        writer.zero_from(&path, left).map_err(DrillError::write(&path))?;
                    }
                    self.segments.push((number, path));
                }
            }
        }
        let made = std::mem::take(&mut self.made);
        let given = made.into_iter().filter(|made| made.at < end);
        given.map(|made| self.neutralise(made, writer)).collect()
    }

    fn neutralise(
        &self,
        made: MadeTablespace,
        writer: CopyWriter,
    ) -> Result<LoggedTablespace, DrillError> {
        let MadeTablespace { at, oid, path, header } = made;
        for (place, range) in record_places(at, header.len(), self.page_bytes, self.segment_bytes) {
            let number = place.segment_number(self.segment_bytes);
            let segment = self.segments.iter().find(|(segment, _)| *segment == number);
            let (_, file) = segment.ok_or_else(|| {
                let missing = io::Error::other("the segment of a record that was read is missing");
                DrillError::write(&self.directory)(missing)
            })?;
            let at = place.segment_offset(self.segment_bytes);
            writer.patch(file, at, &header[range]).map_err(DrillError::write(file))?;
        }
        Ok(LoggedTablespace { at, oid, path })
    }

    /// Moves the segments to where a server looks without asking: for one that is not told to recover
    /// from elsewhere.
    pub(crate) fn move_to(&self, directory: &Path, writer: CopyWriter) -> Result<(), DrillError> {
        for (_, path) in &self.segments {
            let to = directory.join(path.file_name().unwrap_or_default());
            let mut from = pgtoll_system::open_unlinked(path).map_err(DrillError::read(path))?;
            let mut copy = writer.new_file(&to).map_err(DrillError::write(&to))?;
            io::copy(&mut from, &mut copy).map_err(DrillError::write(&to))?;
            writer.remove(path).map_err(DrillError::write(path))?;
        }
        Ok(())
    }
}

/// Returns the fault of a segment from another cluster.
fn foreign(copy: &Path, file: &SegmentFile, control: &ControlFile) -> Option<String> {
    // What is no WAL is found when it is read.
    let (header, _) = first_header(&[SegmentFile::from_path(copy)?]).ok()?;
    let own = control.system_identifier;
    (header.system_identifier != own).then(|| {
        let shown = file.path.display();
        let other = header.system_identifier;
        format!("{shown} is WAL of cluster {other}, and the backup of cluster {own}")
    })
}

fn describe(end: &End) -> String {
    end.to_string()
}

/// The effects of replaying the WAL from the backup's start.
#[derive(Debug)]
struct ReplayedWal {
    start: Lsn,
    backup_end: Option<Lsn>,
    made: Vec<MadeTablespace>,
}

impl Collect for ReplayedWal {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if is_backup_end(record, parts, self.start) {
            self.backup_end = Some(record.end);
        }
        if let Some((oid, path)) = record.made_tablespace(parts) {
            self.made.push(MadeTablespace {
                at: record.at,
                oid,
                path: String::from_utf8_lossy(path).into_owned(),
                header: record.neutral_header(),
            });
        }
    }

    fn append(&mut self, later: Self) {
        self.backup_end = self.backup_end.or(later.backup_end);
        self.made.extend(later.made);
    }
}

/// Read and written at once.
const PIECE_BYTES: u64 = 8 << 20;
