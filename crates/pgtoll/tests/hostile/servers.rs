//! Servers that lie, stay silent, or never end, and secrets that no server and no reader may get.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use pgtoll_cluster::{Cluster, StopMode};

use crate::support::{
    PATIENCE, Ran, Scratch, ends_within, ordinary_user, pgtoll, pid_of, program, run, running,
    server,
};

/// What a fake server does when it has heard something.
#[derive(Clone)]
enum Act {
    Say(Vec<u8>),
    /// This again and again.
    Endless(Vec<u8>),
    /// Waits for a message.
    Hear,
    Silence,
}

type Answers = Arc<dyn Fn(&str) -> Vec<Act> + Send + Sync>;

/// A fake server.
#[derive(Clone)]
struct Fake {
    /// The byte that it answers a request for TLS by; none: it stays silent.
    tls: Option<u8>,
    /// After the client has introduced itself.
    greeting: Vec<Act>,
    /// To each query.
    answers: Answers,
}

impl Fake {
    fn new(answers: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self { tls: Some(b'N'), greeting: vec![Act::Say(greeting())], answers: Arc::new(answers) }
    }

    fn greeting(acts: Vec<Act>) -> Self {
        Self { greeting: acts, ..Self::new(|_| Vec::new()) }
    }

    /// Listens at a TCP port.
    fn listen(self) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (listening, sender) = Listening::new(port);
        let heard = listening.heard.clone();
        // Ends with the tests' process.
        thread::spawn(move || {
            for client in listener.incoming() {
                self.begin(client.unwrap(), &sender, &heard);
            }
        });
        listening
    }

    /// Listens at a data directory's socket.
    fn listen_at(self, socket: &Path) -> Listening {
        let listener = UnixListener::bind(socket).unwrap();
        fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
        let (listening, sender) = Listening::new(0);
        let heard = listening.heard.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                self.begin(client.unwrap(), &sender, &heard);
            }
        });
        listening
    }

    fn begin(
        &self,
        client: impl Read + Write + Send + 'static,
        silent: &Sender<()>,
        heard: &Arc<Mutex<Vec<u8>>>,
    ) {
        let this = self.clone();
        let silent = silent.clone();
        let heard = heard.clone();
        thread::spawn(move || {
            let mut talk = Talk { client, silent, heard };
            // The client may go at any time.
            let _ = this.serve(&mut talk);
        });
    }

    fn serve(&self, talk: &mut Talk<impl Read + Write>) -> std::io::Result<()> {
        let mut startup = talk.packet()?;
        if startup == SSL_REQUEST {
            match self.tls {
                Some(answer) => talk.client.write_all(&[answer])?,
                None => talk.act(&Act::Silence)?,
            }
            if self.tls == Some(b'S') {
                return talk.act(&Act::Silence);
            }
            startup = talk.packet()?;
        }
        assert!(startup.starts_with(&[0, 3, 0, 0]), "{startup:?}");
        for act in &self.greeting {
            talk.act(act)?;
        }
        loop {
            let mut tag = [0];
            talk.read(&mut tag)?;
            let body = talk.packet()?;
            if tag == *b"Q" {
                let sql = String::from_utf8_lossy(&body).into_owned();
                for act in (self.answers)(&sql) {
                    talk.act(&act)?;
                }
            }
        }
    }
}

const SSL_REQUEST: [u8; 4] = [4, 210, 22, 47];

struct Talk<S> {
    client: S,
    silent: Sender<()>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl<S: Read + Write> Talk<S> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        self.client.read_exact(into)?;
        self.heard.lock().unwrap().extend_from_slice(into);
        Ok(())
    }

    /// What follows a length.
    fn packet(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.read(&mut body)?;
        Ok(body)
    }

    fn act(&mut self, act: &Act) -> std::io::Result<()> {
        match act {
            Act::Say(bytes) => self.client.write_all(bytes),
            Act::Endless(bytes) => {
                let many = bytes.repeat(1 + 100_000 / bytes.len());
                loop {
                    self.client.write_all(&many)?;
                }
            }
            Act::Hear => {
                self.read(&mut [0])?;
                self.packet().map(|_| ())
            }
            Act::Silence => {
                let _ = self.silent.send(());
                let mut byte = [0];
                loop {
                    self.read(&mut byte)?;
                }
            }
        }
    }
}

