//! The guard's own side: one thread, one loop, three things to wait for — a request, a child's
//! end, a server's readiness.

pub(super) mod access;
pub(super) mod confine;
mod ending;
mod reaping;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::{Mode, umask};
use nix::sys::statvfs::statvfs;
use nix::sys::wait::WaitStatus;
use nix::unistd::{AccessFlags, Pid, access, setsid};

use self::access::{change_to, check_executable, first_closed, spread_clusters};
use self::confine::Confined;
use self::ending::{kill_tree, remove_files};
use self::reaping::{end_of, in_words, reap_one};
use super::protocol::{Output, ProgramSignal, Reply, Request, StopMode, Usage};
use crate::ServerUser;
use crate::leftover::{self, shared_memory_of_tree};
use crate::process::{
    close_inherited_descriptors, command, descendants, group_below, tail, tail_of,
};

/// Bytes of a program's output that are told.
const LOG_TAIL: u64 = 1 << 16;

/// Runs the guard on standard input, which is its end of the socket pair. Returns when all that it
/// started is gone. Called by `pgtoll __guard` and by nobody else.
pub fn guard_main() -> io::Result<()> {
    // What the caller has open is not for servers. Ours are closed in what we start.
    close_inherited_descriptors();
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut guard = GuardProcess::new(UnixStream::from(stdin))?;
    let served = guard.serve();
    guard.clean_up();
    served
}

pub(super) struct GuardProcess {
    pub(super) parent: UnixStream,
    received: Vec<u8>,
    /// Readable after SIGCHLD.
    child_ended: UnixStream,
    /// Readable after a signal that asks the guard itself to end.
    pub(super) told_to_end: UnixStream,
    directory: Option<PathBuf>,
    keep: bool,
    /// Programs that are started from now on are confined.
    confined: Option<Confined>,
    servers: BTreeMap<String, Server>,
    /// How servers ended that were launched and not yet asked for since.
    ended_servers: BTreeMap<String, Reply>,
    programs: BTreeMap<String, BackgroundProgram>,
    /// The request whose reply is still owed: there is one at a time.
    pending: Option<Pending>,
}

/// A server that was started and whose postmaster was not yet reaped.
struct Server {
    pid: i32,
    data: PathBuf,
    log: PathBuf,
    /// Bytes of the log before this start: all starts of a cluster share it.
    log_bytes_before: u64,
    /// Nobody waits for its start.
    is_launched: bool,
}

impl Server {
    /// The postmaster writes `ready` to the eighth line of postmaster.pid when it takes
    /// connections; that is also what `pg_ctl` waits for.
    fn is_ready(&self) -> bool {
        let file = leftover::postmaster_file(&self.data).unwrap_or_default();
        let is_ours = file.lines().next() == Some(self.pid.to_string().as_str());
        is_ours && file.lines().nth(7).map(str::trim) == Some("ready")
    }
}

/// A program that was spawned and not yet asked for with [`Request::Reap`].
struct BackgroundProgram {
    /// Its pid, and its process group's.
    pid: i32,
    log: PathBuf,
    ended: Option<Output>,
}

enum Pending {
    Run {
        pid: i32,
        output: File,
    },
    Start {
        name: String,
        watch: Inotify,
    },
    Stop {
        name: String,
    },
    /// `deadline` is when the program is killed, unless it was.
    Reap {
        name: String,
        deadline: Option<Instant>,
    },
    Kill {
        name: String,
        pids: BTreeSet<i32>,
        usage: Usage,
        shared_memory: Vec<PathBuf>,
    },
}

