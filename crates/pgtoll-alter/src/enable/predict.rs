//! The time that it would take, by reading a little. Nothing is written, so the disk's speed of
//! writing is unknown: only a range can be given.
//! not known: only a range can be given.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use pgtoll_format::ControlFile;

use super::pages::{Blocks, EnabledPages};
use crate::WriteError;
use pgtoll_datadir::RelationFile;
use pgtoll_system::AlignedBuffer;

/// A prediction for all pages from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Pages that were read.
    pub pages: u64,
    /// Those whose checksum would be written.
    pub stale: u64,
    /// Seconds a byte that one thread takes to read, as the files are cached now, and to sum.
    pub read: f64,
    /// Seconds a byte that one thread takes to copy from the system's memory, or to it.
    pub copy: f64,
    /// Seconds a byte that the disk itself takes to read; `None` where it cannot be asked.
    pub disk: Option<f64>,
}

/// Pieces of the sample, evenly spaced over all bytes.
const PIECES: u64 = 96;
const PIECE_BYTES: usize = 1 << 20;
/// The alignment that disks require.
const ALIGNMENT: usize = AlignedBuffer::ALIGNMENT;
/// A disk is taken to write as fast as it reads at best, and so much slower at worst.
const WRITE_SLOWER: f64 = 3.0;

/// Reads pages of `files` here and there. A server may run meanwhile.
pub fn predict(files: &[RelationFile], control: &ControlFile) -> Result<Prediction, WriteError> {
    let pieces = pieces(files, control.block_bytes.into());
    let bytes = pieces.iter().map(|piece| piece.bytes).sum::<u64>();
    let mut buffer = AlignedBuffer::new(PIECE_BYTES);
    let mut found = Sample::default();
    let as_cached =
        timed(|| pieces.iter().try_for_each(|piece| piece.sum(control, &mut buffer, &mut found)))?;
    let mut again = |flags| {
        timed(|| pieces.iter().try_for_each(|piece| piece.read(&mut buffer, flags).map(drop)))
    };
    let cached = again(0)?;
    #[expect(clippy::cast_precision_loss, reason = "they are megabytes")]
    let a_byte = |seconds: f64| seconds / bytes.max(1) as f64;
    Ok(Prediction {
        pages: found.pages,
        stale: found.stale,
        read: a_byte(as_cached),
        copy: a_byte(cached),
        // Not every file system reads past its memory.
        disk: again(nix::libc::O_DIRECT).ok().map(a_byte),
    })
}

impl Prediction {
    /// Seconds for this many bytes, at least and at most: the disk writes while the next pages are
    /// read, or afterwards.
    pub fn seconds(&self, bytes: u64, jobs: usize, sync: bool) -> (f64, f64) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        #[expect(clippy::cast_precision_loss, reason = "a prediction")]
        let bytes = bytes as f64;
        #[expect(clippy::cast_precision_loss, reason = "threads are few")]
        let jobs = jobs.clamp(1, cores) as f64;
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let stale = bytes * self.stale as f64 / self.pages.max(1) as f64;
        let work = (bytes * self.read + stale * self.copy) / jobs;
        let disk = if sync { stale * self.disk.unwrap_or(self.read) } else { 0.0 };
        ((work / WORK_SCATTERS).max(disk), work * WORK_SCATTERS + WRITE_SLOWER * disk)
    }
}

/// The assumed largest factor between the speed in some dozens of milliseconds and the true one, also beside other
/// work.
const WORK_SCATTERS: f64 = 2.0;

#[derive(Default)]
struct Sample {
    pages: u64,
    stale: u64,
}

struct Piece<'a> {
    of: &'a RelationFile,
    at: u64,
    bytes: u64,
}

/// Returns pieces at regular distances; all bytes if they are few.
fn pieces(files: &[RelationFile], block_bytes: u64) -> Vec<Piece<'_>> {
    let all: u64 = files.iter().map(|file| file.bytes).sum();
    let step = (all / PIECES).max(PIECE_BYTES as u64);
    let mut pieces = Vec::new();
    let mut before = 0;
    let mut next = 0;
    // Direct reads begin at whole pages of memory too.
    let unit = block_bytes.max(ALIGNMENT as u64);
    for file in files {
        while next < before + file.bytes {
            let at = (next - before) / unit * unit;
            let bytes = (file.bytes - at).min(PIECE_BYTES as u64);
            pieces.push(Piece { of: file, at, bytes });
            next += step;
        }
        before += file.bytes;
    }
    pieces
}

impl Piece<'_> {
    fn sum(
        &self,
        control: &ControlFile,
        buffer: &mut AlignedBuffer,
        found: &mut Sample,
    ) -> Result<(), WriteError> {
        let count = self.read(buffer, 0)?;
        let in_file = self.at / u64::from(control.block_bytes);
        let first = u64::from(self.of.name.segment) * u64::from(control.file_blocks);
        let blocks = Blocks {
            path: &self.of.path,
            block_bytes: control.block_bytes as usize,
            in_file,
            in_fork: u32::try_from(first + in_file).unwrap_or(u32::MAX),
        };
        let bytes = &mut buffer[..count];
        let mut pages = EnabledPages::default();
        found.stale += blocks.stamp(bytes, &mut Vec::new(), &mut pages).len() as u64;
        found.pages += pages.pages;
        Ok(())
    }

    /// How many bytes there were: files get shorter while a server runs, and go.
    fn read(&self, buffer: &mut AlignedBuffer, flags: i32) -> Result<usize, WriteError> {
        let error = WriteError::read(&self.of.path);
        let file = match File::options().read(true).custom_flags(flags).open(&self.of.path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => file.map_err(&error)?,
        };
        // The last block of a file may be shorter than what is asked for.
        let wanted = usize::try_from(self.bytes).unwrap_or(0).next_multiple_of(ALIGNMENT);
        let count = file.read_at(&mut buffer[..wanted], self.at);
        Ok(count.map_err(&error)?.min(usize::try_from(self.bytes).unwrap_or(0)))
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T, WriteError>) -> Result<f64, WriteError> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_already_costs_no_writes() {
        let all = Prediction { pages: 10, stale: 10, read: 2e-9, copy: 1e-9, disk: Some(4e-9) };
        let gigabyte = 1_000_000_000;
        let close = |found: (f64, f64), expected: (f64, f64)| {
            let near = (found.0 - expected.0).abs() < 1e-6 && (found.1 - expected.1).abs() < 1e-6;
            assert!(near, "{found:?}, expected {expected:?}");
        };
        close(all.seconds(gigabyte, 1, true), (4.0, 18.0));
        close(all.seconds(gigabyte, 1, false), (1.5, 6.0));
        close(Prediction { stale: 0, ..all }.seconds(gigabyte, 1, true), (1.0, 4.0));
        let nothing = Prediction::default();
        close(nothing.seconds(0, 1, true), (0.0, 0.0));
    }
}
