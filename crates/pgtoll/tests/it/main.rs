//! pgtoll against real servers, as a user runs it and as its crates are used.
//!
//! The servers are those that `pgtoll postgres list` finds; with `PGTOLL_TEST_MAJORS=15,17,18`
//! they must be there.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

mod advice;
mod calibration;
mod checksums;
mod circles;
mod clusters;
mod configuration;
mod corruption_lab;
mod counters;
mod differences;
mod doctor;
mod documentation;
mod drill;
mod dsn;
mod embedded;
mod enable;
mod endings;
mod exchange;
mod experiments;
mod failover;
mod fleet;
mod fleet_manifests;
mod fleet_pgbackrest;
mod judge;
mod judge_size;
mod lab_disks;
mod lab_endings;
mod lab_setup;
mod lab_watch;
mod measuring;
mod mistakes;
mod names;
mod overview;
mod packaging;
mod page;
mod plans;
mod predict;
mod predict_reach;
mod predicted;
mod programs;
mod records;
mod repair;
mod repair_kill;
mod repair_online;
mod repair_redo;
mod repair_standby;
mod replay;
mod replay_compare;
mod replay_random;
mod replay_record;
mod reports;
mod resources;
mod rolling;
mod scripts;
mod skipping;
mod sources;
mod steps;
mod streaming;
mod support;
mod verify;
mod verify_backups;
mod verify_evidence;
mod verify_maps;
mod verify_online;
mod wal;
mod wal_stats;
mod wal_stream;
mod wal_whatif;
mod wire;
mod work;
