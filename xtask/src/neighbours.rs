//! pgtoll beside newer neighbours than this machine's: the failover managers, poolers and backup tools of the
//! next Debian, in a root of their own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{command, root, run};

const RELEASE: &str = "trixie";
const MAJOR: &str = "17";
const PACKAGES: [&str; 13] = [
    "etcd-server",
    "haproxy",
    "iproute2",
    "patroni",
    "pg-auto-failover-cli",
    "pgbackrest",
    "pgbouncer",
    "pgpool2",
    "postgresql-17",
    "postgresql-17-auto-failover",
    "postgresql-17-repmgr",
    "procps",
    "python3-etcd",
];
/// The tests that meet them.
const TESTS: [&str; 4] = ["balance::", "drill_repositories::", "failover::", "fleet_pgbackrest::"];

/// Runs the tests of these names there, or those that meet a neighbour.
pub(crate) fn neighbours(names: &[&str]) -> anyhow::Result<()> {
    let place = prepared()?;
    let names = if names.is_empty() { &TESTS[..] } else { names };
    let script = root().join("xtask/src/neighbours.sh");
    let architecture = std::env::consts::ARCH.to_uppercase();
    run(command("cargo")
        .args(["test", "--workspace", "--test", "it", "--", "--test-threads", "2"])
        .args(names)
        .env(
            format!("CARGO_TARGET_{architecture}_UNKNOWN_LINUX_GNU_RUNNER"),
            format!("bash {} {}", script.display(), place.display()),
        )
        .env("PGTOLL_TEST_MAJORS", MAJOR))
}

/// The root with its packages, made unless it is there.
fn prepared() -> anyhow::Result<PathBuf> {
    let place = root().join("target/neighbours").join(RELEASE);
    let done = place.with_extension("done");
    // Written last: it is there only with all of them.
    if fs::read_to_string(&done).is_ok_and(|found| found == PACKAGES.join(" ")) {
        return Ok(place);
    }
    if place.exists() {
        fs::remove_dir_all(&place).context("remove what was begun")?;
    }
    fs::create_dir_all(&place)?;
    run(command("debootstrap").args(["--variant=minbase", RELEASE]).arg(&place))?;
    // No service starts when its package is installed.
    let refusal = place.join("usr/sbin/policy-rc.d");
    fs::write(&refusal, "#!/bin/sh\nexit 101\n")?;
    run(command("chmod").arg("755").arg(&refusal))?;
    let mut install = inside(&place);
    install.args(["apt-get", "install", "--quiet", "--yes", "--no-install-recommends"]);
    run(install.args(PACKAGES).env("DEBIAN_FRONTEND", "noninteractive"))?;
    fs::write(&done, PACKAGES.join(" "))?;
    Ok(place)
}

fn inside(place: &Path) -> std::process::Command {
    let mut inside = command("bash");
    inside.arg("xtask/src/neighbours.sh").arg(place);
    inside
}
