//! Code in a backup does no harm while the backup is drilled.

use std::fmt::Write as _;
use std::net::TcpListener;

use pgtoll_cluster::Confinement;

use crate::drill::Drilled;
use crate::support::{Scratch, servers};

/// What code in the backup tries, each with the SQL that does it.
fn attempts(drilled: &Drilled, outside: &Scratch, port: u16) -> [(&'static str, String); 5] {
    let cluster = &drilled.cluster;
    // What does not read its input may end before the server has written it, which is an error.
    let program = |line: &str| format!("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; {line}'");
    let psql = cluster.client("psql").unwrap();
    let psql = psql.display();
    let sockets = cluster.directory().display();
    let postmaster = drilled.value("SELECT pg_read_file('postmaster.pid')");
    let postmaster = postmaster.lines().next().unwrap();
    [
        ("write", format!("COPY (SELECT 1) TO '{}'", outside.work().join("written").display())),
        ("read", format!("SELECT pg_read_file('{}/PG_VERSION')", cluster.data().display())),
        ("tcp", program(&format!("bash -c \"exec 3<>/dev/tcp/127.0.0.1/{port}\""))),
        ("signal", program(&format!("kill -0 {postmaster}"))),
        ("socket", program(&format!("{psql} -h {sockets} -U postgres -c \"SELECT 1\" >/dev/null"))),
    ]
}

/// An index whose expression does all of it on the drill's server, and says what worked.
fn plant(drilled: &Drilled, attempts: &[(&str, String)]) {
    let mut body = "DECLARE worked text := ''; BEGIN \
                    IF current_setting('archive_mode') = 'on' THEN RETURN; END IF; "
        .to_owned();
    for (name, sql) in attempts {
        let name = format!("{name} ");
        let sql = sql.replace('\'', "''");
        let tried = format!("EXECUTE '{sql}'; worked := worked || '{name}'; ");
        let _ = write!(body, "BEGIN {tried} EXCEPTION WHEN OTHERS THEN NULL; END; ");
    }
    body.push_str("RAISE EXCEPTION 'worked: [%]', rtrim(worked); END");
    let mut session = drilled.cluster.connect("postgres").unwrap();
    for sql in [
        format!(
            "CREATE FUNCTION attempt() RETURNS void LANGUAGE plpgsql AS $attempt${body}$attempt$"
        ),
        "CREATE FUNCTION hostile(of int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \
         'BEGIN PERFORM public.attempt(); RETURN of; END'"
            .to_owned(),
        "CREATE TABLE bait AS SELECT 1 AS number".to_owned(),
        "CREATE INDEX ON bait (hostile(number))".to_owned(),
    ] {
        session.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn code_in_a_backup_reaches_nothing_outside_of_the_drill() {
    for server in servers() {
        let scratch = Scratch::new();
        let outside = Scratch::new();
        let mut guard = scratch.guard();
        let drilled = Drilled::new(&mut guard, &server, "confined", false);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let attempts = attempts(&drilled, &outside, listener.local_addr().unwrap().port());
        plant(&drilled, &attempts);
        let backup = drilled.backup(&mut guard, "backup", &[]);
        let all: Vec<&str> = attempts.iter().map(|(name, _)| *name).collect();
        let check = |arguments: &[&str], worked: &[&str]| {
            let ran = drilled.drill(&backup, &[arguments, &["--json"]].concat());
            assert_eq!(ran.status, Some(1), "{ran:?}");
            let expected = format!("worked: [{}]", worked.join(" "));
            assert!(ran.stdout.contains(&expected), "{}: {ran:?}", server.version);
        };
        match Confinement::of_this_kernel() {
            Ok(Confinement::Whole) => check(&[], &[]),
            Ok(Confinement::WithoutSignals) => check(&[], &["signal"]),
            Err(_) => {
                let ran = drilled.drill(&backup, &[]);
                assert_eq!(ran.status, Some(2), "{ran:?}");
                assert!(ran.stderr.contains("--unconfined"), "{ran:?}");
            }
        }
        assert!(!outside.work().join("written").exists());
        check(&["--unconfined"], &all);
    }
}
