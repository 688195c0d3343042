//! The verdict on a page.

use pgtoll_format::{Verdict, verdict};

/// Returns a server's verdict on a page at this block of its fork, with or without checksums.
pub fn page_verdict(page: &[u8], block: u32, has_checksums: bool) -> Verdict {
    // A page that was never used has no checksum.
    let is_page = pgtoll_checksum::is_page(page.len());
    let computed = has_checksums && is_page;
    verdict(page, computed.then(|| pgtoll_checksum::page_checksum(page, block)))
}
