//! Control files for tests.

/// The bytes of a control file of version 15 with nothing in it but what a reader needs: pages and
/// WAL pages of 8 kB, files of 1 GB, segments of 16 MB, no checksums, a valid CRC.
pub fn control_file() -> Vec<u8> {
    let mut bytes = vec![0; CRC_AT];
    let values = [
        (8, 1300),
        (16, 1),
        (204, 8),
        (216, 8192),
        (220, 131_072),
        (224, 8192),
        (228, 16 << 20),
        (232, 64),
    ];
    for (at, value) in values {
        let value: u32 = value;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.resize(8192, 0);
    bytes
}

const CRC_AT: usize = 288;
