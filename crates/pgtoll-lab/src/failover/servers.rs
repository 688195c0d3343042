//! Operations on servers that all topologies and faults use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use super::context::{DATABASE, RunContext};
use super::error::FailoverError;
use crate::link::{Link, LinkDelay};

/// How long a step of the preparation may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The pid of a running server's postmaster.
pub(super) fn postmaster(cluster: &Cluster) -> Result<i32, FailoverError> {
    let mut connection = cluster.connect("postgres")?;
    let pid = connection
        .query_one("SELECT (regexp_match(pg_read_file('postmaster.pid'), '^[0-9]+'))[1] AS pid")?;
    let pid = pid.parse("pid")?;
    connection.close();
    Ok(pid)
}

/// The servers' settings, and a name that rows of the judge carry.
pub(super) fn named(context: &RunContext<'_>, name: &str) -> BTreeMap<String, String> {
    let mut settings = context.settings.clone();
    settings.insert("cluster_name".to_owned(), name.to_owned());
    settings
}

/// Returns the directory of the primary's socket for the standby, if a link is in between.
pub(super) fn link_directory(guard: &Guard) -> PathBuf {
    guard.directory().join("link")
}

/// A link to a server, in a directory of its own.
pub(super) fn open_link(
    guard: &mut Guard,
    directory: &Path,
    server: &Cluster,
) -> Result<Link, FailoverError> {
    guard.run(Path::new("mkdir"), &["-p", &directory.to_string_lossy()])?;
    let socket = |directory: &Path| directory.join(".s.PGSQL.5432");
    Link::open(&socket(directory), &socket(server.directory()), LinkDelay::default())
        .map_err(FailoverError::Link)
}

/// Waits until the standby streams from the primary.
pub(super) fn wait_for_streaming(
    primary: &Cluster,
    standby: &Cluster,
    interrupt: &Interrupt,
) -> Result<(), FailoverError> {
    let mut connection = primary.connect("postgres")?;
    let sql = format!(
        "SELECT coalesce(string_agg(state, ', '), 'not connected') AS state \
         FROM pg_stat_replication WHERE application_name = '{}'",
        standby.name()
    );
    until("the standby did not stream", interrupt, || {
        let state = connection.query_one(&sql)?.text("state")?.to_owned();
        Ok(if state == "streaming" { None } else { Some(state) })
    })
}

/// Waits until there is nothing left that `state` says.
pub(super) fn until(
    label: &'static str,
    interrupt: &Interrupt,
    state: impl FnMut() -> Result<Option<String>, FailoverError>,
) -> Result<(), FailoverError> {
    until_within(label, LIMIT, interrupt, state)
}

/// The same, for so long.
pub(super) fn until_within(
    label: &'static str,
    limit: Duration,
    interrupt: &Interrupt,
    mut state: impl FnMut() -> Result<Option<String>, FailoverError>,
) -> Result<(), FailoverError> {
    let end = Instant::now() + limit;
    while let Some(state) = state()? {
        if Instant::now() > end {
            return Err(FailoverError::NotReached { what: label, seconds: limit.as_secs(), state });
        }
        interrupt.wait(PAUSE)?;
    }
    Ok(())
}

/// The way to whichever of both takes writes.
pub(super) fn both_servers(one: &Cluster, other: &Cluster) -> Result<Dsn, FailoverError> {
    let [one, other] = [one, other].map(|item| item.directory().display());
    Ok(format!(
        "host='{one},{other}' port=5432 user=postgres dbname={DATABASE} \
         target_session_attrs=read-write"
    )
    .parse()?)
}
