//! `pgtoll lab balance`, with Pgpool-II, on servers of each version.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use pgtoll_record::BalanceRecord;

use crate::support::{
    Scratch, end_at_line, pgtoll, pgtoll_for_all, program, run, servers, trusted_directory,
    write_program,
};

/// Where Debian has it.
const PGPOOL: &str = "/usr/sbin/pgpool";

/// Whether Pgpool-II is there. Where the tests were set up it must be.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn pgpool() -> bool {
    if Path::new(PGPOOL).is_file() {
        return true;
    }
    // `cargo xtask test` installs it.
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(!is_set_up, "Pgpool-II is not installed");
    eprintln!("not tested: Pgpool-II is not installed");
    false
}

fn lab(scratch: &Scratch) -> Command {
    let mut command = pgtoll();
    command.args(["lab", "balance", "--quick", "--json", "--work-dir"]).arg(scratch.work());
    command
}

#[test]
fn statements_go_where_they_may_and_commits_that_wait_for_standbys_are_read_there() {
    if !pgpool() {
        return;
    }
    let scratch = Scratch::new();
    for server in servers() {
        let name = server.version.to_string();
        let file = scratch.path(&format!("balance-{name}.json"));
        let ran = run(lab(&scratch).arg("--postgres").arg(&server.bin).arg("--record").arg(&file));
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        let record: BalanceRecord = serde_json::from_str(&ran.stdout).unwrap();
        assert!(record.complete, "{name}: {ran:?}");
        check_routes(&record);
        check_readers(&record);
        // Nothing of this run is in it.
        assert!(!ran.stdout.contains(&*scratch.work().to_string_lossy()), "{name}: {}", ran.stdout);
        let written: BalanceRecord =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(written, record);
        let shown = run(pgtoll().arg("report").arg(&file));
        assert!(shown.stdout.contains("kinds of statements were answered"), "{shown:?}");
    }
    scratch.assert_empty();
}

fn check_routes(record: &BalanceRecord) {
    let pick = |kind: &str| record.routes.iter().find(|route| route.kind == kind).unwrap();
    for route in &record.routes {
        assert!(route.holds(), "{route:?}");
        assert_eq!(route.answers.values().sum::<u64>(), route.sessions, "{route:?}");
    }
    for kind in ["SELECT", "mixed case", "COPY TO", "prepared, by the protocol"] {
        assert!(pick(kind).is_balanced(), "{:?}", pick(kind));
    }
    // Its own hint is believed, and a comment in front keeps a statement off the standbys.
    assert!(!pick("the balancer's own hint").is_balanced());
    assert!(!pick("a comment in front").is_balanced());
}

fn check_readers(record: &BalanceRecord) {
    let split = record.split.as_ref().unwrap();
    assert_eq!(split.sessions.get("primary"), None, "{split:?}");
    assert_eq!(split.sessions.values().sum::<u64>(), 60, "{split:?}");
    let stale: Vec<u64> = record.freshness.iter().map(|rung| rung.stale).collect();
    assert_eq!(stale.len(), 5, "{record:?}");
    assert_eq!(stale[4], 0, "both standbys had applied it: {record:?}");
    for rung in &record.freshness {
        assert_eq!((rung.writes, rung.standby_reads), (200, 200), "{rung:?}");
    }
    let throughput = record.throughput.as_ref().unwrap();
    assert_eq!(throughput.direct_per_second.len(), 4);
    assert!(throughput.ratio.lower <= throughput.ratio.estimate, "{throughput:?}");
    let queue = record.queue.as_ref().unwrap();
    assert_eq!((queue.served_at_once, queue.served_later, queue.refused), (0, 8, 0), "{queue:?}");
    let death = record.death.as_ref().unwrap();
    assert!(death.errors_until_down > 0 && death.reads > 800, "{death:?}");
    assert_eq!(death.answers_while_down.keys().collect::<Vec<_>>(), ["standby1"], "{death:?}");
}

#[test]
fn a_balancer_that_is_missing_is_named_with_its_package() {
    if !geteuid().is_root() {
        eprintln!("not tested: only root can hide a balancer");
        return;
    }
    let scratch = Scratch::new();
    let own = pgtoll_for_all(&scratch);
    // Only for what runs here.
    let hide = if pgpool() { "mount --bind /dev/null /usr/sbin/pgpool" } else { "true" };
    let script = format!("{hide} && {} lab balance --quick", own.display());
    let mut command: Command = program("unshare");
    let ran = run(command.args(["--mount", "--propagation", "private", "sh", "-c", &script]));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    let expected = "pgtoll: no pgpool found in PATH and /usr/sbin\nhint: apt install pgpool2\n";
    assert_eq!(ran.stderr, expected);
}

#[test]
fn a_balancer_that_ends_at_its_start_is_told() {
    let scratch = Scratch::new();
    let directory = trusted_directory();
    let fake = directory.path().join("pgpool");
    let script = "#!/bin/sh\necho 'pgpool-II version 4.9.0 (none)'\n[ $# = 1 ] || exit 3\n";
    write_program(&fake, script);
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let ran = run(lab(&scratch).env("PATH", path));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("Pgpool-II ended at its start (exit status 3)"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn however_a_balanced_set_ends_nothing_stays_behind() {
    if !pgpool() {
        return;
    }
    for (signal, reported) in
        [(Signal::SIGINT, "where statements go"), (Signal::SIGKILL, "how sessions are shared out")]
    {
        let scratch = Scratch::new();
        let record = scratch.path("record.json");
        let mut command = lab(&scratch);
        command.arg("--record").arg(&record).stdout(Stdio::null());
        end_at_line(&mut command, &format!("pgtoll: {reported}"), signal);
        scratch.assert_empty();
        let text = fs::read_to_string(&record).unwrap();
        let record: BalanceRecord = serde_json::from_str(&text).unwrap();
        assert!(!record.complete && !record.routes.is_empty(), "{record:?}");
    }
}
