//! `pgtoll` without arguments: the clusters of this machine, and the command that fits each.

use std::fmt::Write as _;

use pgtoll_cluster::Finder;
use pgtoll_datadir::{LocalCluster, LocalClusters};
use pgtoll_format::shell_quoted;
use pgtoll_record::Status;
use pgtoll_report::printable;
use pgtoll_system::Interrupt;

use crate::printer::Printer;

pub(crate) fn run(printer: &mut Printer) -> Status {
    let found = LocalClusters::find();
    let mut text = String::from(
        "pgtoll: what PostgreSQL's safety costs, whether the data is sound, and whether the\n\
         safety works when it is needed\n\n",
    );
    text.push_str(&cluster_lines(&found));
    text.push_str(&program_lines());
    text.push_str("\nAll commands: pgtoll --help\n");
    printer.data(&text);
    Status::Done
}

fn cluster_lines(found: &LocalClusters) -> String {
    let mut text = String::new();
    if !found.clusters.is_empty() {
        text.push_str("Clusters on this machine\n");
    }
    for cluster in &found.clusters {
        let state = if cluster.is_running { "running" } else { "stopped" };
        let checksums =
            if cluster.data.has_checksums() { "with checksums" } else { "without checksums" };
        let path = cluster.data.path.to_string_lossy();
        let _ = writeln!(
            text,
            "  PostgreSQL {}, {}: {state}, {checksums}\n      {}",
            cluster.data.major,
            printable(&path),
            fitting_command(cluster)
        );
    }
    for path in &found.unread {
        let path = path.to_string_lossy();
        let _ = writeln!(
            text,
            "  {}: cannot be read; run pgtoll as root or as its owner",
            printable(&path)
        );
    }
    if found.clusters.is_empty() && found.unread.is_empty() {
        text.push_str(
            "No cluster found on this machine. For another one:\n\
             \x20     pgtoll predict --dsn 'host=… user=… dbname=…'   what checksums would cost it\n\
             \x20     pgtoll verify PATH                              whether a backup is sound\n",
        );
    }
    text
}

/// The command that answers the first question about such a cluster.
fn fitting_command(cluster: &LocalCluster) -> String {
    let path = cluster.data.path.to_string_lossy();
    let data = printable(&shell_quoted(&path)).into_owned();
    match &cluster.postmaster {
        _ if cluster.data.has_checksums() => format!("pgtoll verify {data}   check every page"),
        None if cluster.is_running => format!("pgtoll verify {data}   check every page"),
        None => format!("pgtoll enable --dry-run {data}   how long turning them on takes"),
        Some(postmaster) => {
            let host = postmaster.socket.as_ref().map_or("localhost".into(), |socket| {
                printable(&socket.to_string_lossy()).into_owned()
            });
            let dsn = shell_quoted(&format!("host={host} port={}", postmaster.port));
            format!("pgtoll predict --dsn {dsn}   what checksums would cost it")
        }
    }
}

/// The servers that measurements can use.
fn program_lines() -> String {
    let found = Finder::of_this_program(&Interrupt::new()).installed();
    let installations = found.map(|found| found.installations).unwrap_or_default();
    let usable = installations.iter().filter(|one| one.version.facts().is_ok());
    let mut versions: Vec<_> = usable.map(|one| &one.version).collect();
    versions.sort_by_key(|version| version.major());
    let versions: Vec<String> = versions.into_iter().map(ToString::to_string).collect();
    let programs = if versions.is_empty() {
        "no installed PostgreSQL: pgtoll fetches one with pip".to_owned()
    } else {
        format!("PostgreSQL {}", versions.join(", "))
    };
    format!(
        "\nTo measure with ({programs})\n      pgtoll measure   what checksums cost on this machine, 5 minutes\n"
    )
}
