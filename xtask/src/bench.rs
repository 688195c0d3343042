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

/// Whether a running server is verified without false alarm. Not a release build: its assertions
/// are tried too, and it is the server that is to be fast.
pub(crate) fn soak(arguments: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--quiet", "--package", "pgtoll", "--example", "soak", "--"])
        .args(arguments))
}

/// How fast pages are verified, beside `pg_checksums`.
pub(crate) fn verify(arguments: &[&str]) -> anyhow::Result<()> {
    // The program that is timed, which the bench finds above itself.
    run(command("cargo").args(["build", "--release", "--quiet", "--package", "pgtoll"]))?;
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "verify", "--"])
        .args(arguments))
}

/// Which damage is noticed by whom: no bench, but made in the same way.
pub(crate) fn detection(arguments: &[&str]) -> anyhow::Result<()> {
    // The program that is tried, which the trial finds beside itself.
    run(command("cargo").args(["build", "--quiet", "--package", "pgtoll", "--bin", "pgtoll"]))?;
    run(command("cargo")
        .args(["run", "--quiet", "--package", "pgtoll", "--example", "detection", "--"])
        .args(arguments))
}

/// How fast checksums are turned on, beside `pg_checksums --enable`.
pub(crate) fn enable(arguments: &[&str]) -> anyhow::Result<()> {
    // The program that is timed, which the bench finds above itself.
    run(command("cargo").args(["build", "--release", "--quiet", "--package", "pgtoll"]))?;
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "enable", "--"])
        .args(arguments))
}

/// How right predictions of WAL are, beside servers that really ran with those settings.
pub(crate) fn whatif_trial(arguments: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--release", "--quiet", "--package", "pgtoll", "--example", "whatif", "--"])
        .args(arguments))
}
