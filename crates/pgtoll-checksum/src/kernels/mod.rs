//! The kernels: the definition, written for the instructions that processors have.
//!
//! The 32 sums of a page do not hang on each other, but each hangs on its last value: a processor
//! waits for its multiplication. So what makes a kernel fast is less the width of its registers
//! than pages that are summed side by side, a row of each in turn. The compiler does not do that by
//! itself.
//!
//! A kernel keeps `sum ^ word` instead of the sum. A row is then `state * PRIME ^ state >> 17 ^
//! next`, and where three operands go into one instruction (AVX-512), this is three instructions.
//!
//! What is written here needs no `unsafe`: instructions are safe to use in functions that are made
//! for them, registers are filled from words, and `multiversion` calls such a function only where
//! the processor has the instructions. Only the kernel of the servers up to 18 has an exception,
//! and says why.

#[cfg(target_arch = "x86_64")]
mod server;
mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

use multiversion::multiversion;
use multiversion::target::match_target;

use crate::definition::{self, BASE_OFFSETS, LANES, finish};

/// The type of all kernels: pages, bytes of each, the first one's block, the output.
pub(crate) type Checksums = fn(&[u8], usize, u32, &mut [u16]);

/// Bytes of a row: a word for each sum.
const ROW_BYTES: usize = 4 * LANES;
type Row = [u8; ROW_BYTES];

/// The sums' beginnings, as a row.
const BASE_ROW: Row = {
    let mut row = [0; ROW_BYTES];
    let mut at = 0;
    while at < ROW_BYTES {
        row[at] = BASE_OFFSETS[at / 4].to_le_bytes()[at % 4];
        at += 1;
    }
    row
};
/// The mask of a page's first row: all but `pd_checksum`.
const FIRST_ROW_MASK: Row = {
    let mut row = [0xFF; ROW_BYTES];
    row[8] = 0;
    row[9] = 0;
    row
};

/// The definition, page by page.
pub(crate) fn portable(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    let mut block = first_block;
    for (page, checksum) in pages.chunks_exact(page_bytes).zip(out) {
        *checksum = definition::page_checksum(page, block);
        block = block.wrapping_add(1);
    }
}

/// Plain words, as the compiler puts them into the registers that every such processor has.
pub(crate) fn words<const N: usize>(
    pages: &[u8],
    page_bytes: usize,
    first_block: u32,
    out: &mut [u16],
) {
    in_groups::<N>(pages, page_bytes, first_block, out, words::sums::<N>, words::sums::<1>);
}

/// With a multiplication of words.
#[multiversion(targets("x86_64+sse4.1"))]
pub(crate) fn sse41(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    match_target! {
        "x86_64+sse4.1" => x86::sse41::checksums::<1>(pages, page_bytes, first_block, out),
        _ => portable(pages, page_bytes, first_block, out),
    }
}

/// Three pages are all that sixteen registers hold.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn avx2(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    match_target! {
        "x86_64+avx2" => x86::avx2::checksums::<3>(pages, page_bytes, first_block, out),
        _ => portable(pages, page_bytes, first_block, out),
    }
}

/// Four pages.
#[multiversion(targets("x86_64+avx512f"))]
pub(crate) fn avx512(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    match_target! {
        "x86_64+avx512f" => x86::avx512::checksums::<4>(pages, page_bytes, first_block, out),
        _ => portable(pages, page_bytes, first_block, out),
    }
}

/// One page after the other.
#[multiversion(targets("x86_64+avx512f"))]
pub(crate) fn avx512_one_page(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    match_target! {
        "x86_64+avx512f" => x86::avx512::checksums::<1>(pages, page_bytes, first_block, out),
        _ => portable(pages, page_bytes, first_block, out),
    }
}

/// A server up to 18. Every x86-64 processor has what it needs, so there is nothing to choose.
#[cfg(target_arch = "x86_64")]
pub(crate) use server::sse2::checksums as server_sse2;

/// A server from 19 on.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn server_avx2(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
    match_target! {
        "x86_64+avx2" => server::avx2::all(pages, page_bytes, first_block, out),
        _ => portable(pages, page_bytes, first_block, out),
    }
}

/// Sums `N` pages at a time and what is left one by one.
fn in_groups<const N: usize>(
    pages: &[u8],
    page_bytes: usize,
    first_block: u32,
    out: &mut [u16],
    sums: impl Fn([&[Row]; N]) -> [u32; N],
    sum: impl Fn([&[Row]; 1]) -> [u32; 1],
) {
    let rows = page_bytes / ROW_BYTES;
    let (pages, _) = pages.as_chunks::<ROW_BYTES>();
    let groups = pages.chunks_exact(rows * N);
    let rest = groups.remainder().chunks_exact(rows);
    let (of_groups, of_rest) = out.as_chunks_mut::<N>();
    let mut block = first_block;
    let mut finished = |sum| {
        let checksum = finish(sum, block);
        block = block.wrapping_add(1);
        checksum
    };
    for (group, checksums) in groups.zip(of_groups) {
        let pages = std::array::from_fn(|page| &group[page * rows..][..rows]);
        *checksums = sums(pages).map(&mut finished);
    }
    for (page, checksum) in rest.zip(of_rest) {
        let [sum] = sum([page]);
        *checksum = finished(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other architectures have these as kernels, and this one has not.
    #[test]
    fn plain_words_side_by_side_are_the_definition() {
        let pages: Vec<u8> = (0..=u8::MAX).cycle().step_by(7).take(7 * 8192 + 5).skip(5).collect();
        let run = |checksums: Checksums| {
            let mut out = [0; 7];
            checksums(&pages, 8192, u32::MAX - 3, &mut out);
            out
        };
        let defined = run(portable);
        assert_eq!([run(words::<1>), run(words::<2>), run(words::<3>)], [defined; 3]);
    }
}
