//! Whether two stopped clusters hold the same data.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, FileType};
use std::io::Read;
use std::path::{Path, PathBuf};

use pgtoll_format::{PAGE_BYTES, PAGE_CHECKSUM};

use crate::ClusterError;

/// The parts of a data directory that are compared.
const COMPARED: [&str; 5] = ["base", "global", "pg_multixact", "pg_tblspc", "pg_xact"];
/// Read at once from each of two files. Small enough for both to stay in a CPU's cache until they
/// are compared, and whole pages.
const CHUNK_BYTES: usize = 16 * PAGE_BYTES;

/// The first difference between the data of two clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Relative to the data directories.
    pub path: PathBuf,
    /// The kind of difference.
    pub kind: DifferenceKind,
}

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Only the first cluster has it.
    OnlyInFirst,
    /// Only the second cluster has it.
    OnlyInSecond,
    /// A file in one, a directory or link in the other.
    Type,
    /// A link that leads elsewhere.
    Target,
    /// A file of another length.
    Size {
        /// The bytes of the first cluster's file.
        first_bytes: u64,
        /// The bytes of the second cluster's file.
        second_bytes: u64,
    },
    /// Another byte.
    Content {
        /// Bytes from the file's begin to the first that differs.
        offset_bytes: u64,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            DifferenceKind::OnlyInFirst => write!(f, "{path} is only in the first"),
            DifferenceKind::OnlyInSecond => write!(f, "{path} is only in the second"),
            DifferenceKind::Type => write!(f, "{path} is not the same type of file"),
            DifferenceKind::Target => write!(f, "{path} leads elsewhere"),
            DifferenceKind::Size { first_bytes, second_bytes } => {
                write!(f, "{path} has {first_bytes} and {second_bytes} bytes")
            }
            DifferenceKind::Content { offset_bytes } => {
                write!(f, "{path} differs at byte {offset_bytes}")
            }
        }
    }
}

/// Compares two data directories in the order of their files' names.
pub(crate) fn between(
    first: &Path,
    second: &Path,
    ignore_page_checksums: bool,
) -> Result<Option<Difference>, ClusterError> {
    let buffers = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    let mut comparison = Comparison { first, second, ignore_page_checksums, buffers };
    for part in COMPARED {
        let difference = comparison.entry(Path::new(part))?;
        if difference.is_some() {
            return Ok(difference);
        }
    }
    Ok(None)
}

struct Comparison<'a> {
    first: &'a Path,
    second: &'a Path,
    ignore_page_checksums: bool,
    buffers: [Vec<u8>; 2],
}

impl Comparison<'_> {
    fn entry(&mut self, path: &Path) -> Result<Option<Difference>, ClusterError> {
        let types = (file_type(&self.first.join(path))?, file_type(&self.second.join(path))?);
        let kind = match types {
            (None, None) => return Ok(None),
            (Some(_), None) => Some(DifferenceKind::OnlyInFirst),
            (None, Some(_)) => Some(DifferenceKind::OnlyInSecond),
            (Some(first), Some(second)) if first != second => Some(DifferenceKind::Type),
            (Some(both), _) if both.is_dir() => return self.directory(path),
            (Some(both), _) if both.is_symlink() => self.link(path)?,
            _ => self.file(path)?,
        };
        Ok(kind.map(|kind| Difference { path: path.to_owned(), kind }))
    }

    fn directory(&mut self, path: &Path) -> Result<Option<Difference>, ClusterError> {
        let mut all = names(&self.first.join(path))?;
        all.extend(names(&self.second.join(path))?);
        for name in all {
            let difference = self.entry(&path.join(name))?;
            if difference.is_some() {
                return Ok(difference);
            }
        }
        Ok(None)
    }

    fn link(&self, path: &Path) -> Result<Option<DifferenceKind>, ClusterError> {
        let target = |path: PathBuf| fs::read_link(&path).map_err(ClusterError::io("read", &path));
        let same = target(self.first.join(path))? == target(self.second.join(path))?;
        Ok((!same).then_some(DifferenceKind::Target))
    }

    fn file(&mut self, path: &Path) -> Result<Option<DifferenceKind>, ClusterError> {
        let first_path = self.first.join(path);
        let second_path = self.second.join(path);
        let (mut first, first_bytes) = open(&first_path)?;
        let (mut second, second_bytes) = open(&second_path)?;
        if first_bytes != second_bytes {
            return Ok(Some(DifferenceKind::Size { first_bytes, second_bytes }));
        }
        let masked = self.ignore_page_checksums && is_relation(path);
        let [first_buffer, second_buffer] = &mut self.buffers;
        let mut offset_bytes = 0;
        while offset_bytes < first_bytes {
            let left = usize::try_from(first_bytes - offset_bytes).unwrap_or(usize::MAX);
            let ours = &mut first_buffer[..left.min(CHUNK_BYTES)];
            let theirs = &mut second_buffer[..ours.len()];
            first.read_exact(ours).map_err(ClusterError::io("read", &first_path))?;
            second.read_exact(theirs).map_err(ClusterError::io("read", &second_path))?;
            if let Some(index) = first_difference(ours, theirs, masked) {
                let offset_bytes = offset_bytes + index as u64;
                return Ok(Some(DifferenceKind::Content { offset_bytes }));
            }
            offset_bytes += ours.len() as u64;
        }
        Ok(None)
    }
}

