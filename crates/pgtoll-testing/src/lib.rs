//! Helpers of tests, trials and fuzz targets. No program that users run depends on it.
//!
//! * [`wal_writer`] writes WAL of any content, as a server would lay it out;
//! * [`control_file`] makes a control file;
//! * [`run_text`] reads the record of a run, compressed or not;
//! * [`ObjectServer`] serves objects as S3 does, and fails when it is told to;
//! * [`chromium`] shows pages in a browser without a window, and asks it about them.

#![expect(clippy::unwrap_used, reason = "tests' helpers may panic like tests")]

pub mod chromium;
mod control;
mod object_server;
mod records;
pub mod wal_writer;

pub use control::control_file;
pub use object_server::{MadeObject, ObjectFault, ObjectServer};
pub use records::run_text;
