//! The guard: a child process of pgtoll that starts every server and program, and sees to it that
//! nothing stays behind.
//!
//! pgtoll and its guard talk over a socket pair, one JSON line a request, one a reply. The guard is
//! a subreaper, so a backend whose postmaster died becomes the guard's child and is not lost. When
//! the socket closes — pgtoll ended, by whatever cause — the guard stops the whole tree (frozen
//! processes too), removes the directory and ends. It does so as the servers' user, in a session
//! of its own, where the terminal's Ctrl-C does not reach.

mod child;
mod protocol;
mod versions;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

pub use child::confine::Confinement;
pub use child::guard_main;
use pgtoll_system::{Interrupt, Registered};
pub use protocol::{Output, ProgramSignal, StopMode, Usage};
use protocol::{Reply, Request, VersionAnswer};

use crate::error::last_words;
use crate::process::command;
use crate::{ClusterError, ServerUser};

/// How to begin a guard.
#[derive(Clone, Debug)]
pub struct GuardOptions {
    /// The program that calls [`guard_main`] when its first argument is `__guard`.
    pub executable: PathBuf,
    /// The directory in which the guard makes its working directory.
    pub base: PathBuf,
    /// Whom it and its servers run as.
    pub user: ServerUser,
    /// The working directory stays, however pgtoll ends.
    pub keep: bool,
}

impl GuardOptions {
    /// The guard is this very program, also when its file was replaced meanwhile.
    pub fn of_this_program(base: PathBuf, user: ServerUser) -> Self {
        Self { executable: "/proc/self/exe".into(), base, user, keep: false }
    }
}

/// How far a server is that was started without waiting for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchState {
    /// It recovers, or is about to.
    Starting,
    /// It takes connections.
    Ready,
    /// It ended.
    Ended {
        /// How, in words.
        status: String,
        /// The line of its log since its start that says most.
        last_words: String,
    },
}

/// pgtoll's end of the guard. Dropping it ends the guard and all that it started, and waits for
/// that.
#[derive(Debug)]
pub struct Guard {
    stream: BufReader<UnixStream>,
    child: Child,
    /// pgtoll's own program, which the guard is.
    executable: PathBuf,
    directory: PathBuf,
    user: ServerUser,
    interrupt: Interrupt,
    _on_signal: Registered,
}

impl Guard {
    /// Starts the guard, lets it change its user and make its working directory.
    pub fn begin(options: &GuardOptions, interrupt: &Interrupt) -> Result<Self, ClusterError> {
        let mut guard = Self::launch(&options.executable, &options.user, interrupt)?;
        let user = options.user.clone();
        let base = options.base.clone();
        let begin = Request::Begin { user, base, keep: options.keep };
        match guard.ask(&begin)? {
            Reply::Begun { directory } => guard.directory = directory,
            Reply::Closed { path, purpose } => return Err(guard.unreachable(&purpose, path)),
            other => return Err(unexpected(&other)),
        }
        Ok(guard)
    }

    /// Starts a guard without a working directory, which changes to this user.
    pub(crate) fn begin_without_directory(
        executable: &Path,
        user: &ServerUser,
        interrupt: &Interrupt,
    ) -> Result<Self, ClusterError> {
        let mut guard = Self::launch(executable, user, interrupt)?;
        guard.done(&Request::Become { user: user.clone() })?;
        Ok(guard)
    }

    fn launch(
        executable: &Path,
        user: &ServerUser,
        interrupt: &Interrupt,
    ) -> Result<Self, ClusterError> {
        let (ours, theirs) = UnixStream::pair().map_err(ClusterError::GuardLost)?;
        let child = command(executable)
            .arg("__guard")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(ClusterError::io("start the guard", executable))?;
        let socket = ours.try_clone().map_err(ClusterError::GuardLost)?;
        Ok(Self {
            stream: BufReader::new(ours),
            child,
            executable: executable.to_owned(),
            directory: PathBuf::new(),
            user: user.clone(),
            interrupt: interrupt.clone(),
            _on_signal: shut_down_on_signal(interrupt, socket),
        })
    }

    /// The working directory, which goes when the guard ends.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a command of pgtoll itself, as the servers' user, who has to be able to execute it.
    pub(crate) fn run_own(&mut self, arguments: &[&str]) -> Result<Output, ClusterError> {
        let resolve = ClusterError::io("resolve", &self.executable);
        let own = std::fs::canonicalize(&self.executable).map_err(resolve)?;
        self.check_executable(&own)?;
        self.run(&own, arguments)
    }

    /// Whom servers run as.
    pub fn user(&self) -> &ServerUser {
        &self.user
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits in pid_t")
    }

