//! Where things stand in a page of a relation's file.

use std::ops::Range;

/// Bytes of a page (`block_size`), in every server that was built with the default, as all
/// packages are.
pub const PAGE_BYTES: usize = 8192;

/// Where a page's header holds its checksum (`pd_checksum`, after `pd_lsn`), in bytes from the
/// page's begin.
pub const PAGE_CHECKSUM: Range<usize> = 8..10;
