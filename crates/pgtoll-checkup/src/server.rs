//! The server: its settings, and what its views contain.

use std::collections::BTreeMap;

use pgtoll_predict::{PredictError, WatchSession, system_identifier};
use pgtoll_record::{
    CheckedArchive, CheckedDatabase, CheckedServer, CheckedSlot, CommitOverride, SeenRecovery,
    WatchSource,
};
use pgtoll_wire::{Error, Row};

use crate::recoveries::RecoveryScan;

/// Settings that rows depend on, of every version that has them.
const SETTINGS: [&str; 25] = [
    "archive_command",
    "archive_library",
    "archive_mode",
    "archive_timeout",
    "autovacuum",
    "autovacuum_freeze_max_age",
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "data_checksums",
    "data_sync_retry",
    "fsync",
    "full_page_writes",
    "ignore_checksum_failure",
    "logging_collector",
    "max_slot_wal_keep_size",
    "max_wal_size",
    "max_wal_senders",
    "shared_buffers",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_counts",
    "wal_level",
    "wal_log_hints",
    "wal_sync_method",
    "wal_writer_delay",
];

/// The last recovery in the server's log: in the file that it started with, and in the two newest, of which the
/// last megabytes are read.
const RECOVERIES: &str = "SELECT line FROM (SELECT name, size, row_number() OVER (ORDER BY modification) AS oldest, \
     row_number() OVER (ORDER BY modification DESC) AS newest FROM pg_ls_logdir() \
     WHERE modification >= date_trunc('second', pg_postmaster_start_time())) AS file \
     CROSS JOIN LATERAL unnest(string_to_array(encode(pg_read_binary_file(current_setting('log_directory') \
     || '/' || name, greatest(size - 4194304, 0), 4194304, true), 'escape'), E'\\n')) WITH ORDINALITY AS part (line, number) \
     WHERE (oldest = 1 OR newest <= 2) AND line ~ ";

/// The source of standbys' positions.
pub(crate) const STANDBYS_SOURCE: &str = "other sessions and standbys";

/// The role's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Other sessions' state and standbys' positions.
    pub(crate) monitors: bool,
    /// The redo point.
    pub(crate) reads_redo: bool,
}

/// The part of a server that stays from look to look.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub(crate) server: CheckedServer,
    pub(crate) rights: Rights,
    pub(crate) sources: Vec<WatchSource>,
    /// The last recovery in the server's own log.
    pub(crate) recovery: Option<SeenRecovery>,
    /// The cluster's identifier, in decimal; `None` where the role may not read it.
    pub(crate) system_identifier: Option<String>,
}

/// Reads them. A standby is refused.
pub(crate) fn read(session: &mut WatchSession, host: String) -> Result<ServerFacts, PredictError> {
    let row = session.query_one(
        "SELECT current_user AS role, quote_ident(current_user) AS quoted, \
         pg_is_in_recovery() AS standby, current_setting('is_superuser') = 'on' \
         OR pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS monitors, \
         has_function_privilege('pg_control_checkpoint()', 'EXECUTE') AS reads_redo",
    )?;
    if row.text("standby")? == "t" {
        return Err(PredictError::Standby);
    }
    let rights =
        Rights { monitors: is_true(&row, "monitors")?, reads_redo: is_true(&row, "reads_redo")? };
    let provider = pgtoll_predict::provider(session)?;
    let settings = settings(session)?;
    let archives = settings.get("archive_mode").is_some_and(|mode| mode != "off");
    let server = CheckedServer {
        host,
        version: session.parameter("server_version").unwrap_or_default().to_owned(),
        provider: provider.map(|provider| provider.facts().name.to_owned()),
        role: row.text("role")?.to_owned(),
        data_bytes: data_bytes(session),
        commit_overrides: commit_overrides(session)?,
        databases: databases(session)?,
        slots: slots(session)?,
        archive: if archives { Some(archive(session)?) } else { None },
        settings,
    };
    let recovery = recovery(session);
    let sources = sources(&server, rights, recovery.is_ok(), row.text("quoted")?);
    let system_identifier = system_identifier(session);
    Ok(ServerFacts {
        server,
        rights,
        sources,
        recovery: recovery.ok().flatten(),
        system_identifier,
    })
}

fn is_true(row: &Row, column: &str) -> Result<bool, Error> {
    Ok(row.text(column)? == "t")
}

/// Fails where the role may not read the log, or the server writes none of its own.
fn recovery(session: &mut WatchSession) -> Result<Option<SeenRecovery>, Error> {
    let sql = format!("{RECOVERIES} '{}' ORDER BY oldest, number", crate::recoveries::LINES);
    let mut scan = RecoveryScan::default();
    for row in session.query(&sql)? {
        scan.take(row.text("line")?);
    }
    Ok(scan.finish())
}

fn settings(session: &mut WatchSession) -> Result<BTreeMap<String, String>, Error> {
    let names = SETTINGS.map(|name| format!("'{name}'")).join(",");
    let sql = format!(
        "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name IN ({names})"
    );
    let pair = |row: &Row| Ok((row.text("name")?.to_owned(), row.text("value")?.to_owned()));
    session.query(&sql)?.iter().map(pair).collect()
}