impl GuardProcess {
    fn new(parent: UnixStream) -> io::Result<Self> {
        // Fails only when we lead a session already, which is as good.
        let _ = setsid();
        nix::sys::prctl::set_child_subreaper(true)?;
        umask(Mode::from_bits_truncate(0o077));
        let (child_ended, on_child) = UnixStream::pair()?;
        let (told_to_end, on_end) = UnixStream::pair()?;
        child_ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, on_child)?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, on_end.try_clone()?)?;
        }
        Ok(Self {
            parent,
            received: Vec::new(),
            child_ended,
            told_to_end,
            directory: None,
            keep: false,
            confined: None,
            servers: BTreeMap::new(),
            ended_servers: BTreeMap::new(),
            programs: BTreeMap::new(),
            pending: None,
        })
    }

    /// Serves requests until pgtoll is gone or done.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.told_to_end {
                return Ok(());
            }
            if ready.child_ended {
                self.reap()?;
            }
            if ready.data_directory {
                self.look_whether_ready()?;
            }
            self.kill_when_due();
            if ready.request {
                match self.receive()? {
                    None => return Ok(()),
                    Some(Request::Finish) => {
                        self.clean_up();
                        return self.reply(&Reply::Done);
                    }
                    Some(request) => self.handle(request)?,
                }
            }
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let readable = |fd: BorrowedFd<'_>| -> bool {
            let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
            matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
        };
        let mut fds = vec![self.parent.as_fd(), self.child_ended.as_fd(), self.told_to_end.as_fd()];
        if let Some(Pending::Start { watch, .. }) = &self.pending {
            fds.push(watch.as_fd());
        }
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, self.time_to_deadline()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Ready {
            request: readable(fds[0]),
            child_ended: readable(fds[1]),
            told_to_end: readable(fds[2]),
            data_directory: fds.get(3).is_some_and(|fd| readable(*fd)),
        })
    }

    /// Until a program that is waited for is to be killed.
    fn time_to_deadline(&self) -> PollTimeout {
        let Some(Pending::Reap { deadline: Some(deadline), .. }) = &self.pending else {
            return PollTimeout::NONE;
        };
        // A millisecond more, since poll's timeout is cut to whole ones.
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// The next request; `None` at the end of the stream.
    fn receive(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let mut buffer = [0; 4096];
            match self.parent.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        self.parent.write_all(&line)
    }

    fn handle(&mut self, request: Request) -> io::Result<()> {
        let action = request.describe();
        let reply = match request {
            Request::Become { user } => change_to(&user).map(|()| Some(Reply::Done)),
            Request::AskVersions { programs } => {
                self.ask_versions(&programs).map(|answers| Some(Reply::Versions(answers)))
            }
            Request::Begin { user, base, keep } => {
                self.keep = keep;
                self.begin(&user, &base).map(Some)
            }
            Request::Confine { readable } => self.confine(readable).map(|()| Some(Reply::Done)),
            Request::Check { path } => Ok(Some(check_executable(&path))),
            Request::Write { path, contents } => {
                fs::write(path, contents).map(|()| Some(Reply::Done))
            }
            Request::Append { path, contents } => File::options()
                .append(true)
                .open(path)
                .and_then(|mut file| file.write_all(contents.as_bytes()))
                .map(|()| Some(Reply::Done)),
            Request::Run { program, arguments, environment } => {
                self.run(&program, &arguments, &environment).map(|()| None)
            }
            Request::Spawn { name, program, arguments, environment } => {
                self.spawn(name, &program, &arguments, &environment).map(Some)
            }
            Request::Signal { name, signal } => self.signal(&name, signal).map(Some),
            Request::Look { name } => self
                .program(&name)
                .map(|program| Some(program.ended.clone().map_or(Reply::Running, Reply::Ran))),
            Request::Reap { name, at_most } => self.reap_program(name, at_most),
            Request::Start { name, postgres, data, log } => {
                self.start(name, &postgres, data, log).map(|()| None)
            }
            Request::Launch { name, postgres, data, log } => self
                .begin_server(name, &postgres, data, log, true)
                .map(|pid| Some(Reply::Spawned { pid })),
            Request::LookAtServer { name } => self.look_at_server(&name).map(Some),
            Request::Stop { name, mode } => self.stop(name, mode).map(|()| None),
            Request::Kill { name } => self.kill(name).map(|()| None),
            Request::KillPostmaster { name } => self.kill_postmaster(name).map(|()| None),
            Request::Finish => Ok(None),
        };
        match reply {
            Ok(Some(reply)) => self.reply(&reply),
            Ok(None) => Ok(()),
            Err(error) => self.reply(&Reply::Failed { action, message: message(&error) }),
        }
    }

    fn begin(&mut self, user: &ServerUser, base: &Path) -> io::Result<Reply> {
        change_to(user)?;
        if let Some(path) = first_closed(base, AccessFlags::X_OK) {
            return Ok(Reply::Closed { path, purpose: "enter".into() });
        }
        if access(base, AccessFlags::W_OK) == Err(Errno::EACCES) {
            return Ok(Reply::Closed { path: base.to_owned(), purpose: "write to".into() });
        }
        let directory = nix::unistd::mkdtemp(&base.join(leftover::TEMPLATE))?;
        self.directory = Some(directory.clone());
        leftover::sign(&directory)?;
        spread_clusters(&directory);
        std::env::set_current_dir(&directory)?;
        Ok(Reply::Begun { directory })
    }

    fn confine(&mut self, readable: Vec<PathBuf>) -> io::Result<()> {
        let confined = Confined { directory: self.working_directory()?.clone(), readable };
        confined.check()?;
        self.confined = Some(confined);
        Ok(())
    }

    fn run(
        &mut self,
        program: &Path,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<()> {
        // In memory: a program that fails because the disk is full could not say so in a file.
        let output = File::from(memfd_create("program's output", MFdFlags::MFD_CLOEXEC)?);
        let mut command = command(program);
        let pid = self.begin_process(command.args(arguments).envs(environment), &output)?;
        self.pending = Some(Pending::Run { pid, output });
        Ok(())
    }

    fn start(
        &mut self,
        name: String,
        postgres: &Path,
        data: PathBuf,
        log: PathBuf,
    ) -> io::Result<()> {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let changes = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE;
        watch.add_watch(&data, changes)?;
        self.begin_server(name.clone(), postgres, data, log, false)?;
        self.pending = Some(Pending::Start { name, watch });
        Ok(())
    }

    fn begin_server(
        &mut self,
        name: String,
        postgres: &Path,
        data: PathBuf,
        log: PathBuf,
        is_launched: bool,
    ) -> io::Result<i32> {
        let output = File::options().create(true).append(true).open(&log)?;
        let log_bytes_before = output.metadata()?.len();
        let pid = self.begin_process(command(postgres).arg("-D").arg(&data), &output)?;
        self.ended_servers.remove(&name);
        self.servers.insert(name, Server { pid, data, log, log_bytes_before, is_launched });
        Ok(pid)
    }

    /// How far a server is that was launched.
    fn look_at_server(&mut self, name: &str) -> io::Result<Reply> {
        if let Some(ended) = self.ended_servers.remove(name) {
            return Ok(ended);
        }
        let server = self.server(name)?;
        let pid = server.pid;
        Ok(if server.is_ready() { Reply::Ready { pid } } else { Reply::Running })
    }

    fn stop(&mut self, name: String, mode: StopMode) -> io::Result<()> {
        let pid = self.server(&name)?.pid;
        kill(Pid::from_raw(pid), mode.signal())?;
        self.pending = Some(Pending::Stop { name });
        Ok(())
    }

    fn kill(&mut self, name: String) -> io::Result<()> {
        let pid = self.server(&name)?.pid;
        let shared_memory = shared_memory_of_tree(pid);
        let pids = kill_tree(pid);
        self.pending = Some(Pending::Kill { name, pids, usage: Usage::default(), shared_memory });
        Ok(())
    }

    /// The processes that lose their postmaster end by themselves.
    fn kill_postmaster(&mut self, name: String) -> io::Result<()> {
        let root = self.server(&name)?.pid;
        let shared_memory = shared_memory_of_tree(root);
        // Stopped, it starts no child and reaps none while they are listed.
        kill(Pid::from_raw(root), Signal::SIGSTOP)?;
        let mut pids: BTreeSet<i32> = descendants(root).into_iter().chain([root]).collect();
        kill(Pid::from_raw(root), Signal::SIGKILL)?;
        pids.retain(|pid| kill(Pid::from_raw(*pid), None) != Err(Errno::ESRCH));
        self.pending = Some(Pending::Kill { name, pids, usage: Usage::default(), shared_memory });
        Ok(())
    }

    fn spawn(
        &mut self,
        name: String,
        program: &Path,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<Reply> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(io::Error::other("a program's name is a part of a file's name"));
        }
        if self.programs.contains_key(&name) {
            return Err(io::Error::other("a program of this name was not reaped yet"));
        }
        let log = self.working_directory()?.join(format!("{name}.log"));
        let output = File::options().create(true).write(true).truncate(true).open(&log)?;
        let mut command = command(program);
        command.args(arguments).envs(environment).process_group(0);
        let pid = self.begin_process(&mut command, &output)?;
        self.programs.insert(name, BackgroundProgram { pid, log, ended: None });
        Ok(Reply::Spawned { pid })
    }

    fn signal(&self, name: &str, signal: ProgramSignal) -> io::Result<Reply> {
        let program = self.program(name)?;
        if let Some(output) = &program.ended {
            return Err(io::Error::other(format!("it has ended ({})", output.status)));
        }
        let group = Pid::from_raw(program.pid);
        killpg(group, signal.signal())?;
        if signal.wakes() {
            killpg(group, Signal::SIGCONT)?;
        }
        Ok(Reply::Done)
    }

    /// Answers at once when the program has ended.
    fn reap_program(&mut self, name: String, at_most: Duration) -> io::Result<Option<Reply>> {
        if let Some(output) = self.program(&name)?.ended.clone() {
            self.programs.remove(&name);
            return Ok(Some(Reply::Ran(output)));
        }
        self.pending = Some(Pending::Reap { name, deadline: Instant::now().checked_add(at_most) });
        Ok(None)
    }

    fn kill_when_due(&mut self) {
        let Some(Pending::Reap { name, deadline }) = &mut self.pending else { return };
        if deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        *deadline = None;
        if let Some(program) = self.programs.get(name) {
            let _ = killpg(Pid::from_raw(program.pid), Signal::SIGKILL);
        }
    }

    fn begin_process(&self, command: &mut Command, output: &File) -> io::Result<i32> {
        if let Some(home) = &self.directory {
            command.env("HOME", home);
        }
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        let started = match &self.confined {
            Some(confined) => confined.spawn(command),
            None => command.spawn(),
        };
        let child = started.map_err(|error| {
            let program = Path::new(command.get_program()).display();
            io::Error::new(error.kind(), format!("start {program}: {error}"))
        })?;
        Ok(i32::try_from(child.id()).expect("a pid fits in pid_t"))
    }

    /// Reaps every child that ended. One at a time, so that the difference in the kernel's total
    /// of reaped children is that child's own.
    fn reap(&mut self) -> io::Result<()> {
        drain(&mut self.child_ended);
        while let Some((pid, status, usage)) = reap_one() {
            self.child_has_ended(pid, status, usage)?;
        }
        Ok(())
    }

    fn child_has_ended(&mut self, pid: i32, status: WaitStatus, usage: Usage) -> io::Result<()> {
        if let Some(name) = self.running_program(pid) {
            return self.program_has_ended(&name, status, usage);
        }
        let server = self.servers.iter().find(|(_, server)| server.pid == pid);
        let server = server.map(|(name, _)| name.clone());
        let ended = server.as_ref().and_then(|name| self.servers.remove(name));
        if let (Some(name), Some(ended)) =
            (&server, ended.as_ref().filter(|ended| ended.is_launched))
        {
            let status = in_words(status);
            let log_tail = self.log_tail(ended);
            self.ended_servers.insert(name.clone(), Reply::Ended { status, usage, log_tail });
        }
        let reply = match self.pending.take() {
            Some(Pending::Run { pid: pending, mut output }) if pending == pid => {
                Some(Reply::Ran(end_of(status, usage, tail_of(&mut output, LOG_TAIL)?)))
            }
            Some(Pending::Start { name, .. } | Pending::Stop { name })
                if server.as_ref() == Some(&name) =>
            {
                let log_tail = ended.map(|server| self.log_tail(&server)).unwrap_or_default();
                Some(Reply::Ended { status: in_words(status), usage, log_tail })
            }
            Some(Pending::Kill { name, mut pids, usage: before, shared_memory }) => {
                let counted = pids.remove(&pid);
                let usage = if counted { before.plus(&usage) } else { before };
                if pids.is_empty() {
                    remove_files(&shared_memory);
                    Some(Reply::Ended { status: "killed".into(), usage, log_tail: String::new() })
                } else {
                    self.pending = Some(Pending::Kill { name, pids, usage, shared_memory });
                    None
                }
            }
            other => {
                self.pending = other;
                None
            }
        };
        reply.map_or(Ok(()), |reply| self.reply(&reply))
    }

    fn running_program(&self, pid: i32) -> Option<String> {
        let mut running = self.programs.iter().filter(|(_, program)| program.ended.is_none());
        running.find(|(_, program)| program.pid == pid).map(|(name, _)| name.clone())
    }

    fn program_has_ended(
        &mut self,
        name: &str,
        status: WaitStatus,
        usage: Usage,
    ) -> io::Result<()> {
        let program = self.programs.get_mut(name).expect("the name was just looked up");
        // What it started and left behind belongs to nobody any more. Looked for below the guard
        // only, since the group's number is free for others once the group is empty.
        for pid in group_below(Pid::this().as_raw(), program.pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let output = end_of(status, usage, tail(&program.log, LOG_TAIL));
        if matches!(&self.pending, Some(Pending::Reap { name: of, .. }) if of == name) {
            self.pending = None;
            self.programs.remove(name);
            return self.reply(&Reply::Ran(output));
        }
        program.ended = Some(output);
        Ok(())
    }

    fn look_whether_ready(&mut self) -> io::Result<()> {
        let Some(Pending::Start { name, watch }) = &self.pending else { return Ok(()) };
        let _ = watch.read_events();
        let server = self.server(name)?;
        let pid = server.pid;
        if server.is_ready() {
            self.pending = None;
            return self.reply(&Reply::Ready { pid });
        }
        Ok(())
    }

    /// The end of what a server logged since its start: nothing when the disk was full before it could
    /// say so.
    fn log_tail(&self, server: &Server) -> String {
        let bytes = fs::metadata(&server.log).map_or(0, |log| log.len());
        let text = tail(&server.log, bytes.saturating_sub(server.log_bytes_before).min(LOG_TAIL));
        let place = self.directory.as_deref().and_then(|place| statvfs(place).ok());
        if text.is_empty() && place.is_some_and(|place| place.blocks_available() == 0) {
            return Errno::ENOSPC.desc().to_owned();
        }
        text
    }

    fn server(&self, name: &str) -> io::Result<&Server> {
        self.servers.get(name).ok_or_else(|| io::Error::other("no such server is running"))
    }

    fn program(&self, name: &str) -> io::Result<&BackgroundProgram> {
        self.programs.get(name).ok_or_else(|| io::Error::other("no such program was started"))
    }

    fn working_directory(&self) -> io::Result<&PathBuf> {
        self.directory.as_ref().ok_or_else(|| io::Error::other("the guard has not begun"))
    }
}

/// The result of [`GuardProcess::wait`].
#[expect(clippy::struct_excessive_bools, reason = "one for each thing waited for")]
struct Ready {
    request: bool,
    child_ended: bool,
    told_to_end: bool,
    data_directory: bool,
}

/// The error without Rust's `(os error 28)`.
pub(super) fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn drain(stream: &mut UnixStream) {
    let mut buffer = [0; 256];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}
