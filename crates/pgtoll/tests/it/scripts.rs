//! Scripts: pgbench is asked what they mean, and a server what they do.

use std::path::PathBuf;
use std::time::Duration;

use pgtoll_cluster::Cluster;
use pgtoll_workload::{BUILT_IN, Client, LoadError, Mix, Script};

use crate::support::{Ran, Scratch, program, run, running, servers};

/// Expressions whose value depends on nothing but what they say.
const EXPRESSIONS: &[&str] = &[
    // Constants.
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "- 9223372036854775808",
    "1.",
    ".5",
    "1e3",
    "1.5E-3",
    "1e15",
    "123456789012345678.0",
    "0.1 + 0.2",
    "1e300 * 1e10",
    "-1.0 / 0",
    "sqrt(-1)",
    "NULL",
    "true",
    "FaLsE",
    // Precedence and associativity.
    "1 + 2 * 3 - 4 / 2 % 3",
    "2 - 3 - 4",
    "100 / 5 / 2",
    "7 % 4 * 2",
    "- 3 * 4",
    "- -3",
    "+3 - +4",
    "1 - -1",
    "2 * -3",
    "~ 1 + 2",
    "~ 1 | 6",
    "~ ~ 5",
    "- ~ 5",
    "1 | 2 + 4",
    "1 | 2 & 3 # 4",
    "8 >> 1 << 3",
    "1 << 2 + 1",
    "1 << 63",
    "1 << 64",
    "-1 >> 1",
    "5 & 3 = 1",
    "1 + 1 = 2",
    "NOT 1 = 2",
    "NOT true AND false",
    "NOT (true AND false)",
    "true OR true AND false",
    "false AND true OR true",
    "1 < 2 AND 2 > 1",
    "1 = 1 IS TRUE",
    "1 < 2 IS NULL",
    "NOT NULL IS NULL",
    "1 + 2 IS NULL",
    "1 IS TRUE",
    "NULL IS NULL IS TRUE",
    "NULL ISNULL NOTNULL",
    "CASE WHEN 1 < 2 THEN 3 END + 4",
    "(1 + 2) * (3 - (4))",
    // Integers and doubles.
    "5 / 3",
    "-5 / 3",
    "-5 % 3",
    "5 % -3",
    "mod(-7, 4)",
    "7.6 % 4",
    "5 / 2.0",
    "1 = 1.0",
    "1 <> 1.5",
    "1 != 1",
    "2 >= 2.0",
    "3 > 3",
    "-9223372036854775808 % -1",
    "9223372036854775807 - 1 + 1",
    "1 | 2.5",
    "3.5 & 7",
    // Functions.
    "abs(-5)",
    "abs(-5.5)",
    "ABS(7)",
    "int(7.3)",
    "int(7.5)",
    "int(8.5)",
    "int(-7.5)",
    "double(7)",
    "double(7) / 2",
    "exp(1)",
    "ln(10)",
    "sqrt(2)",
    "sqrt(16)",
    "pi()",
    "pi() * 1e20",
    "pow(2, 10)",
    "power(2.0, -2)",
    "pow(-8, 1.0 / 3) = 0",
    "pow(10, 15)",
    "greatest(5, 4, 3, 2)",
    "greatest(5, 4.5, 6)",
    "least(5, 4, -3, 2)",
    "least(5, 4.5)",
    "least(7)",
    "greatest(1, NULL, 3)",
    // Nulls.
    "NULL + 1",
    "NULL = NULL",
    "- NULL",
    "NOT NULL",
    "NULL AND false",
    "false AND NULL",
    "true AND NULL",
    "NULL OR true",
    "true OR NULL",
    "NULL IS NOT NULL",
    "NULL IS TRUE",
    "NULL IS NOT FALSE",
    "abs(NULL)",
    "hash(NULL)",
    "permute(1, NULL)",
    "random(1, NULL)",
    // What is not evaluated raises no error.
    "true OR 1 / 0 = 1",
    "false AND 1 / 0 = 1",
    "CASE WHEN true THEN 1 ELSE 1 / 0 END",
    "CASE WHEN false THEN 1 / 0 WHEN 0.0 THEN 2 WHEN NULL THEN 3 WHEN 0.1 THEN 4 ELSE 5 END",
    "CASE WHEN 0 THEN 1 END",
    // Hashes and permutation, which have to be the same bit for bit.
    "hash(0)",
    "hash(10, 5432)",
    "hash(-1, -2)",
    "hash(9223372036854775807, -9223372036854775808)",
    "hash(2.6, 3)",
    "hash_murmur2(10, 5432)",
    "hash_fnv1a(10, 5432)",
    "hash_fnv1a(-1, 0)",
    "hash_fnv1a(-9223372036854775808)",
    "permute(0, 1)",
    "permute(0, 2, 5431)",
    "permute(1, 2, 5433)",
    "permute(2, 3)",
    "permute(12345, 100000)",
    "permute(12345, 100000, -7)",
    "permute(-5, 1000, 3)",
    "permute(1023, 1024, 8)",
    "permute(1000, 1025, 9)",
    "permute(9223372036854775806, 9223372036854775807, 5432)",
    "permute(9223372036854775796, 9223372036854775797, 5432)",
    "permute(17, 4611686018427387905, 1)",
    // Random numbers without a choice, and where the variables stand.
    "random(5, 5)",
    "random_zipfian(5, 5, 1.5)",
    "random_gaussian(5, 5, 3.5)",
    "random_exponential(5, 5, 3.5)",
    ":scale * 2",
    ":client_id",
    ":default_seed",
    ":random_seed",
];

