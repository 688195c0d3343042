//! The time that a disk takes to sync.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

/// PostgreSQL's block.
const BLOCK: usize = 8192;
/// Enough blocks that none is written twice at once.
const BLOCKS: usize = 256;
/// The first ones pay for what the file system puts off.
const NOT_COUNTED: usize = 5;

/// Overwrites blocks of 8 kB in a file below `directory` and syncs each of them (`fdatasync`), as a
/// commit does with the WAL: up to `count` times, no longer than `at_most`, and until `is_over`
/// says so. The file has no name, so that nothing can stay behind.
pub fn sync_times(
    directory: &Path,
    count: usize,
    at_most: Duration,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Vec<Duration>> {
    let file = nameless(directory)?;
    // Written, not only allocated: what is measured overwrites, as a recycled WAL segment is.
    let zeros = vec![0; BLOCK * BLOCKS];
    file.write_all_at(&zeros, 0)?;
    file.sync_all()?;
    let block = vec![1; BLOCK];
    let began = Instant::now();
    let mut times = Vec::new();
    for index in 0..count + NOT_COUNTED {
        if is_over() || began.elapsed() > at_most {
            break;
        }
        file.write_all_at(&block, (index % BLOCKS * BLOCK) as u64)?;
        let synced = Instant::now();
        file.sync_data()?;
        if index >= NOT_COUNTED {
            times.push(synced.elapsed());
        }
    }
    Ok(times)
}

/// A file that goes with its last descriptor.
fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).mode(0o600);
    let made = options.clone().custom_flags(OFlag::O_TMPFILE.bits()).open(directory);
    let Err(error) = made else { return made };
    if error.kind() != io::ErrorKind::Unsupported && error.raw_os_error() != Some(nix::libc::EISDIR)
    {
        return Err(error);
    }
    // Some network and stacked file systems have only files with names.
    let path = directory.join(format!("pgtoll-sync-{}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
