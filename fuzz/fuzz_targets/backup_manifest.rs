//! Any bytes as a backup manifest, and as a file in one: it is none, or has no more files than bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_verify::fuzzed::backup_manifest;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    check(bytes);
    let text = String::from_utf8_lossy(bytes);
    let file = match kind % 3 {
        0 => format!("{{ \"Path\": \"{text}\", \"Size\": 1 }}"),
        1 => format!("{{ \"Encoded-Path\": \"{text}\", \"Size\": {text} }}"),
        _ => text.into_owned(),
    };
    check(
        format!(
            "{{ \"PostgreSQL-Backup-Manifest-Version\": 1,\n\"Files\": [\n{file}\n],\n\
             \"Manifest-Checksum\": \"00\"}}\n"
        )
        .as_bytes(),
    );
});

fn check(manifest: &[u8]) {
    let files = backup_manifest(manifest);
    assert!(files.is_none_or(|files| files <= manifest.len() as u64));
}
