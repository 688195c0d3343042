//! The calls that reach the disk. Tests put a disk in their place that fails.
//!
//! Verify's `Storage` is another seam: it opens files itself, to read, map and bypass the cache. Here
//! files are open already, and every call may write or sync: one trait for both would be two.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The requests to a disk. `path` is that of `file`.
pub(super) trait Medium: Sync {
    fn read(&self, file: &File, path: &Path, bytes: &mut [u8], at: u64) -> io::Result<()>;
    fn write(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()>;
    fn sync(&self, file: &File, path: &Path) -> io::Result<()>;
}

/// The one that the files are on.
#[derive(Debug)]
pub(super) struct Real;

impl Medium for Real {
    fn read(&self, file: &File, _: &Path, bytes: &mut [u8], at: u64) -> io::Result<()> {
        file.read_exact_at(bytes, at)
    }

    fn write(&self, file: &File, _: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn sync(&self, file: &File, _: &Path) -> io::Result<()> {
        file.sync_all()
    }
}
