//! Where files are read from: the disk, or in a test what fails as disks do.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::names::open;

/// Opens files.
pub trait Disk: Sync {
    /// The file at this path.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>>;
}

/// An open file.
pub trait ReadAt {
    /// Reads bytes from this place on; fewer than there is room for at the file's end, or where
    /// the system pleases.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Files;

impl Disk for Files {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        Ok(Box::new(open(path)?))
    }
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }
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
