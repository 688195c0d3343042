//! Files as objects: read and written as pgtoll's own files are, through no link of another user.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pgtoll_system::Draft;

use crate::StoredObject;
use crate::error::StoreError;
use crate::url::StoreUrl;

/// All files below a prefix, but for hidden ones of pgtoll's that are not complete.
pub(crate) fn list(prefix: &StoreUrl) -> Result<Vec<StoredObject>, StoreError> {
    let mut objects = Vec::new();
    let mut directories = vec![prefix.clone()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(path_of(&directory)) {
            Ok(entries) => entries,
            // Removed since it was listed, or a prefix below which nothing was written yet.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&directory, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(&directory, error))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                failed(&directory, io::Error::other("a file's name is not UTF-8"))
            })?;
            let kind = entry.file_type().map_err(|error| failed(&directory, error))?;
            let url = directory.join(name);
            if kind.is_dir() {
                directories.push(url);
            } else if kind.is_file() && !name.starts_with(".pgtoll-") {
                match entry.metadata() {
                    Ok(found) => objects.push(object(url, &found)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(&url, error)),
                }
            }
        }
    }
    Ok(objects)
}

pub(crate) fn open(url: &StoreUrl) -> Result<(File, StoredObject), StoreError> {
    let file = pgtoll_system::open(&path_of(url)).map_err(|error| failed(url, error))?;
    let found = file.metadata().map_err(|error| failed(url, error))?;
    Ok((file, object(url.clone(), &found)))
}

/// Writes a file, complete; false where `new` is asked for and it exists.
pub(crate) fn put(url: &StoreUrl, bytes: &[u8], new: bool) -> Result<bool, StoreError> {
    let path = path_of(url);
    let write = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let mut draft = Draft::from_path(&path)?;
        draft.write_all(bytes)?;
        draft.share()?;
        if new { draft.publish_new() } else { draft.replace() }.map(drop)
    };
    match write() {
        Ok(()) => Ok(true),
        Err(error) if new && error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(url, error)),
    }
}

fn path_of(url: &StoreUrl) -> PathBuf {
    url.path().unwrap_or_else(|| Path::new("/").join(url.key()))
}

/// Returns the object of a file; its tag changes when the file is replaced or written to.
fn object(url: StoreUrl, found: &Metadata) -> StoredObject {
    let etag =
        format!("{:x}-{:x}-{:x}.{:x}", found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    let modified = u64::try_from(found.mtime()).unwrap_or_default();
    StoredObject { url, bytes: found.len(), etag: Some(etag), modified }
}

pub(crate) fn failed(url: &StoreUrl, source: io::Error) -> StoreError {
    let url = url.clone();
    match source.kind() {
        ErrorKind::NotFound => StoreError::NotFound { url },
        _ => StoreError::File { url, source },
    }
}
