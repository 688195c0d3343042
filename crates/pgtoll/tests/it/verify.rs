//! What pgtoll says of pages is what the server says of them, and more than `pg_checksums` says.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_record::FindingClass;
use pgtoll_verify::{
    BlockFinding, Defect, LayoutDefect, ReadAt, Storage, Verified, VerifySettings, verify,
    verify_on,
};
use serde_json::Value;

use crate::support::{
    Scratch, as_ordinary_user, pgtoll, pid_of, program, run, server, servers, set_mode,
};

pub(crate) const PAGE: u64 = 8192;
pub(crate) const PAGE_BYTES: usize = 8192;

pub(crate) fn settings() -> VerifySettings {
    VerifySettings { jobs: 2.try_into().unwrap(), rate: None, only_below: Vec::new(), rows: true }
}

fn verified(data: &Path) -> Verified {
    let data = DataDirectory::open(data).unwrap();
    let mut verified = verify(&data, &settings(), &|_| true, &mut |_| ControlFlow::Continue(()));
    verified.compare_with(&Names::of_data_directory(&data.path).unwrap(), &data, &|_| true);
    verified
}

fn cluster(guard: &mut Guard, server: &Installation, name: &str, checksums: bool) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, checksums).unwrap();
    let settings = [("autovacuum", "off"), ("fsync", "off"), ("shared_buffers", "16MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster
}

pub(crate) fn execute(cluster: &Cluster, statements: &[&str]) {
    let mut session = cluster.connect("postgres").unwrap();
    // Each by itself: VACUUM takes no company.
    for sql in statements.iter().flat_map(|sql| sql.split(';')) {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Runs of the program with this result, and what it says there as JSON.
pub(crate) fn check_program(arguments: &[&str], data: &Path, status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(data).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    let table = run(pgtoll().arg("verify").arg(data).args(arguments));
    assert_eq!(table.status, Some(status), "{table:?}");
    let path = data.display().to_string();
    let too_long =
        |line: &&str| line.chars().count() > 80 && !line.contains(&path) && !line.contains("U&\"");
    assert_eq!(table.stdout.lines().find(too_long), None);
    // A running server's files are others a moment later.
    if !arguments.contains(&"--top") && output["running"].is_null() {
        check_report(&ran.stdout, &table.stdout);
    }
    output
}

/// What was printed as JSON is shown again as it was.
fn check_report(json: &str, table: &str) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("verification.json");
    fs::write(&file, json).unwrap();
    let again = run(pgtoll().arg("report").arg(&file));
    assert_eq!((again.status, again.stdout.as_str()), (Some(0), table), "{again:?}");
    let again = run(pgtoll().args(["report", "--json"]).arg(&file));
    assert_eq!((again.status, again.stdout.as_str()), (Some(0), json), "{again:?}");
    for (format, begin) in [
        ("html", "<!DOCTYPE html>"),
        ("md", "## Are the pages sound?\n\n**/"),
        ("openmetrics", "# TYPE pgtoll_verification"),
    ] {
        let shown = run(pgtoll().args(["report", "--format", format]).arg(&file));
        assert_eq!(shown.status, Some(0), "{shown:?}");
        assert!(shown.stdout.starts_with(begin), "{shown:?}");
    }
    let table = run(pgtoll().args(["report", "--format", "csv"]).arg(&file));
    assert_eq!(table.status, Some(2), "{table:?}");
    let expected = "pgtoll: a record of verify has no format csv\n\
        hint: its formats are table, md, json, html, nagios or openmetrics\n";
    assert_eq!(table.stderr, expected);
}

/// Everything that a server does to files and that is no damage.
pub(crate) const WORK: [&str; 12] = [
    "CREATE TABLE t (a int PRIMARY KEY, b text, c int[]);
     CREATE INDEX ON t USING hash (a); CREATE INDEX ON t USING gin (c);
     CREATE INDEX ON t USING gist (point(a, a)); CREATE INDEX ON t USING spgist (b);
     CREATE INDEX ON t USING brin (a);
     INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 7, i] FROM generate_series(1, 20000) i",
    "CREATE UNLOGGED TABLE u AS SELECT * FROM t; CREATE INDEX ON u (a)",
    "CREATE TABLE long (a int, b text);
     ALTER TABLE long ALTER b SET STORAGE EXTERNAL;
     INSERT INTO long SELECT i, repeat('x', 5000) FROM generate_series(1, 300) i",
    "CREATE SEQUENCE s; SELECT nextval('s'); CREATE MATERIALIZED VIEW m AS SELECT * FROM t",
    "CREATE TEMPORARY TABLE gone AS SELECT * FROM t",
    "VACUUM t; VACUUM u; VACUUM long",
    "DELETE FROM t WHERE a > 5000",
    "VACUUM (FREEZE) t",
    "CREATE TABLE dropped AS SELECT * FROM t; CHECKPOINT; DROP TABLE dropped",
    "CREATE TABLE emptied AS SELECT * FROM t; VACUUM emptied; TRUNCATE emptied",
    "CREATE TABLE halved AS SELECT * FROM t; VACUUM halved; DELETE FROM halved WHERE a > 100",
    "VACUUM halved; INSERT INTO halved SELECT * FROM t",
];

#[test]
fn sound_clusters_are_sound() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        for checksums in [true, false] {
            check_sound(&server, &mut guard, checksums);
        }
    }
}