struct Listening {
    port: u16,
    /// A message for each time that the server falls silent.
    silent: Receiver<()>,
    /// All that all clients said.
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Listening {
    fn new(port: u16) -> (Self, Sender<()>) {
        let (sender, silent) = channel();
        (Self { port, silent, heard: Arc::default() }, sender)
    }

    fn dsn(&self) -> String {
        format!("host=127.0.0.1 port={} user=alice password=sesame dbname=shop", self.port)
    }

    fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap().clone()
    }
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn ready() -> Vec<u8> {
    frame(b'Z', b"I")
}

/// Admits everybody.
fn greeting() -> Vec<u8> {
    let version = frame(b'S', b"server_version\x0015.7\0");
    [frame(b'R', &[0; 4]), version, frame(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]), ready()].concat()
}

fn refusal(sqlstate: &str, message: &str) -> Vec<u8> {
    frame(b'E', format!("SFATAL\0VFATAL\0C{sqlstate}\0M{message}\0\0").as_bytes())
}

fn description(columns: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for name in columns {
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[0; 19]);
    }
    frame(b'T', &body)
}

fn row(values: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    frame(b'D', &body)
}

/// An answer of one row.
fn one(columns: &[&str], values: &[&str]) -> Vec<Act> {
    let parts = [description(columns), row(values), frame(b'C', b"SELECT 1\0"), ready()];
    vec![Act::Say(parts.concat())]
}

