//! Who looks for damage, and how they say that they found some.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, Output, StopMode};

use crate::damage::{Case, program};
use crate::site::{Queried, Site};
use pgtoll_trials::detection::{Detector, Outcome};

/// Lets everybody look at the same damage, each at a copy of their own: nobody sees what another
/// one has read, changed or repaired.
pub(crate) fn all(
    site: &Site,
    guard: &mut Guard,
    case: Case,
) -> anyhow::Result<BTreeMap<Detector, Outcome>> {
    let mut found = BTreeMap::new();
    for detector in Detector::ALL {
        if detector == Detector::PgVerifybackup {
            // It looks at what pg_basebackup made.
            continue;
        }
        let copy = site.copy(guard, detector != Detector::WithoutChecksums)?;
        case.inflict(site, &copy.data())?;
        found.extend(look(detector, site, guard, &copy)?);
        copy.remove(guard)?;
    }
    Ok(found)
}

type Found = Vec<(Detector, Outcome)>;

fn look(
    detector: Detector,
    site: &Site,
    guard: &mut Guard,
    copy: &Cluster,
) -> anyhow::Result<Found> {
    let data = copy.data();
    let outcome = match detector {
        Detector::Offline => verify(site, &data, &["--lost-writes", "--indexes"])?,
        Detector::PgChecksums => {
            let arguments = ["--check", "-D", &data.to_string_lossy()];
            told(&ran(site, guard, "pg_checksums", None, &arguments)?)
        }
        Detector::Online => running(guard, copy, |_| verify(site, &data, &[]))?,
        Detector::PgBasebackup | Detector::PgVerifybackup => {
            return running(guard, copy, |guard| backups(site, guard, copy));
        }
        Detector::PgAmcheck => running(guard, copy, |guard| {
            let arguments = ["--all", "--install-missing", "--heapallindexed"];
            Ok(told(&ran(site, guard, "pg_amcheck", Some(copy), &arguments)?))
        })?,
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

/// pgtoll's own status says it.
fn verify(site: &Site, data: &Path, options: &[&str]) -> anyhow::Result<Outcome> {
    let mut pgtoll = program(&site.pgtoll);
    let output = pgtoll.args(["--quiet", "verify"]).args(options).arg(data).output();
    let output = output.context("run pgtoll verify")?;
    match output.status.code() {
        Some(0) => Ok(Outcome::Unnoticed),
        Some(1) => Ok(Outcome::Found),
        Some(2) if !output.stdout.is_empty() => Ok(Outcome::Unverified),
        _ => bail!("pgtoll verify: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A backup, and what is said of it afterwards.
fn backups(site: &Site, guard: &mut Guard, cluster: &Cluster) -> anyhow::Result<Found> {
    let backup = site.new_file("backup").to_string_lossy().into_owned();
    let arguments = ["-D", &backup, "--checkpoint=fast", "--no-sync"];
    let made = told(&ran(site, guard, "pg_basebackup", Some(cluster), &arguments)?);
    let verified = if made == Outcome::Found {
        // pg_basebackup removes what it made.
        Outcome::NotRun
    } else {
        told(&ran(site, guard, "pg_verifybackup", None, &[&backup])?)
    };
    if Path::new(&backup).exists() {
        guard.run(Path::new("rm"), &["-r", &backup])?;
    }
    Ok(vec![(Detector::PgBasebackup, made), (Detector::PgVerifybackup, verified)])
}

fn queried(site: &Site, cluster: &Cluster) -> anyhow::Result<Outcome> {
    Ok(match site.queried(cluster)? {
        Queried::Error => Outcome::Found,
        Queried::Wrong => Outcome::WrongResult,
        Queried::Right => Outcome::Unnoticed,
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

/// Whatever is said with status 0 is read by nobody.
fn told(output: &Output) -> Outcome {
    if output.success { Outcome::Unnoticed } else { Outcome::Found }
}

/// Long enough for anything that ends at all.
const PATIENCE: Duration = Duration::from_secs(120);
