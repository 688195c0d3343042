//! pgtoll's work on a node's own machine, for the pgtoll that leads a run: it reports how the data
//! directory was left, converts it, and makes a standby of it. One line of JSON is the answer.
//! directory was left, converts it, and makes a standby of it. One line of JSON is the answer.

use std::fs;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use pgtoll_alter::{EnableOptions, Hold, WriteError};
use pgtoll_datadir::DataDirectory;
use pgtoll_format::conf::{self, Entry};
use pgtoll_format::{ClusterState, Lsn};
use pgtoll_wire::Dsn;
use serde::{Deserialize, Serialize};

/// A command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeVerb {
    /// How was the data directory left, and what runs on it?
    Report,
    /// How long does turning checksums on take?
    Predict,
    /// Turn checksums on.
    Enable,
    /// Turn checksums off.
    Disable,
    /// Let a primary that was shut down start as a standby.
    Fence,
    /// Let it start as a primary again.
    Unfence,
    /// Can the server named by the `primary_conninfo` in `postgresql.auto.conf` be reached?
    Reach,
}

impl NodeVerb {
    const ALL: [Self; 7] = [
        Self::Report,
        Self::Predict,
        Self::Enable,
        Self::Disable,
        Self::Fence,
        Self::Unfence,
        Self::Reach,
    ];

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Predict => "predict",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Fence => "fence",
            Self::Unfence => "unfence",
            Self::Reach => "reach",
        }
    }

    /// The verb of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.word() == word)
    }
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAnswer {
    /// Its state.
    Report(NodeReport),
    /// The predicted time of converting it.
    Predicted {
        /// Seconds at least and at most.
        seconds: (f64, f64),
        /// Bytes of the relations' files.
        bytes: u64,
    },
    /// It was converted.
    Converted {
        /// Seconds that it took.
        seconds: f64,
        /// Pages that a server refuses.
        refused_pages: u64,
        /// It was so before.
        already: bool,
    },
    /// It starts as a standby from now on.
    Fenced {
        /// The start of the record of its last checkpoint, that of the shutdown.
        checkpoint: Lsn,
    },
    /// It was done.
    Done,
    /// It could not be done.
    Failed {
        /// The reason, in a sentence.
        message: String,
        /// Returns advice, if there is any.
        hint: Option<String>,
    },
}

/// How a node's data directory was left, and what runs on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are answers to questions of their own")]
pub struct NodeReport {
    /// pgtoll's version there.
    pub version: String,
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// The control file's state, in the words of `pg_controldata`.
    pub state: String,
    /// It says that the server was stopped in good order.
    pub is_shut_down: bool,
    /// It says that the server was stopped in good order as a primary.
    pub is_shut_down_primary: bool,
    /// The control file's checksum version: 0 off, 1 on.
    pub checksum_version: u32,
    /// The start of the last checkpoint's record.
    pub checkpoint: Lsn,
    /// Its timeline.
    pub timeline: u32,
    /// `standby.signal` is there.
    pub standby_signal: bool,
    /// `recovery.signal` is there.
    pub recovery_signal: bool,
    /// The process that holds `postmaster.pid`.
    pub server: Option<u32>,
    /// Bytes that are free where its WAL is.
    pub wal_free_bytes: Option<u64>,
    /// Failover managers that run on its machine, and name its data directory or nothing.
    pub managers: Vec<String>,
}

/// Does what is asked, with this many threads (`None`: all cores). `version` is pgtoll's.
pub fn answer(verb: NodeVerb, data: &Path, version: &str, jobs: Option<usize>) -> NodeAnswer {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = jobs.unwrap_or_else(cores);
    let answered = match verb {
        NodeVerb::Report => report(data, version),
        NodeVerb::Predict => predict(data, version, jobs),
        NodeVerb::Enable => enable(data, jobs),
        NodeVerb::Disable => disable(data),
        NodeVerb::Fence => fence(data),
        NodeVerb::Unfence => unfence(data),
        NodeVerb::Reach => return reach(data),
    };
    answered.unwrap_or_else(|error| {
        let hint = error.hint();
        NodeAnswer::Failed { message: pgtoll_system::error_chain(&error), hint }
    })
}

