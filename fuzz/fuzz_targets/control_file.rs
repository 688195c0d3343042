//! Any bytes as a control file of each version, as they are and with a CRC that fits: what is read
//! is possible, and changing the state of checksums changes nothing else.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::{CONTROL_FILE_BYTES, ControlFile, MAJORS};

fuzz_target!(|input: (u8, i64, &[u8])| {
    let (version, now, bytes) = input;
    let _ = ControlFile::read(bytes);
    let facts = &MAJORS[usize::from(version) % MAJORS.len()].control;
    let mut bytes = bytes.to_vec();
    bytes.resize(CONTROL_FILE_BYTES, 0);
    bytes[8..12].copy_from_slice(&facts.version.to_le_bytes());
    // Where the CRC stands differs between versions: the one place where it fits is found.
    let mut covered = crc32c::crc32c(&bytes[..CRC_FIRST]);
    for at in (CRC_FIRST..CRC_LAST).step_by(4) {
        let kept: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
        bytes[at..at + 4].copy_from_slice(&covered.to_le_bytes());
        if let Ok(read) = ControlFile::read(&bytes) {
            check(&bytes, &read, now);
        }
        bytes[at..at + 4].copy_from_slice(&kept);
        covered = crc32c::crc32c_append(covered, &kept);
    }
});

/// The first and the last place that a CRC has in any version, and some around them.
const CRC_FIRST: usize = 256;
const CRC_LAST: usize = 320;

fn check(bytes: &[u8], read: &ControlFile, now: i64) {
    assert!(read.block_bytes.is_power_of_two() && read.file_blocks > 0);
    let other = u32::from(read.checksum_version == 0);
    let changed = ControlFile::with_checksum_version(bytes, other, now).expect("it was read");
    assert_eq!(changed.len(), CONTROL_FILE_BYTES);
    let again = ControlFile::read(&changed).expect("its CRC fits");
    assert_eq!(again.checksum_version, other);
    let back = ControlFile::with_checksum_version(&changed, read.checksum_version, now);
    let back = ControlFile::read(&back.expect("it was read")).expect("its CRC fits");
    assert_eq!(back.system_identifier, read.system_identifier);
    assert_eq!(back.checkpoint, read.checkpoint);
    assert_eq!(back.checksum_version, read.checksum_version);
}
