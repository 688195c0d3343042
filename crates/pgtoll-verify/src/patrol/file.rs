//! The file that holds a patrol's state.
//!
//! It is replaced as a whole, and locked as long as a patrol continues: the new file is locked before it has
//! its name, so that at no moment the name is that of a file without a lock.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::unistd::geteuid;
use pgtoll_datadir::DataDirectory;
use pgtoll_record::{PATROL_SCHEMA, PatrolRecord};
use pgtoll_system::Draft;

use super::directory::PatrolledDirectory;
use super::error::PatrolError;
use super::patrolled::Patrolled as _;
use super::state::PatrolState;
use super::timing::PatrolSettings;

/// A patrol's state in its file, which no other patrol uses meanwhile.
#[derive(Debug)]
pub struct PatrolFile {
    path: PathBuf,
    /// Has the lock; `None`: there is no file yet.
    locked: Option<File>,
    found: Option<PatrolRecord>,
}

impl PatrolFile {
    /// Takes the file, which need not be there, for a patrol of this data directory.
    pub fn open(path: &Path, data: &DataDirectory) -> Result<Self, PatrolError> {
        Self::refuse_inside(path, data)?;
        let (locked, found) = match lock(path)? {
            None => (None, None),
            Some(file) => {
                let record = read(&file, path)?;
                let system_identifier = record.source.system_identifier;
                if system_identifier != data.control.system_identifier {
                    let found = data.control.system_identifier;
                    return Err(PatrolError::OtherCluster {
                        path: path.to_owned(),
                        of: system_identifier,
                        found,
                    });
                }
                (Some(file), Some(record))
            }
        };
        Ok(Self { path: path.to_owned(), locked, found })
    }

    /// Refuses a file that would be in a directory of the cluster's own, whatever links lead there.
    pub fn refuse_inside(path: &Path, data: &DataDirectory) -> Result<(), PatrolError> {
        let parent =
            path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let real = |path: &Path| fs::canonicalize(path).ok();
        let places = [real(parent), real(path)];
        let is_inside = |directory: &Path| {
            let directory = real(directory);
            directory.is_some_and(|directory| {
                places.iter().flatten().any(|place| place.starts_with(&directory))
            })
        };
        let tablespaces = fs::read_dir(data.path.join("pg_tblspc")).into_iter().flatten().flatten();
        let mut own = tablespaces.map(|entry| entry.path());
        if is_inside(&data.path)
            || is_inside(&data.path.join("pg_wal"))
            || own.any(|item| is_inside(&item))
        {
            let path = path.to_owned();
            let data = data.path.clone();
            return Err(PatrolError::InDataDirectory { path, data });
        }
        Ok(())
    }

    /// The state as it was left, or a new one, for a patrol with these settings.
    pub(super) fn state(
        &mut self,
        directory: &mut PatrolledDirectory<'_>,
        settings: &PatrolSettings,
        now: Timestamp,
    ) -> Result<PatrolState, PatrolError> {
        let listing = directory.list()?;
        let mut state = match self.found.take() {
            Some(record) => PatrolState::from_record(record),
            None => PatrolState::new(listing.source.clone(), now),
        };
        state.set(settings);
        state.set_listing(listing);
        // What cannot be written is better known before anything is read.
        self.write(state.record(now))?;
        Ok(state)
    }

    /// The file is the old one or the new one, whatever happens meanwhile.
    pub(super) fn write(&mut self, record: &PatrolRecord) -> Result<(), PatrolError> {
        let path = self.path.clone();
        let failed = |source| PatrolError::Write { path: path.clone(), source };
        let mut draft = Draft::from_path(&path).map_err(failed)?;
        let mut text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        draft.write_all(&text).map_err(failed)?;
        draft.file().lock().map_err(failed)?;
        self.locked = Some(match &self.locked {
            Some(_) => draft.replace().map_err(failed)?,
            None => match draft.publish_new() {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(PatrolError::InUse { path });
                }
                Err(error) => return Err(failed(error)),
            },
        });
        Ok(())
    }
}