/// Runs it with little memory, and not for ever.
fn run_bounded(command: &mut Command) -> Ran {
    let mut bounded = program("sh");
    // A thread's stack is 8 MB of it, and each makes an arena of 64.
    bounded.args(["-c", "ulimit -v 2500000; exec \"$0\" \"$@\""]).arg(command.get_program());
    bounded.args(command.get_args());
    bounded.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = bounded.spawn().unwrap();
    let ended = ends_within(pid_of(&child), PATIENCE);
    if !ended {
        kill(Pid::from_raw(pid_of(&child)), Signal::SIGKILL).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ended, "it did not end: {output:?}");
    assert_eq!(output.status.signal(), None, "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The commands that connect to a server by `--dsn`.
fn with_dsn(dsn: &str) -> Vec<Command> {
    let commands: [&[&str]; 3] = [&["verify"], &["wal", "stats"], &["wal", "whatif"]];
    let command = |words: &[&str]| {
        let mut command = pgtoll();
        command.args(words).args(["--dsn", dsn]);
        command
    };
    commands.into_iter().map(command).collect()
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends it by one signal.
fn interrupt(child: Child, signal: Signal) -> Ran {
    kill(Pid::from_raw(pid_of(&child)), signal).unwrap();
    let ended = ends_within(pid_of(&child), PATIENCE);
    if !ended {
        kill(Pid::from_raw(pid_of(&child)), Signal::SIGKILL).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ended, "the first signal did not end it: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Harm: a program that waits for a server that says nothing, and that one cannot end.
#[test]
fn the_first_signal_ends_waiting_for_a_silent_server() {
    let silent_when_asked = Fake::new(|_| vec![Act::Silence]);
    let silent_at_once = Fake::greeting(vec![Act::Silence]);
    let silent_to_tls = Fake { tls: None, ..silent_at_once.clone() };
    let silent_in_tls = Fake { tls: Some(b'S'), ..silent_at_once.clone() };
    let half_a_message = Fake::greeting(vec![Act::Say(greeting()[..7].to_vec()), Act::Silence]);
    for fake in [silent_when_asked, silent_at_once, silent_to_tls, silent_in_tls, half_a_message] {
        let listening = fake.listen();
        let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM];
        for (command, signal) in with_dsn(&listening.dsn()).into_iter().zip(signals) {
            let child = spawn(command);
            listening.silent.recv_timeout(PATIENCE).unwrap();
            let ran = interrupt(child, signal);
            assert_eq!(ran.status, Some(2), "{ran:?}");
            assert!(ran.stderr.contains("interrupted while waiting for the server"), "{ran:?}");
        }
    }
}

/// The same when the server has begun to send its WAL.
#[test]
fn the_first_signal_ends_waiting_for_wal() {
    let fake = Fake::new(|sql| match sql.trim_end_matches('\0') {
        "SELECT redo_lsn FROM pg_control_checkpoint()" => one(&["redo_lsn"], &["0/1000028"]),
        "SHOW wal_segment_size" => one(&["wal_segment_size"], &["16MB"]),
        "IDENTIFY_SYSTEM" => one(&["systemid", "timeline", "xlogpos"], &["7", "1", "0/3000000"]),
        sql if sql.starts_with("START_REPLICATION") => {
            // What wants an answer has one when the client waits for WAL.
            let keepalive = [&b"k"[..], &[0; 16], &[1]].concat();
            let output = [frame(b'W', b"\0\0\0"), frame(b'd', &keepalive)].concat();
            vec![Act::Say(output), Act::Hear, Act::Silence]
        }
        _ => vec![Act::Silence],
    });
    let listening = fake.listen();
    let mut command = pgtoll();
    command.args(["wal", "stats", "--json", "--dsn", &listening.dsn()]);
    let child = spawn(command);
    listening.silent.recv_timeout(PATIENCE).unwrap();
    let ran = interrupt(child, Signal::SIGTERM);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("\"interrupted\""), "{ran:?}");
}

/// Harm: all of the machine's memory, by a server that does not stop.
#[test]
fn endless_answers_are_left() {
    let check = |fake: Fake, expected: &str| {
        let listening = fake.listen();
        for mut command in with_dsn(&listening.dsn()) {
            let ran = run_bounded(&mut command);
            assert_eq!(ran.status, Some(2), "{ran:?}");
            assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
        }
    };
    let admitted = Act::Say(frame(b'R', &[0; 4]));
    let names: Vec<u8> = (0..5000)
        .flat_map(|at| frame(b'S', format!("name{at}\0{}\0", "x".repeat(1000)).as_bytes()))
        .collect();
    let settings = vec![admitted.clone(), Act::Endless(names)];
    check(Fake::greeting(settings), "server sent more than 1,000 settings");
    let setting = frame(b'S', b"TimeZone\0UTC\0");
    let settings = vec![admitted, Act::Endless(setting)];
    check(Fake::greeting(settings), "server sent more than 100,000 notices in one answer");
    let notice = frame(b'N', b"SNOTICE\0C00000\0Mhello\0\0");
    let notices = vec![Act::Endless(notice.clone())];
    check(Fake::greeting(notices), "server sent more than 100,000 notices in one answer");
    let notices = Fake::new(move |_| vec![Act::Endless(notice.clone())]);
    check(notices, "server sent more than 100,000 notices in one answer");
    let rows = |_: &str| {
        vec![Act::Say(description(&["a"])), Act::Endless(row(&["x".repeat(10_000).as_str()]))]
    };
    check(Fake::new(rows), "server sent more than 256 MB of rows in one answer");
    let small = |_: &str| vec![Act::Say(description(&[])), Act::Endless(row(&[]))];
    check(Fake::new(small), "server sent more than 256 MB of rows in one answer");
}

/// Harm: a panic, or memory by a length that is only claimed.
#[test]
fn broken_messages_are_errors() {
    let claims = |tag: u8, length: i32| [&[tag], &length.to_be_bytes()[..]].concat();
    let begins = [
        claims(b'R', -1),
        claims(b'R', 0),
        claims(b'R', i32::MAX),
        claims(b'E', i32::MAX),
        claims(b'S', 1 << 20),
        frame(b'R', &[0, 0]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ];
    for begin in begins {
        let listening = Fake::greeting(vec![Act::Say(begin), Act::Silence]).listen();
        let mut command = pgtoll();
        let ran = run_bounded(command.args(["verify", "--dsn", &listening.dsn()]));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.starts_with("pgtoll: server broke the protocol"), "{ran:?}");
    }
    for length in [-1, 0, i32::MAX] {
        let answer = [description(&["a"]), claims(b'D', length)].concat();
        let fake = Fake::new(move |_| vec![Act::Say(answer.clone()), Act::Silence]);
        for mut command in with_dsn(&fake.listen().dsn()) {
            let ran = run_bounded(&mut command);
            assert_eq!(ran.status, Some(2), "{ran:?}");
            assert!(ran.stderr.contains("server broke the protocol"), "{ran:?}");
        }
    }
    // What is in an error's text is the printer's concern; here it is only taken.
    let message = format!("\x1b[31m\x07{}\u{202e}", "long ".repeat(1_000_000));
    let listening = Fake::greeting(vec![Act::Say(refusal("XX000", &message))]).listen();
    for mut command in with_dsn(&listening.dsn()) {
        let ran = run_bounded(&mut command);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.len() < 40_000, "{} bytes", ran.stderr.len());
    }
}

/// Harm: advice that has nothing to do with the refusal.
#[test]
fn hints_fit_the_refusal() {
    let check = |fake: Fake, hint: &str, other: &str| {
        let listening = fake.listen();
        let mut command = pgtoll();
        let ran = run_bounded(command.args(["wal", "stats", "--dsn", &listening.dsn()]));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let advice = ran.stderr.split_once("hint:").unwrap().1;
        assert!(advice.contains(hint) && !advice.contains(other), "{ran:?}");
    };
    let refused =
        |sqlstate: &str, message: &str| Fake::greeting(vec![Act::Say(refusal(sqlstate, message))]);
    check(refused("28P01", "password authentication failed"), "~/.pgpass", "REPLICATION");
    check(refused("28000", "no pg_hba.conf entry"), "pg_hba.conf", "REPLICATION");
    check(refused("3D000", "no such database"), "dbname=", "REPLICATION");
    let refusals = [
        ("28000", "the database replication to pg_hba.conf"),
        ("42501", "ALTER ROLE … REPLICATION"),
        ("53300", "max_wal_senders"),
    ];
    for (sqlstate, hint) in refusals {
        let fake = Fake::new(move |sql| match sql.trim_end_matches('\0') {
            "SELECT redo_lsn FROM pg_control_checkpoint()" => one(&["redo_lsn"], &["0/1000028"]),
            _ => vec![Act::Say([refusal(sqlstate, "no"), ready()].concat())],
        });
        check(fake, hint, "pgpass");
    }
}

const SECRET: &str = "ROOT-PGPASS-SECRET";

/// A data directory whose owner has put there what it likes.
struct Planted {
    scratch: Scratch,
    cluster: Cluster,
    /// Ends the cluster's files with the test.
    _guard: pgtoll_cluster::Guard,
}

impl Planted {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let (cluster, _) = running(&mut guard, &server(), "one");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let home = scratch.path("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join(".pgpass"), format!("*:*:*:*:{SECRET}\n")).unwrap();
        fs::set_permissions(home.join(".pgpass"), fs::Permissions::from_mode(0o600)).unwrap();
        Self { scratch, cluster, _guard: guard }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path(".s.PGSQL.5432")
    }

    /// Says that this process is the server.
    fn claim(&self, pid: u32) {
        let data = self.cluster.data();
        let directory = self.scratch.path("");
        let text = format!(
            "{pid}\n{}\n1763800000\n5432\n{}\n\n 1 2\nready   \n",
            data.display(),
            directory.display()
        );
        fs::write(data.join("postmaster.pid"), text).unwrap();
    }

    /// The commands that find a server by its data directory, in an environment with secrets.
    fn commands(&self) -> Vec<Command> {
        let mut verify = pgtoll();
        verify.arg("verify").arg(self.cluster.data());
        let mut corrupt = pgtoll();
        corrupt.arg("corrupt").arg(self.cluster.data()).arg("--undo-file");
        corrupt.arg(self.scratch.path("undo.json"));
        corrupt.args(["--online", "--file", "base/1/1259", "--block", "0"]);
        corrupt.args(["--kind", "bit", "--yes"]);
        for command in [&mut verify, &mut corrupt] {
            command.env("HOME", self.scratch.path("home")).env("PGPASSWORD", SECRET);
            command.env("PGUSER", SECRET).env("PGAPPNAME", SECRET).env("PGOPTIONS", SECRET);
        }
        vec![verify, corrupt]
    }
}

fn asks_for_a_password() -> Fake {
    let requested = Act::Say(frame(b'R', &[0, 0, 0, 3]));
    Fake::greeting(vec![requested, Act::Hear, Act::Say(refusal("28P01", "no")), Act::Silence])
}

/// Harm: root's password, given to whom the owner of the data named.
#[test]
fn a_found_socket_gets_no_secret() {
    let planted = Planted::new();
    if geteuid().is_root() {
        // The fake server is this process, and the directory's owner is to be its user.
        chown(planted.cluster.data(), Some(0), None).unwrap();
    }
    planted.claim(std::process::id());
    let listening = asks_for_a_password().listen_at(&planted.socket());
    for mut command in planted.commands() {
        // `verify` goes on without the server, `corrupt --online` does not.
        let ran = run(&mut command);
        let message = format!("{}{}", ran.stdout, ran.stderr);
        let output = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.contains("a socket that postmaster.pid names gets none"), "{ran:?}");
        assert!(output.contains("--dsn"), "{ran:?}");
    }
    let heard = String::from_utf8_lossy(&listening.heard()).into_owned();
    assert!(heard.contains("user\0postgres\0"), "{heard:?}");
    assert!(!heard.contains(SECRET), "{heard:?}");
}

/// Harm: a word to a process that is not the server's, as one that took its socket's place.
#[test]
fn a_found_socket_of_another_user_hears_nothing() {
    // Only root can make a process of another user.
    let Some(owner) = ordinary_user().filter(|_| geteuid().is_root()) else { return };
    let planted = Planted::new();
    chown(planted.cluster.data(), Some(owner.uid.as_raw()), None).unwrap();
    let mut sleeping = program("sleep").arg("600").uid(owner.uid.as_raw()).spawn().unwrap();
    planted.claim(sleeping.id());
    let listening = asks_for_a_password().listen_at(&planted.socket());
    let runs: Vec<Ran> = planted.commands().iter_mut().map(run).collect();
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    for ran in runs {
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("user 0 listens at"), "{ran:?}");
        assert!(ran.stderr.contains("name the connection with --dsn"), "{ran:?}");
    }
    assert!(listening.heard().is_empty(), "{:?}", String::from_utf8_lossy(&listening.heard()));
}

