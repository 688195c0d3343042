//! What `verify` advises is run on the damage that it is for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use pgtoll_checksum::page_checksum;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use serde_json::Value;

use crate::support::{Scratch, pgtoll, program, run, servers};
use crate::verify::{PAGE, PAGE_BYTES, check_program, execute, overwrite, relation};

/// A name with all that has to be in quotes, or in escapes.
const ODD: &str = "Or\"d\\ers\t\u{1b}[31m\u{202e} select";
const ODD_SQL: &str = r#"U&"Or""d\\ers\0009\001B[31m\202E select""#;

#[test]
fn every_advised_command_does_what_it_is_for() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check(&server, &mut guard);
    }
}

/// Tables whose rows are to be saved, in SQL, and the blocks whose rows are lost.
fn tables() -> Vec<(&'static str, Vec<u32>)> {
    vec![
        ("bit", vec![7]),
        ("several", vec![0, 3, 4, 20]),
        ("many", (0..30).map(|block| block * 2).collect()),
        ("zero", vec![5]),
        ("cut", (20..90).collect()),
        (ODD_SQL, vec![2]),
    ]
}

fn check(server: &Installation, guard: &mut Guard) {
    let name = format!("advice{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [("autovacuum", "off"), ("fsync", "off"), ("shared_buffers", "16MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    make(&cluster);
    let expected: Vec<(&str, String)> = tables()
        .into_iter()
        .map(|(table, lost)| (table, rows_beside(&cluster, table, &lost)))
        .collect();
    let long = rows_with_values(&cluster);
    let paths = paths(&cluster);
    cluster.stop(guard, StopMode::Fast).unwrap();
    damage(&cluster, &paths);

    let data = cluster.data();
    let message = check_program(&[], &data, 1);
    check_order(&message);
    check_places(&data);
    let relations = message["relations"].as_array().unwrap();
    run_shell_commands(relations);
    for relation in relations {
        check_copied(&data, relation);
    }
    cluster.start(guard).unwrap();
    check_running(&data, &message);
    for relation in relations {
        run_statements(&cluster, relation);
    }
    for (table, rows) in expected {
        let saved = match table {
            ODD_SQL => format!("{}_saved\"", ODD_SQL.strip_suffix('"').unwrap()),
            table => format!("{table}_saved"),
        };
        assert_eq!(digest(&cluster, &saved, ""), rows, "{table}, {}", server.version);
    }
    assert_eq!(digest(&cluster, "long_saved", ""), long, "{}", server.version);
    // Of the block that was behind the gap, too.
    assert_eq!(count(&cluster, "SELECT count(*) FROM gap_saved"), 20, "{}", server.version);
    assert_eq!(count(&cluster, "SELECT count(*) FROM ahead WHERE a > 0"), 5000);
    for index in ["healthy_i", "gone_i"] {
        let sql = "SET enable_seqscan = off; SET enable_bitmapscan = off";
        let mut session = cluster.connect("postgres").unwrap();
        session.execute(sql).unwrap();
        let table = if index == "gone_i" { "indexed" } else { "healthy" };
        let sql = format!("SELECT count(a) AS n FROM {table} WHERE a > 0");
        assert_eq!(session.query_one(&sql).unwrap().text("n").unwrap(), "5000", "{index}");
    }
    assert_eq!(count(&cluster, "SELECT count(*) FROM u"), 0);
    assert_eq!(count(&cluster, "SELECT count(*) FROM m"), 5000);
    cluster.stop(guard, StopMode::Fast).unwrap();

    // What can be made again is sound again.
    let after = check_program(&[], &data, 1);
    let names = |output: &Value, severities: &[&str]| -> Vec<String> {
        let relations = output["relations"].as_array().unwrap().iter();
        let item = relations
            .filter(|relation| severities.contains(&relation["severity"].as_str().unwrap()));
        item.map(|relation| format!("{} {}", relation["name"]["relation"], relation["fork"]))
            .collect()
    };
    let mendable = ["index", "map", "unlogged"];
    assert!(names(&message, &mendable).len() >= 5, "{:?}", names(&message, &mendable));
    assert_eq!(names(&after, &mendable), Vec::<String>::new(), "{}", server.version);
    assert!(!after["relations"].to_string().contains("\"relation\":\"m\""), "{after}");
    // Root's own, unlike the cluster.
    fs::remove_dir_all(format!("{}.damaged", data.display())).unwrap();
    cluster.remove(guard).unwrap();
}

fn make(cluster: &Cluster) {
    let rows = "SELECT i AS a, repeat('x', 100) AS b FROM generate_series(1, 5000) i";
    for table in ["bit", "several", "many", "zero", "cut", "ahead", "healthy", "maps", ODD_SQL] {
        execute(cluster, &[&format!("CREATE TABLE {table} AS {rows}"), &format!("VACUUM {table}")]);
    }
    execute(
        cluster,
        &[
            "CREATE INDEX healthy_i ON healthy (a)",
            "CREATE TABLE indexed AS SELECT * FROM healthy",
            "CREATE INDEX gone_i ON indexed (a)",
            "CREATE INDEX cut_i ON cut (a)",
            "CREATE UNLOGGED TABLE u AS SELECT * FROM bit",
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM healthy",
            "CREATE TABLE long (a int, b text)",
            "ALTER TABLE long ALTER b SET STORAGE EXTERNAL",
            "INSERT INTO long SELECT i, md5(i::text) || repeat('x', 9000) FROM generate_series(1, 100) i",
            "CREATE TABLE gap AS SELECT * FROM bit LIMIT 10",
            "CHECKPOINT",
        ],
    );
}

/// How many rows there are, and what is in them.
fn digest(cluster: &Cluster, table: &str, condition: &str) -> String {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = format!(
        "SELECT count(*) || ' ' || coalesce(md5(string_agg(a || b, ',' ORDER BY a)), '') AS rows \
         FROM {table} {condition}"
    );
    session.query_one(&sql).unwrap().text("rows").unwrap().to_owned()
}

fn rows_beside(cluster: &Cluster, table: &str, lost: &[u32]) -> String {
    let lost: Vec<String> = lost.iter().map(u32::to_string).collect();
    let lost = lost.join(", ");
    digest(cluster, table, &format!("WHERE (ctid::text::point)[0]::int NOT IN ({lost})"))
}

/// Of rows whose long value has nothing on the second block.
fn rows_with_values(cluster: &Cluster) -> String {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT reltoastrelid::regclass::text AS toast FROM pg_class WHERE relname = 'long'";
    let toast = session.query_one(sql).unwrap().text("toast").unwrap().to_owned();
    let lost =
        format!("SELECT chunk_id FROM {toast} WHERE (ctid::text::point)[0]::int = {TOAST_BLOCK}");
    // The place of a value is in no column: values are as long as their chunks together.
    let sql = format!(
        "SELECT string_agg(DISTINCT n::text, ',') AS lost FROM (
           SELECT (SELECT left(convert_from(chunk_data, 'UTF8'), 32) FROM {toast} first
                   WHERE first.chunk_id = lost.chunk_id AND chunk_seq = 0) AS n
           FROM ({lost}) lost) begins"
    );
    let lost = session.query_one(&sql).unwrap().text("lost").unwrap().to_owned();
    let lost: Vec<String> = lost.split(',').map(|begin| format!("'{begin}'")).collect();
    digest(cluster, "long", &format!("WHERE left(b, 32) NOT IN ({})", lost.join(", ")))
}