/// The file with a lock; `None`: there is none. One that was replaced between our opening and our
/// locking it is no longer the state.
fn lock(path: &Path) -> Result<Option<File>, PatrolError> {
    for _ in 0..TRIES {
        let Some(file) = open(path)? else { return Ok(None) };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(source)) => {
                return Err(PatrolError::Read { path: path.to_owned(), source });
            }
        }
        let id = |found: &fs::Metadata| (found.dev(), found.ino());
        let of_name = fs::symlink_metadata(path).ok();
        let of_file = file.metadata().ok();
        if of_name.as_ref().map(id) == of_file.as_ref().map(id) {
            return Ok(Some(file));
        }
    }
    Err(PatrolError::InUse { path: path.to_owned() })
}

/// A link is not followed, and another user's file is not believed.
fn open(path: &Path) -> Result<Option<File>, PatrolError> {
    let failed = |source| PatrolError::Read { path: path.to_owned(), source };
    let planted = |label| Err(PatrolError::Planted { path: path.to_owned(), what: label });
    let file = match pgtoll_system::open_unlinked(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
            return planted("a symbolic link");
        }
        Err(error) => return Err(failed(error)),
    };
    let owner = file.metadata().map_err(failed)?.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return planted("another user's");
    }
    Ok(Some(file))
}

fn read(file: &File, path: &Path) -> Result<PatrolRecord, PatrolError> {
    let mut text = Vec::new();
    let read = file.take(BYTES_MAX).read_to_end(&mut text);
    read.map_err(|source| PatrolError::Read { path: path.to_owned(), source })?;
    let record = serde_json::from_slice::<PatrolRecord>(&text).ok();
    let known = record.filter(|record| record.schema == PATROL_SCHEMA);
    known.ok_or_else(|| PatrolError::Foreign { path: path.to_owned() })
}

const TRIES: u32 = 10;
/// The limit: 10,000 findings take a tenth of it.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use pgtoll_record::PatrolSource;

    use super::*;
    use crate::directory::tests::directory;

    fn new_record(data: &DataDirectory) -> PatrolRecord {
        let source = PatrolSource {
            path: String::new(),
            major: 15,
            system_identifier: data.control.system_identifier,
            block_bytes: 8192,
            file_blocks: 131_072,
            checksums: true,
            running: false,
            files: 1,
            bytes: 8192,
        };
        PatrolState::new(source, Timestamp::UNIX_EPOCH).into_record()
    }

    #[test]
    fn a_state_is_locked_however_often_it_is_written_until_its_patrol_ends() {
        let (_data, data) = directory(&[]);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let open = || PatrolFile::open(&path, &data);
        let mut first = open().unwrap();
        let mut other = open().unwrap();
        for _ in 0..3 {
            first.write(&new_record(&data)).unwrap();
            assert!(matches!(open(), Err(PatrolError::InUse { .. })));
        }
        // Who came when there was no file has not got it either.
        let refused = other.write(&new_record(&data));
        assert!(matches!(refused, Err(PatrolError::InUse { .. })), "{refused:?}");
        drop(first);
        assert_eq!(open().unwrap().found, Some(new_record(&data)));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_state_of_another_cluster_or_of_something_else_is_left_as_it_is() {
        let (_data, data) = directory(&[]);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let mut other = new_record(&data);
        other.source.system_identifier += 1;
        let text = serde_json::to_string(&other).unwrap();
        for (text, is_other) in [(text.as_str(), true), ("{}", false), ("", false)] {
            fs::write(&path, text).unwrap();
            let error = PatrolFile::open(&path, &data).unwrap_err();
            assert_eq!(matches!(error, PatrolError::OtherCluster { .. }), is_other, "{error:?}");
            assert!(error.hint().is_some());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