/// Harm: the same as of silent servers that were named.
#[test]
fn the_first_signal_ends_waiting_for_a_found_server() {
    let planted = Planted::new();
    if geteuid().is_root() {
        chown(planted.cluster.data(), Some(0), None).unwrap();
    }
    planted.claim(std::process::id());
    let listening = Fake::greeting(vec![Act::Silence]).listen_at(&planted.socket());
    for command in planted.commands() {
        let child = spawn(command);
        listening.silent.recv_timeout(PATIENCE).unwrap();
        let ran = interrupt(child, Signal::SIGTERM);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("interrupted while waiting for the server"), "{ran:?}");
    }
}

/// Harm: a password on stderr, from where cron mails it.
#[test]
fn mistaken_connection_strings_show_no_secret() {
    let scratch = Scratch::new();
    for dsn in mistaken() {
        let commands: [&[&str]; 4] = [
            &["verify"],
            &["wal", "stats", "-o", "out.json"],
            &["wal", "whatif", "-o", "out.json"],
            &["corrupt", "/none", "--online", "--yes", "--file", "x", "--kind", "bit"],
        ];
        for words in commands {
            let mut command = pgtoll();
            command.current_dir(scratch.work()).args(words).arg("--dsn").arg(&dsn);
            let ran = run(&mut command);
            check_hidden(&ran, &dsn);
            assert!(ran.stderr.starts_with("error: invalid value for '--dsn <DSN>'"), "{ran:?}");
            let left = fs::read_dir(scratch.work()).unwrap().count();
            assert_eq!(left, 0, "a record of {dsn}");
        }
    }
    // From the environment, too.
    for (name, value) in [("PGPORT", "Alpha9"), ("PGSSLMODE", "Alpha9"), ("PGREQUIREAUTH", "x")] {
        let mut command = pgtoll();
        command.args(["verify", "--dsn", "password=Beta8"]).env(name, value);
        check_hidden(&run(&mut command), name);
    }
}

