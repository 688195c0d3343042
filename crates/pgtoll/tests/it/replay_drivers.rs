//! Drivers of Python through `pgtoll replay record`: what they sent, in whatever form, ends on another copy as
//! it did where it was captured.

use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_record::{LogExamination, ReplayRecord};

use crate::replay::check_clean;
use crate::replay_record::{Recording, dsn};
use crate::support::{Scratch, pgtoll, program, run, running, servers};

/// Where the drivers are, if they were fetched.
fn drivers() -> Option<PathBuf> {
    std::env::var_os("PGTOLL_TEST_DRIVERS").map(PathBuf::from)
}

const DRIVERS: [&str; 4] = ["psycopg2", "psycopg", "asyncpg", "pg8000"];

const SCHEMA: [&str; 5] = [
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE pair AS (number integer, mood mood)",
    "CREATE DOMAIN positive AS integer CHECK (value > 0)",
    "CREATE DOMAIN checked AS pair CHECK ((value).number > 0)",
    "CREATE TABLE typed (id integer PRIMARY KEY, i2 smallint, i4 integer, i8 bigint, f4 real,
        f8 double precision, n numeric, b boolean, t text, v varchar(10), bytes bytea, d date, ti time,
        tz timetz, ts timestamp, tstz timestamptz, iv interval, u uuid, ip inet, net cidr, ai integer[],
        aai integer[], at text[], auuid uuid[], m mood, am mood[], p pair, ap pair[], dom positive,
        chk checked, r int4range, mr int4range[], pt point, bx box, bits varbit, j json, jb jsonb)",
];

/// Servers' text of everything in the table.
fn content(cluster: &Cluster, database: &str) -> Vec<String> {
    let mut session = cluster.connect(database).unwrap();
    let rows = session.query("SELECT typed::text AS row FROM typed ORDER BY id").unwrap();
    rows.iter().map(|row| row.text("row").unwrap().to_owned()).collect()
}

#[test]
fn what_drivers_of_python_sent_ends_the_same_on_a_logical_copy() {
    let Some(drivers) = drivers() else { return };
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        // Types have other OIDs in the copy, since the server counts them up over all databases.
        for driver in DRIVERS {
            for database in [driver.to_owned(), format!("{driver}_copy")] {
                cluster
                    .run_psql(&mut guard, "postgres", &format!("CREATE DATABASE {database}"))
                    .unwrap();
                for statement in SCHEMA {
                    cluster.run_psql(&mut guard, &database, statement).unwrap();
                }
            }
        }
        let recorded = record(&scratch, &cluster, &drivers);
        let maps: Vec<String> = DRIVERS
            .iter()
            .flat_map(|driver| ["--map".to_owned(), format!("{driver}={driver}_copy")])
            .collect();
        let replay = || {
            run(pgtoll()
                .args(["replay", "run", "--speed", "max", "--json", "--dsn", &dsn(&cluster)])
                .args(&maps)
                .arg(&recorded))
        };
        // A setting with which a captured session began confirms nothing.
        let others = DRIVERS.iter().filter(|driver| **driver != "psycopg");
        let last = ["psycopg"];
        for driver in others.chain(&last) {
            if *driver == "psycopg" {
                let refused = replay();
                let message = "database \"psycopg_copy\" is not confirmed as disposable";
                assert!(
                    refused.status == Some(2) && refused.stderr.contains(message),
                    "{refused:?}"
                );
            }
            let confirm = format!("ALTER DATABASE {driver}_copy SET pgtoll.disposable = on");
            cluster.run_psql(&mut guard, "postgres", &confirm).unwrap();
        }
        let ran = replay();
        let replayed: ReplayRecord =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        check_clean(&ran, &replayed);
        for driver in DRIVERS {
            let expected = content(&cluster, driver);
            assert!(expected.len() >= 3, "{driver}: {expected:?}");
            assert_eq!(content(&cluster, &format!("{driver}_copy")), expected, "{driver}");
        }
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// Lets all drivers work through one capture, and returns its plan.
fn record(scratch: &Scratch, cluster: &Cluster, drivers: &Path) -> PathBuf {
    let plan = scratch.path(&format!("{}.plan", cluster.name()));
    let recording = Recording::start(scratch, cluster, &plan);
    let (socket, _) = recording.address.rsplit_once('/').unwrap();
    for driver in DRIVERS {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/replay_drivers.py");
        let ran = run(program("python3")
            .args([script, driver, socket, driver])
            .env("PYTHONPATH", drivers)
            // Nothing is written beside the script.
            .env("PYTHONDONTWRITEBYTECODE", "1"));
        assert_eq!(ran.status, Some(0), "{driver}: {ran:?}");
    }
    let recorded = recording.end();
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    let examined: LogExamination = serde_json::from_str(&recorded.stdout).unwrap();
    let counts = examined.counts;
    assert_eq!((counts.without_parameters, counts.copy_in, counts.failed), (0, 0, 0), "{counts:?}");
    assert!(counts.extended > 30, "{counts:?}");
    plan
}