    /// Runs a program to its end, as the servers' user, with the working directory as current one.
    pub fn run(&mut self, program: &Path, arguments: &[&str]) -> Result<Output, ClusterError> {
        self.run_with(program, arguments, &BTreeMap::new())
    }

    /// [Runs](Self::run) a program with more variables in its environment.
    pub(crate) fn run_with(
        &mut self,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<Output, ClusterError> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let request = Request::Run {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: environment.clone(),
        };
        match self.ask(&request)? {
            Reply::Ran(output) if output.success => Ok(output),
            Reply::Ran(output) => Err(ClusterError::Program {
                program: name,
                status: output.status,
                output: output.tail,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Starts a program in the background, as the servers' user, in a process group of its own, with
    /// the working directory as current one. What it prints goes to [`Guard::program_log`]. `name`
    /// becomes a part of that file's name and is free again when the program was
    /// [reaped](Self::reap). Returns the program's pid.
    ///
    /// However pgtoll ends, the program ends with the guard, frozen or not.
    pub fn spawn(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<i32, ClusterError> {
        let request = Request::Spawn {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: environment.clone(),
        };
        match self.ask(&request)? {
            Reply::Spawned { pid } => Ok(pid),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the file with the output of the program of this name, standard output and error together.
    pub fn program_log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    /// Sends a signal to every process of the program's group. Fails when the program has ended.
    /// The signal is sent when this returns; a process that runs on another CPU heeds it when it
    /// next leaves user mode, at the latest at that CPU's next tick.
    pub fn signal(&mut self, name: &str, signal: ProgramSignal) -> Result<(), ClusterError> {
        self.done(&Request::Signal { name: name.to_owned(), signal })
    }

    /// How the program ended; `None` while it runs (or is frozen). It is to be
    /// [reaped](Self::reap) all the same.
    pub fn has_ended(&mut self, name: &str) -> Result<Option<Output>, ClusterError> {
        match self.ask(&Request::Look { name: name.to_owned() })? {
            Reply::Running => Ok(None),
            Reply::Ran(output) => Ok(Some(output)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for the program's end, and kills its whole group when that takes longer than
    /// `at_most`. However it ended is no error of this function.
    pub fn reap(&mut self, name: &str, at_most: Duration) -> Result<Output, ClusterError> {
        match self.ask(&Request::Reap { name: name.to_owned(), at_most })? {
            Reply::Ran(output) => Ok(output),
            other => Err(unexpected(&other)),
        }
    }

    /// From here on what the guard starts writes only in its working directory; reads only that, the
    /// system's programs and libraries, and `readable`; opens no connection and signals nobody else, as
    /// far as the kernel [can see to it](Confinement).
    pub fn confine(&mut self, readable: Vec<PathBuf>) -> Result<(), ClusterError> {
        self.done(&Request::Confine { readable })
    }

    /// Checks that the servers' user can execute `path` (or enter it, if it is a directory).
    pub fn check_executable(&mut self, path: &Path) -> Result<(), ClusterError> {
        match self.ask(&Request::Check { path: path.to_owned() })? {
            Reply::Done => Ok(()),
            Reply::Closed { path, purpose } => Err(self.unreachable(&purpose, path)),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the version that each of these `postgres` prints, asked as the servers' user. However
    /// long a program runs or prints: it is ended after some seconds, or some kilobytes.
    pub(crate) fn ask_versions(
        &mut self,
        programs: &[PathBuf],
    ) -> Result<Vec<Result<String, ClusterError>>, ClusterError> {
        let answers = match self.ask(&Request::AskVersions { programs: programs.to_vec() })? {
            Reply::Versions(answers) if answers.len() == programs.len() => answers,
            other => return Err(unexpected(&other)),
        };
        let outcomes = programs.iter().zip(answers).map(|(program, answer)| match answer {
            VersionAnswer::Printed(text) => Ok(text),
            VersionAnswer::Closed { path, purpose } => Err(self.unreachable(&purpose, path)),
            VersionAnswer::Failed(reason) => {
                Err(ClusterError::NoVersion { program: program.clone(), reason })
            }
        });
        Ok(outcomes.collect())
    }

    /// Writes a file in the working directory, as the servers' user.
    pub fn write(&mut self, path: &Path, contents: String) -> Result<(), ClusterError> {
        self.done(&Request::Write { path: path.to_owned(), contents })
    }

    /// Removes what is there of these files, as the servers' user.
    pub fn remove_files(&mut self, files: &[PathBuf]) -> Result<(), ClusterError> {
        if files.is_empty() {
            return Ok(());
        }
        let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        let arguments: Vec<&str> = files.iter().map(|file| &**file).collect();
        self.run(Path::new("rm"), &[&["-f", "--"], &arguments[..]].concat())?;
        Ok(())
    }

    /// Appends to a file in the working directory, as the servers' user.
    pub(crate) fn append(&mut self, path: &Path, contents: String) -> Result<(), ClusterError> {
        self.done(&Request::Append { path: path.to_owned(), contents })
    }

    /// Starts a server and waits until it takes connections. Returns the postmaster's pid.
    pub(crate) fn start(
        &mut self,
        name: &str,
        postgres: &Path,
        data: &Path,
        log: &Path,
    ) -> Result<i32, ClusterError> {
        let request = Request::Start {
            name: name.to_owned(),
            postgres: postgres.to_owned(),
            data: data.to_owned(),
            log: log.to_owned(),
        };
        match self.ask(&request)? {
            Reply::Ready { pid } => Ok(pid),
            Reply::Ended { status, log_tail, .. } => {
                Err(ClusterError::StartFailed { name: name.to_owned(), status, log: log_tail })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Starts a server without waiting for it. Returns the postmaster's pid.
    pub(crate) fn launch_server(
        &mut self,
        name: &str,
        postgres: &Path,
        data: &Path,
        log: &Path,
    ) -> Result<i32, ClusterError> {
        let request = Request::Launch {
            name: name.to_owned(),
            postgres: postgres.to_owned(),
            data: data.to_owned(),
            log: log.to_owned(),
        };
        match self.ask(&request)? {
            Reply::Spawned { pid } => Ok(pid),
            other => Err(unexpected(&other)),
        }
    }

    /// How far a server is that was launched. Its end is reported once.
    pub(crate) fn launch_state(&mut self, name: &str) -> Result<LaunchState, ClusterError> {
        match self.ask(&Request::LookAtServer { name: name.to_owned() })? {
            Reply::Running => Ok(LaunchState::Starting),
            Reply::Ready { .. } => Ok(LaunchState::Ready),
            Reply::Ended { status, log_tail, .. } => {
                Ok(LaunchState::Ended { status, last_words: last_words(&log_tail).to_owned() })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Stops a server and waits for its end.
    pub(crate) fn stop(&mut self, name: &str, mode: StopMode) -> Result<Usage, ClusterError> {
        self.ended(&Request::Stop { name: name.to_owned(), mode })
    }

    /// Kills a server's whole process tree (SIGKILL) and waits for its end.
    pub(crate) fn kill(&mut self, name: &str) -> Result<Usage, ClusterError> {
        self.ended(&Request::Kill { name: name.to_owned() })
    }

    /// Kills a server's postmaster alone (SIGKILL), and waits until its other processes have noticed
    /// and ended.
    pub(crate) fn kill_postmaster(&mut self, name: &str) -> Result<Usage, ClusterError> {
        self.ended(&Request::KillPostmaster { name: name.to_owned() })
    }

    /// Ends the guard and everything that it started.
    pub fn finish(mut self) -> Result<(), ClusterError> {
        self.done(&Request::Finish)
    }

    fn ended(&mut self, request: &Request) -> Result<Usage, ClusterError> {
        match self.ask(request)? {
            Reply::Ended { usage, .. } => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    fn done(&mut self, request: &Request) -> Result<(), ClusterError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, ClusterError> {
        let reply = self.exchange(request);
        // A signal closes the socket: what follows from that is not the user's news.
        self.interrupt.check()?;
        match reply.map_err(ClusterError::GuardLost)? {
            Reply::Failed { action, message } => Err(ClusterError::Guard { action, message }),
            reply => Ok(reply),
        }
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&reply)?)
    }

    fn unreachable(&self, purpose: &str, path: PathBuf) -> ClusterError {
        let purpose = match purpose {
            "write to" => "write to",
            "enter" => "enter",
            _ => "execute",
        };
        ClusterError::Unreachable { user: self.user.name.clone(), purpose, path }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard reads the end of the stream, cleans up and ends; there is nobody left to tell
        // if that fails.
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// Shuts the socket down when a signal comes, so that who waits on it wakes up.
fn shut_down_on_signal(interrupt: &Interrupt, socket: UnixStream) -> Registered {
    interrupt.on_signal(move || {
        // It may be closed by then: nobody waits any more.
        let _ = socket.shutdown(std::net::Shutdown::Both);
    })
}

/// The guard answered another question than it was asked, which is an error of ours.
fn unexpected(reply: &Reply) -> ClusterError {
    ClusterError::GuardLost(io::Error::other(format!("unexpected reply {reply:?}")))
}
