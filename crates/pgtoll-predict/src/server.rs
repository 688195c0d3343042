//! The watched server: its settings, and the rights of the role.

use std::collections::BTreeMap;

use pgtoll_format::{AURORA_FUNCTION, MajorFacts, Provider, ProviderFacts, ServerVersion};
use pgtoll_observe::{cores, cpu_model};
use pgtoll_record::{WATCHED_PAGES, WATCHED_WAL, WatchSource, WatchedServer};
use pgtoll_wire::Error;

use crate::PredictError;
use crate::census::extension_schema;
use crate::session::WatchSession;

/// Settings that answers depend on, of every version that has them.
const SETTINGS: [&str; 14] = [
    "archive_mode",
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "data_checksums",
    "data_directory",
    "full_page_writes",
    "io_method",
    "io_workers",
    "max_wal_size",
    "shared_buffers",
    "track_io_timing",
    "wal_compression",
    "wal_level",
    "wal_log_hints",
];

/// The rights to read a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Privileges {
    /// The schema of each extension that is there and readable.
    pub(crate) buffercache: Option<String>,
    pub(crate) inspect: Option<String>,
    pub(crate) statements: Option<String>,
    /// The role may stream WAL, as far as the server's catalogs say.
    pub(crate) streams: bool,
    /// The remedy.
    pub(crate) stream_remedy: String,
    pub(crate) sources: Vec<WatchSource>,
}

/// Looks at the server, and refuses those that cannot be watched.
pub(crate) fn identify(
    session: &mut WatchSession,
) -> Result<(WatchedServer, &'static MajorFacts, Privileges), PredictError> {
    let version = session.parameter("server_version").unwrap_or_default().to_owned();
    let facts = version.parse::<ServerVersion>()?.facts()?;
    let row = session.query_one(
        "SELECT version() AS version, pg_is_in_recovery() AS standby, \
         pg_postmaster_start_time()::text AS started, current_user AS role, \
         quote_ident(current_user) AS quoted, current_setting('is_superuser') AS super, \
         pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS monitor, \
         current_setting('block_size') AS block, \
         pg_size_bytes(current_setting('wal_segment_size')) AS segment, \
         has_function_privilege('pg_control_checkpoint()', 'EXECUTE') AS reads_redo",
    )?;
    if row.text("monitor")? != "t" && row.text("super")? != "on" {
        let role = row.text("role")?.to_owned();
        let quoted = row.text("quoted")?.to_owned();
        return Err(PredictError::NoMonitor { quoted, role });
    }
    if row.text("standby")? == "t" {
        return Err(PredictError::Standby);
    }
    let provider = provider(session)?;
    if row.text("reads_redo")? != "t" {
        let role = row.text("role")?.to_owned();
        let quoted = row.text("quoted")?.to_owned();
        return Err(PredictError::NoFunction { function: "pg_control_checkpoint", quoted, role });
    }
    let names = SETTINGS.map(|name| format!("'{name}'")).join(",");
    let settings: BTreeMap<String, String> = session
        .query(&format!(
            "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name IN ({names})"
        ))?
        .iter()
        .map(|row| Ok((row.text("name")?.to_owned(), row.text("value")?.to_owned())))
        .collect::<Result<_, Error>>()?;
    let is_super = row.text("super")? == "on";
    let local = session.postmaster().is_some();
    let server = WatchedServer {
        version,
        version_text: row.text("version")?.to_owned(),
        provider: provider.map(|provider| provider.facts().name.to_owned()),
        system_identifier: system_identifier(session).unwrap_or_default(),
        block_bytes: row.parse("block")?,
        segment_bytes: row.parse("segment")?,
        data_bytes: data_bytes(session),
        standbys: session.query_one(STANDBYS)?.parse("n")?,
        archives: settings.get("archive_mode").is_some_and(|mode| mode != "off"),
        local,
        cores: local.then(|| u32::try_from(cores()).unwrap_or(u32::MAX)),
        cpu: local.then(cpu_model),
        started: row.text("started")?.to_owned(),
        settings,
    };
    let privileges = privileges(session, is_super, provider)?;
    Ok((server, facts, privileges))
}

/// Whoever keeps what it is sent says up to where; base backups and readers like pgtoll do not.
const STANDBYS: &str = "SELECT count(*) AS n FROM pg_stat_replication WHERE flush_lsn IS NOT NULL";

/// A role may not be allowed to connect to all of them.
fn data_bytes(session: &mut WatchSession) -> Option<u64> {
    let sql = "SELECT sum(pg_database_size(oid))::bigint AS bytes FROM pg_database";
    session.query_one(sql).ok()?.parse("bytes").ok()
}

/// The cluster's identifier, in decimal; `None` where the role may not read it.
pub fn system_identifier(session: &mut WatchSession) -> Option<String> {
    let sql = "SELECT system_identifier::text AS identifier FROM pg_control_system()";
    session.query_one(sql).ok()?.text("identifier").ok().map(str::to_owned)
}

