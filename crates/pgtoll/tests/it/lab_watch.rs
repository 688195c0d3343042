//! `pgtoll lab watch`: a page that the primary refuses, and the same page of its standby.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{PageCondition, WatchRecord};

use crate::support::{PATIENCE, Scratch, ends_within, pgtoll, run, server, servers};

/// A primary and a standby with a table of some pages, none of which is in memory.
struct Pair {
    guard: Guard,
    primary: Cluster,
    standby: Cluster,
    /// The table's file below the data directories.
    file: String,
}

const BLOCK: u64 = 10;
const BLOCK_BYTES: u64 = 8192;

impl Pair {
    fn start(scratch: &Scratch, server: &Installation, damaged: &[&str]) -> Self {
        let mut guard = scratch.guard();
        let primary = Cluster::init(&mut guard, server, "primary", true).unwrap();
        primary.start(&mut guard).unwrap();
        let mut connection = primary.connect("postgres").unwrap();
        for sql in [
            "CREATE TABLE orders (id int, text text) WITH (autovacuum_enabled = off)",
            "INSERT INTO orders SELECT i, md5(i::text) FROM generate_series(1, 5000) i",
            "VACUUM (FREEZE) orders",
        ] {
            connection.execute(sql).unwrap();
        }
        let row = connection.query_one("SELECT pg_relation_filepath('orders') AS path").unwrap();
        let file = row.text("path").unwrap().to_owned();
        connection.close();
        let standby = primary.standby(&mut guard, "standby", primary.directory()).unwrap();
        let mut pair = Self { guard, primary, standby, file };
        pair.primary.stop(&mut pair.guard, StopMode::Fast).unwrap();
        for cluster in [&pair.primary, &pair.standby] {
            if damaged.contains(&cluster.name()) {
                damage(&cluster.data().join(&pair.file));
            }
        }
        pair.primary.start(&mut pair.guard).unwrap();
        pair.standby.start(&mut pair.guard).unwrap();
        pair
    }

    fn watch(&self) -> Command {
        let mut command = pgtoll();
        command.args(["lab", "watch", "--every", "100ms", "--dsn", &dsn(&self.primary)]);
        command
    }

    fn with_standby_and_log(&self) -> Command {
        let mut command = self.watch();
        command.args(["--standby", &dsn(&self.standby), "--log"]).arg(self.primary.log());
        command
    }

    /// A reader meets the damage.
    fn read(&self) {
        let mut connection = self.primary.connect("postgres").unwrap();
        let error = connection.query("SELECT count(text) FROM orders").unwrap_err();
        assert!(error.to_string().contains("invalid page in block 10"), "{error}");
    }

    fn end(mut self) {
        self.standby.stop(&mut self.guard, StopMode::Immediate).unwrap();
        self.primary.stop(&mut self.guard, StopMode::Immediate).unwrap();
        self.guard.finish().unwrap();
    }
}

fn dsn(cluster: &Cluster) -> String {
    format!("host={} user=postgres dbname=postgres", cluster.directory().display())
}

fn damage(file: &Path) {
    let file = fs::File::options().read(true).write(true).open(file).unwrap();
    let place = BLOCK * BLOCK_BYTES + BLOCK_BYTES / 2;
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, place).unwrap();
    file.write_all_at(&bytes.map(|byte| byte ^ 1), place).unwrap();
}

/// Starts a watch, and waits until it watches.
fn watching(command: &mut Command, expected: &str) -> (Child, impl FnOnce() -> String + use<>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.contains(expected), "{first}");
    let rest = move || {
        let mut text = String::new();
        lines.read_to_string(&mut text).unwrap();
        text
    };
    (child, rest)
}

/// What a watch of a sound server begins with.
const NONE_BEFORE: &str = "watching; no checksum failure was counted before";