fn check_sound(server: &Installation, guard: &mut Guard, checksums: bool) {
    let name = if checksums { "sound" } else { "plain" };
    let cluster = cluster(guard, server, name, checksums);
    check_program(&[], &cluster.data(), 0);
    cluster.start(guard).unwrap();
    let place = cluster.data().parent().unwrap().join(format!("space-{name}"));
    let make = format!("COPY (SELECT 1 WHERE false) TO PROGRAM 'mkdir {}'", place.display());
    execute(&cluster, &[&make]);
    execute(&cluster, &[&format!("CREATE TABLESPACE space LOCATION '{}'", place.display())]);
    execute(&cluster, &["CREATE TABLE there (a int PRIMARY KEY) TABLESPACE space"]);
    execute(&cluster, &["INSERT INTO there SELECT generate_series(1, 5000)"]);
    execute(&cluster, &WORK);
    let running = check_program(&[], &cluster.data(), 0);
    assert_eq!(running["source"]["state"], "in production");
    cluster.stop(guard, StopMode::Fast).unwrap();
    let message = check_program(&[], &cluster.data(), 0);
    assert_eq!(message["outcome"], "sound");
    assert_eq!(message["source"]["checksums"], checksums);
    assert!(message["read"]["blocks"].as_u64().unwrap() > 3000, "{message}");

    // What a crash leaves: extended files, orphans, unlogged tables to empty.
    cluster.start(guard).unwrap();
    let mut open = cluster.connect("postgres").unwrap();
    open.execute("BEGIN; CREATE TABLE never AS SELECT * FROM t; INSERT INTO t (a) SELECT -i FROM generate_series(1, 20000) i").unwrap();
    execute(&cluster, &["CHECKPOINT"]);
    open.execute("INSERT INTO never SELECT * FROM never").unwrap();
    cluster.kill(guard).unwrap();
    drop(open);
    let crashed = verified(&cluster.data());
    assert_eq!(crashed.total().suspicions, 0, "{:?}", crashed.findings);
    cluster.start(guard).unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
    fs::write(cluster.data().join("base/readme"), "x").unwrap();
    let output = check_program(&[], &cluster.data(), 0);
    assert_eq!(output["foreign"][0], "base/readme", "foreign files are no damage");

    // A table alone, with what belongs to it; and a directory alone.
    let all = output["read"]["files"].as_u64().unwrap();
    let table = check_program(&["--only", "postgres.public.t"], &cluster.data(), 0);
    assert!((6..30).contains(&table["read"]["files"].as_u64().unwrap()), "{table}");
    let part = check_program(&[], &cluster.data().join("global"), 0);
    assert!(part["read"]["files"].as_u64().unwrap() < all / 2, "{part}");
    cluster.remove(guard).unwrap();
}

/// What is done to the file of a table, and what is found there.
struct Mutation {
    table: &'static str,
    apply: fn(&File),
    class: FindingClass,
    block: u32,
    /// Whether a sequential scan of the server fails.
    server_refuses: bool,
}

pub(crate) fn overwrite(file: &File, block: u64, change: impl FnOnce(&mut [u8])) {
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, block * PAGE).unwrap();
    change(&mut page);
    file.write_all_at(&page, block * PAGE).unwrap();
}

fn garbage(page: &mut [u8]) {
    let mut state = 88_172_645_463_325_252_u64;
    for byte in page {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state.to_le_bytes()[0];
    }
}

