//! cargo-deny: licences, sources and duplicates of the dependencies, and known advisories where
//! their database can be had.

use crate::{command, installed, root, run, say};

/// The version that is installed below `target` when it is not there.
const VERSION: &str = "0.20.2";
/// `db-path` of `deny.toml`.
const DATABASES: &str = "target/advisory-dbs";

/// Fails on a dependency that `deny.toml` does not allow, or that an advisory names.
pub(crate) fn check() -> anyhow::Result<()> {
    let program = installed("cargo-deny", VERSION, &[])?;
    let deny = || command(&program.to_string_lossy());
    run(deny().args(["--log-level", "error", "check", "licenses", "bans", "sources"]))?;
    let is_fresh = deny().args(["--log-level", "off", "fetch", "db"]).status()?.success();
    if !is_fresh && !has_database() {
        say("xtask: advisories: NOT CHECKED: their database cannot be fetched here");
        return Ok(());
    }
    let offline: &[&str] = if is_fresh { &[] } else { &["--offline"] };
    if !is_fresh {
        say("xtask: advisories: checked with an older database: it cannot be fetched here");
    }
    run(deny().args(offline).args(["--log-level", "error", "check", "advisories"]))
}

/// A database that an earlier run fetched.
fn has_database() -> bool {
    let entries = std::fs::read_dir(root().join(DATABASES)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.join("crates").is_dir())
}