/// The provider of a managed server. One whose storage is its own is refused.
pub fn provider(session: &mut WatchSession) -> Result<Option<Provider>, PredictError> {
    let marks = Provider::ALL.map(|provider| {
        let ProviderFacts { prefix, setting, .. } = provider.facts();
        format!("('{prefix}', '{setting}')")
    });
    let rows = session.query(&format!(
        "SELECT prefix, (SELECT count(*) FROM pg_proc WHERE proname = '{AURORA_FUNCTION}') AS functions \
         FROM (VALUES {}) AS mark (prefix, name) WHERE current_setting(name, true) IS NOT NULL \
         OR EXISTS (SELECT FROM pg_settings s WHERE starts_with(s.name, prefix))",
        marks.join(",")
    ))?;
    let prefixes = rows.iter().map(|row| row.text("prefix")).collect::<Result<Vec<_>, Error>>()?;
    let functions = rows.first().map_or(Ok("0"), |row| row.text("functions"))?;
    let provider = Provider::detect(prefixes, functions != "0");
    let facts = provider.map(Provider::facts).filter(|facts| facts.has_own_storage);
    facts.map_or(Ok(provider), |facts| Err(PredictError::OwnStorage { provider: facts.name }))
}

fn privileges(
    session: &mut WatchSession,
    is_super: bool,
    provider: Option<Provider>,
) -> Result<Privileges, Error> {
    let buffercache = extension_schema(session, "pg_buffercache")?;
    let inspect = extension_schema(session, "pageinspect")?;
    let statements = match extension_schema(session, "pg_stat_statements")? {
        // It may be there without its library.
        Some(schema) => session
            .query(&format!("SELECT 1 FROM {schema}.pg_stat_statements LIMIT 1"))
            .is_ok()
            .then_some(schema),
        None => None,
    };
    let (streams, stream_remedy) = match provider {
        Some(provider) => {
            let name = provider.facts().name;
            (false, format!("{name} sends its WAL to no client: the bounds are what can be had"))
        }
        None => streaming(session, is_super)?,
    };
    let create = |name: &str| Some(format!("CREATE EXTENSION {name};"));
    let inspects = inspect.is_some() && is_super;
    let sources = vec![
        WatchSource {
            name: "statistics views".to_owned(),
            available: true,
            gives: "WAL, blocks read and written: CPU, and today's WAL".to_owned(),
            remedy: None,
        },
        WatchSource {
            name: "pg_buffercache".to_owned(),
            available: buffercache.is_some(),
            gives: "which buffers are dirty".to_owned(),
            remedy: create("pg_buffercache").filter(|_| buffercache.is_none()),
        },
        WatchSource {
            name: WATCHED_PAGES.to_owned(),
            available: inspects,
            gives: "LSNs of dirty pages: the pages that checksums would log, counted (E2+)"
                .to_owned(),
            remedy: match provider {
                _ if is_super => create("pageinspect").filter(|_| inspect.is_none()),
                Some(provider) => Some(format!(
                    "only superusers may read pages, and {} makes none: the bounds are what can be had",
                    provider.facts().name
                )),
                None => Some(
                    "only superusers may read pages: watch as one, with CREATE EXTENSION pageinspect;"
                        .to_owned(),
                ),
            },
        },
        WatchSource {
            name: "pg_stat_statements".to_owned(),
            available: statements.is_some(),
            gives: "pages that SELECTs dirty: an estimate without superuser (E1')".to_owned(),
            remedy: create("pg_stat_statements").filter(|_| statements.is_none()),
        },
        WatchSource {
            name: WATCHED_WAL.to_owned(),
            available: false,
            gives: "what would become of it under other settings: WAL without hints, other \
                    checkpoints, compression"
                .to_owned(),
            remedy: Some(match provider {
                Some(_) => stream_remedy.clone(),
                None if streams => "--wal stream".to_owned(),
                None => format!("{stream_remedy}; then --wal stream"),
            }),
        },
    ];
    let buffercache = buffercache.filter(|_| inspects);
    let inspect = inspect.filter(|_| inspects);
    Ok(Privileges { buffercache, inspect, statements, streams, stream_remedy, sources })
}

/// Whether the role may stream WAL, and what it takes where the server refuses: the attribute, and a
/// line of `pg_hba.conf`, where `all` does not include replication.
fn streaming(session: &mut WatchSession, is_super: bool) -> Result<(bool, String), Error> {
    let row = session.query_one(
        "SELECT quote_ident(session_user) AS quoted, inet_client_addr()::text AS address, \
         coalesce((SELECT rolreplication FROM pg_roles WHERE rolname = session_user), false) \
         AS replication",
    )?;
    let quoted = row.text("quoted")?;
    let line = match row.value("address")? {
        Some(address) => format!("host replication {quoted} {address} scram-sha-256"),
        None => format!("local replication {quoted} peer"),
    };
    let streams = is_super || row.text("replication")? == "t";
    let line = format!("in pg_hba.conf the line {line}");
    let alter = format!("ALTER ROLE {quoted} REPLICATION; and ");
    Ok((streams, if streams { line } else { alter + &line }))
}
