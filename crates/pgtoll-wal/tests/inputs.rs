//! The same WAL in every place and every packing that it is read from.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_format::Lsn;
use pgtoll_testing::wal_writer::{SEGMENT, Writer, main_data};
use pgtoll_wal::{Contents, End, WalReadError, WalSummary, scan, segments};

/// Three segments and a bit.
fn wal() -> Vec<(String, Vec<u8>)> {
    let mut writer = Writer::new(0xD118, 1);
    for _ in 0..650 {
        writer.record(10, 0, &main_data(&[1; 5000]));
    }
    let name = |number| format!("0000000100000000{number:08X}");
    let bytes = writer.finish();
    (1..).zip(bytes.chunks(SEGMENT)).map(|(number, item)| (name(number), item.to_vec())).collect()
}

fn read(path: &Path) -> (WalSummary<Contents>, End) {
    let files = segments(&[path.to_owned()]).unwrap();
    scan(&files, &(Lsn::INVALID..Lsn::MAX), 2, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn check(path: &Path) {
    let (summary, end) = read(path);
    assert!(matches!(end, End::Own(_)), "{}: {end:?}", path.display());
    assert_eq!(summary.collected.statistics.total().records, 650, "{}", path.display());
    assert_eq!(summary.segments, 4, "{}", path.display());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

type Pack = fn(&[u8]) -> Vec<u8>;
const PACKINGS: [(&str, Pack); 3] = [(".gz", gzip), (".zst", zstd), (".lz4", lz4)];

/// Segments as a tar, the last one first, among files of other names.
fn tarred(pack: Option<(&str, Pack)>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut put = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, name, bytes).unwrap();
    };
    put("00000001.history", b"no segment");
    for (name, bytes) in wal().iter().rev() {
        match pack {
            Some((ending, pack)) => put(&format!("pg_wal/{name}{ending}"), &pack(bytes)),
            None => put(&format!("pg_wal/{name}"), bytes),
        }
    }
    tar.into_inner().unwrap()
}

#[test]
fn archives_add_what_they_like_to_names() {
    let sum = "0123456789abcdef0123456789abcdef01234567";
    for (ending, pack) in PACKINGS {
        // WAL-G, pgBackRest, and Barman, whose names do not tell.
        for tail in [ending.to_owned(), format!("-{sum}{ending}"), String::new()] {
            let archive = tempfile::tempdir().unwrap();
            let below = archive.path().join("0000000100000000");
            fs::create_dir(&below).unwrap();
            for (name, bytes) in wal() {
                fs::write(below.join(format!("{name}{tail}")), pack(&bytes)).unwrap();
            }
            check(archive.path());
        }
    }
}

#[test]
fn tars_are_read_compressed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    check(&write("base.tar", &tarred(None)));
    check(&write("base.tgz", &gzip(&tarred(None))));
    for (ending, pack) in PACKINGS {
        check(&write(&format!("base.tar{ending}"), &pack(&tarred(None))));
        check(&write("of-packed.tar", &tarred(Some((ending, pack)))));
    }
}

#[test]
fn a_base_backups_wal_is_found_in_its_directory() {
    let backup = tempfile::tempdir().unwrap();
    fs::write(backup.path().join("base.tar.gz"), gzip(b"not looked at")).unwrap();
    fs::write(backup.path().join("pg_wal.tar.gz"), gzip(&tarred(None))).unwrap();
    check(backup.path());
}

#[test]
fn what_is_packed_in_another_way_is_told() {
    let archive = tempfile::tempdir().unwrap();
    for (number, (name, bytes)) in wal().iter().enumerate() {
        let ending = if number == 2 { ".xz" } else { "" };
        fs::write(archive.path().join(format!("{name}{ending}")), bytes).unwrap();
    }
    let (summary, end) = read(archive.path());
    assert!(matches!(end, End::Own(_)), "{end:?}");
    let words = summary.gaps[0].why.to_string();
    assert!(words.contains(".xz cannot be read, from 0/300000 on: pgtoll reads gzip"), "{words}");
    assert!(summary.collected.statistics.total().records > 300);
}

#[test]
fn a_tar_that_is_cut_short_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("base.tar.gz");
    let bytes = gzip(&tarred(None));
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = segments(&[path]).unwrap_err();
    assert!(matches!(error, WalReadError::Read { .. }), "{error:?}");
}
