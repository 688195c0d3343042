//! The clusters that are verified.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::ByteSize;
use pgtoll_trials::{settings, warm};

/// A stopped cluster with checksums.
#[derive(Debug)]
pub(crate) struct MadeCluster {
    pub(crate) major: u32,
    pub(crate) data: PathBuf,
    pub(crate) checksums: PathBuf,
    /// Files of relations.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) bytes: u64,
}

/// Fills a cluster with pgbench's tables of about this size.
pub(crate) fn cluster(
    installation: &Installation,
    size: ByteSize,
    guard: &mut Guard,
) -> anyhow::Result<MadeCluster> {
    let major = installation.version.major();
    let cluster = Cluster::init(guard, installation, &format!("pg{major}"), true)?;
    let settings = settings([("fsync", "off"), ("autovacuum", "off"), ("max_wal_size", "256MB")]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    let scale = (size.0 / SCALE_BYTES).max(1).to_string();
    let load = ["--initialize", "--quiet", "--scale", &scale, "postgres"];
    cluster.run_client(guard, "pgbench", &load)?;
    cluster.stop(guard, StopMode::Fast)?;
    let data = cluster.data();
    let mut files = Vec::new();
    for directory in ["global", "base"] {
        add_files(&data.join(directory), &mut files).context("list the cluster's files")?;
    }
    files.sort();
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file).context("look at the cluster's files")?.len();
    }
    Ok(MadeCluster { major, data, checksums: installation.program("pg_checksums")?, files, bytes })
}

fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            add_files(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

impl MadeCluster {
    /// Reads all, from the disk where it is not in the cache, as a later program will find it.
    pub(crate) fn warm(&self) -> anyhow::Result<()> {
        for path in &self.files {
            warm(path).with_context(|| format!("read {}", path.display()))?;
        }
        Ok(())
    }

    /// Drops all from the system's cache, which takes no rights: what is on the disk already can
    /// be dropped by every user who may read it.
    pub(crate) fn cool(&self) -> anyhow::Result<()> {
        for path in &self.files {
            let file = File::open(path).with_context(|| format!("read {}", path.display()))?;
            file.sync_all().with_context(|| format!("sync {}", path.display()))?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                .with_context(|| format!("drop {} from the cache", path.display()))?;
        }
        Ok(())
    }
}

/// Bytes of a unit of pgbench's scale.
const SCALE_BYTES: u64 = 15 << 20;
