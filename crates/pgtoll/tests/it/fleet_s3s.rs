//! A fleet in a store that s3s-fs serves, a server of S3 that is not the tests' own and keeps objects as files:
//! it is killed while a shard reads, and started again.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::yield_now;

use crate::fleet::{Backups, found, json, tar};
use crate::support::{Ran, Scratch, pgtoll, program, run};

/// Where s3s-fs is: `cargo install s3s-fs --version 0.14.1 --features binary`. Building it takes too long for
/// every run of the tests; with it, `cargo test -p pgtoll --features manual-tests --test it fleet_s3s`.
const S3S: &str = "PGTOLL_TEST_S3S";

struct S3sServer {
    program: PathBuf,
    root: PathBuf,
    port: u16,
    child: Child,
}

impl S3sServer {
    fn start(program: PathBuf, root: PathBuf) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = serve(&program, &root, port);
        Self { program, root, port, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = serve(&self.program, &self.root, self.port);
    }

    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    fn run_fleet(&self, words: &[&str], status: i32) -> Ran {
        let mut command = pgtoll();
        let ran = run(command.args(words).env_remove("AWS_PROFILE").envs(self.environment()));
        assert_eq!(ran.status, Some(status), "{words:?}: {ran:?}");
        ran
    }
}

impl Drop for S3sServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts it, and waits until it listens.
fn serve(server: &Path, root: &Path, port: u16) -> Child {
    let mut command = program(server);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", KEY, "--secret-key", SECRET]).arg(root);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "s3s-fs has ended");
        yield_now();
    }
    child
}

const KEY: &str = "key";
const SECRET: &str = "secret-of-tests";

#[cfg_attr(feature = "manual-tests", test)]
#[cfg_attr(not(feature = "manual-tests"), expect(dead_code, reason = "run by hand"))]
fn a_shard_survives_a_store_that_dies_while_it_reads() {
    let program = std::env::var_os(S3S).expect("PGTOLL_TEST_S3S names s3s-fs");
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let root = scratch.path("root");
    let store = scratch.path("root/backups");
    for name in ["a", "b"] {
        fs::create_dir_all(store.join(name)).unwrap();
    }
    fs::create_dir_all(root.join("ops")).unwrap();
    fs::write(store.join("a/base.tar"), tar(&backups.damaged)).unwrap();
    // Read file by file, so by many requests.
    fs::rename(&backups.sound, store.join("b/monday")).unwrap();
    let mut server = S3sServer::start(program.into(), root);
    let [at, alone] = ["s3://ops/w/", "s3://ops/alone/"];
    for plan in [at, alone] {
        let planned = server.run_fleet(&["fleet", "plan", "s3://backups", "-o", plan], 0).stdout;
        assert!(planned.starts_with("2 backups, "), "{planned}");
    }
    let other = server.run_fleet(&["fleet", "plan", "s3://backups/a", "-o", at], 2);
    assert!(other.stderr.contains("exists, and is another plan"), "{other:?}");
    server.run_fleet(&["fleet", "run", alone, "--all"], 0);

    let mut command = pgtoll();
    command.args(["fleet", "run", at, "--all"]).env_remove("AWS_PROFILE");
    let mut shard = command.envs(server.environment()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(shard.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "pgtoll: s3://backups/a: findings\n");
    server.kill();
    server.start_again();
    line.clear();
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(shard.wait().unwrap().code(), Some(0), "{line}");
    assert!(line.starts_with("pgtoll: s3://backups/b/monday: sound\n"), "{line}");

    let merged = |plan: &str| json(&server.run_fleet(&["fleet", "merge", plan, "--json"], 1));
    assert_eq!(found(&merged(at)), found(&merged(alone)));
    let again = server.run_fleet(&["fleet", "run", at, "--all"], 0);
    assert!(again.stderr.contains("0 verified, 2 had a result"), "{again:?}");
}