/// The index of the first byte that differs, checksums of whole pages left out if they are masked.
fn first_difference(first: &[u8], second: &[u8], masked: bool) -> Option<usize> {
    if first == second {
        return None;
    }
    let pages = first.chunks(PAGE_BYTES).zip(second.chunks(PAGE_BYTES));
    pages.enumerate().find_map(|(page, (first, second))| {
        let mask = if masked && first.len() == PAGE_BYTES { PAGE_CHECKSUM } else { 0..0 };
        let same =
            first[..mask.start] == second[..mask.start] && first[mask.end..] == second[mask.end..];
        if same {
            return None;
        }
        let differs = |index: &usize| !mask.contains(index) && first[*index] != second[*index];
        (0..first.len()).find(differs).map(|index| page * PAGE_BYTES + index)
    })
}

/// A relation's file is named by a number, then perhaps a fork (`_fsm`), then perhaps a segment
/// (`.1`).
fn is_relation(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (name, segment) = name.split_once('.').unwrap_or((&name, "0"));
    let (number, fork) = name.split_once('_').unwrap_or((name, "fsm"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(number) && is_number(segment) && ["fsm", "vm", "init"].contains(&fork)
}

/// The control file tells of the cluster, not of its data. `pg_internal.init` is a cache that holds
/// addresses of the process that wrote it and is initialized again after each start.
fn is_compared(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name != "pg_control" && !name.starts_with("pg_internal.init")
}

fn names(directory: &Path) -> Result<BTreeSet<OsString>, ClusterError> {
    let entries = fs::read_dir(directory).map_err(ClusterError::io("read", directory))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.filter(|name| name.as_ref().map_or(true, is_compared));
    names.collect::<Result<_, _>>().map_err(ClusterError::io("read", directory))
}

/// `None` when nothing is there.
fn file_type(path: &Path) -> Result<Option<FileType>, ClusterError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.file_type())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ClusterError::io("read", path)(error)),
    }
}

fn open(path: &Path) -> Result<(File, u64), ClusterError> {
    let file = pgtoll_system::open_unlinked(path).map_err(ClusterError::io("open", path))?;
    let bytes = file.metadata().map_err(ClusterError::io("read", path))?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_told_by_their_names() {
        for name in ["1259", "1259.1", "1259_fsm", "1259_vm.12", "16384_init"] {
            assert!(is_relation(&Path::new("base/5").join(name)), "{name}");
        }
        for name in ["pg_filenode.map", "PG_VERSION", "1259_x", "1259.", "_fsm", "t3_1259", "12a"] {
            assert!(!is_relation(&Path::new("base/5").join(name)), "{name}");
        }
    }

    #[test]
    fn only_checksums_of_whole_pages_are_masked() {
        let check = |bytes: usize, changed: &[usize], plain, masked| {
            let first = vec![7; bytes];
            let mut second = first.clone();
            for &index in changed {
                second[index] = 8;
            }
            assert_eq!(first_difference(&first, &second, false), plain, "{changed:?}");
            assert_eq!(first_difference(&first, &second, true), masked, "{changed:?}");
        };
        let two = 2 * PAGE_BYTES;
        check(two, &[], None, None);
        check(two, &[8], Some(8), None);
        check(two, &[9, PAGE_BYTES + 8], Some(9), None);
        check(two, &[7, 8], Some(7), Some(7));
        check(two, &[8, PAGE_BYTES + 10], Some(8), Some(PAGE_BYTES + 10));
        check(two, &[two - 1], Some(two - 1), Some(two - 1));
        check(PAGE_BYTES + 20, &[8, PAGE_BYTES + 8], Some(8), Some(PAGE_BYTES + 8));
    }
}
