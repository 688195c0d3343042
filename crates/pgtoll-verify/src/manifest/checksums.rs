//! Files and the checksums that a manifest lists for them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pgtoll_format::Crc32c;
use pgtoll_system::AlignedBuffer;
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

use super::{Algorithm, ManifestFile};
use crate::pace::Pace;
use crate::settings::{PROGRESS, VerifySettings};

/// The expected checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    algorithm: Algorithm,
    expected: Box<[u8]>,
    pub(crate) bytes: u64,
}

impl Checksum {
    /// `None`: it has none.
    pub(super) fn from_file(file: &ManifestFile) -> Option<Self> {
        let expected = file.checksum.clone().into_boxed_slice();
        let algorithm = file.algorithm;
        let bytes = file.bytes;
        (algorithm != Algorithm::None).then_some(Self { algorithm, expected, bytes })
    }

    /// Whether what is read has it.
    fn is_of(&self, input: &mut dyn Read) -> io::Result<bool> {
        let mut buffer = AlignedBuffer::new(BUFFER_BYTES);
        let found = match self.algorithm {
            Algorithm::None => return Ok(true),
            Algorithm::Crc32c => {
                let mut crc = Crc32c::default();
                each(input, &mut buffer, &mut |bytes| crc.update(bytes))?;
                // As PostgreSQL keeps it in memory, on a little-endian machine.
                crc.sum().to_le_bytes().to_vec()
            }
            Algorithm::Sha224 => digest(Sha224::new(), input, &mut buffer)?,
            Algorithm::Sha256 => digest(Sha256::new(), input, &mut buffer)?,
            Algorithm::Sha384 => digest(Sha384::new(), input, &mut buffer)?,
            Algorithm::Sha512 => digest(Sha512::new(), input, &mut buffer)?,
        };
        Ok(*found == *self.expected)
    }
}

/// A file that is read as fast as it may be.
struct Paced<'a> {
    file: File,
    pace: &'a Pace,
}

impl Read for Paced<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.pace.may_read(buffer.len() as u64) {
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
}

fn digest<D: sha2::Digest>(
    mut digest: D,
    input: &mut dyn Read,
    buffer: &mut [u8],
) -> io::Result<Vec<u8>> {
    each(input, buffer, &mut |bytes| digest.update(bytes))?;
    Ok(digest.finalize().to_vec())
}

fn each(input: &mut dyn Read, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    loop {
        match input.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => take(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the member that is read next is as the manifest says; `None`: it has no checksum there.
pub(crate) fn compare_member(
    path: &str,
    expected: &FxHashMap<Box<str>, Checksum>,
    input: &mut dyn Read,
) -> io::Result<Option<bool>> {
    expected.get(path).map(|checksum| checksum.is_of(input)).transpose()
}

/// The outcome of files whose checksums were compared.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Those that have another one.
    pub(crate) wrong: Vec<String>,
    pub(crate) unlisted: Vec<(PathBuf, io::Error)>,
    pub(crate) bytes: u64,
    pub(crate) is_interrupted: bool,
}

impl Compared {
    fn add(&mut self, data: &Path, path: &str, bytes: u64, is_right: io::Result<bool>) {
        match is_right {
            // What is not read any more is not in trouble.
            _ if self.is_interrupted => {}
            Ok(true) => {}
            Ok(false) => self.wrong.push(path.to_owned()),
            Err(error) => self.unlisted.push((data.join(path), error)),
        }
        self.bytes += bytes;
    }
}

/// Reads these files of a plain backup, several at once; `progress` is given the bytes so far.
pub(crate) fn compare_directory(
    data: &Path,
    expected: &FxHashMap<Box<str>, Checksum>,
    settings: &VerifySettings,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Compared {
    let files: Vec<(&str, &Checksum)> =
        expected.iter().map(|(path, expected)| (&**path, expected)).collect();
    let next = AtomicUsize::new(0);
    let pace = Pace::new(settings.rate);
    let stop = || {
        next.store(files.len(), Ordering::Relaxed);
        pace.stop();
    };
    let one = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let (path, checksum) = *files.get(at)?;
        let opened = pgtoll_system::open(&data.join(path));
        let is_right = opened.and_then(|file| checksum.is_of(&mut Paced { file, pace: &pace }));
        Some((path, checksum.bytes, is_right))
    };
    let mut compared = Compared::default();
    let worker = || |emit: &mut dyn FnMut(_) -> bool| one().is_some_and(&mut *emit);
    pgtoll_system::threads::run_workers(settings.jobs.get(), PROGRESS, worker, |found| {
        if let Some((path, bytes, is_right)) = found {
            compared.add(data, path, bytes, is_right);
        }
        if !compared.is_interrupted && progress(compared.bytes).is_break() {
            compared.is_interrupted = true;
            stop();
        }
    });
    compared
}

const BUFFER_BYTES: usize = 256 << 10;
