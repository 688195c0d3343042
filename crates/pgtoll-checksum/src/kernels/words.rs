//! Pages side by side in plain words.

use super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row};
use crate::definition::{LANES, PRIME};

type Words = [u32; LANES];

/// The sums of these pages, which are equally long.
pub(super) fn sums<const N: usize>(pages: [&[Row]; N]) -> [u32; N] {
    let rows = pages[0].len();
    let pages = pages.map(|page| &page[..rows]);
    let mut states = pages.map(|page| {
        let first: Row = std::array::from_fn(|at| page[0][at] & FIRST_ROW_MASK[at]);
        let base = words(&BASE_ROW);
        let first = words(&first);
        std::array::from_fn(|lane| base[lane] ^ first[lane])
    });
    for row in 1..rows {
        for (state, page) in states.iter_mut().zip(pages) {
            step(state, &words(&page[row]));
        }
    }
    states.map(|mut state| {
        for _ in 0..3 {
            step(&mut state, &[0; LANES]);
        }
        state.into_iter().fold(0, |all, sum| all ^ sum)
    })
}

#[expect(clippy::inline_always, reason = "a row is a few instructions of the loop around it")]
#[inline(always)]
fn step(state: &mut Words, next: &Words) {
    for (state, next) in state.iter_mut().zip(next) {
        *state = state.wrapping_mul(PRIME) ^ (*state >> 17) ^ next;
    }
}

#[expect(clippy::inline_always, reason = "a row is a few instructions of the loop around it")]
#[inline(always)]
fn words(row: &Row) -> Words {
    const { assert!(ROW_BYTES == 4 * LANES) };
    let (words, _) = row.as_chunks();
    std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
}