fn mutations() -> [Mutation; 9] {
    let failure = |table, apply| Mutation {
        table,
        apply,
        class: FindingClass::Failure,
        block: 7,
        server_refuses: true,
    };
    let suspicion = |table, apply, block| Mutation {
        table,
        apply,
        class: FindingClass::Suspicion,
        block,
        server_refuses: false,
    };
    [
        failure("bit", |file| overwrite(file, 7, |page| page[5000] ^= 4)),
        failure("garbage", |file| overwrite(file, 7, garbage)),
        failure("ones", |file| overwrite(file, 7, |page| page.fill(0xFF))),
        failure("upper", |file| overwrite(file, 7, |page| page[14..16].fill(0))),
        failure("sector", |file| overwrite(file, 7, |page| page[..4096].fill(0))),
        suspicion("zero", |file| overwrite(file, 7, |page| page.fill(0)), 7),
        failure("transposed", |file| {
            let mut page = [0; PAGE_BYTES];
            file.read_exact_at(&mut page, 3 * PAGE).unwrap();
            file.write_all_at(&page, 7 * PAGE).unwrap();
        }),
        // Both tell of blocks that the visibility map knows; the first also of the block's rest.
        suspicion("cut", |file| file.set_len(20 * PAGE + 100).unwrap(), 20),
        suspicion("cut_between", |file| file.set_len(20 * PAGE).unwrap(), 20),
    ]
}

#[test]
fn damage_is_judged_as_by_the_server() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_damage(&server, &mut guard);
    }
}

fn check_damage(server: &Installation, guard: &mut Guard) {
    let cluster = cluster(guard, server, "damage", true);
    cluster.start(guard).unwrap();
    let mutations = mutations();
    let mut paths = Vec::new();
    for mutation in &mutations {
        let table = mutation.table;
        let sql = format!(
            "CREATE TABLE {table} AS SELECT i, repeat('x', 100) b FROM generate_series(1, 5000) i"
        );
        execute(&cluster, &[&sql, &format!("VACUUM {table}")]);
        paths.push(cluster.data().join(path_of(&cluster, table)));
    }
    execute(
        &cluster,
        &["CREATE TABLE indexed AS SELECT * FROM bit; CREATE INDEX i ON indexed (i)"],
    );
    let index = cluster.data().join(path_of(&cluster, "i"));
    cluster.stop(guard, StopMode::Fast).unwrap();
    assert_eq!(verified(&cluster.data()).findings, []);
    check_faulty_disk(&cluster, &paths[0]);

    for (mutation, path) in mutations.iter().zip(&paths) {
        (mutation.apply)(&File::options().read(true).write(true).open(path).unwrap());
    }
    overwrite(&File::options().read(true).write(true).open(&index).unwrap(), 0, |page| {
        page.fill(0);
    });
    let found = verified(&cluster.data());
    let output = check_program(&[], &cluster.data(), 1);
    for access in ["--mmap", "--direct"] {
        let otherwise = check_program(&[access], &cluster.data(), 1);
        assert_eq!(otherwise["relations"], output["relations"], "{access}");
        assert_eq!(otherwise["read"], output["read"], "{access}");
    }
    check_resumed(&cluster, &output);
    for (mutation, path) in mutations.iter().zip(&paths) {
        check_found(mutation, path, &found, &output);
    }
    let of_index = findings(&found, &index);
    assert_eq!(of_index.len(), 1, "{of_index:?}");
    assert_eq!((&of_index[0].defect, of_index[0].block), (&Defect::ZeroFirst, 0));
    let remedy = relation(&output, "i")["remedy"].as_str().unwrap();
    assert!(remedy.ends_with(": REINDEX INDEX public.i"), "{remedy}");

    check_pg_checksums(server, &cluster, &mutations, &paths);
    cluster.start(guard).unwrap();
    for mutation in &mutations {
        let mut session = cluster.connect("postgres").unwrap();
        let read = session.query(&format!("SELECT count(*) FROM {}", mutation.table));
        assert_eq!(read.is_err(), mutation.server_refuses, "{}: {read:?}", mutation.table);
    }
    cluster.stop(guard, StopMode::Immediate).unwrap();
    cluster.remove(guard).unwrap();
}

pub(crate) fn path_of(cluster: &Cluster, relation: &str) -> PathBuf {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = format!("SELECT pg_relation_filepath('{relation}') AS path");
    session.query_one(&sql).unwrap().text("path").unwrap().into()
}

