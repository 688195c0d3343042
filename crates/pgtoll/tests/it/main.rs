//! pgtoll against real servers, as a user runs it and as its crates are used.
//!
//! The servers are those that `pgtoll postgres list` finds; with `PGTOLL_TEST_MAJORS=15,17,18`
//! they must be there.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

mod clusters;
mod counters;
mod documentation;
mod embedded;
mod endings;
mod measuring;
mod mistakes;
mod records;
mod support;
mod wire;
