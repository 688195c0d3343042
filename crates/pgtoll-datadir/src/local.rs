//! The clusters of this machine: where servers run, and where distributions keep them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::{DataDirectory, Postmaster};

/// A cluster on this machine.
#[derive(Clone, Debug)]
pub struct LocalCluster {
    /// Its data directory and control file.
    pub data: DataDirectory,
    /// A server runs on it, or that could not be ruled out.
    pub is_running: bool,
    /// The running server's address; `None`: unknown, or no server runs.
    pub postmaster: Option<Postmaster>,
}

/// The clusters of this machine.
#[derive(Clone, Debug, Default)]
pub struct LocalClusters {
    /// Clusters that this user may read, by path.
    pub clusters: Vec<LocalCluster>,
    /// Directories that seem to be clusters and cannot be read, by path.
    pub unread: Vec<PathBuf>,
}

impl LocalClusters {
    /// Looks at the processes of this machine, at `PGDATA`, and at the places where Debian, Red Hat and builds
    /// from source keep clusters. Reads control files only.
    pub fn find() -> Self {
        let mut paths: BTreeSet<PathBuf> = usual_places();
        paths.extend(std::env::var_os("PGDATA").map(PathBuf::from));
        paths.extend(server_directories());
        Self::in_directories(paths)
    }

    /// The clusters among these directories.
    fn in_directories(paths: BTreeSet<PathBuf>) -> Self {
        let mut found = Self::default();
        for path in paths {
            match DataDirectory::open(&path) {
                Ok(data) => {
                    let is_running = !matches!(data.server(), Ok(None));
                    let postmaster = Postmaster::read(&path).filter(|_| is_running);
                    found.clusters.push(LocalCluster { data, is_running, postmaster });
                }
                // Without the right to search a directory its content is unknown.
                Err(_) if fs::read_dir(&path).is_err() && path.exists() => found.unread.push(path),
                Err(_) => {}
            }
        }
        found
    }
}

/// Directories below which distributions keep clusters, and how many levels below.
const USUAL_PLACES: [(&str, usize); 3] =
    [("/var/lib/postgresql", 2), ("/var/lib/pgsql", 2), ("/usr/local/pgsql", 1)];

fn usual_places() -> BTreeSet<PathBuf> {
    let mut places = BTreeSet::new();
    for (root, levels) in USUAL_PLACES {
        let mut level = vec![PathBuf::from(root)];
        for _ in 0..levels {
            level = level.iter().flat_map(|directory| directories_in(directory)).collect();
            let is_cluster = |path: &&PathBuf| path.join("PG_VERSION").exists();
            places.extend(level.iter().filter(is_cluster).cloned());
        }
        // Debian's: only the owner may look into them.
        let is_closed = |path: &PathBuf| fs::read_dir(path).is_err();
        places.extend(level.into_iter().filter(is_closed));
    }
    places
}

fn directories_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

/// The working directories of servers' processes. A server in another container has another root: its paths mean
/// nothing here.
fn server_directories() -> BTreeSet<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own_root = identity(Path::new("/"));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_server = |process: &PathBuf| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        ["postgres", "postmaster"].contains(&name.trim())
            && identity(&process.join("root")) == own_root
    };
    let processes = entries.map(|entry| entry.path()).filter(is_server);
    processes.filter_map(|process| fs::read_link(process.join("cwd")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_directories_are_no_clusters() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("PG_VERSION"), "15\n").unwrap();
        let paths = BTreeSet::from([place.path().to_owned(), place.path().join("missing")]);
        let found = LocalClusters::in_directories(paths);
        assert!(found.clusters.is_empty() && found.unread.is_empty(), "{found:?}");
    }
}
