//! Tars, unpacked into directories of the drill's own.

use std::io::{self, Read, Write as _};
use std::path::Path;

use pgtoll_system::Interrupt;
use pgtoll_wal::{TarError, TarStream};

use super::members::{MemberSorter, Placement, Sorters};
use super::metered::Metered;
use super::survey::{DISK_BLOCK, TarSurvey};
use super::{PackedTar, unreadable};
use crate::DrillError;
use crate::writer::{CopyWriter, MadeDirectories, make_places};

/// The target of unpacking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnpackTarget<'a> {
    /// Has the directories `data` and `tablespaces` then.
    pub(crate) directory: &'a Path,
    /// The major version, which names the cluster's directories in tablespaces.
    pub(crate) major: u32,
    pub(crate) writer: CopyWriter,
    pub(crate) interrupt: &'a Interrupt,
}

/// The state of unpacking one tar.
struct Unpacking<'a> {
    target: UnpackTarget<'a>,
    /// Directories that were made.
    made: MadeDirectories,
    /// Bytes that may still be written: what the survey found.
    left: u64,
    buffer: Vec<u8>,
}

impl TarSurvey {
    /// Unpacks what was surveyed; of tars that are damaged what is before the damage. `progress` is given
    /// bytes of the tars as they lie: those that were read, and all.
    pub(crate) fn unpack(
        &self,
        target: UnpackTarget<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), DrillError> {
        let UnpackTarget { directory, interrupt, .. } = target;
        self.prepare(target)?;
        let meter = Metered::default();
        let all = self.files.packed_bytes();
        let mut unpacking = Unpacking {
            target,
            made: MadeDirectories::new(target.writer),
            left: self.bytes,
            buffer: vec![0; PIECE],
        };
        let mut sorters = Sorters::new(self.files.manifest.is_some());
        for (oid, tar) in self.files.all() {
            let sorter = sorters.sorter_mut(oid);
            let mut stream = tar.open(&meter, interrupt)?;
            let to = match oid {
                Some(oid) => directory.join("tablespaces").join(oid.to_string()),
                None => directory.join("data"),
            };
            let mut watch = || progress(meter.bytes(), all);
            let done = unpacking.unpack(tar, sorter, oid, &mut stream, &to, &mut watch);
            interrupt.check()?;
            if let Err(error) = done?
                && !self.broken.contains(&tar.path)
            {
                return Err(DrillError::read(&tar.path)(unreadable(error)));
            }
        }
        Ok(())
    }

    /// Makes the directories, the links of tablespaces, and the manifest that is beside the tars.
    fn prepare(&self, target: UnpackTarget<'_>) -> Result<(), DrillError> {
        let UnpackTarget { directory, writer, .. } = target;
        make_places(directory, self.tablespaces(), writer)?;
        if let Some(manifest) = &self.files.manifest {
            let path = directory.join("data/backup_manifest");
            let mut from = pgtoll_system::open(manifest).map_err(DrillError::read(manifest))?;
            let mut copy = writer.new_file(&path).map_err(DrillError::write(&path))?;
            io::copy(&mut from, &mut copy).map_err(DrillError::write(&path))?;
        }
        Ok(())
    }

    /// OIDs of those that have a tar, or should have one.
    pub(crate) fn tablespaces(&self) -> impl Iterator<Item = u32> {
        let mut oids = self.mapped.clone();
        oids.extend(self.files.tablespaces.keys());
        oids.into_iter()
    }
}

impl Unpacking<'_> {
    /// Unpacks a tar to its end. The error within is why there is none.
    fn unpack<R: Read>(
        &mut self,
        tar: &PackedTar,
        sorter: &mut MemberSorter,
        oid: Option<u32>,
        stream: &mut TarStream<R>,
        to: &Path,
        watch: &mut dyn FnMut(),
    ) -> Result<Result<(), TarError>, DrillError> {
        let own = format!("PG_{}_", self.target.major);
        loop {
            self.target.interrupt.check()?;
            watch();
            let member = match stream.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            let placement = sorter.place(&member);
            let (Placement::File(path) | Placement::Directory(path)) = &placement else { continue };
            let is_own = path.to_str().is_some_and(|path| path.starts_with(&own));
            if oid.is_some() && !is_own {
                continue;
            }
            let is_file = matches!(placement, Placement::File(_));
            let path = to.join(path);
            self.made.make(if is_file { path.parent().unwrap_or(to) } else { &path }, to)?;
            let disk_bytes =
                if is_file { member.bytes.next_multiple_of(DISK_BLOCK) } else { DISK_BLOCK };
            let Some(left) = self.left.checked_sub(disk_bytes) else {
                return Err(DrillError::Changed { path: tar.path.clone() });
            };
            self.left = left;
            if is_file && let Err(error) = self.file(stream, &path)? {
                return Ok(Err(error));
            }
        }
    }

    fn file<R: Read>(
        &mut self,
        stream: &mut TarStream<R>,
        path: &Path,
    ) -> Result<Result<(), TarError>, DrillError> {
        let mut file = self.target.writer.new_file(path).map_err(DrillError::write(path))?;
        loop {
            self.target.interrupt.check()?;
            match stream.read(&mut self.buffer) {
                Ok(0) => return Ok(Ok(())),
                Ok(read) => {
                    file.write_all(&self.buffer[..read]).map_err(DrillError::write(path))?;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
    }
}

/// Read and written at once.
const PIECE: usize = 1 << 20;