/// Scripts that end in an error, at the latest when they run.
const ERRORS: &[(&str, &str)] = &[
    ("\\set a 9223372036854775807 + 1", "bigint add out of range"),
    ("\\set a -9223372036854775808 - 1", "bigint sub out of range"),
    ("\\set a 9223372036854775807 * 2", "bigint mul out of range"),
    ("\\set a -9223372036854775808 / -1", "bigint div out of range"),
    ("\\set a 1 / 0", "division by zero"),
    ("\\set a 1 % 0", "division by zero"),
    ("\\set a 5.5 % 0", "division by zero"),
    ("\\set a int(1e19)", "double to int overflow"),
    ("\\set a 1 | 1e19", "double to int overflow"),
    ("\\set a true + 1", "cannot coerce boolean to int"),
    ("\\set a true + 1.5", "cannot coerce boolean to double"),
    ("\\set a true = true", "cannot coerce boolean to int"),
    ("\\set a 1 AND true", "cannot coerce int to boolean"),
    ("\\set a true OR 1 OR 2", ""),
    ("\\set a false OR 1.5", "cannot coerce double to boolean"),
    ("\\set a NOT 1", "cannot coerce int to boolean"),
    ("\\set a :nowhere", "undefined variable"),
    ("\\set a random(2, 1)", "empty range given to random"),
    ("\\set a random(-9223372036854775808, 9223372036854775807)", "random range is too large"),
    ("\\set a random_gaussian(1, 2, 1.9)", "gaussian parameter must be at least"),
    ("\\set a random_exponential(1, 2, 0)", "exponential parameter must be greater than zero"),
    ("\\set a random_zipfian(1, 2, 1)", "zipfian parameter must be in range"),
    ("\\set a random_zipfian(1, 2, 1001)", "zipfian parameter must be in range"),
    ("\\set a permute(1, 0)", "permute size parameter must be greater than zero"),
    ("SELECT 1 AS a WHERE false \\gset", "expected one row, got 0"),
    ("SELECT 1 AS a UNION SELECT 2 \\gset", "expected one row, got 2"),
    ("SELECT 'x' AS a \\gset\n\\set b :a + 1", ""),
    ("SELECT 1 \\gset", "?column?"),
    ("SELECT 1/0 AS a \\gset", "division by zero"),
    ("SELECT nonsense", "nonsense"),
    ("BEGIN", ""),
    // What is wrong before anything runs; the words are our own.
    ("\\set a 1 < 2 < 3", ""),
    ("\\set a 1 +", ""),
    ("\\set a 5 - 9223372036854775808 9", ""),
    ("\\set a (1", ""),
    ("\\set a 1e400", ""),
    ("\\set a 99999999999999999999", ""),
    ("\\set a foo(1)", ""),
    ("\\set a pi", ""),
    ("\\set a random(1)", ""),
    ("\\set a 1 IS 1", ""),
    ("\\set 1a 1", ""),
    ("\\sleep 1 h", ""),
    ("\\sleep", ""),
    ("\\nonsense", ""),
    ("\\if 1", ""),
    ("\\else", ""),
    ("\\gset", ""),
];

/// Those of them that are none, as the mistake is not reached.
const ACCEPTED: &[&str] = &["\\set a true OR 1 OR 2"];

struct Arena {
    scratch: Scratch,
    cluster: Cluster,
    pgbench: PathBuf,
    _guard: pgtoll_cluster::Guard,
}

