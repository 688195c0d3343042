//! Any bytes as what other tools write about their backups, whole and in the middle of real ones: no name
//! leads out of a repository, and there are no more files than bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_verify::{
    PgBackRestManifest, barman_stop, barman_tablespaces, is_pgbackrest_label,
    pgbackrest_label_time, wal_g_sentinel,
};

/// Of repositories that pgBackRest and barman-cloud made.
const BUNDLES: &[u8] =
    include_bytes!("../../crates/pgtoll-verify/tests/repository/bundles.manifest");
const FILES: &[u8] = include_bytes!("../../crates/pgtoll-verify/tests/repository/files.manifest");
const INFO: &[u8] = include_bytes!("../../crates/pgtoll-verify/tests/repository/backup.info");
const SENTINEL: &[u8] = br#"{"LSN": 1, "DeltaLSN": null, "DeltaFrom": "base_1", "Spec": {}}"#;

const OF_BUNDLES: &str = "20261126-122617F_20261126-122617I";
const OF_FILES: &str = "20261126-122615F_20261126-122617I";

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (at, length, bytes) = input;
    let inside = |values: &[u8]| with_bytes(values, usize::from(at), usize::from(length), bytes);
    for (text, label) in
        [(bytes, OF_FILES), (&inside(BUNDLES), OF_BUNDLES), (&inside(FILES), OF_FILES)]
    {
        manifest(text, label);
    }
    for info in [bytes, &inside(INFO)] {
        let _ = barman_stop(info);
        if let Ok(tablespaces) = barman_tablespaces(info) {
            assert!(tablespaces.len() <= info.len());
        }
    }
    let _ = (wal_g_sentinel(bytes), wal_g_sentinel(&inside(SENTINEL)));
    let name = String::from_utf8_lossy(bytes);
    assert!(!is_pgbackrest_label(&name) || !pgbackrest_label_time(&name).is_empty());
});

/// These bytes instead of so many others.
fn with_bytes(values: &[u8], at: usize, length: usize, bytes: &[u8]) -> Vec<u8> {
    let mut text = values.to_vec();
    let at = at % (text.len() + 1);
    let end = (at + length).min(text.len());
    text.splice(at..end, bytes.iter().copied());
    text
}

fn manifest(text: &[u8], label: &str) {
    let Ok(found) = PgBackRestManifest::parse(text, label) else { return };
    assert!(found.files.len() + found.directories.len() <= text.len());
    let is_inside = |path: &String| path.split('/').all(|part| !["", ".", ".."].contains(&part));
    assert!(found.directories.iter().chain(&found.archive).all(is_inside));
    for place in found.files.iter().filter_map(|file| file.place.as_ref()) {
        let is_plain = |part: &str| !["", ".", ".."].contains(&part);
        assert!(place.key.split('/').all(is_plain), "{:?}", place.key);
        assert!(is_pgbackrest_label(place.key.split('/').next().unwrap_or_default()));
    }
}
