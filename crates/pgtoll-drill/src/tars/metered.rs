//! A file that counts what is read of it, and that a signal ends.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pgtoll_system::Interrupt;

/// How many bytes were read of several files together.
#[derive(Clone, Debug, Default)]
pub(super) struct Metered(Arc<AtomicU64>);

/// A file whose bytes are counted.
pub(super) struct MeteredFile {
    file: File,
    meter: Metered,
    interrupt: Interrupt,
}

impl Metered {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn reader(&self, file: File, interrupt: &Interrupt) -> MeteredFile {
        MeteredFile { file, meter: self.clone(), interrupt: interrupt.clone() }
    }
}

impl Read for MeteredFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The reader checks the interrupt again, and reports the signal.
        self.interrupt.check().map_err(io::Error::other)?;
        let read = self.file.read(buffer)?;
        self.meter.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
