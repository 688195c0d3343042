//! Makes a standby of a primary that was shut down, before another one is promoted: the one who starts
//! its server afterwards, it takes no writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use pgtoll_format::ClusterState;

use crate::{Hold, WriteError};

/// Lets the server start as a standby: makes `standby.signal`, and syncs it.
///
/// An error unless the cluster was shut down as a primary; a file that is there already is kept.
pub fn fence(hold: &Hold) -> Result<(), WriteError> {
    let state = hold.control().state;
    if state != ClusterState::ShutDown {
        return Err(WriteError::NotShutDown { path: hold.data().to_owned(), state, pid: None });
    }
    hold.check()?;
    let path = signal_path(hold);
    let make = || {
        // Never through a link; a server takes the file's name alone.
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(file) => file.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    make().map_err(|source| WriteError::Write { path: path.clone(), source })?;
    sync_directory(hold)
}

/// Takes `standby.signal` away, so that the server starts as a primary again.
pub fn unfence(hold: &Hold) -> Result<(), WriteError> {
    hold.check()?;
    let path = signal_path(hold);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(WriteError::Write { path, source }),
        Ok(()) => sync_directory(hold),
    }
}

fn signal_path(hold: &Hold) -> PathBuf {
    hold.data().join("standby.signal")
}

fn sync_directory(hold: &Hold) -> Result<(), WriteError> {
    let path = hold.data();
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|source| WriteError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a server of 15 leaves it that was stopped.
    fn data() -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(data.path().join("global")).unwrap();
        let control = pgtoll_testing::control_file();
        fs::write(data.path().join("global/pg_control"), control).unwrap();
        data
    }

    #[test]
    fn the_file_comes_and_goes_and_twice_is_as_once() {
        let data = data();
        let hold = Hold::take(data.path()).unwrap();
        let signal = data.path().join("standby.signal");
        for _ in 0..2 {
            fence(&hold).unwrap();
            assert!(signal.is_file());
        }
        for _ in 0..2 {
            unfence(&hold).unwrap();
            assert!(!signal.exists());
        }
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let data = data();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("target");
        std::os::unix::fs::symlink(&target, data.path().join("standby.signal")).unwrap();
        let hold = Hold::take(data.path()).unwrap();
        fence(&hold).unwrap();
        assert!(!target.exists());
        unfence(&hold).unwrap();
        assert!(fs::symlink_metadata(data.path().join("standby.signal")).is_err());
    }
}
