//! The source of files: the disk, or in a test a disk that fails.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use pgtoll_system::AlignedBuffer;

use crate::mapped::{self, Window};

/// Opens files.
pub trait Storage: Sync {
    /// The file at this path.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>>;

    /// Bytes that are read by one call.
    fn read_bytes(&self) -> usize {
        READ_BYTES
    }
}

/// An open file.
pub trait ReadAt {
    /// Reads bytes from this place on; fewer than there is room for at the file's end, or where
    /// the system pleases.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// This many bytes from this place on will be read in their order.
    fn will_read(&self, _at: u64, _bytes: u64) {}

    /// These bytes as memory, at most this many; `None`: they are to be read.
    fn map(&self, _at: u64, _bytes: u64) -> Option<Window> {
        None
    }
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Files;

impl Storage for Files {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        Ok(Box::new(open(path, OFlag::empty())?))
    }
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn will_read(&self, at: u64, bytes: u64) {
        if bytes > READ_BYTES as u64 {
            // A hint: a file system without readahead reads all the same.
            let at = at.cast_signed();
            let bytes = bytes.cast_signed();
            let _ = posix_fadvise(self, at, bytes, PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL);
        }
    }
}

/// The files of this machine as memory, which saves copying them. For files at rest only.
///
/// What cannot be mapped is read instead.
#[derive(Debug, Default)]
pub struct MappedFiles {
    is_refused: AtomicBool,
}

impl MappedFiles {
    /// Some were read and not mapped.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl Storage for MappedFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        let file = open(path, OFlag::empty())?;
        Ok(Box::new(MappedFile { file, is_refused: &self.is_refused }))
    }
}

struct MappedFile<'a> {
    file: File,
    is_refused: &'a AtomicBool,
}

impl ReadAt for MappedFile<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buffer, at)
    }

    fn will_read(&self, at: u64, bytes: u64) {
        self.file.will_read(at, bytes);
    }

    fn map(&self, at: u64, bytes: u64) -> Option<Window> {
        if bytes < MAPPED_BYTES_MIN {
            return None;
        }
        match mapped::window(&self.file, at, bytes) {
            Ok(window) => Some(window),
            // Reading says what is wrong, block by block.
            Err(error) => {
                let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
                self.is_refused.fetch_or(!is_cut, Ordering::Relaxed);
                None
            }
        }
    }
}

/// The files of this machine past the system's cache (`O_DIRECT`): from the medium itself, and
/// nothing that others keep in the cache is driven out of it.
///
/// File systems that know no such thing are read as ever.
#[derive(Debug, Default)]
pub struct DirectFiles {
    is_refused: AtomicBool,
}

impl DirectFiles {
    /// Some were read through the cache.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl Storage for DirectFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        match open(path, OFlag::O_DIRECT) {
            Ok(file) => Ok(Box::new(DirectFile { file, is_refused: &self.is_refused })),
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => {
                self.is_refused.store(true, Ordering::Relaxed);
                Files.open(path)
            }
            Err(error) => Err(error),
        }
    }

    /// Without readahead each call goes to the medium, so it reads more.
    fn read_bytes(&self) -> usize {
        4 * READ_BYTES
    }
}

struct DirectFile<'a> {
    file: File,
    is_refused: &'a AtomicBool,
}

impl ReadAt for DirectFile<'_> {
    /// Reads bytes that begin and end at multiples of [`ALIGNED_BYTES`], in the file and in
    /// memory; the rest of a file goes through another buffer.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let whole = buffer.len() / ALIGNED_BYTES * ALIGNED_BYTES;
        let is_aligned = at.is_multiple_of(ALIGNED_BYTES as u64)
            && buffer.as_ptr().addr().is_multiple_of(ALIGNED_BYTES);
        if is_aligned && whole > 0 {
            return self.read_aligned(&mut buffer[..whole], at);
        }
        let skipped = at % ALIGNED_BYTES as u64;
        let mut other = AlignedBuffer::new(ALIGNED_BYTES);
        let read = self.read_aligned(&mut other, at - skipped)?;
        let skipped = usize::try_from(skipped).unwrap_or(ALIGNED_BYTES);
        let found = other.get(skipped..read).unwrap_or_default();
        let some = found.len().min(buffer.len());
        buffer[..some].copy_from_slice(&found[..some]);
        Ok(some)
    }
}

impl DirectFile<'_> {
    fn read_aligned(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match FileExt::read_at(&self.file, buffer, at) {
            // Opened so, and yet refused: the file system is of another grain.
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => {
                self.is_refused.store(true, Ordering::Relaxed);
                nix::fcntl::fcntl(&self.file, nix::fcntl::F_SETFL(OFlag::empty()))?;
                FileExt::read_at(&self.file, buffer, at)
            }
            other => other,
        }
    }
}

/// Opens a file without waiting: a listed file may be a pipe by now.
fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_all(file: &dyn ReadAt, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut taken = 0;
    while taken < buffer.len() {
        match file.read_at(&mut buffer[taken..], at + taken as u64) {
            Ok(0) => break,
            Ok(read) => taken += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// The bytes that one call reads: they stay in a core's own cache until they are judged.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Less is copied sooner than mapped.
const MAPPED_BYTES_MIN: u64 = 64 << 10;
const ALIGNED_BYTES: usize = AlignedBuffer::ALIGNMENT;

#[cfg(test)]
mod tests {
    use super::*;

    /// All disks read the same.
    #[test]
    fn a_file_is_read_whole_and_in_parts() {
        let bytes: Vec<u8> = (0..=250_u8).cycle().take(300_000).collect();
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let mapped = MappedFiles::default();
        let direct = DirectFiles::default();
        let disks: [&dyn Storage; 3] = [&Files, &mapped, &direct];
        for disk in disks {
            let open = disk.open(file.path()).unwrap();
            let check = |at: usize, room: usize| {
                let mut buffer = AlignedBuffer::new(room);
                let read = read_all(&*open, &mut buffer, at as u64).unwrap();
                let end = bytes.len().min(at + room);
                assert!(buffer[..read] == bytes[at.min(end)..end], "{room} from {at}");
            };
            for at in [0, 1, 1024, 4096, 8192, 299_999, 300_000, 400_000] {
                for room in [1, 1024, 4096, 5000, 8192, 400_000] {
                    check(at, room);
                }
            }
        }
        let window = mapped.open(file.path()).unwrap().map(4096, 200_000).unwrap();
        assert!(*window == bytes[4096..][..200_000]);
        // Beyond its end there is nothing to map.
        assert!(mapped.open(file.path()).unwrap().map(4096, 400_000).is_none());
        assert!(!mapped.is_refused());
        // What is no file in memory is read.
        assert!(mapped.open(Path::new("/proc/self/maps")).unwrap().map(0, 100_000).is_none());
        assert!(mapped.is_refused());
    }
}
