//! A real base backup of many short objects: the files of a cluster in which nothing was made.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::trials::{FleetBenchCase, FleetBenchPlace, FleetBenchRead};
use pgtoll_trials::{Measured, settings};

use crate::tls_store::TlsStore;

const KEY: &str = "backups/files";

/// The backup, served behind TLS.
pub(crate) struct StoredFiles {
    store: TlsStore,
    objects: u64,
    bytes: u64,
}

impl StoredFiles {
    pub(crate) fn make(guard: &mut Guard, installation: &Installation) -> anyhow::Result<Self> {
        let cluster = Cluster::init(guard, installation, "files", true)?;
        let own = settings([("fsync", "off"), ("wal_level", "replica"), ("max_wal_senders", "2")]);
        cluster.configure(guard, &own)?;
        cluster.start(guard)?;
        let place = cluster.directory().join("backup");
        let shown = place.display().to_string();
        cluster.run_client(guard, "pg_basebackup", &["-D", &shown, "-X", "none", "-c", "fast"])?;
        cluster.stop(guard, StopMode::Fast)?;
        let mut stored = Self { store: TlsStore::start()?, objects: 0, bytes: 0 };
        stored.put(&place, KEY)?;
        Ok(stored)
    }

    fn put(&mut self, directory: &Path, key: &str) -> anyhow::Result<()> {
        for entry in fs::read_dir(directory).context("list the backup")? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let key = format!("{key}/{name}");
            if path.is_dir() {
                self.put(&path, &key)?;
                continue;
            }
            let bytes = fs::read(&path).context("read the backup")?;
            self.store.server.put(&key, &bytes);
            self.objects += 1;
            self.bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Verifies it; anything but sound is an error.
    pub(crate) fn read(&self, repetition: u32) -> anyhow::Result<FleetBenchRead> {
        let Measured { usage, peak_kb, .. } = self.store.verify(KEY)?;
        Ok(FleetBenchRead {
            case: FleetBenchCase::Objects,
            repetition,
            place: FleetBenchPlace::Store,
            packing: None,
            bytes: self.bytes,
            objects: Some(self.objects),
            unpacked_bytes: None,
            usage,
            peak_kb,
        })
    }
}
