#![doc = include_str!("../README.md")]

mod definition;
mod kernel;
mod kernels;

pub use kernel::{InstructionSet, Kernel};

/// Bytes of the smallest page that PostgreSQL can be built with.
pub const LEAST_PAGE_BYTES: usize = 1024;
/// Bytes of the largest one.
pub const MOST_PAGE_BYTES: usize = 32768;

/// The checksum of a page at block `block` of its fork; never 0. Its own field (bytes 8 and 9,
/// `pd_checksum`) counts as zero. The page is only read.
///
/// # Panics
///
/// If `page` is no page: not a power of two from [`LEAST_PAGE_BYTES`] to [`MOST_PAGE_BYTES`] bytes
/// long.
pub fn page_checksum(page: &[u8], block: u32) -> u16 {
    let mut checksum = [0];
    Kernel::best().checksums(page, page.len(), block, &mut checksum);
    checksum[0]
}

/// Whether pages may be so long.
pub fn is_page(bytes: usize) -> bool {
    bytes.is_power_of_two() && (LEAST_PAGE_BYTES..=MOST_PAGE_BYTES).contains(&bytes)
}
