//! Benches of pgtoll itself: what they show belongs into the documentation, from their records.

use crate::{command, run};

/// How wide the interval of two identical clusters is, by pgtoll's design and by sequential runs.
pub(crate) fn design(arguments: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "design", "--"])
        .args(arguments))
}

/// How fast WAL is read, beside `pg_waldump`.
pub(crate) fn wal(arguments: &[&str]) -> anyhow::Result<()> {
    // The program that is timed, which the bench finds beside itself.
    run(command("cargo")
        .args(["build", "--release", "--quiet", "--package", "pgtoll-scan"])
        .args(["--example", "wal_sums"]))?;
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "wal", "--"])
        .args(arguments))
}

/// How fast page checksums are computed, beside the servers' own kernels.
pub(crate) fn checksum(arguments: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "checksum", "--"])
        .args(arguments))
}
