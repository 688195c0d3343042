//! The detectors of damage, and how each reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, Output, StopMode};
use pgtoll_record::trials::{DetectionOutcome, Detector};

use crate::damage::{Case, program};
use crate::site::{Queried, Site, compared_by_server};

/// Runs every detector on the same damage, each on a copy of its own: none sees what another one has
/// read, changed or repaired.
pub(crate) fn all(
    site: &Site,
    guard: &mut Guard,
    case: Case,
) -> anyhow::Result<BTreeMap<Detector, DetectionOutcome>> {
    let mut found = BTreeMap::new();
    for detector in Detector::ALL {
        if detector == Detector::PgVerifybackup {
            // It runs on the backup that pg_basebackup made.
            continue;
        }
        let copy = site.copy(guard, detector != Detector::WithoutChecksums)?;
        case.apply(site, &copy.data())?;
        found.extend(look(detector, site, guard, &copy)?);
        copy.remove(guard)?;
    }
    Ok(found)
}

type Found = Vec<(Detector, DetectionOutcome)>;

fn look(
    detector: Detector,
    site: &Site,
    guard: &mut Guard,
    copy: &Cluster,
) -> anyhow::Result<Found> {
    let data = copy.data();
    let outcome = match detector {
        Detector::Offline => verify(site, &data, &[])?,
        Detector::PgChecksums => {
            let arguments = ["--check", "-D", &data.to_string_lossy()];
            by_status(&ran(site, guard, "pg_checksums", None, &arguments)?)
        }
        Detector::Online => running(guard, copy, |_| verify(site, &data, &[]))?,
        Detector::PgBasebackup | Detector::PgVerifybackup => {
            return running(guard, copy, |guard| backups(site, guard, copy));
        }
        Detector::PgBackRest => pgbackrest(site, guard, &data)?,
        Detector::PgAmcheck => running(guard, copy, |guard| {
            let arguments = ["--all", "--install-missing", "--heapallindexed"];
            Ok(by_status(&ran(site, guard, "pg_amcheck", Some(copy), &arguments)?))
        })?,
        Detector::PgVisibility => running(guard, copy, |_| compared_by_server(copy))?,
        Detector::Server | Detector::WithoutChecksums => {
            running(guard, copy, |_| queried(site, copy))?
        }
        Detector::Ignoring => {
            let settings = std::fs::read_to_string(data.join("pgtoll-settings.conf"))?;
            let ignoring = settings + "ignore_checksum_failure = on\n";
            std::fs::write(data.join("pgtoll-settings.conf"), ignoring).context("configure")?;
            running(guard, copy, |_| queried(site, copy))?
        }
    };
    Ok(vec![(detector, outcome)])
}

/// Does something while a server runs that has read nothing yet.
fn running<T>(
    guard: &mut Guard,
    cluster: &Cluster,
    work: impl FnOnce(&mut Guard) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    cluster.start(guard)?;
    let done = work(guard);
    cluster.stop(guard, StopMode::Immediate)?;
    done
}

/// pgtoll's exit status is the outcome.
fn verify(site: &Site, data: &Path, options: &[&str]) -> anyhow::Result<DetectionOutcome> {
    let mut pgtoll = program(&site.pgtoll);
    let output = pgtoll.args(["--quiet", "verify"]).args(options).arg(data).output();
    let output = output.context("run pgtoll verify")?;
    match output.status.code() {
        Some(0) => Ok(DetectionOutcome::Unnoticed),
        Some(1) => Ok(DetectionOutcome::Found),
        Some(2) if !output.stdout.is_empty() => Ok(DetectionOutcome::Unverified),
        _ => bail!("pgtoll verify: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A backup, and the verification of it.
fn backups(site: &Site, guard: &mut Guard, cluster: &Cluster) -> anyhow::Result<Found> {
    let backup = site.new_file("backup").to_string_lossy().into_owned();
    let arguments = ["-D", &backup, "--checkpoint=fast", "--no-sync"];
    let made = by_status(&ran(site, guard, "pg_basebackup", Some(cluster), &arguments)?);
    let verified = if made == DetectionOutcome::Found {
        // pg_basebackup removes what it made.
        DetectionOutcome::NotRun
    } else {
        by_status(&ran(site, guard, "pg_verifybackup", None, &[&backup])?)
    };
    if Path::new(&backup).exists() {
        guard.run(Path::new("rm"), &["-r", &backup])?;
    }
    Ok(vec![(Detector::PgBasebackup, made), (Detector::PgVerifybackup, verified)])
}

/// A full backup of the stopped cluster. It ends well whatever its pages are like, and marks the backup.
fn pgbackrest(site: &Site, guard: &mut Guard, data: &Path) -> anyhow::Result<DetectionOutcome> {
    if !Path::new(PGBACKREST).exists() {
        return Ok(DetectionOutcome::NotRun);
    }
    let repository = site.new_file("repository");
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let common = [
        "--stanza=main".to_owned(),
        option("repo1-path", &repository),
        option("lock-path", &repository.with_extension("lock")),
        "--log-level-file=off".to_owned(),
    ];
    let here = [option("pg1-path", data), "--no-online".to_owned()];
    let create = ["stanza-create".to_owned()];
    let back_up = ["--checksum-page", "--repo1-retention-full=1", "backup"].map(ToOwned::to_owned);
    let info = ["--output=json", "info"].map(ToOwned::to_owned);
    let mut run = |words: &[&[String]]| -> anyhow::Result<Output> {
        let words = [&[&common[..]], words].concat().concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        guard.spawn("pgbackrest", Path::new(PGBACKREST), &words, &BTreeMap::new())?;
        Ok(guard.reap("pgbackrest", PATIENCE)?)
    };
    // It refuses versions of PostgreSQL that it does not know.
    if !run(&[&here, &create])?.success {
        return Ok(DetectionOutcome::NotRun);
    }
    if !run(&[&here, &back_up])?.success {
        return Ok(DetectionOutcome::Found);
    }
    let words = [&common[..], &info].concat();
    let output = program(Path::new(PGBACKREST)).args(words).output().context("run pgbackrest")?;
    let stanzas: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let is_marked = stanzas[0]["backup"][0]["error"] == true;
    guard.run(Path::new("rm"), &["-r", &repository.to_string_lossy()])?;
    Ok(if is_marked { DetectionOutcome::Found } else { DetectionOutcome::Unnoticed })
}

fn queried(site: &Site, cluster: &Cluster) -> anyhow::Result<DetectionOutcome> {
    Ok(match site.queried(cluster)? {
        Queried::Error => DetectionOutcome::Found,
        Queried::Wrong => DetectionOutcome::WrongResult,
        Queried::Right => DetectionOutcome::Unnoticed,
    })
}

/// One of PostgreSQL's programs, to its end.
fn ran(
    site: &Site,
    guard: &mut Guard,
    name: &str,
    server: Option<&Cluster>,
    arguments: &[&str],
) -> anyhow::Result<Output> {
    let path = site.installation.program(name)?;
    let environment = server.map(Cluster::environment).unwrap_or_default();
    guard.spawn(name, &path, arguments, &environment)?;
    Ok(guard.reap(name, PATIENCE)?)
}

/// A message with status 0 does not count: scripts do not read it.
fn by_status(output: &Output) -> DetectionOutcome {
    if output.success { DetectionOutcome::Unnoticed } else { DetectionOutcome::Found }
}

const PGBACKREST: &str = "/usr/bin/pgbackrest";
/// Long enough for anything that ends at all.
const PATIENCE: Duration = Duration::from_secs(120);
