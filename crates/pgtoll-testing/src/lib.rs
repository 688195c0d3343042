//! What tests, trials and fuzz targets share. No program that users run depends on it.
//!
//! * [`wal_writer`] writes WAL of any content, as a server would lay it out;
//! * [`chromium`] shows pages in a browser without a window, and asks it about them.

#![expect(clippy::unwrap_used, reason = "tests' helpers may panic like tests")]

pub mod chromium;
pub mod wal_writer;