impl Arena {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        // Of several servers the newest.
        let server = servers().pop().unwrap();
        let (cluster, _) = running(&mut guard, &server, "one");
        Self { scratch, cluster, pgbench: server.bin.join("pgbench"), _guard: guard }
    }

    /// Once, as by `pgbench -M prepared`.
    fn pgbench(&self, script: &str) -> Ran {
        let path = self.scratch.path("script.sql");
        std::fs::write(&path, script).unwrap();
        let mut command = program(&self.pgbench);
        command.arg("-h").arg(self.cluster.data().parent().unwrap());
        command.args(["-U", "postgres", "-n", "-t", "1", "-M", "prepared", "--random-seed", "0"]);
        command.args(["-s", "10", "-D", "default_seed=77", "-f"]).arg(path).arg("postgres");
        run(&mut command)
    }

    fn client(&self, mix: &Mix) -> Result<Client, LoadError> {
        let mut client = Client::new(self.cluster.connect("postgres").unwrap(), mix, 10)?;
        client.define("default_seed", 77);
        Ok(client)
    }

    /// Once, by us: what `debug` said.
    fn ours(&self, script: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let mut client = self.client(&Script::parse("script.sql", script)?.into())?;
        client.run_count(1)?;
        Ok(client.take_notes())
    }
}

/// What `debug` said in pgbench.
fn notes(ran: &Ran) -> Vec<String> {
    let lines = ran.stderr.lines().filter(|line| line.starts_with("debug("));
    lines.filter_map(|line| line.split_once("): ")).map(|(_, note)| note.to_owned()).collect()
}

#[test]
fn expressions_have_the_values_of_pgbench() {
    let arena = Arena::new();
    let lines: Vec<String> =
        EXPRESSIONS.iter().map(|expression| format!("\\set x debug({expression})\n")).collect();
    let script = lines.concat();
    let theirs = arena.pgbench(&script);
    let ours = arena.ours(&script).unwrap();
    let theirs = notes(&theirs);
    assert_eq!(
        theirs.len(),
        EXPRESSIONS.len(),
        "pgbench ended at {:?}",
        EXPRESSIONS.get(theirs.len())
    );
    for ((expression, ours), theirs) in EXPRESSIONS.iter().zip(ours).zip(theirs) {
        assert_eq!(ours, theirs, "{expression}");
    }
}

#[test]
fn mistakes_are_those_of_pgbench() {
    let arena = Arena::new();
    for (script, expected) in ERRORS {
        let theirs = arena.pgbench(&format!("{script}\n"));
        let ours = arena.ours(script).map_err(|error| chain(&*error));
        if ACCEPTED.contains(script) {
            assert_eq!((theirs.status, ours.is_ok()), (Some(0), true), "{script}: {ours:?}");
            continue;
        }
        assert_ne!(theirs.status, Some(0), "pgbench accepts {script}");
        assert!(theirs.stderr.contains(expected), "{script}: {}", theirs.stderr);
        let ours = ours.expect_err(script);
        assert!(ours.contains(expected), "{script}: {ours}");
        assert!(ours.contains("script.sql"), "{script}: {ours}");
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(item) = cause {
        text = format!("{text}: {item}");
        cause = item.source();
    }
    text
}

#[test]
fn built_in_scripts_have_the_statements_of_pgbench() {
    let arena = Arena::new();
    for (name, _) in BUILT_IN {
        let ours = Script::built_in(name).unwrap();
        let shown = run(program(&arena.pgbench).arg(format!("--show-script={name}")));
        // The text goes to stderr, behind a line with the name.
        let text = [shown.stdout, shown.stderr].concat();
        let text: String =
            text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        let theirs = Script::parse(name, &text).unwrap();
        assert_eq!(ours.sql().collect::<Vec<_>>(), theirs.sql().collect::<Vec<_>>(), "{name}");
        let sets = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("\\set")).map(str::to_owned).collect()
        };
        let ours = sets(ours.text());
        let theirs = sets(&text);
        assert!(theirs.iter().all(|set| ours.contains(set)), "{ours:?} {theirs:?}");
    }
}

/// Both run it, and both leave the same rows.
const STATEMENTS: &str = r"
\set i 42
\set d 1.0 / 3
\set b 1 = 1
INSERT INTO t VALUES ('values', :i, :d, :b, 'it''s');
SELECT 7 AS seven, 'a''b' AS text, 1.5 AS half, true AS yes \gset p_
INSERT INTO t VALUES (:p_text, :p_seven::int + :i, :p_half, :p_yes, :i::text);
\set sum :p_seven + :p_half
\if :p_yes and :sum > 8
  INSERT INTO t (a, b) VALUES ('if', :p_seven);
\elif true
  INSERT INTO t (a) VALUES ('elif');