/// Connection strings with a mistake each, whose password is in parts that are told apart.
fn mistaken() -> Vec<String> {
    let passwords = ["Alpha9Beta8", "Alpha9@Beta8", "Alpha9/Beta8", "Alpha9:Beta8", "Alpha9?Beta8"];
    let forms = [
        "host=x passwrd=SECRET",
        "postgresql://u:SECRET@h:99999999/db",
        "postgresql://u:SECRET%zz@h/db",
        "postgresql://u:SECRET@h/db?require_auth=none",
        "host=x password=SECRET port=abc",
        "host=x password=SECRET Beta8",
        "host=x password='SECRET",
        "host=x password=SECRET sslmode=Alpha9",
        "postgresql://u:SECRET@h/db?password=Alpha9&Beta8=1",
        "postgres://u:SECRET@[::1/db",
        "mysql://u:SECRET@h/db",
        "postgresql//u:SECRET@h/db?a=b",
    ];
    let all =
        forms.iter().flat_map(|form| passwords.map(|password| form.replace("SECRET", password)));
    all.collect()
}

/// Neither the whole password nor a part of it.
fn check_hidden(ran: &Ran, label: &str) {
    assert_eq!(ran.status, Some(2), "{label}: {ran:?}");
    for part in ["Alpha9", "Beta8"] {
        assert!(!ran.stdout.contains(part) && !ran.stderr.contains(part), "{label}: {ran:?}");
    }
}