/// A role may not be allowed to connect to all of them.
fn data_bytes(session: &mut WatchSession) -> Option<u64> {
    let sql = "SELECT sum(pg_database_size(oid))::bigint AS bytes FROM pg_database";
    session.query_one(sql).ok()?.parse("bytes").ok()
}

fn commit_overrides(session: &mut WatchSession) -> Result<Vec<CommitOverride>, Error> {
    let rows = session.query(
        "SELECT d.datname AS database, r.rolname AS role, \
         substr(c.setting, length('synchronous_commit=') + 1) AS value \
         FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c (setting) \
         LEFT JOIN pg_database d ON d.oid = s.setdatabase LEFT JOIN pg_roles r ON r.oid = s.setrole \
         WHERE c.setting LIKE 'synchronous\\_commit=%' ORDER BY 1, 2",
    )?;
    let found = |row: &Row| {
        Ok(CommitOverride {
            database: row.value("database")?.map(str::to_owned),
            role: row.value("role")?.map(str::to_owned),
            value: row.text("value")?.to_owned(),
        })
    };
    rows.iter().map(found).collect()
}

fn databases(session: &mut WatchSession) -> Result<Vec<CheckedDatabase>, Error> {
    let rows = session.query(
        "SELECT d.datname AS name, age(d.datfrozenxid) AS age, mxid_age(d.datminmxid) AS multi_age, \
         s.checksum_failures AS failures, s.checksum_last_failure::text AS last_failure \
         FROM pg_database d LEFT JOIN pg_stat_database s ON s.datid = d.oid ORDER BY d.datname",
    )?;
    let found = |row: &Row| {
        Ok(CheckedDatabase {
            name: row.text("name")?.to_owned(),
            transaction_age: row.parse("age")?,
            multixact_age: row.parse("multi_age")?,
            checksum_failures: row.value("failures")?.and_then(|text| text.parse().ok()),
            last_checksum_failure: row.value("last_failure")?.map(str::to_owned),
        })
    };
    rows.iter().map(found).collect()
}

fn slots(session: &mut WatchSession) -> Result<Vec<CheckedSlot>, Error> {
    let rows = session.query(
        "SELECT slot_name AS name, active, wal_status, \
         greatest(pg_current_wal_insert_lsn() - restart_lsn, 0)::bigint AS retained \
         FROM pg_replication_slots WHERE NOT temporary ORDER BY slot_name",
    )?;
    let found = |row: &Row| {
        Ok(CheckedSlot {
            name: row.text("name")?.to_owned(),
            active: is_true(row, "active")?,
            retained_bytes: row.value("retained")?.and_then(|text| text.parse().ok()),
            wal_status: row.value("wal_status")?.map(str::to_owned),
        })
    };
    rows.iter().map(found).collect()
}

fn archive(session: &mut WatchSession) -> Result<CheckedArchive, Error> {
    let row = session.query_one(
        "SELECT extract(epoch FROM clock_timestamp() - last_archived_time)::float8 AS archived, \
         extract(epoch FROM clock_timestamp() - last_failed_time)::float8 AS failed, \
         failed_count AS failures FROM pg_stat_archiver",
    )?;
    let age = |column| Ok::<_, Error>(row.value(column)?.and_then(|text| text.parse().ok()));
    Ok(CheckedArchive {
        archived_age_s: age("archived")?,
        failed_age_s: age("failed")?,
        failures: row.parse("failures")?,
    })
}

fn sources(
    server: &CheckedServer,
    rights: Rights,
    sees_log: bool,
    quoted: &str,
) -> Vec<WatchSource> {
    let source = |name: &str, available: bool, gives: &str, remedy: String| WatchSource {
        name: name.to_owned(),
        available,
        gives: gives.to_owned(),
        remedy: (!available).then_some(remedy),
    };
    let monitor = || format!("GRANT pg_monitor TO {quoted};");
    // A log that goes to another program cannot be read through the server.
    let collects = server.settings.get("logging_collector").is_some_and(|value| value == "on");
    let read_log = format!(
        "{} GRANT EXECUTE ON FUNCTION pg_read_binary_file(text, bigint, bigint, boolean) TO {quoted}; or ",
        monitor()
    );
    vec![
        source(
            STANDBYS_SOURCE,
            rights.monitors,
            "standbys' positions, waits for WAL, the predicted costs of settings",
            monitor(),
        ),
        source(
            "redo point",
            rights.reads_redo,
            "time to recover from a crash",
            format!("GRANT EXECUTE ON FUNCTION pg_control_checkpoint() TO {quoted};"),
        ),
        source(
            "size of all databases",
            server.data_bytes.is_some(),
            "time to copy the cluster",
            monitor(),
        ),
        source(
            "server log",
            sees_log,
            "how fast WAL was replayed in the last recovery",
            format!("{}pgtoll checkup --log FILE", if collects { &read_log } else { "" }),
        ),
    ]
}
