//! Rows that `VACUUM` freezes because hints are logged.
//!
//! Since 16 `VACUUM` freezes a page's rows, though it need not yet, where it has just logged an image
//! of the page: the image is paid for. Where a hint was the only reason for that image, the freeze
//! comes and goes with it. So its record is counted as part of the hint's: settings that do not log
//! the hint have neither, and the page is not changed by it.
//!
//! `VACUUM` may also have had to freeze these rows (`FREEZE`, or rows older than
//! `vacuum_freeze_min_age`). Its records are the same to the byte, so that WAL cannot tell which it
//! was. What the freezes would cost then, where the hints are not logged, is summed up beside the
//! outcome: [`WhatIfOutcome::freeze_bytes`](super::WhatIfOutcome).

/// A hint and the freeze that follows it are of one visit of `VACUUM`, which holds the page's lock
/// from one to the other: only other sessions' records are between them, and at most this many. A hint
/// further back was a reader's, and the freeze has another reason.
pub const FREEZE_WITHIN: usize = 64;
