use std::fmt::Write as _;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

/// A manifest of these lines of files, with its checksum.
fn manifest(files: &[&str]) -> String {
    let begin = format!(
        "{{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n\"System-Identifier\": \
         7711205153720656298,\n\"Files\": [\n{}\n],\n\"WAL-Ranges\": [\n{{ \"Timeline\": 1, \
         \"Start-LSN\": \"0/2000028\", \"End-LSN\": \"0/2000100\" }}\n],\n",
        files.join(",\n")
    );
    let mut checksum = String::new();
    for byte in Sha256::digest(&begin) {
        write!(checksum, "{byte:02x}").unwrap();
    }
    format!("{begin}\"Manifest-Checksum\": \"{checksum}\"}}\n")
}

const PLAIN: &str = r#"{ "Path": "base/5/1259", "Size": 8192, "Last-Modified": "2026-11-23 03:34:21 GMT", "Checksum-Algorithm": "CRC32C", "Checksum": "011cb257" }"#;
const ENCODED: &str = r#"{ "Encoded-Path": "626173652fff", "Size": 0 }"#;
const SHA: &str = r#"{ "Path": "a \"b\"", "Size": 18446744073709551615, "Checksum-Algorithm": "SHA224", "Checksum": "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f" }"#;

#[test]
fn files_are_read() {
    let mut files = Vec::new();
    let text = manifest(&[PLAIN, ENCODED, SHA]);
    let found = read(&mut text.as_bytes(), &mut |file| files.push(file)).unwrap();
    assert_eq!(found.system_identifier, Some(7_711_205_153_720_656_298));
    let shown: Vec<_> = files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes, file.algorithm, file.checksum.len()))
        .collect();
    let expected = [
        ("base/5/1259", 8192, Algorithm::Crc32c, 4),
        ("base/\u{fffd}", 0, Algorithm::None, 0),
        ("a \"b\"", u64::MAX, Algorithm::Sha224, 28),
    ];
    assert_eq!(shown, expected);
    // Version 1 has no identifier.
    assert!(read(&mut manifest(&[]).as_bytes(), &mut |_| ()).is_ok());
}

#[test]
fn damage_is_an_error() {
    let check = |text: &str, expected: &str| {
        let error = read(&mut text.as_bytes(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let sound = manifest(&[PLAIN]);
    check("", "damaged: EOF");
    check(&sound[..sound.len() / 2], "damaged: EOF");
    check(sound.trim_end(), "damaged: its own checksum is wrong");
    check(&sound.replace("8192", "8193"), "damaged: its own checksum is wrong");
    check(&sound.replace("Version\": 2", "Version\": 3"), "its version 3 is unknown");
    check(&sound.replace("CRC32C", "CRC99"), "damaged: a checksum is of an unknown kind");
    check(&sound.replace("011cb257", "011cb2"), "damaged: a file's checksum has another length");
    check(&sound.replace("\"Path\"", "\"Way\""), "damaged: a file has no path, or two");
    check("{}", "damaged: it has no version");
    check("[]", "damaged: invalid type");
    check(&sound.replace("base/5", &"x".repeat(100_000)), "a line is longer");
}

#[test]
fn a_name_without_end_takes_no_memory() {
    let begin = b"{ \"Files\": [ { \"Path\": \"";
    let mut endless = begin.chain(std::io::repeat(b'x'));
    let error = read(&mut endless, &mut |_| ()).unwrap_err();
    assert!(matches!(error, ManifestError::Read(_)), "{error}");
}

#[test]
fn what_differs_is_found() {
    let text = manifest(&[
        PLAIN,
        &PLAIN.replace("1259", "1260"),
        &PLAIN.replace("1259", "1261"),
        &PLAIN.replace("base/5/1259", "postgresql.auto.conf"),
    ]);
    let mut inventory = Inventory::default();
    let there = [
        ("base/5/1259", 8192),
        ("base/5/1261", 8000),
        ("base/5/9999", 1),
        ("backup_manifest", 9),
        ("pg_wal/000000010000000000000001", 1 << 24),
        ("standby.signal", 0),
    ];
    for (path, bytes) in there {
        inventory.add(path.to_owned(), bytes);
    }
    let difference = compare(&mut text.as_bytes(), inventory, Some(1), true, &|_| true).unwrap();
    let found: Vec<_> = difference
        .findings
        .iter()
        .map(|finding| (finding.path.as_str(), finding.defect.clone()))
        .collect();
    let expected = [
        ("backup_manifest", FileDefect::OtherCluster),
        ("base/5/1260", FileDefect::Missing),
        ("base/5/1261", FileDefect::Length { bytes: 8000, expected: 8192 }),
        ("base/5/9999", FileDefect::Extra),
    ];
    assert_eq!(found, expected);
    assert_eq!((difference.files, difference.expected.len()), (4, 1));
}

proptest! {
    /// Any bytes, and a real one with some changed, end somehow.
    #[test]
    fn any_bytes_end(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        changes in prop::collection::vec((0_usize..700, any::<u8>()), 0..4),
    ) {
        let _ = files_in(&noise);
        let mut text = manifest(&[PLAIN, SHA]).into_bytes();
        let before = text.clone();
        for (at, byte) in changes {
            if let Some(text) = text.get_mut(at) {
                *text = byte;
            }
        }
        // What the checksum covers cannot change unseen.
        let end = before.windows(12).rposition(|part| part == b"\"Manifest-Ch").unwrap();
        prop_assert!(text[..end] == before[..end] || files_in(&text).is_none());
    }
}