const TOAST_BLOCK: u64 = 4;

fn count(cluster: &Cluster, sql: &str) -> u64 {
    let mut session = cluster.connect("postgres").unwrap();
    session
        .query_one(&sql.replacen("count(*)", "count(*) AS n", 1))
        .unwrap()
        .text("n")
        .unwrap()
        .parse()
        .unwrap()
}

/// Where the relations are, by their names.
fn paths(cluster: &Cluster) -> BTreeMap<String, PathBuf> {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT relname, pg_relation_filepath(oid) AS path FROM pg_class
               WHERE relnamespace = 'public'::regnamespace
               UNION ALL SELECT 'toast', pg_relation_filepath(reltoastrelid) FROM pg_class
               WHERE relname = 'long'";
    let rows = session.query(sql).unwrap();
    let path = |row: &pgtoll_wire::Row| {
        let path = cluster.data().join(row.text("path").unwrap());
        (row.text("relname").unwrap().to_owned(), path)
    };
    rows.iter().map(path).collect()
}

fn damage(cluster: &Cluster, paths: &BTreeMap<String, PathBuf>) {
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let pick = |name: &str| open(&paths[name]);
    let flip = |file: &File, block: u64| overwrite(file, block, |page| page[5000] ^= 4);
    for (table, lost) in tables() {
        let file = pick(if table == ODD_SQL { ODD } else { table });
        match table {
            "zero" => overwrite(&file, 5, |page| page.fill(0)),
            "cut" => file.set_len(20 * PAGE + 100).unwrap(),
            _ => lost.iter().for_each(|block| flip(&file, u64::from(*block))),
        }
    }
    for (name, block) in
        [("healthy_i", 1), ("cut_i", 1), ("u", 1), ("m", 1), ("toast", TOAST_BLOCK)]
    {
        flip(&pick(name), block);
    }
    fs::remove_file(&paths["gone_i"]).unwrap();
    for fork in ["vm", "fsm"] {
        let path = format!("{}_{fork}", paths["maps"].display());
        overwrite(&open(path.as_ref()), 0, |page| page[5000] ^= 4);
    }
    // The high half of an LSN that no WAL has reached, under the right checksum.
    overwrite(&pick("ahead"), 6, |page| {
        page[0] = 77;
        with_checksum(page, 6);
    });
    // The second of three files is missing.
    let first = pick("gap");
    let last = PathBuf::from(format!("{}.2", paths["gap"].display()));
    let mut page = [0; PAGE_BYTES];
    first.read_exact_at(&mut page, 0).unwrap();
    with_checksum(&mut page, 2 * FILE_BLOCKS);
    first.set_len(u64::from(FILE_BLOCKS) * PAGE).unwrap();
    fs::write(&last, page).unwrap();
    let owner = fs::metadata(cluster.data()).unwrap();
    chown(&last, Some(owner.uid()), Some(owner.gid())).unwrap();
}

