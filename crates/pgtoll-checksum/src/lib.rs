//! The checksum of PostgreSQL's data pages, as `storage/checksum_impl.h` defines it. No I/O.
//!
//! [`page_checksum`] is for one page. Many are faster together: [`Kernel::checksums`].
//!
//! ```
//! let mut page = [0_u8; 8192];
//! page[8191] = 1;
//! let checksum = pgtoll_checksum::page_checksum(&page, 7);
//! assert_ne!(checksum, 0);
//! // The field that holds the checksum is not part of it.
//! page[8..10].copy_from_slice(&checksum.to_le_bytes());
//! assert_eq!(pgtoll_checksum::page_checksum(&page, 7), checksum);
//! ```

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