fn report(data: &Path, version: &str) -> Result<NodeAnswer, WriteError> {
    let directory = DataDirectory::open(data)?;
    let control = &directory.control;
    let has = |name: &str| fs::symlink_metadata(data.join(name)).is_ok();
    let wal = nix::sys::statvfs::statvfs(&data.join("pg_wal")).ok();
    let is_shut_down_primary = control.state == ClusterState::ShutDown;
    Ok(NodeAnswer::Report(NodeReport {
        version: version.to_owned(),
        system_identifier: control.system_identifier,
        state: control.state.to_string(),
        is_shut_down: is_shut_down_primary || control.state == ClusterState::ShutDownInRecovery,
        is_shut_down_primary,
        checksum_version: control.checksum_version,
        checkpoint: control.checkpoint,
        timeline: control.last_checkpoint.timeline,
        standby_signal: has("standby.signal"),
        recovery_signal: has("recovery.signal"),
        server: directory.server()?,
        wal_free_bytes: wal.map(|wal| wal.blocks_available().saturating_mul(wal.fragment_size())),
        managers: managers_of(data),
    }))
}

fn predict(data: &Path, version: &str, jobs: usize) -> Result<NodeAnswer, WriteError> {
    let options = EnableOptions { jobs, sync: true, verify: false };
    let record = pgtoll_alter::dry_run(data, &options, version)?;
    let seconds = record.predicted_seconds.unwrap_or_default();
    Ok(NodeAnswer::Predicted { seconds, bytes: record.bytes })
}

fn enable(data: &Path, jobs: usize) -> Result<NodeAnswer, WriteError> {
    let began = Instant::now();
    let hold = Hold::take(data)?;
    let options = EnableOptions { jobs, sync: true, verify: false };
    let changed = pgtoll_alter::enable(&hold, &options, &mut |_| ControlFlow::Continue(()))?;
    Ok(NodeAnswer::Converted {
        seconds: began.elapsed().as_secs_f64(),
        refused_pages: changed.pages.refused,
        already: changed.already,
    })
}

fn disable(data: &Path) -> Result<NodeAnswer, WriteError> {
    let began = Instant::now();
    let hold = Hold::take(data)?;
    let changed = pgtoll_alter::disable(&hold, true)?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(NodeAnswer::Converted { seconds, refused_pages: 0, already: changed.already })
}

fn fence(data: &Path) -> Result<NodeAnswer, WriteError> {
    let hold = Hold::take(data)?;
    pgtoll_alter::fence(&hold)?;
    Ok(NodeAnswer::Fenced { checkpoint: hold.control().checkpoint })
}

fn unfence(data: &Path) -> Result<NodeAnswer, WriteError> {
    pgtoll_alter::unfence(&Hold::take(data)?).map(|()| NodeAnswer::Done)
}

/// Connects as a standby would. The connection string is read from the server's own file, since it
/// may have a password in it, which a command line would show to every user.
fn reach(data: &Path) -> NodeAnswer {
    let failed =
        |message: String| NodeAnswer::Failed { message, hint: Some(REACH_HINT.to_owned()) };
    let Some(conninfo) = auto_setting(data, "primary_conninfo") else {
        return failed("postgresql.auto.conf has no primary_conninfo".to_owned());
    };
    if let Err(error) = pgtoll_alter::become_owner_of(data) {
        return failed(pgtoll_system::error_chain(&error));
    }
    let dsn = match Dsn::parse(&conninfo) {
        Ok(dsn) => dsn.with_default_connect_timeout(std::time::Duration::from_secs(5)),
        Err(error) => return failed(format!("primary_conninfo cannot be read: {error}")),
    };
    match dsn.connect_replication() {
        Ok(_) => NodeAnswer::Done,
        Err(error) => failed(pgtoll_system::error_chain(&error)),
    }
}

const REACH_HINT: &str = "the old primary will stream with this connection: give the node that takes \
                          over the key conninfo, and see its pg_hba.conf";

/// A setting in `postgresql.auto.conf`; `None`: it has none.
fn auto_setting(data: &Path, wanted: &str) -> Option<String> {
    let text = pgtoll_system::read_to_string(&data.join("postgresql.auto.conf"), 1 << 20).ok()?;
    let mut settings = conf::parse(&text).entries.into_iter().filter_map(|entry| match entry {
        Entry::Setting { name, value } if name == wanted => Some(value),
        _ => None,
    });
    settings.next_back()
}

