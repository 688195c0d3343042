//! One look at a server: WAL positions, transaction IDs, standbys, waits.

use pgtoll_predict::{PredictError, WatchSession};
use pgtoll_wire::{Error, Row};

/// A look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerLook {
    /// The server's clock, in seconds since 1970.
    pub(crate) now_s: f64,
    /// The end of WAL.
    pub(crate) inserted: u64,
    /// The end of WAL that is on the disk.
    pub(crate) flushed: u64,
    /// The ID of the next transaction, with its epoch.
    pub(crate) next_id: u64,
    /// The redo point of the last complete checkpoint; `None` where the role may not read it.
    pub(crate) redo: Option<u64>,
    /// Standbys that stream; subscribers of logical replication are none.
    pub(crate) standbys: Vec<StandbyLook>,
    /// Client sessions; `None` where the role may not see them.
    pub(crate) sessions: Option<SessionLook>,
}

/// A standby at a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StandbyLook {
    pub(crate) name: String,
    pub(crate) sync_state: String,
    pub(crate) sent: u64,
    pub(crate) flushed: u64,
    pub(crate) replayed: Option<u64>,
    /// Milliseconds until it had written, flushed and replayed WAL.
    pub(crate) lags_ms: [Option<f64>; 3],
}

/// Active client sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SessionLook {
    pub(crate) active: f64,
    pub(crate) wait_for_wal: f64,
    pub(crate) wait_for_standby: f64,
}

/// The statement of all looks of a session.
pub(crate) fn statement(reads_redo: bool, sees_sessions: bool) -> String {
    let redo =
        if reads_redo { "(SELECT redo_lsn - '0/0' FROM pg_control_checkpoint())" } else { "NULL" };
    // Events have had two spellings: WALSync, and WalSync since 17.
    let sessions = if sees_sessions {
        "(SELECT json_build_array(count(*), \
         count(*) FILTER (WHERE lower(wait_event) IN ('walsync', 'walwrite')), \
         count(*) FILTER (WHERE lower(wait_event) = 'syncrep')) FROM pg_stat_activity \
         WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid())"
    } else {
        "NULL"
    };
    format!(
        "SELECT extract(epoch FROM clock_timestamp())::float8 AS now_s, pg_backend_pid() AS pid, \
         (SELECT json_agg(json_build_array(application_name, sync_state, sent_lsn - '0/0', \
         flush_lsn - '0/0', replay_lsn - '0/0', extract(epoch FROM write_lag) * 1000, extract(epoch FROM flush_lag) * 1000, \
         extract(epoch FROM replay_lag) * 1000) ORDER BY pid) FROM pg_stat_replication \
         WHERE state = 'streaming' AND flush_lsn IS NOT NULL AND pid NOT IN (SELECT active_pid \
         FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)) AS standbys, \
         pg_current_wal_flush_lsn() - '0/0' AS flushed, pg_current_wal_insert_lsn() - '0/0' AS inserted, \
         txid_snapshot_xmax(txid_current_snapshot()) AS next_id, {redo} AS redo, \
         {sessions} AS sessions"
    )
}

impl ServerLook {
    /// Looks once.
    pub(crate) fn take(session: &mut WatchSession, statement: &str) -> Result<Self, PredictError> {
        let row = session.query_repeated(statement)?;
        session.check_pid(row.parse("pid")?)?;
        Ok(Self::read(&row)?)
    }

    fn read(row: &Row) -> Result<Self, Error> {
        let sessions = row.value("sessions")?.and_then(parse_sessions);
        Ok(Self {
            now_s: row.parse("now_s")?,
            inserted: row.parse("inserted")?,
            flushed: row.parse("flushed")?,
            next_id: row.parse("next_id")?,
            redo: row.value("redo")?.and_then(|text| text.parse().ok()),
            standbys: row.value("standbys")?.map(parse_standbys).unwrap_or_default(),
            sessions,
        })
    }
}

fn parse_sessions(json: &str) -> Option<SessionLook> {
    let [active, wait_for_wal, wait_for_standby] = serde_json::from_str::<[f64; 3]>(json).ok()?;
    Some(SessionLook { active, wait_for_wal, wait_for_standby })
}

/// The columns of a standby, as the statement has them.
type Columns =
    (Option<String>, Option<String>, u64, u64, Option<u64>, Option<f64>, Option<f64>, Option<f64>);

/// Standbys whose row cannot be read are left out.
fn parse_standbys(json: &str) -> Vec<StandbyLook> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let standby = |row| {
        let (name, sync_state, sent, flushed, replayed, write, flush, replay) =
            serde_json::from_value::<Columns>(row).ok()?;
        let (name, sync_state) = (name.unwrap_or_default(), sync_state.unwrap_or_default());
        let lags_ms = [write, flush, replay];
        Some(StandbyLook { name, sync_state, sent, flushed, replayed, lags_ms })
    };
    let mut standbys: Vec<StandbyLook> = rows.into_iter().filter_map(standby).collect();
    // Standbys share the default name: those of one name are numbered.
    for place in (1..standbys.len()).rev() {
        let (before, rest) = standbys.split_at_mut(place);
        let same = before.iter().filter(|standby| standby.name == rest[0].name).count();
        if same > 0 {
            rest[0].name = format!("{} {}", rest[0].name, same + 1);
        }
    }
    standbys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_read_and_nonsense_is_left_out() {
        let json =
            r#"[["walreceiver", "async", 300, 200, null, 1.5, null, 3], ["x", "sync", null, 1]]"#;
        let expected = StandbyLook {
            name: "walreceiver".to_owned(),
            sync_state: "async".to_owned(),
            sent: 300,
            flushed: 200,
            replayed: None,
            lags_ms: [Some(1.5), None, Some(3.0)],
        };
        assert_eq!(parse_standbys(json), [expected]);
        assert_eq!(parse_standbys("no JSON"), []);
        let three = json.replace(
            "[\"x\", \"sync\", null, 1]",
            r#"["walreceiver", "async", 9, 8, 7, null, null, null],
            ["walreceiver", "async", 7, 6, 5, null, null, null]"#,
        );
        let found = parse_standbys(&three);
        let names: Vec<&str> = found.iter().map(|standby| standby.name.as_str()).collect();
        assert_eq!(names, ["walreceiver", "walreceiver 2", "walreceiver 3"]);
    }

    #[test]
    fn sessions_are_three_counts() {
        let sessions = parse_sessions("[4, 1, 2]").unwrap();
        assert_eq!(sessions, SessionLook { active: 4.0, wait_for_wal: 1.0, wait_for_standby: 2.0 });
        assert_eq!(parse_sessions("[4]"), None);
    }
}
