//! Benches and trials of pgtoll itself: what they show belongs into the documentation, from their
//! records.

use crate::{command, run};

/// How wide the interval of two identical clusters is, by pgtoll's design and by sequential runs.
pub(crate) fn design(arguments: &[&str]) -> anyhow::Result<()> {
    released("design", arguments)
}

/// How fast WAL is read, beside `pg_waldump`.
pub(crate) fn wal(arguments: &[&str]) -> anyhow::Result<()> {
    // The program that is timed, which the bench finds beside itself.
    run(command("cargo")
        .args(["build", "--quiet", "--package", "pgtoll-trials", "--bin", "wal_sums"])
        .args(TIMED))?;
    released("wal", arguments)
}

/// What capturing costs clients.
pub(crate) fn capture(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("capture", arguments)
}

/// How fast page checksums are computed, beside the servers' own kernels.
pub(crate) fn checksum(arguments: &[&str]) -> anyhow::Result<()> {
    released("checksum", arguments)
}

/// How fast pages are verified, beside `pg_checksums`.
pub(crate) fn verify(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("verify", arguments)
}

/// How fast checksums are turned on, beside `pg_checksums --enable`.
pub(crate) fn enable(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("enable", arguments)
}

/// What `pgtoll predict` costs the server that it watches.
pub(crate) fn watch(arguments: &[&str]) -> anyhow::Result<()> {
    released("watch", arguments)
}

/// Whether pgtoll replays pgbench's log to the same data, and what pgreplay does with it.
pub(crate) fn replay(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("replay", arguments)
}

/// How often replays that are compared name what is not slower, and what is.
pub(crate) fn replay_compare(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("replay_compare", arguments)
}

/// Whether statements are replayed when they are due, and how fast beside pgbench.
pub(crate) fn replay_pace(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("replay_pace", arguments)
}

/// What reading backups from stores costs, and whether fleets are planned quickly and evenly.
pub(crate) fn fleet(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("fleet", arguments)
}

/// How often intervals of real runs miss what is known.
pub(crate) fn twins(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("twins", arguments)
}

/// How often two servers whose difference is known are told apart.
pub(crate) fn servers(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("servers", arguments)
}

/// How right forecasts of a recovery's time are.
pub(crate) fn recoveries(arguments: &[&str]) -> anyhow::Result<()> {
    released("recoveries", arguments)
}

/// How right predictions of WAL are, beside servers that really ran with those settings.
pub(crate) fn whatif_trial(arguments: &[&str]) -> anyhow::Result<()> {
    released("whatif", arguments)
}

/// How right predictions of what checksums cost are, beside servers that really turned them on.
pub(crate) fn prediction_trial(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TIMED)?;
    released("prediction", arguments)
}

/// Which damage is noticed by whom.
pub(crate) fn detection(arguments: &[&str]) -> anyhow::Result<()> {
    build(&[])?;
    trial("detection", &[], arguments)
}

/// Whether random damages are found, and repaired right or not at all.
pub(crate) fn drills(arguments: &[&str]) -> anyhow::Result<()> {
    build(&TRIED)?;
    trial("drills", &TRIED, arguments)
}

/// Whether a running server is verified without false alarm.
pub(crate) fn soak(arguments: &[&str]) -> anyhow::Result<()> {
    trial("soak", &TRIED, arguments)
}

/// What is timed is what is packed.
const TIMED: [&str; 2] = ["--profile", "distribution"];

/// Assertions are tried as well.
const TRIED: [&str; 2] = ["--profile", "trial"];

/// Builds the program that is timed or tried, which benches and trials find beside themselves.
fn build(profile: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["build", "--quiet", "--package", "pgtoll", "--bin", "pgtoll"])
        .args(profile))
}

/// Runs a trial as fast as it is for users.
fn released(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    trial(name, &TIMED, arguments)
}

fn trial(name: &str, profile: &[&str], arguments: &[&str]) -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--quiet", "--package", "pgtoll-trials", "--bin", name])
        .args(profile)
        .arg("--")
        .args(arguments))
}