/// Failover managers that this machine runs, but for those that name another data directory.
fn managers_of(data: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<String> = processes
        .filter_map(|process| {
            let words = zero_ended(&process.path().join("cmdline"));
            let (name, arguments) = manager_of(&words)?;
            let environment = zero_ended(&process.path().join("environ"));
            concerns(data, arguments, &environment).then(|| name.to_owned())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Words of a process, each with a zero byte behind it. None of one that is gone, or another user's.
fn zero_ended(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Whether a manager with these arguments and this environment may manage the data directory: it names
/// it, by itself or in a configuration file, or names none.
fn concerns(data: &Path, arguments: &[String], environment: &[String]) -> bool {
    let data = data.to_string_lossy();
    let of_environment = environment.iter().filter_map(|word| word.strip_prefix("PGDATA="));
    let directories =
        arguments.iter().filter_map(|word| path_of(word)).filter(|path| path.is_dir());
    let named = of_environment
        .map(str::to_owned)
        .chain(directories.map(|path| path.to_string_lossy().into_owned()))
        .chain(arguments.iter().filter_map(|word| text_of(word)));
    let places: Vec<String> = named.collect();
    places.is_empty() || places.iter().chain(arguments).any(|place| place.contains(&*data))
}

const MANAGERS: [&str; 5] = ["patroni", "repmgrd", "pg_autoctl", "stolon-keeper", "pacemakerd"];

/// The failover manager that a command line starts, by itself or by an interpreter, and its
/// arguments.
fn manager_of(words: &[String]) -> Option<(&'static str, &[String])> {
    let (program, arguments) = words.split_first()?;
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let (program, arguments) = if base(program).starts_with("python") {
        arguments.split_first()?
    } else {
        (program, arguments)
    };
    let name = base(program);
    MANAGERS.into_iter().find(|manager| *manager == name).map(|manager| (manager, arguments))
}

/// The path in a word like `/etc/patroni.yml` or `--pgdata=/srv/data`.
fn path_of(word: &str) -> Option<&Path> {
    word.rsplit('=').next().filter(|path| path.starts_with('/')).map(Path::new)
}

/// The text of a configuration file that a command line names.
fn text_of(word: &str) -> Option<String> {
    let mut text = Vec::new();
    let file = pgtoll_system::open(path_of(word)?).ok()?;
    file.take(1 << 18).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_found_by_their_command_line() {
        let check = |line: &str, expected: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(manager_of(&words).map(|(name, _)| name), expected, "{line}");
        };
        check("/usr/bin/python3 /usr/bin/patroni /etc/patroni.yml", Some("patroni"));
        check("/usr/lib/postgresql/15/bin/repmgrd -f /etc/repmgr.conf", Some("repmgrd"));
        check("less /var/log/patroni", None);
        check("vi /etc/patroni.yml", None);
        check("postgres -D /srv/patroni", None);
    }

    #[test]
    fn a_manager_of_another_data_directory_is_none_of_ours() {
        let here = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| here.path().join(name));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        let words =
            |texts: &[&str]| texts.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let with = |path: &Path| words(&["run", "--pgdata", &path.to_string_lossy()]);
        assert!(concerns(&own, &with(&own), &[]));
        assert!(!concerns(&own, &with(&other), &[]));
        // One that names nothing may be anybody's.
        assert!(concerns(&own, &words(&["run"]), &[]));
        let environment = |path: &Path| words(&["HOME=/", &format!("PGDATA={}", path.display())]);
        assert!(concerns(&own, &words(&["run"]), &environment(&own)));
        assert!(!concerns(&own, &words(&["run"]), &environment(&other)));
        let file = here.path().join("repmgr.conf");
        fs::write(&file, format!("data_directory='{}'\n", own.display())).unwrap();
        let by_file = words(&["-f", &file.to_string_lossy()]);
        assert!(concerns(&own, &by_file, &[]) && !concerns(&other, &by_file, &[]));
    }

    #[test]
    fn verbs_are_found_by_their_words() {
        for verb in NodeVerb::ALL {
            assert_eq!(NodeVerb::of_word(verb.word()), Some(verb));
        }
        assert_eq!(NodeVerb::of_word("stop"), None);
    }
}