\else
  INSERT INTO t (a) VALUES ('else');
\endif
\if :sum < 8
  INSERT INTO t (a) VALUES ('if');
\elif :sum = 8.5
  \if 0
    INSERT INTO t (a) VALUES ('inner if');
  \else
    INSERT INTO t (a) VALUES ('inner else');
  \endif
\endif
SELECT i AS last FROM generate_series(1, 3) i \aset
SELECT 1 AS last WHERE false \aset
UPDATE t SET b = b + 1 WHERE a = 'if' RETURNING b AS after, a \gset
INSERT INTO t (a, b, c) VALUES (:a, :last, :after);
\sleep 1 ms
\sleep 10us
CREATE TABLE u (i int);
INSERT INTO u VALUES (:last);
INSERT INTO t (a, b) SELECT 'u', i FROM u;
DROP TABLE u
";

#[test]
fn statements_do_what_they_do_in_pgbench() {
    let arena = Arena::new();
    let mut connection = arena.cluster.connect("postgres").unwrap();
    let mut rows = |run: &dyn Fn()| {
        connection.execute("CREATE TABLE t (a text, b int, c float8, d bool, e text)").unwrap();
        run();
        let rows = connection.query("SELECT * FROM t").unwrap();
        connection.execute("DROP TABLE t").unwrap();
        rows
    };
    let theirs = rows(&|| {
        let ran = arena.pgbench(STATEMENTS);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    });
    let ours = rows(&|| {
        arena.ours(STATEMENTS).unwrap();
    });
    assert_eq!(theirs.len(), 6, "{theirs:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn a_mix_is_drawn_by_weight_and_belongs_to_the_seed() {
    let arena = Arena::new();
    let script = |name: &str| Script::parse(name, &format!("\\set x debug({name})\n")).unwrap();
    let mix = Mix::new(vec![(script("1"), 3), (script("2"), 0), (script("3"), 1)]).unwrap();
    let mut client = arena.client(&mix).unwrap();
    let mut notes = |seed| {
        client.reseed(seed);
        client.run_count(4000).unwrap();
        client.take_notes()
    };
    let first = notes(1);
    let pick = |note: &str| first.iter().filter(|found| *found == note).count();
    assert!((2850..3150).contains(&pick("int 1")), "{}", pick("int 1"));
    assert_eq!(pick("int 1") + pick("int 3"), 4000);
    assert_eq!(notes(1), first);
    assert_ne!(notes(2), first);
    assert!(Mix::new(vec![(script("1"), 0)]).is_err());
}

#[test]
fn an_open_loop_starts_at_its_rate_whatever_the_server_does() {
    let arena = Arena::new();
    let mix = Script::parse("slow", "\\sleep 20 ms\nSELECT 1").unwrap().into();
    let mut client = arena.client(&mix).unwrap();
    // Too many by half: the last one begins about 0.5 s after its time.
    let second = Duration::from_secs(1);
    let tally = client.run_open(second, 75.0).unwrap();
    assert!((35..125).contains(&tally.transactions), "{tally:?}");
    assert!(tally.elapsed > second + Duration::from_millis(20), "{tally:?}");
    assert!(tally.late > tally.transactions / 2, "{tally:?}");
    let latencies = client.take_latencies();
    assert_eq!(latencies.count(), tally.transactions);
    assert!(latencies.max().unwrap() > Duration::from_millis(100), "{latencies:?}");
    // A rate that nothing can reach by far, and none.
    let rare = client.run_open(Duration::from_millis(50), 0.001).unwrap();
    assert_eq!((rare.transactions, rare.late), (0, 0));
    assert!(rare.elapsed >= Duration::from_millis(50), "{rare:?}");
    assert!(client.run_open(second, 0.0).is_err());
    assert!(client.run_open(second, f64::NAN).is_err());
    assert_eq!(client.take_latencies().count(), 0);
}

#[test]
fn a_built_in_script_tells_other_tables_from_its_own() {
    let arena = Arena::new();
    let mut connection = arena.cluster.connect("postgres").unwrap();
    connection.execute("CREATE TABLE pgbench_accounts (aid int, abalance int)").unwrap();
    let mut client = arena.client(&Script::built_in("select-only").unwrap().into()).unwrap();
    assert!(matches!(client.run_count(1), Err(LoadError::WrongRows { rows: 0, .. })));
    let text = Script::built_in("select-only").unwrap().text().to_owned();
    let mut client = arena.client(&Script::parse("own", &text).unwrap().into()).unwrap();
    assert_eq!(client.run_count(3).unwrap().transactions, 3);
    assert_eq!(client.take_latencies().count(), 3);
}
