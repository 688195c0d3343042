//! A real base backup, packed in each way, behind TLS as stores are.

use std::fs;
use std::io::Write as _;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::trials::{FleetBenchCase, FleetBenchPacking, FleetBenchPlace, FleetBenchRead};
use pgtoll_trials::{Measured, settings};

use crate::tls_store::TlsStore;

pub(crate) const PACKINGS: [FleetBenchPacking; 4] = [
    FleetBenchPacking::Plain,
    FleetBenchPacking::Gzip,
    FleetBenchPacking::Lz4,
    FleetBenchPacking::Zstd,
];

/// The backup, served in each packing.
pub(crate) struct PackedBackup {
    store: TlsStore,
    /// By packing.
    bytes: [u64; PACKINGS.len()],
    unpacked_bytes: u64,
}

impl PackedBackup {
    /// Of a cluster that is filled to about this size.
    pub(crate) fn make(
        guard: &mut Guard,
        installation: &Installation,
        bytes: u64,
    ) -> anyhow::Result<Self> {
        let tar = base_tar(guard, installation, bytes)?;
        let store = TlsStore::start()?;
        let mut bytes = [0; PACKINGS.len()];
        for (packing, bytes) in PACKINGS.into_iter().zip(&mut bytes) {
            let packed = packed(packing, &tar)?;
            *bytes = packed.len() as u64;
            store.server.put(&key_of(packing), &packed);
        }
        let unpacked_bytes = tar.len() as u64;
        Ok(Self { store, bytes, unpacked_bytes })
    }

    /// Verifies it; anything but sound is an error.
    pub(crate) fn read(
        &self,
        repetition: u32,
        packing: FleetBenchPacking,
    ) -> anyhow::Result<FleetBenchRead> {
        let Measured { usage, peak_kb, .. } = self.store.verify(&key_of(packing))?;
        let at = PACKINGS.into_iter().position(|item| item == packing).unwrap_or_default();
        Ok(FleetBenchRead {
            case: FleetBenchCase::Packing,
            repetition,
            place: FleetBenchPlace::Store,
            packing: Some(packing),
            bytes: self.bytes[at],
            objects: None,
            unpacked_bytes: Some(self.unpacked_bytes),
            usage,
            peak_kb,
        })
    }
}

/// `pg_basebackup`'s tar, without WAL.
fn base_tar(guard: &mut Guard, installation: &Installation, bytes: u64) -> anyhow::Result<Vec<u8>> {
    let cluster = Cluster::init(guard, installation, "packed", true)?;
    let own = settings([("fsync", "off"), ("wal_level", "replica"), ("max_wal_senders", "2")]);
    cluster.configure(guard, &own)?;
    cluster.start(guard)?;
    cluster.run_psql(guard, "postgres", &script(bytes))?;
    let place = cluster.directory().join("backup");
    let shown = place.display().to_string();
    let options = ["-D", &shown, "-F", "tar", "-X", "none", "-c", "fast"];
    cluster.run_client(guard, "pg_basebackup", &options)?;
    cluster.stop(guard, StopMode::Fast)?;
    fs::read(place.join("base.tar")).context("read the backup")
}

fn packed(packing: FleetBenchPacking, tar: &[u8]) -> anyhow::Result<Vec<u8>> {
    Ok(match packing {
        FleetBenchPacking::Plain => tar.to_vec(),
        FleetBenchPacking::Gzip => {
            let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            to.write_all(tar)?;
            to.finish()?
        }
        FleetBenchPacking::Lz4 => {
            let mut to = lz4_flex::frame::FrameEncoder::new(Vec::new());
            to.write_all(tar)?;
            to.finish()?
        }
        FleetBenchPacking::Zstd => zstd::encode_all(tar, 3)?,
    })
}

fn key_of(packing: FleetBenchPacking) -> String {
    let ending = match packing {
        FleetBenchPacking::Plain => "",
        FleetBenchPacking::Gzip => ".gz",
        FleetBenchPacking::Lz4 => ".lz4",
        FleetBenchPacking::Zstd => ".zst",
    };
    format!("backups/packed/base.tar{ending}")
}

/// Numbers, hashes and words: data that compresses to about a third. pgbench's would to a sixteenth.
fn script(bytes: u64) -> String {
    let rows = (bytes / ROW_BYTES).max(1);
    format!(
        "CREATE TABLE mixed AS SELECT i AS id, md5(i::text) AS hash, i % 997 AS number, \
         'words that repeat ' || i % 100 AS words FROM generate_series(1, {rows}) i; \
         ALTER TABLE mixed ADD PRIMARY KEY (id); CHECKPOINT;"
    )
}

/// Of a row, with its index entry.
const ROW_BYTES: u64 = 130;
