//! The server that runs on a data directory.

use std::path::PathBuf;

use pgtoll_datadir::{AttachError, Attached, DataDirectory, data_directory_of};
use pgtoll_wire::Dsn;

use crate::commands::server_waits::ServerWaits;

/// The data directory of the server that was named.
pub(super) fn data_directory(dsn: &Dsn) -> anyhow::Result<PathBuf> {
    data_directory_of(dsn).map_err(cause)
}

/// The server that runs on this directory, if one does.
pub(crate) fn attach(
    data: &DataDirectory,
    dsn: Option<&Dsn>,
    waits: &ServerWaits,
) -> anyhow::Result<Option<Attached>> {
    Attached::to(data, dsn, waits.interruption()).map_err(cause)
}

/// Returns the error of a connection or file.
fn cause(error: AttachError) -> anyhow::Error {
    match error {
        AttachError::Server(error) => error.into(),
        AttachError::Datadir(error) => error.into(),
        other => other.into(),
    }
}
