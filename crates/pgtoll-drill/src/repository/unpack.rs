//! Stored files, unpacked into directories of the drill's own, and compared with their checksums.

use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use pgtoll_format::hex;
use pgtoll_record::DrillFinding;
use pgtoll_system::Interrupt;
use sha1::{Digest as _, Sha1};

use super::{Destination, FINDINGS_MAX, ListedFile, RepositorySurvey, finding};
use crate::DrillError;
use crate::tars::UnpackTarget;
use crate::writer::{MadeDirectories, make_places};

impl RepositorySurvey {
    /// Unpacks what was surveyed; of files that are damaged what is before the damage. `progress` is given
    /// bytes that were written, and all. Returns what is wrong.
    pub(crate) fn unpack(
        &self,
        target: UnpackTarget<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<DrillFinding>, DrillError> {
        let UnpackTarget { directory, major, writer, interrupt } = target;
        make_places(directory, self.tablespaces.union(&self.missing_tablespaces).copied(), writer)?;
        let mut made = MadeDirectories::new(writer);
        let own = format!("PG_{major}_");
        // A tablespace has a directory for each version of a server that uses it.
        let is_own = |to: &Destination| {
            to.tablespace.is_none() || to.path.to_str().is_some_and(|path| path.starts_with(&own))
        };
        for to in self.directories.iter().filter(|to| is_own(to)) {
            made.make(&to.below(directory), &to.root(directory))?;
        }
        let all = self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let mut done = 0_u64;
        let mut findings = Vec::new();
        let mut buffer = vec![0; PIECE];
        for file in self.files.iter().filter(|file| is_own(&file.to)) {
            interrupt.check()?;
            let input = match file.place.as_ref().map(|place| self.stored.open(place)).transpose() {
                Ok(input) => input,
                // It was found before.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    findings.push(file.finding(&error));
                    continue;
                }
            };
            let path = file.to.below(directory);
            let root = file.to.root(directory);
            made.make(path.parent().unwrap_or(&root), &root)?;
            let mut copy = writer.new_file(&path).map_err(DrillError::write(&path))?;
            let mut write = |bytes: &[u8]| {
                done = done.saturating_add(bytes.len() as u64);
                progress(done, all);
                copy.write_all(bytes).map_err(DrillError::write(&path))
            };
            let mut input = input.unwrap_or_else(|| Box::new(io::empty()));
            let copied = file.copy(&mut input, &mut buffer, interrupt, &mut write)?;
            findings.extend(copied.err().map(|error| file.finding(&error)));
        }
        findings.truncate(FINDINGS_MAX);
        Ok(findings)
    }
}

impl ListedFile {
    /// Hands out the file's bytes, and no more of them than it should have. The error within is why they
    /// are not the ones that were backed up.
    fn copy(
        &self,
        unpacked: &mut dyn Read,
        buffer: &mut [u8],
        interrupt: &Interrupt,
        write: &mut dyn FnMut(&[u8]) -> Result<(), DrillError>,
    ) -> Result<io::Result<()>, DrillError> {
        let mut left = self.bytes;
        let mut hash = Sha1::new();
        loop {
            interrupt.check()?;
            let read = match unpacked.read(buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Err(error)),
            };
            let Some(rest) = left.checked_sub(read as u64) else {
                return Ok(Err(io::Error::other("longer than the manifest says")));
            };
            left = rest;
            hash.update(&buffer[..read]);
            write(&buffer[..read])?;
        }
        if left > 0 {
            return Ok(Err(io::Error::other("shorter than the manifest says")));
        }
        let found = hex(&hash.finalize());
        Ok(match &self.checksum {
            Some(listed) if self.bytes > 0 && !listed.eq_ignore_ascii_case(&found) => {
                Err(io::Error::other("its SHA-1 is not the one in the manifest"))
            }
            _ => Ok(()),
        })
    }

    /// The faults, with the name and where it is stored.
    fn finding(&self, error: &io::Error) -> DrillFinding {
        let key = self.place.as_ref().map_or("", |place| &*place.key);
        // What the system could not read says nothing of the backup.
        let is_damage = error.raw_os_error().is_none();
        finding(&format!("{} (in {key}): {error}", self.name), is_damage)
    }
}

impl Destination {
    fn root(&self, cluster: &Path) -> PathBuf {
        match self.tablespace {
            Some(oid) => cluster.join("tablespaces").join(oid.to_string()),
            None => cluster.join("data"),
        }
    }

    fn below(&self, cluster: &Path) -> PathBuf {
        self.root(cluster).join(&self.path)
    }
}

/// Read and written at once.
const PIECE: usize = 1 << 20;
