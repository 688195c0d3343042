//! Failures of a store, apart from damage to a backup.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

/// The first failure of a store while a backup was read: it says nothing of the backup.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFailure(Arc<Mutex<Option<String>>>);

impl StoreFailure {
    /// Returns the store's error in one line.
    pub(crate) fn reason(&self) -> Option<String> {
        pgtoll_system::lock(&self.0).clone()
    }

    /// Keeps it, unless there was one before.
    pub(crate) fn keep(&self, error: io::Error) -> io::Error {
        let mut first = pgtoll_system::lock(&self.0);
        first.get_or_insert_with(|| error.to_string());
        error
    }
}

/// Keeps the store's failure.
pub(crate) struct Watched<R> {
    pub(crate) input: R,
    pub(crate) failure: StoreFailure,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).map_err(|error| self.failure.keep(error))
    }
}
