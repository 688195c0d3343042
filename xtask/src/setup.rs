//! Sets up a machine for the tests: servers of six major versions, Chromium, what judges how
//! accessible a page is, and a compiler for the fuzzer.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{command, output, root, run, say};

/// Majors that come as packages of Python and Node.js; these without client programs. One more server is the
/// system's own.
const FETCHED: [u32; 5] = [13, 14, 16, 17, 18];

/// pgBackRest, which has no `--version`.
const BACKUP_TOOL: &str = "/usr/bin/pgbackrest";
/// Where Pgpool-II is. The directory is not in everybody's path.
const BALANCER: &str = "/usr/sbin/pgpool";
/// Where pgbouncer is.
const POOLERS: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];

/// Slurm: packages, and a program of each. Tests start its daemons in a network of their own.
const SCHEDULER: [(&str, &str); 5] = [
    ("slurmctld", "/usr/sbin/slurmctld"),
    ("slurmd", "/usr/sbin/slurmd"),
    ("slurm-client", "/usr/bin/sbatch"),
    ("munge", "/usr/sbin/munged"),
    ("iproute2", "/usr/bin/ip"),
];

/// Patroni and what is used beside it: packages, and a program of each. Labs start them.
const PATRONI: [(&str, &str); 4] = [
    ("patroni", "/usr/bin/patroni"),
    ("python3-etcd", "/usr/lib/python3/dist-packages/etcd/__init__.py"),
    ("etcd-server", "/usr/bin/etcd"),
    ("haproxy", "/usr/sbin/haproxy"),
];

/// Readers of lines for Nagios, and of rules and gauges for Prometheus.
const MONITORING: [(&str, &str); 2] = [
    ("libmonitoring-plugin-perl", "/usr/share/perl5/Monitoring/Plugin.pm"),
    ("prometheus", "/usr/bin/promtool"),
];

/// Where Debian puts the servers that it packages, with repmgr beside them.
const SYSTEM_SERVERS: &str = "/usr/lib/postgresql";

/// What tests must find.
pub(crate) struct Found {
    /// Servers, by major version.
    pub(crate) majors: Vec<u32>,
    /// The script of axe-core. Where it is, Chromium is too.
    pub(crate) axe: PathBuf,
    /// Python packages: moto, a server of S3.
    pub(crate) moto: PathBuf,
    /// Python packages: drivers of PostgreSQL.
    pub(crate) drivers: PathBuf,
}

/// Installs what is missing.
pub(crate) fn prepare() -> anyhow::Result<Found> {
    let mut packages = Vec::new();
    if servers("installed")?.is_empty() {
        packages.push("postgresql");
    }
    if !is_there("pip") && !is_there("pip3") {
        packages.push("python3-pip");
    }
    if !is_there("npm") {
        packages.push("npm");
    }
    if !is_there("chromium") {
        packages.push("chromium");
    }
    if !POOLERS.iter().any(|path| Path::new(path).is_file()) {
        packages.push("pgbouncer");
    }
    if !Path::new(BALANCER).is_file() {
        packages.push("pgpool2");
    }
    if !is_there("redis-server") || !is_there("redis-cli") {
        packages.extend(["redis-server", "redis-tools"]);
    }
    if !Path::new(BACKUP_TOOL).is_file() {
        packages.push("pgbackrest");
    }
    if !is_there("barman-cloud-backup") {
        packages.push("barman-cli-cloud");
    }
    if !SCHEDULER.iter().all(|(_, path)| Path::new(path).is_file()) {
        packages.extend(SCHEDULER.iter().map(|(package, _)| *package));
    }
    if !PATRONI.iter().all(|(_, path)| Path::new(path).is_file()) {
        packages.extend(PATRONI.iter().map(|(package, _)| *package));
    }
    if !MONITORING.iter().all(|(_, path)| Path::new(path).is_file()) {
        packages.extend(MONITORING.iter().map(|(package, _)| *package));
    }
    // libFuzzer is C++.
    if !is_there("c++") {
        packages.push("g++");
    }
    if !packages.is_empty() {
        install(&packages)?;
    }
    for major in FETCHED {
        run(&mut pgtoll(&["postgres", "install", &major.to_string()]))?;
    }
    let mut majors = servers("installed")?;
    if majors.is_empty() {
        bail!("no PostgreSQL server of the system's own was found after installing one");
    }
    install_beside(&majors, "bin/repmgrd", &["repmgr"], "repmgr")?;
    let client = ["pg-auto-failover-cli"];
    install_beside(&majors, "lib/pgautofailover.so", &client, "auto-failover")?;
    majors.extend(FETCHED);
    majors.sort_unstable();
    majors.dedup();
    say(&format!("xtask: servers to test with: {majors:?}"));
    let moto = fetch_python(MOTO_NAME, MOTO)?;
    Ok(Found { majors, axe: axe()?, moto, drivers: fetch_python(DRIVERS_NAME, DRIVERS)? })
}

