//! Roles and commands: figures are there or missing as the book's table says, on each version.

use std::fmt::Write as _;
use std::thread;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::WATCHED_WAL;
use serde_json::Value;

use crate::predict::dsn;
use crate::support::{Ran, Scratch, all_servers, pgtoll, run};

/// The statements that make a role, and its name in the book's table.
const ROLES: [(&str, &str, &str); 7] = [
    ("connects", "nothing but CONNECT", ""),
    ("reads", "`pg_read_all_data` (from 14 on)", "GRANT pg_read_all_data TO reads"),
    ("stats", "`pg_read_all_stats`", "GRANT pg_read_all_stats TO stats"),
    ("monitor", "`pg_monitor`", "GRANT pg_monitor TO monitor"),
    ("streams", "`REPLICATION`", "ALTER ROLE streams REPLICATION"),
    (
        "watcher",
        "`pg_monitor` and `REPLICATION`",
        "ALTER ROLE watcher REPLICATION; GRANT pg_monitor TO watcher",
    ),
    ("super", "superuser", "ALTER ROLE super SUPERUSER"),
];

/// The role of a provider's administrator: no superuser, and functions are revoked as providers do.
const ADMINISTRATOR: (&str, &str) = ("admin", "a provider's administrator, here of Amazon RDS");
const AS_A_PROVIDER: &str = "CREATE ROLE admin LOGIN CREATEROLE CREATEDB; GRANT pg_monitor TO admin; \
     REVOKE EXECUTE ON FUNCTION pg_ls_logdir() FROM pg_monitor; \
     REVOKE EXECUTE ON FUNCTION pg_current_logfile() FROM pg_monitor; \
     REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";

/// Commands over a connection, as the book's table has them.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("`predict`", &["predict", "--for", "1s", "--json"]),
    ("`predict --wal stream`", &["predict", "--for", "1s", "--wal", "stream", "--json"]),
    ("`checkup`", &["checkup", "--for", "1s", "--json"]),
    ("`wal stats --dsn`", &["wal", "stats", "--for", "1s", "--json"]),
    ("`lab judge`", &["lab", "judge", "--yes", "--for", "1s", "--json"]),
];

const SETTINGS: &[(&str, &str)] =
    &[("logging_collector", "on"), ("shared_preload_libraries", "pg_stat_statements")];

/// By role, the cell of each command.
const TABLE: [[&str; 5]; 8] = [
    [MONITOR, MONITOR, BLIND, STREAM, CREATE],
    [MONITOR, MONITOR, BLIND, STREAM, CREATE],
    [NO_PAGES, ALTER, NO_LOG, STREAM, CREATE],
    [NO_PAGES, ALTER, NO_LOG, STREAM, CREATE],
    [MONITOR, MONITOR, BLIND, "all", CREATE],
    [NO_PAGES, NO_PAGES, NO_LOG, "all", CREATE],
    ["all", "all", "all", "all", "all"],
    [NO_PAGES, PROVIDER, NO_LOG, STREAM, CREATE],
];
const MONITOR: &str = "no: GRANT pg_monitor TO NAME;";
const ALTER: &str =
    "no: ALTER ROLE NAME REPLICATION; and in pg_hba.conf the line local replication NAME peer";
const STREAM: &str = "no: ALTER ROLE … REPLICATION; managed servers send their WAL to no client";
const CREATE: &str = "no: GRANT CREATE ON DATABASE … TO the role, or name another database";
const PROVIDER: &str = "no: Amazon RDS sends its WAL to no client: the bounds are what can be had";
const BLIND: &str = "without other sessions and standbys, server log";
const NO_PAGES: &str = "without pageinspect";
const NO_LOG: &str = "without server log";

/// The book's page.
pub(crate) fn page() -> String {
    let mut page = String::new();
    let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(page, "| role | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(names.len()));
    let roles = ROLES.iter().map(|(_, role, _)| *role).chain([ADMINISTRATOR.1]);
    for (role, cells) in roles.zip(TABLE) {
        let _ = writeln!(page, "| {role} | {} |", cells.join(" | "));
    }
    page
}

/// The figures of a command, in the table's words.
fn cell(ran: &Ran, role: &str) -> String {
    let Ok(json) = serde_json::from_str::<Value>(&ran.stdout) else {
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let hint = ran.stderr.lines().find_map(|line| line.strip_prefix("hint: "));
        let hint = hint.unwrap_or_else(|| panic!("no hint: {ran:?}"));
        return format!("no: {}", hint.replace(role, "NAME"));
    };
    let sources = json["watch"]["sources"].as_array().or(json["sources"].as_array());
    let missing = sources.into_iter().flatten().filter(|source| source["available"] == false);
    // Without --wal stream no role has it.
    let missing = missing.filter_map(|source| source["name"].as_str());
    let missing: Vec<&str> = missing.filter(|name| *name != WATCHED_WAL).collect();
    if missing.is_empty() { "all".to_owned() } else { format!("without {}", missing.join(", ")) }
}

#[test]
fn roles_get_the_figures_of_the_books_table() {
    let scratch = Scratch::on_disk();
    thread::scope(|scope| {
        for server in all_servers() {
            let scratch = &scratch;
            scope.spawn(move || every_role(scratch, &server));
        }
    });
}

fn every_role(scratch: &Scratch, server: &Installation) {
    let mut guard = scratch.guard();
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(&mut guard, server, &name, true).unwrap();
    configure(&mut guard, &cluster, SETTINGS);
    cluster.start(&mut guard).unwrap();
    let setup = "CREATE EXTENSION pg_buffercache; CREATE EXTENSION pageinspect; CREATE EXTENSION pg_stat_statements; \
                 REVOKE CREATE ON SCHEMA public FROM PUBLIC";
    cluster.run_psql(&mut guard, "postgres", setup).unwrap();
    for (at, (role, _, grants)) in ROLES.into_iter().enumerate() {
        if role == "reads" && server.version.major() < 14 {
            continue;
        }
        let create = format!("CREATE ROLE {role} LOGIN; {grants}");
        cluster.run_psql(&mut guard, "postgres", &create).unwrap();
        check(server, &cluster, role, &TABLE[at]);
    }
    cluster.run_psql(&mut guard, "postgres", AS_A_PROVIDER).unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let provider = [("rds.extensions", "address_standardizer")];
    configure(&mut guard, &cluster, &[SETTINGS, &provider].concat());
    cluster.start(&mut guard).unwrap();
    check(server, &cluster, ADMINISTRATOR.0, &TABLE[ROLES.len()]);
    let aurora = "CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$SELECT '17.4'$$";
    cluster.run_psql(&mut guard, "postgres", aurora).unwrap();
    for command in ["predict", "checkup"] {
        let ran = run(pgtoll().args([command, "--dsn", &dsn(&cluster, "super"), "--for", "1s"]));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let reason = "Amazon Aurora keeps pages and WAL in storage of its own";
        assert!(ran.stderr.contains(reason) && ran.stderr.contains("\nhint: "), "{ran:?}");
    }
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
}

fn configure(guard: &mut Guard, cluster: &Cluster, settings: &[(&str, &str)]) {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    cluster.configure(guard, &settings.collect()).unwrap();
}

fn check(server: &Installation, cluster: &Cluster, role: &str, expected: &[&str]) {
    for ((name, arguments), expected) in COMMANDS.iter().zip(expected) {
        let ran = run(pgtoll().args(*arguments).args(["--dsn", &dsn(cluster, role)]));
        let version = &server.version;
        assert_eq!(cell(&ran, role), *expected, "{version}, {role}: {name}");
    }
}
