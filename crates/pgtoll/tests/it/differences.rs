//! Whether two clusters hold the same data.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, ClusterError, DifferenceKind, StopMode};

use crate::support::{Scratch, running, server, servers};

/// A stopped cluster with a table, and the table's file relative to the data directory.
fn with_table(
    guard: &mut pgtoll_cluster::Guard,
    server: &pgtoll_cluster::Installation,
    name: &str,
) -> (Cluster, PathBuf) {
    let (cluster, _) = running(guard, server, name);
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("CREATE TABLE t AS SELECT generate_series(1, 300000) AS i").unwrap();
    connection.execute("VACUUM t").unwrap();
    let row = connection.query_one("SELECT pg_relation_filepath('t') AS path").unwrap();
    let path: String = row.parse("path").unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
    (cluster, path.into())
}

fn flip(file: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn a_copy_is_equal_and_with_checksums_equal_but_for_them() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = with_table(&mut guard, &server, &name);
        let copy = cluster.copy(&mut guard, &format!("{name}-copy")).unwrap();
        assert_eq!(cluster.differing_file(&copy, false).unwrap(), None, "{name}");
        copy.enable_checksums(&mut guard).unwrap();
        assert_eq!(cluster.differing_file(&copy, true).unwrap(), None, "{name}");
        let difference = cluster.differing_file(&copy, false).unwrap().unwrap();
        let DifferenceKind::Content { offset_bytes } = difference.kind else {
            panic!("{name}: {difference}");
        };
        assert!([8, 9].contains(&(offset_bytes % 8192)), "{name}: {difference}");
    }
}

#[test]
fn each_difference_is_found_and_named() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, table) = with_table(&mut guard, &server(), "one");
    let copy = cluster.copy(&mut guard, "copy").unwrap();
    let file = copy.data().join(&table);
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(bytes > 8_000_000, "{bytes}");
    let check = |masked, path: &Path, kind, words: &str| {
        let found = cluster.differing_file(&copy, masked).unwrap().unwrap();
        assert_eq!((found.path.as_path(), found.kind), (path, kind));
        assert_eq!(found.to_string(), format!("{} {words}", path.display()));
    };
    // In the middle of a page and of the file.
    let offset_bytes = bytes / 2 / 8192 * 8192 + 5000;
    flip(&file, offset_bytes);
    for masked in [false, true] {
        let words = format!("differs at byte {offset_bytes}");
        check(masked, &table, DifferenceKind::Content { offset_bytes }, &words);
    }
    flip(&file, offset_bytes);
    // In the last page's checksum.
    flip(&file, bytes - 8192 + 9);
    let kind = DifferenceKind::Content { offset_bytes: bytes - 8192 + 9 };
    check(false, &table, kind, &format!("differs at byte {}", bytes - 8183));
    assert_eq!(cluster.differing_file(&copy, true).unwrap(), None);
    flip(&file, bytes - 8192 + 9);
    assert_eq!(cluster.differing_file(&copy, false).unwrap(), None);

    File::options().write(true).open(&file).unwrap().set_len(bytes - 8192).unwrap();
    let kind = DifferenceKind::Size { first_bytes: bytes, second_bytes: bytes - 8192 };
    check(false, &table, kind, &format!("has {bytes} and {} bytes", bytes - 8192));
    fs::remove_file(&file).unwrap();
    check(true, &table, DifferenceKind::OnlyInFirst, "is only in the first");
    fs::create_dir(&file).unwrap();
    check(true, &table, DifferenceKind::Type, "is not the same type of file");
    let other = copy.differing_file(&cluster, true).unwrap().unwrap();
    assert_eq!(other.kind, DifferenceKind::Type);
}

#[test]
fn a_running_server_is_not_compared() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "one");
    let refused = cluster.differing_file(&cluster, false).unwrap_err();
    assert!(matches!(&refused, ClusterError::Running { name } if name == "one"), "{refused:?}");
    cluster.kill(&mut guard).unwrap();
    // The dead server's postmaster.pid is still there.
    assert_eq!(cluster.differing_file(&cluster, false).unwrap(), None);
}