pub(crate) fn findings<'a>(found: &'a Verified, path: &Path) -> Vec<&'a BlockFinding> {
    let number: u32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    found.findings.iter().filter(|finding| finding.fork.relation.rel_number == number).collect()
}

pub(crate) fn relation<'a>(output: &'a Value, name: &str) -> &'a Value {
    let relations = output["relations"].as_array().unwrap();
    relations.iter().find(|relation| relation["name"]["relation"] == name).unwrap()
}

fn check_found(mutation: &Mutation, path: &Path, found: &Verified, output: &Value) {
    let Mutation { table, class, block, .. } = mutation;
    let of_table = findings(found, path);
    assert!(!of_table.is_empty(), "{table}: {:?}", found.findings);
    for finding in &of_table {
        assert_eq!(
            (finding.defect.class(), finding.block),
            (*class, *block),
            "{table}: {of_table:?}"
        );
    }
    let kinds = of_table.iter().map(|finding| &finding.defect).collect::<Vec<_>>();
    let is_beyond = |label: &&Defect| matches!(label, Defect::Layout(LayoutDefect::VisibleBeyondEnd { last }) if *last > 70);
    let rest = Defect::Layout(LayoutDefect::EndsInBlock { bytes: 100 });
    match *table {
        "zero" => assert_eq!(kinds, [&Defect::ZeroButVisible]),
        "cut" => assert!(kinds.len() == 2 && kinds.iter().any(is_beyond) && kinds.contains(&&rest)),
        "cut_between" => assert!(kinds.len() == 1 && kinds.iter().all(is_beyond), "{kinds:?}"),
        _ => assert_eq!(kinds.len(), 1, "{table}: {kinds:?}"),
    }
    let shown = relation(output, table);
    assert_eq!(shown["name"]["schema"], "public");
    assert_eq!(shown["findings"][0]["block"], *block);
    assert_eq!(shown["severity"], "data");
    let remedy = shown["remedy"].as_str().unwrap();
    // A type's name is no table's without quotes.
    let table = if *table == "bit" { "\"bit\"" } else { *table };
    let query = if mutation.server_refuses {
        let rows = format!("FROM ONLY public.{table} WHERE ctid");
        let next = block + 1;
        format!("{rows} < '({block},0)' UNION ALL SELECT * {rows} >= '({next},0)'")
    } else {
        format!("SELECT * FROM ONLY public.{table};")
    };
    assert!(remedy.contains(&query), "{remedy}");
}

/// It passes what the server refuses or has lost, and finds nothing that we do not find.
fn check_pg_checksums(
    server: &Installation,
    cluster: &Cluster,
    mutations: &[Mutation],
    paths: &[PathBuf],
) {
    for (mutation, path) in mutations.iter().zip(paths) {
        let number = path.file_name().unwrap();
        let mut command = program(server.bin.join("pg_checksums"));
        command.arg("--check").arg("-D").arg(cluster.data()).arg("-f").arg(number);
        let passes = run(&mut command).status == Some(0);
        let expected = ["upper", "sector", "zero", "cut_between"].contains(&mutation.table);
        assert_eq!(passes, expected, "{} of {}", mutation.table, server.version);
    }
}

/// A disk that cannot read some blocks of a file.
struct Faulty<'a> {
    path: &'a Path,
    from: u64,
    to: u64,
}

struct FaultyFile {
    file: File,
    broken: std::ops::Range<u64>,
}

impl Storage for Faulty<'_> {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        let broken = if path == self.path { self.from..self.to } else { 0..0 };
        Ok(Box::new(FaultyFile { file: File::open(path)?, broken }))
    }
}

impl ReadAt for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let end = at + buffer.len() as u64;
        if at < self.broken.end && self.broken.start < end {
            return Err(io::Error::from_raw_os_error(5));
        }
        // Disks may read less than they are asked for.
        let some = buffer.len().div_ceil(3);
        FileExt::read_at(&self.file, &mut buffer[..some], at)
    }
}