/// Its exit status and what it printed.
fn ended(child: Child) -> (Option<i32>, String) {
    let pid = i32::try_from(child.id()).unwrap();
    assert!(ends_within(pid, PATIENCE), "the watch does not end");
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_refused_page_is_named_and_the_command_is_run_when_the_standby_is_sound() {
    for server in servers() {
        let scratch = Scratch::new();
        let pair = Pair::start(&scratch, &server, &["primary"]);
        let message: PathBuf = scratch.path("told");
        let line = format!("echo $PGTOLL_PAGES > {}", message.display());
        let mut command = pair.with_standby_and_log();
        let (child, rest) = watching(command.args(["--json", "--run", &line]), NONE_BEFORE);
        pair.read();
        let (status, text) = ended(child);
        let rest = rest();
        assert_eq!(status, Some(1), "{text} {rest}");
        let record: WatchRecord = serde_json::from_str(&text).unwrap();
        let [page] = &record.pages[..] else { panic!("{record:?}") };
        assert_eq!((page.file.as_str(), page.block), (pair.file.as_str(), 10));
        assert_eq!(page.database.as_deref(), Some("postgres"));
        assert_eq!(page.relation.as_deref(), Some("public.orders"));
        assert_eq!(
            (&page.primary, &page.standby),
            (&PageCondition::Unsound, &PageCondition::Sound)
        );
        assert!(record.standby_is_verified && record.action.as_ref().unwrap().success);
        assert!(record.proposals[0].contains("pgtoll repair PGDATA --from-standby"), "{record:?}");
        assert!(record.proposals[0].contains("--block postgres.public.orders:10"), "{record:?}");
        assert!(record.proposals[1].contains("fail over"), "{record:?}");
        assert_eq!(fs::read_to_string(&message).unwrap(), format!("{}:10\n", pair.file));
        pair.end();
        scratch.assert_empty();
    }
}

#[test]
fn nothing_is_run_when_the_standby_is_not_known_to_be_sound() {
    let scratch = Scratch::new();
    let pair = Pair::start(&scratch, &server(), &["primary", "standby"]);
    let message = scratch.path("told");
    let line = format!("touch {}", message.display());
    // The standby's page is damaged, too.
    let (child, rest) = watching(pair.with_standby_and_log().args(["--run", &line]), NONE_BEFORE);
    pair.read();
    let (status, text) = ended(child);
    assert_eq!(status, Some(2), "{text} {}", rest());
    assert!(text.contains("in the standby's unsound"), "{text}");
    assert!(text.contains("do not fail over"), "{text}");
    assert!(!message.exists());
    // Without the log nobody knows which page it is.
    let before = run(pair.watch().args(["--for", "1s"]));
    assert_eq!(before.status, Some(0), "{before:?}");
    let mut command = pair.watch();
    let earlier = "1 checksum failures were counted before";
    let (child, rest) = watching(command.args(["--standby", &dsn(&pair.standby)]), earlier);
    pair.read();
    let (status, text) = ended(child);
    assert_eq!(status, Some(1), "{text} {}", rest());
    assert!(text.contains("the pages are unknown"), "{text}");
    pair.end();
    scratch.assert_empty();
}

#[test]
fn servers_that_cannot_be_watched_are_refused_and_a_quiet_one_is_done() {
    let scratch = Scratch::new();
    let mut pair = Pair::start(&scratch, &server(), &[]);
    let check = |command: &mut Command, status: i32, words: &str| {
        let ran = run(command);
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert!(ran.stderr.contains(words) || ran.stdout.contains(words), "{ran:?}");
    };
    check(pair.with_standby_and_log().args(["--for", "1s"]), 0, "no page was refused");
    let standby = dsn(&pair.standby);
    check(pgtoll().args(["lab", "watch", "--dsn", &standby]), 2, "the server is a standby");
    let own = dsn(&pair.primary);
    check(pair.watch().args(["--standby", &own]), 2, "is not a standby");
    check(
        pair.watch().args(["--log", "/nonexistent/log", "--for", "1s"]),
        0,
        "no page was refused",
    );
    let other = Cluster::init(&mut pair.guard, &server(), "other", false).unwrap();
    other.start(&mut pair.guard).unwrap();
    check(pair.watch().args(["--standby", &dsn(&other)]), 2, "is of another cluster");
    check(pgtoll().args(["lab", "watch", "--dsn", &dsn(&other)]), 2, "no data checksums");
    other.stop(&mut pair.guard, StopMode::Immediate).unwrap();
    // A primary that goes away is waited for.
    let (child, rest) = watching(pair.watch().args(["--for", "4s"]), NONE_BEFORE);
    pair.primary.stop(&mut pair.guard, StopMode::Immediate).unwrap();
    pair.primary.start(&mut pair.guard).unwrap();
    let (status, text) = ended(child);
    assert_eq!(status, Some(0), "{text} {}", rest());
    pair.end();
    scratch.assert_empty();
}