/// Where moto was fetched to, if it was.
pub(crate) fn moto_if_there() -> Option<PathBuf> {
    python_if_there(MOTO_NAME)
}

/// Where the drivers were fetched to, if they were.
pub(crate) fn drivers_if_there() -> Option<PathBuf> {
    python_if_there(DRIVERS_NAME)
}

fn python_if_there(name: &str) -> Option<PathBuf> {
    let place = root().join("target").join(name);
    place.join("requirements.txt").is_file().then_some(place)
}

/// An engine of the system's newest server, unless one of its servers has this file of it: some packages,
/// and the one of this name for that server.
fn install_beside(
    majors: &[u32],
    file: &str,
    packages: &[&str],
    extension: &str,
) -> anyhow::Result<()> {
    let has_it = |major: &u32| Path::new(&format!("{SYSTEM_SERVERS}/{major}/{file}")).is_file();
    let Some(newest) = majors.iter().max().filter(|_| !majors.iter().any(has_it)) else {
        return Ok(());
    };
    install(&[packages, &[&format!("postgresql-{newest}-{extension}")]].concat())
}

/// axe-core comes inside a Python package, and only for tests. The package is pinned by its hash.
const AXE_PACKAGE: &str = "axe-playwright-python==0.1.8 \
    --hash=sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8\n";
const AXE_SCRIPT: &str = "axe_playwright_python/axe.min.js";

/// Below `target`.
const MOTO_NAME: &str = "moto-5.2.5";
/// moto with what its S3 needs.
const MOTO: &str = include_str!("moto.txt");

/// Below `target`.
const DRIVERS_NAME: &str = "drivers-1";
/// `psycopg2`, `psycopg`, `asyncpg` and `pg8000` with what they need.
const DRIVERS: &str = include_str!("drivers.txt");

/// Fetches axe-core below `target`, unless it is there.
fn axe() -> anyhow::Result<PathBuf> {
    let script = fetch_python("axe-playwright-python-0.1.8", AXE_PACKAGE)?.join(AXE_SCRIPT);
    if !script.is_file() {
        bail!("there is no {AXE_SCRIPT} in the package");
    }
    Ok(script)
}

/// Fetches Python packages into this directory of `target`, unless they are there. Each is pinned by
/// its hash.
pub(crate) fn fetch_python(name: &str, requirements: &str) -> anyhow::Result<PathBuf> {
    let place = root().join("target").join(name);
    let file = place.join("requirements.txt");
    // Written last: it is there only with all of them.
    if std::fs::read_to_string(&file).is_ok_and(|text| text == requirements) {
        return Ok(place);
    }
    std::fs::create_dir_all(&place)?;
    let partial = place.join("requirements.partial");
    std::fs::write(&partial, requirements)?;
    let pip = if is_there("pip") { "pip" } else { "pip3" };
    run(command(pip)
        .args(["install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--upgrade"])
        .args(["--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"])
        .arg("--root-user-action=ignore")
        .arg("--target")
        .arg(&place)
        .arg("--requirement")
        .arg(&partial))?;
    std::fs::rename(&partial, &file)?;
    Ok(place)
}

/// The majors that `pgtoll postgres list` finds of this origin.
fn servers(origin: &str) -> anyhow::Result<Vec<u32>> {
    let text = output(&mut pgtoll(&["--quiet", "postgres", "list", "--json"]))?;
    let list: Vec<Value> = serde_json::from_str(&text).context("read the list of servers")?;
    let of_origin =
        list.iter().filter(|context| context["origin"] == origin && context["supported"] == true);
    let versions = of_origin.filter_map(|item| item["version"].as_str());
    let major = |version: &str| version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    Ok(versions.filter_map(major).collect())
}

fn pgtoll(arguments: &[&str]) -> std::process::Command {
    let mut command = command("cargo");
    command.args(["run", "--quiet", "--package", "pgtoll", "--"]).args(arguments);
    command
}

/// Installs Debian's packages; of the server's, without the cluster that it would make and start.
fn install(packages: &[&str]) -> anyhow::Result<()> {
    if !is_root()? || !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "{} missing, and only root on Debian can install it here\n\
             hint: install your distribution's packages of these",
            packages.join(" and ")
        );
    }
    let configuration = Path::new("/etc/postgresql-common/createcluster.conf");
    if !configuration.exists() {
        std::fs::create_dir_all("/etc/postgresql-common")?;
        std::fs::write(configuration, "create_main_cluster = false\n")?;
    }
    run(command("apt-get").arg("update"))?;
    run(command("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Services are not started.
        .env("RUNLEVEL", "1"))
}

fn is_there(program: &str) -> bool {
    output(command(program).arg("--version")).is_ok()
}

fn is_root() -> anyhow::Result<bool> {
    Ok(output(command("id").arg("-u"))?.trim() == "0")
}