/// Blocks that cannot be read are told, those around them are verified, and the rest too.
fn check_faulty_disk(cluster: &Cluster, path: &Path) {
    let data = DataDirectory::open(&cluster.data()).unwrap();
    let disk = Faulty { path, from: 3 * PAGE + 10, to: 5 * PAGE + 1 };
    let go_on = &mut |_| ControlFlow::Continue(());
    let all = verify(&data, &settings(), &|_| true, go_on);
    let faulty = verify_on(&disk, &data, &settings(), &|_| true, go_on);
    let error = io::Error::from_raw_os_error(5).to_string();
    let of_file = findings(&faulty, path);
    assert_eq!(of_file.len(), 1, "{of_file:?}");
    assert_eq!(of_file[0].block, 3);
    assert_eq!(of_file[0].defect, Defect::Unreadable { blocks: 3, error });
    assert_eq!(faulty.total().unverified, 3);
    assert!(!faulty.is_whole());
    assert_eq!(faulty.pages.blocks, all.pages.blocks - 3);
}

/// Interrupted, then killed, then whole: the same is found as at once.
fn check_resumed(cluster: &Cluster, whole: &Value) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("resume");
    let name = path.to_str().unwrap();
    let stopped = |signal| {
        // Its first state is there before anything is read.
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        inotify.add_watch(place.path(), AddWatchFlags::IN_MOVED_TO).unwrap();
        let mut command = pgtoll();
        command.arg("verify").arg(cluster.data()).args(["--resume", name, "--rate", "1MB/s"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        inotify.read_events().unwrap();
        kill(Pid::from_raw(pid_of(&child)), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, stderr) = stopped(Signal::SIGINT);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("hint: the same command continues from"), "{stderr}");
    assert_eq!(stopped(Signal::SIGKILL).0, None);

    let resumed = {
        let mut command = pgtoll();
        command.arg("verify").arg(cluster.data()).args(["--json", "--resume", name]);
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    assert_eq!(resumed["relations"], whole["relations"]);
    assert_eq!(resumed["read"], whole["read"]);
    assert!(!path.exists(), "all was read");

    fs::write(&path, "something else").unwrap();
    let foreign = run(pgtoll().arg("verify").arg(cluster.data()).args(["--resume", name]));
    assert_eq!(foreign.status, Some(2), "{foreign:?}");
    assert!(foreign.stderr.contains("is not a resume file of this pgtoll"), "{foreign:?}");
    assert!(foreign.stderr.contains("hint: name another file"), "{foreign:?}");
    assert_eq!(fs::read(&path).unwrap(), b"something else");
}

#[test]
fn what_cannot_be_read_is_said() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "closed", true);
    let missing = run(pgtoll().args(["verify", "/nowhere"]));
    assert_eq!(missing.status, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("hint: name a data directory"), "{missing:?}");
    let none = run(pgtoll().arg("verify").arg(scratch.work()));
    assert_eq!(none.status, Some(2), "{none:?}");
    assert!(none.stderr.contains("is not in a data directory"), "{none:?}");
    let unknown = run(pgtoll().arg("verify").arg(cluster.data()).args(["--only", "a.b"]));
    assert_eq!(unknown.status, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("no relation \"a.b\""), "{unknown:?}");

    // A copy of root's own that nobody else may look into.
    if nix::unistd::geteuid().is_root() {
        let closed = scratch.path("closed");
        fs::create_dir(&closed).unwrap();
        set_mode(&closed, 0o700);
        let copy = crate::support::pgtoll_for_all(&scratch);
        let mut command = program(copy);
        command.arg("verify").arg(&closed);
        as_ordinary_user(&mut command, &scratch);
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("hint: run pgtoll as the files' owner"), "{ran:?}");
    }
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn without_checksums_headers_are_judged() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "headers", false);
    cluster.start(&mut guard).unwrap();
    execute(&cluster, &["CREATE TABLE t AS SELECT generate_series(1, 5000) AS i"]);
    let path = cluster.data().join(path_of(&cluster, "t"));
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    overwrite(&file, 2, |page| page[5000] ^= 4);
    overwrite(&file, 4, |page| page.fill(0xFF));
    // The high half of an LSN that no WAL has reached.
    overwrite(&file, 6, |page| page[0] = 77);
    let output = check_program(&[], &cluster.data(), 1);
    assert!(output["notes"][0].as_str().unwrap().contains("no checksums"), "{output}");
    let found: Vec<_> = relation(&output, "t")["findings"].as_array().unwrap().iter().collect();
    let found: Vec<_> = found.iter().map(|s| (&s["block"], s["kind"].as_str().unwrap())).collect();
    assert_eq!(found, [(&4.into(), "header"), (&6.into(), "ahead_of_wal")]);
    cluster.remove(&mut guard).unwrap();
}
