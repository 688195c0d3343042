//! Confines a server that runs code of a backup: Landlock for files and signals, seccomp for sockets.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::libc::{
    AF_NETLINK, AF_UNIX, EACCES, EAFNOSUPPORT, ENOSYS, SYS_connect, SYS_io_uring_setup, SYS_socket,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Without it a file that may not be written can be truncated (Linux 6.2).
const FILES: ABI = ABI::V3;
/// The first one with signals (Linux 6.12).
const SIGNALS: ABI = ABI::V6;

/// Paths that every program reads: itself, its libraries, names of users, time zones. Not `/usr/local` and
/// `/etc` as a whole: data directories and passwords may lie there.
const READABLE: [&str; 27] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/local/lib",
    "/usr/local/share",
    "/nix/store",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/openssl.cnf",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system",
];
/// Devices that keep nothing.
const WRITABLE: [&str; 2] = ["/dev/null", "/dev/zero"];

/// How far this kernel confines a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// In all that pgtoll asks for.
    Whole,
    /// In all but this: it can send signals to its user's other processes.
    WithoutSignals,
}

impl Confinement {
    /// The error is what this kernel lacks.
    pub fn of_this_kernel() -> Result<Self, String> {
        ruleset(CompatLevel::BestEffort).map_err(|error| error.to_string())?;
        let whole = ruleset(CompatLevel::HardRequirement);
        Ok(if whole.is_ok() { Self::Whole } else { Self::WithoutSignals })
    }
}

/// Rules that allow nothing yet; `signals`: whether those are a must, as files are.
fn ruleset(signals: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES))?
        .set_compatibility(signals)
        .scope(Scope::from_all(SIGNALS))?
        .create()
}

/// The directories that the programs of a guard may write to, and those that they may also read.
#[derive(Debug)]
pub(super) struct Confined {
    pub(super) directory: PathBuf,
    pub(super) readable: Vec<PathBuf>,
}

impl Confined {
    /// Starts a program that can do less than the guard, from a thread that can do no more: both
    /// restrictions are those of a thread and of what it starts.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.in_restricted_thread(|| command.spawn())
    }

    /// The error is why nothing could be started so.
    pub(super) fn check(&self) -> io::Result<()> {
        self.in_restricted_thread(|| Ok(()))
    }

    fn in_restricted_thread<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        std::thread::scope(|scope| {
            let restricted = || {
                self.restrict_files().map_err(io::Error::other)?;
                restrict_sockets().map_err(io::Error::other)?;
                work()
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, restricted)?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the restricted thread failed")))
        })
    }

    fn restrict_files(&self) -> Result<(), RulesetError> {
        let all = AccessFs::from_all(FILES);
        let read = AccessFs::from_read(FILES);
        let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let libraries: Vec<PathBuf> =
            std::env::split_paths(&libraries).filter(|path| path.is_absolute()).collect();
        let readable = self.readable.iter().chain(&libraries).map(PathBuf::as_path);
        ruleset(CompatLevel::BestEffort)?
            .add_rules(path_beneath_rules(READABLE.iter().map(Path::new).chain(readable), read))?
            .add_rules(path_beneath_rules(WRITABLE, AccessFs::from_file(FILES)))?
            .add_rules(path_beneath_rules([&self.directory], all))?
            .restrict_self()?;
        Ok(())
    }
}

/// Sockets of Unix only, and no connection by them: the socket of another server on this machine takes
/// its own user for its superuser. What would do the same past this filter is not there.
fn restrict_sockets() -> Result<(), seccompiler::Error> {
    let unless = |family: i32| {
        let family = u64::try_from(family).expect("families are positive");
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    let other_families = SeccompRule::new(vec![unless(AF_UNIX)?, unless(AF_NETLINK)?])?;
    let refused = [
        (SYS_connect, Vec::new(), EACCES),
        (SYS_socket, vec![other_families], EAFNOSUPPORT),
        (SYS_io_uring_setup, Vec::new(), ENOSYS),
    ];
    for (call, rules, error) in refused {
        let error = SeccompAction::Errno(error.unsigned_abs());
        let rules = BTreeMap::from([(call, rules)]);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, ARCH.try_into()?)?;
        seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    }
    Ok(())
}