/// Harm: the same, where a connection string stands in another place than behind `--dsn`.
#[test]
fn connection_strings_in_other_places_show_no_secret() {
    let scratch = Scratch::new();
    let places: [&[&str]; 14] = [
        &["verify", "DSN"],
        &["verify", "/none", "--settle", "DSN"],
        &["verify", "/none", "--rate=DSN"],
        &["verify", "--dns", "DSN"],
        &["wal", "stats", "DSN"],
        &["wal", "whatif", "DSN"],
        &["report", "DSN"],
        &["report", "/none", "--format", "DSN"],
        &["page", "show", "DSN", "0"],
        &["enable", "DSN"],
        &["corrupt", "DSN", "--file", "x", "--kind", "bit", "--yes"],
        &["measure", "--check", "DSN"],
        &["doctor", "--work-dir", "DSN"],
        &["DSN"],
    ];
    let dsns = [
        "postgresql://u:Alpha9Beta8@h/db",
        "postgresql://u:Alpha9@Beta8@h/db",
        "postgresql://u:Alpha9 Beta8@h/db",
        "postgres://u:Alpha9/Beta8@h:1/db",
        "host=h password=Alpha9Beta8 user=u",
        "host=h password='Alpha9 Beta8' user=u",
        "host=h passwrd=Alpha9 Beta8",
    ];
    for words in places {
        for dsn in dsns {
            let mut command = pgtoll();
            command.current_dir(scratch.work());
            command.args(words.iter().map(|word| word.replace("DSN", dsn)));
            let ran = run(&mut command);
            check_hidden(&ran, &format!("{words:?} {dsn}"));
        }
    }
}
