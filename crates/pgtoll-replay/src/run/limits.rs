//! Limits of sessions, of the system and of the server.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pgtoll_wire::Connection;

use crate::ReplayError;

/// Each session takes a file descriptor. What the system allows is as good as it gets.
pub(super) fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Whether the server has room for this many sessions at a time, before anything is changed.
pub(super) fn check_connections(
    monitor: Option<&mut Connection>,
    sessions: u64,
) -> Result<(), ReplayError> {
    let Some(connection) = monitor else { return Ok(()) };
    let action = "count the server's free connections".to_owned();
    let failed = |source| ReplayError::Server { action, source: Box::new(source) };
    let row = connection.query_one(FREE_CONNECTIONS).map_err(failed)?;
    let number = |name| row.text(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (Some(free), Some(most)) = (number("free"), number("most")) else { return Ok(()) };
    if sessions > free {
        return Err(ReplayError::TooManySessions { sessions, free, most });
    }
    Ok(())
}

/// Roles that are no superusers have to leave some free.
const FREE_CONNECTIONS: &str = "SELECT greatest(0, most - reserved - used)::text AS free, \
    most::text AS most FROM (SELECT pg_catalog.current_setting('max_connections')::integer AS most, \
    CASE WHEN pg_catalog.current_setting('is_superuser') = 'on' THEN 0 \
    ELSE pg_catalog.current_setting('superuser_reserved_connections')::integer \
    + coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::integer END AS reserved, \
    (SELECT pg_catalog.count(*)::integer FROM pg_catalog.pg_stat_activity \
    WHERE backend_type = 'client backend') AS used) AS connections";
