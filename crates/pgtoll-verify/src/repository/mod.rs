//! Descriptions that other tools write about the backups that they keep: text to values. Where a
//! backup's bytes are and whether they are there is not decided here.
//! and whether they are there is not decided here.

mod barman;
mod pgbackrest;
mod wal_g;

pub use barman::{BarmanInfoError, barman_stop, barman_tablespaces};
pub use pgbackrest::{
    PGBACKREST_MANIFEST, PgBackRestFile, PgBackRestManifest, PgBackRestManifestError,
    PgBackRestPlace, is_pgbackrest_label, pgbackrest_label_time,
};
pub use wal_g::{WalGSentinel, wal_g_sentinel};
