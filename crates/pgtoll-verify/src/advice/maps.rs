//! Advice on visibility maps: damaged ones, and those that contradict their tables.
//!
//! The order matters more than the commands. `VACUUM` fills an empty map on the primary and logs nothing
//! of pages whose bits standbys have lost; `pg_truncate_visibility_map` is logged, so that all servers
//! begin from the same empty map.

use pgtoll_datadir::RelationName;
use pgtoll_format::facts_of_major;
use pgtoll_record::Advice;

use super::{ClusterRole, describe, sql, statement};

/// A damaged page of a visibility map, on a server that may write. `start` is what comes first.
pub(super) fn damaged(name: &RelationName, start: &str) -> Vec<Advice> {
    let table = sql::qualified(name);
    let empty = format!(
        "{start}no row is lost. Empty the map, here and on standbys: VACUUM alone fills it here, but may \
         leave theirs different. Do not remove the file: standbys would not learn of it"
    );
    vec![
        statement(name, empty, truncate(name)),
        statement(name, "fill it again".to_owned(), format!("VACUUM {table};")),
    ]
}

/// A damaged page of a visibility map on a standby of this major version: a standby changes nothing
/// itself.
pub(super) fn damaged_on_standby(major: u32) -> Vec<Advice> {
    let refuses_since = facts_of_major(major).and_then(|facts| facts.replay_refuses_map_since);
    let mut steps = Vec::new();
    if let Some(minor) = refuses_since {
        let releases =
            if minor == 0 { String::new() } else { format!("from {major}.{minor} on, ") };
        steps.push(describe(&format!(
            "no row is lost. {releases}replay stops at such a page with FATAL \"invalid page\": start the \
             standby again, and the WAL's image replaces it. With full_page_writes = off, rebuild the standby. Do not remove, empty or zero the file: replay would PANIC"
        )));
    }
    if refuses_since == Some(0) {
        return steps;
    }
    let older = match refuses_since {
        Some(minor) => format!("before {major}.{minor}"),
        None => "no row is lost".to_owned(),
    };
    let on_primary = format!(
        "{older}: replay takes such a page for an empty one and continues. On the primary, then, SELECT \
         pg_truncate_visibility_map of the table (extension pg_visibility), which empties it on all \
         servers, and VACUUM"
    );
    steps.push(describe(&on_primary));
    steps
}

/// A table whose map says more than its pages do, or whose pages say more than their rows.
pub(super) fn stale(name: Option<&RelationName>, role: ClusterRole, start: &str) -> Vec<Advice> {
    let place = match role {
        ClusterRole::Backup => "on the server that is restored from it, before it is used: ",
        ClusterRole::Standby => "on the primary, after it was verified, too: ",
        ClusterRole::Stopped { .. } | ClusterRole::Running => start,
    };
    let label = format!(
        "{place}empty the map. Do not VACUUM before: it passes these pages by, and may move relfrozenxid \
         past their rows. Until then index-only scans may return deleted rows"
    );
    let then = "then have all pages looked at again".to_owned();
    let mut steps = match name {
        Some(name) => {
            let table = sql::qualified(name);
            vec![
                statement(name, label, truncate(name)),
                statement(name, then, format!("VACUUM (FREEZE) {table};")),
            ]
        }
        None => vec![describe(&label), describe(&format!("{then} (VACUUM (FREEZE))"))],
    };
    steps.push(describe(match role {
        ClusterRole::Backup => "verify that server, and take a new full backup",
        _ => {
            "verify again. Where rows are missing, or VACUUM reports \"found xmax … from before \
             relfrozenxid\", restore the table; take a new full backup"
        }
    }));
    steps
}

/// Empties a table's map on the primary and, by WAL, on its standbys.
fn truncate(name: &RelationName) -> String {
    format!(
        "CREATE EXTENSION IF NOT EXISTS pg_visibility;\nSELECT pg_truncate_visibility_map({});",
        sql::regclass(name)
    )
}
