//! Messages between pgtoll and its guard: a JSON line each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::ServerUser;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Change to this user, without a working directory.
    Become {
        user: ServerUser,
    },
    /// Ask these `postgres` for their versions.
    AskVersions {
        programs: Vec<PathBuf>,
    },
    Begin {
        user: ServerUser,
        base: PathBuf,
        keep: bool,
    },
    /// Programs that are started from now on write only in the working directory, reads only programs and these,
    /// and reaches nobody.
    Confine {
        readable: Vec<PathBuf>,
    },
    Check {
        path: PathBuf,
    },
    Write {
        path: PathBuf,
        contents: String,
    },
    Append {
        path: PathBuf,
        contents: String,
    },
    Run {
        program: PathBuf,
        arguments: Vec<String>,
        environment: BTreeMap<String, String>,
    },
    Spawn {
        name: String,
        program: PathBuf,
        arguments: Vec<String>,
        environment: BTreeMap<String, String>,
    },
    Signal {
        name: String,
        signal: ProgramSignal,
    },
    Look {
        name: String,
    },
    Reap {
        name: String,
        at_most: Duration,
    },
    Start {
        name: String,
        postgres: PathBuf,
        data: PathBuf,
        log: PathBuf,
    },
    /// Start a server and answer at once; [`Request::LookAtServer`] asks how far it is.
    Launch {
        name: String,
        postgres: PathBuf,
        data: PathBuf,
        log: PathBuf,
    },
    LookAtServer {
        name: String,
    },
    Stop {
        name: String,
        mode: StopMode,
    },
    Kill {
        name: String,
    },
    /// SIGKILL to the postmaster alone, and wait for all of its processes.
    KillPostmaster {
        name: String,
    },
    Finish,
}

impl Request {
    /// Describes the request.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Become { user } => format!("change to user {}", user.name),
            Self::AskVersions { .. } => "ask servers for their versions".into(),
            Self::Begin { base, .. } => format!("make a directory in {}", base.display()),
            Self::Confine { .. } => "confine servers".into(),
            Self::Check { path } => format!("look at {}", path.display()),
            Self::Write { path, .. } | Self::Append { path, .. } => {
                format!("write {}", path.display())
            }
            Self::Run { program, .. } | Self::Spawn { program, .. } => {
                format!("run {}", program.display())
            }
            Self::Signal { name, .. } => format!("signal program {name}"),
            Self::Look { name } | Self::Reap { name, .. } => format!("wait for program {name}"),
            Self::Start { name, .. } | Self::Launch { name, .. } => {
                format!("start cluster {name}")
            }
            Self::LookAtServer { name } => format!("look at cluster {name}"),
            Self::Stop { name, .. } => format!("stop cluster {name}"),
            Self::Kill { name } => format!("kill cluster {name}"),
            Self::KillPostmaster { name } => format!("kill the postmaster of cluster {name}"),
            Self::Finish => "finish".into(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Begun {
        directory: PathBuf,
    },
    Done,
    /// In the order of the programs.
    Versions(Vec<VersionAnswer>),
    /// `path` is the first part of what was asked for that the servers' user may not `purpose`.
    Closed {
        path: PathBuf,
        purpose: String,
    },
    Ran(Output),
    /// The program that was spawned under this name has not ended.
    Running,
    Spawned {
        pid: i32,
    },
    Ready {
        pid: i32,
    },
    Ended {
        status: String,
        usage: Usage,
        log_tail: String,
    },
    Failed {
        action: String,
        message: String,
    },
}

/// The result of `postgres --version`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum VersionAnswer {
    Printed(String),
    /// As [`Reply::Closed`].
    Closed {
        path: PathBuf,
        purpose: String,
    },
    /// Why there is no answer.
    Failed(String),
}

/// How a server stops; the words are `pg_ctl`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMode {
    /// Waits for the clients.
    Smart,
    /// Ends the clients, writes a checkpoint.
    Fast,
    /// As after a crash: no checkpoint, recovery at the next start.
    Immediate,
}

impl StopMode {
    pub(super) fn signal(self) -> Signal {
        match self {
            Self::Smart => Signal::SIGTERM,
            Self::Fast => Signal::SIGINT,
            Self::Immediate => Signal::SIGQUIT,
        }
    }
}

/// A signal for a program in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramSignal {
    /// Freezes it (SIGSTOP): it uses no CPU until it continues.
    Stop,
    /// Lets it continue (SIGCONT).
    Continue,
    /// Asks it to end as Ctrl-C would (SIGINT).
    Interrupt,
    /// Asks it to end (SIGTERM).
    Terminate,
    /// Ends it at once, frozen or not (SIGKILL).
    Kill,
}

impl ProgramSignal {
    pub(super) fn signal(self) -> Signal {
        match self {
            Self::Stop => Signal::SIGSTOP,
            Self::Continue => Signal::SIGCONT,
            Self::Interrupt => Signal::SIGINT,
            Self::Terminate => Signal::SIGTERM,
            Self::Kill => Signal::SIGKILL,
        }
    }

    /// A frozen program would not hear it before it continues.
    pub(super) fn wakes(self) -> bool {
        matches!(self, Self::Interrupt | Self::Terminate)
    }
}

/// How a program ended, and what it used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// It ended with status 0.
    pub success: bool,
    /// How it ended, in words.
    pub status: String,
    /// The end of what it printed, standard output and error together.
    pub tail: String,
    /// The resources of the process and its children.
    pub usage: Usage,
}

/// The resources of a process and all of its descendants, as the kernel reports it to the waiting process
/// (`getrusage(2)` of reaped children, which is what `wait4(2)` reports).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Blocks of 512 bytes written, counted when a page of the page cache becomes dirty.
    pub blocks_written: u64,
}

impl Usage {
    /// User and system time together.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            blocks_written: self.blocks_written.saturating_sub(earlier.blocks_written),
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            blocks_written: self.blocks_written + other.blocks_written,
        }
    }
}