fn with_checksum(page: &mut [u8], block: u32) {
    let sum = page_checksum(page, block);
    page[8..10].copy_from_slice(&sum.to_le_bytes());
}

const FILE_BLOCKS: u32 = 131_072;

/// The steps with a command of this kind, each with its command.
fn commands<'a>(relation: &'a Value, kind: &str) -> Vec<&'a str> {
    let steps = relation["advice"].as_array().unwrap();
    assert!(!steps.is_empty(), "{relation}");
    let of_kind = steps.iter().filter(|step| step["kind"] == kind);
    of_kind.map(|step| step["command"].as_str().unwrap()).collect()
}

fn run_shell_commands(relations: &[Value]) {
    let all = relations.iter().flat_map(|relation| commands(relation, "shell"));
    // Which backup and which archive, nobody knows but the reader.
    let (repairs, others): (Vec<&str>, Vec<&str>) =
        all.partition(|command| command.starts_with("pgtoll repair "));
    assert!(repairs.iter().all(|repair| repair.ends_with(" --from-backup BACKUP --wal ARCHIVE")));
    assert!(!repairs.is_empty());
    for command in others {
        let ran = run(program("sh").arg("-ec").arg(command));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{command}: {ran:?}");
    }
}

fn check_copied(data: &Path, relation: &Value) {
    let copies = PathBuf::from(format!("{}.damaged", data.display()));
    let path = relation["path"].as_str().unwrap();
    let is_there = data.join(path).exists();
    let is_copied = relation["severity"] != "map" && is_there;
    // A gap is in no file.
    if relation["name"]["relation"] != "gap" {
        assert_eq!(copies.join(path).exists(), is_copied, "{relation}");
    }
    if is_copied && copies.join(path).exists() {
        assert_eq!(fs::read(copies.join(path)).unwrap(), fs::read(data.join(path)).unwrap());
    }
    assert_eq!(fs::metadata(copies).unwrap().mode() & 0o777, 0o700);
}

fn run_statements(cluster: &Cluster, relation: &Value) {
    for sql in commands(relation, "sql") {
        let database = relation["advice"].as_array().unwrap().iter();
        let mut database = database.filter_map(|step| step["database"].as_str());
        let mut session = cluster.connect(database.next().unwrap()).unwrap();
        if sql.starts_with("SELECT") {
            assert!(!session.query(sql).unwrap().is_empty(), "{sql}");
        } else {
            session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
}

/// Tables come before indexes, and an index of a damaged table says so.
fn check_order(output: &Value) {
    let relations = output["relations"].as_array().unwrap();
    let place = |name: &str| {
        relations.iter().position(|relation| relation["name"]["relation"] == name).unwrap()
    };
    assert!(place("cut") < place("cut_i"));
    let first =
        |name: &str| relation(output, name)["advice"].to_string().contains("first the table");
    assert!(first("cut_i") && !first("healthy_i"));
    let cut = &relation(output, "cut")["findings"];
    let missing =
        cut.as_array().unwrap().iter().find(|array| array["kind"] == "visible_beyond_end");
    let blocks = missing.unwrap()["blocks"].as_u64().unwrap();
    assert!(blocks > 50, "{cut}");
    let words = missing.unwrap()["words"].as_str().unwrap();
    assert!(words.starts_with(&format!("{blocks} blocks missing")), "{words}");
}

/// A backup and a standby cannot be repaired by SQL.
fn check_places(data: &Path) {
    for mark in ["backup_label", "standby.signal"] {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("data");
        let ran = run(program("cp").arg("-a").arg(data).arg(&copy));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        fs::write(copy.join(mark), "").unwrap();
        let ran = run(pgtoll().arg("verify").arg(&copy).arg("--json"));
        assert_eq!(ran.status, Some(1), "{ran:?}");
        let output: Value = serde_json::from_str(&ran.stdout).unwrap();
        for relation in output["relations"].as_array().unwrap() {
            let steps = relation["advice"].as_array().unwrap();
            assert!(steps.iter().all(|step| step["command"].is_null()), "{mark}: {relation}");
            assert!(
                !relation["remedy"].as_str().unwrap().contains("REINDEX"),
                "{mark}: {relation}"
            );
        }
    }
}

/// Of a running server the commands are the same, and nothing has to be started.
fn check_running(data: &Path, stopped: &Value) {
    let ran = run(pgtoll().arg("verify").arg(data).args(["--json", "--only", "bit"]));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    let running = relation(&output, "bit");
    let stopped = relation(stopped, "bit");
    assert_eq!(commands(running, "sql"), commands(stopped, "sql"));
    assert!(!running["remedy"].as_str().unwrap().contains("start the server"), "{running}");
}
