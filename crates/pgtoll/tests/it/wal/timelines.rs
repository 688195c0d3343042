//! WAL that goes on on another timeline.

use std::path::Path;

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_wal::{End, segments};

use super::oracle::Dump;
use super::{Counts, counts, renamed, scanned, segment_names, statistics_of};
use crate::support::{Scratch, server};

#[test]
fn a_timeline_switch_is_followed_and_the_old_timelines_rest_left_out() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let options = ["--wal-segsize=1"];
    let old = Cluster::init_with(&mut guard, &server, "old", true, &options).unwrap();
    let new = switch(&old, &mut guard);
    let [old_wal, new_wal] = [&old, &new].map(|item| item.data().join("pg_wal"));

    let files = segments(&[old.data(), new.data()]).unwrap();
    let (summary, end) = scanned(&files);
    assert!(matches!(end, End::Own(_)), "{end:?}");
    assert_eq!(summary.timelines.iter().copied().collect::<Vec<_>>(), [1, 2]);
    let dump = Dump::new(&server, &renamed(&files, 2, &scratch.path("renamed")));
    dump.check(&summary, "both");

    // What the old timeline holds up to the switch's segment, and what the new one holds from there.
    let of_new = segment_names(&new_wal).into_iter().filter(|name| name.starts_with("00000002"));
    let of_new: Vec<String> = of_new.collect();
    let second = ["-t", "2", of_new.first().unwrap(), of_new.last().unwrap()];
    let switch = segments(&[new_wal.join(of_new.first().unwrap())]).unwrap();
    let place = u64::from(switch[0].name.place.1) << 20;
    let first = dump.lines.iter().find(|line| line.at.0 >= place).unwrap().at.to_string();
    let begin = dump.lines[0].at.to_string();
    let until = ["-t", "1", "--start", &begin, "--end", &first];
    let mut sum = statistics_of(&server, &old_wal, &until);
    add(&mut sum, &statistics_of(&server, &new_wal, &second));
    assert_eq!(counts(&summary), sum);

    check_partial(&old, &new, &scratch);
}

/// A copy is promoted and writes; then the old server writes too.
fn switch(old: &Cluster, guard: &mut Guard) -> Cluster {
    let settings = [
        ("archive_mode", "on"),
        ("archive_command", "cp %p ../archive/%f"),
        ("wal_keep_size", "1GB"),
        ("fsync", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    old.configure(guard, &settings.into()).unwrap();
    make_archive(old, guard);
    let write = "CREATE TABLE IF NOT EXISTS t (a int, b text);
        INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 20000) i; CHECKPOINT;
        UPDATE t SET a = -a WHERE a % 7 = 0; SELECT count(*) FROM t";
    old.start(guard).unwrap();
    old.run_psql(guard, "postgres", write).unwrap();
    old.stop(guard, StopMode::Fast).unwrap();
    let new = old.copy(guard, "new").unwrap();
    make_archive(&new, guard);
    let signal = new.data().join("standby.signal");
    guard.run(Path::new("touch"), &[&signal.to_string_lossy()]).unwrap();
    new.start(guard).unwrap();
    new.run_psql(guard, "postgres", "SELECT pg_promote()").unwrap();
    for cluster in [&new, old] {
        if cluster.name() == "old" {
            cluster.start(guard).unwrap();
        }
        cluster.run_psql(guard, "postgres", write).unwrap();
        cluster.stop(guard, StopMode::Fast).unwrap();
    }
    new
}

fn make_archive(cluster: &Cluster, guard: &mut Guard) {
    let archive = cluster.data().with_file_name("archive");
    guard.run(Path::new("mkdir"), &[&archive.to_string_lossy()]).unwrap();
}

/// The old timeline as it is in the archive: its last segment is partial.
fn check_partial(old: &Cluster, new: &Cluster, scratch: &Scratch) {
    let archive = new.data().with_file_name("archive");
    let entries = std::fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let is_partial = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|extension| extension == "partial")
    };
    let partial = entries.into_iter().find(is_partial).expect("promotion archives it");
    let place = segments(std::slice::from_ref(&partial)).unwrap()[0].name.place;
    let all = segments(&[old.data()]).unwrap();
    let mut paths: Vec<_> = all
        .into_iter()
        .filter(|segment| segment.name.place < place)
        .map(|segment| segment.path)
        .collect();
    paths.push(partial);
    let files = segments(&paths).unwrap();
    assert!(files.last().unwrap().name.is_partial);
    let (summary, end) = scanned(&files);
    assert!(matches!(end, End::Own(_)), "{end:?}");
    let dump = Dump::new(&server(), &renamed(&files, 1, &scratch.path("partial")));
    dump.check(&summary, "partial");
    assert_eq!(end.at(), dump.end(), "{end:?}, {}", dump.error);
}

fn add(sums: &mut Counts, other: &Counts) {
    for (name, count) in other {
        let own = sums.entry(name.clone()).or_default();
        own.iter_mut().zip(count).for_each(|(own, item)| *own += item);
    }
}
