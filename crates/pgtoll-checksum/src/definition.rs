//! The definition, word by word: what every kernel has to equal.

/// Sums that run side by side (`N_SUMS`).
pub(crate) const LANES: usize = 32;
/// The prime of FNV-1a (`FNV_PRIME`).
pub(crate) const PRIME: u32 = 16_777_619;

/// The start value of each lane (`checksumBaseOffsets`).
pub(crate) const BASE_OFFSETS: [u32; LANES] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

pub(crate) fn page_checksum(page: &[u8], block: u32) -> u16 {
    let mut sums = BASE_OFFSETS;
    for (row, bytes) in page.chunks_exact(LANES * 4).enumerate() {
        for (lane, (sum, word)) in sums.iter_mut().zip(bytes.chunks_exact(4)).enumerate() {
            let mut word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            if (row, lane) == (0, 2) {
                // `pd_checksum` is the lower half.
                word &= 0xFFFF_0000;
            }
            *sum = step(*sum, word);
        }
    }
    let mixed = sums.map(|sum| step(step(sum, 0), 0));
    finish(mixed.into_iter().fold(0, |all, sum| all ^ sum), block)
}

/// One word more (`CHECKSUM_COMP`).
fn step(sum: u32, word: u32) -> u32 {
    let mixed = sum ^ word;
    mixed.wrapping_mul(PRIME) ^ (mixed >> 17)
}

/// The block's number is mixed in, and what comes out is never 0 (`pg_checksum_page`).
pub(crate) fn finish(sum: u32, block: u32) -> u16 {
    let reduced = (sum ^ block) % 65535 + 1;
    // It is at most 65535.
    u16::try_from(reduced).unwrap_or(u16::MAX)
}
