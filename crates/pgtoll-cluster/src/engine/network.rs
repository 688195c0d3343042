//! A network of a topology's own: loopback addresses that only the engine's programs reach. Servers are
//! reached from outside by their Unix sockets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::find_daemon;
use crate::process::tail;
use crate::{ClusterError, Guard, Output};

/// A network namespace, kept by a process.
#[derive(Clone, Debug)]
pub struct PrivateNetwork {
    name: String,
    holder: i32,
    nsenter: PathBuf,
}

/// What the process that keeps it prints when the loopback device is up.
const READY: &str = "ready";
/// What else a shell or `ip` prints is short.
const LOG_BYTES: u64 = 4096;
/// Keeps the rights over the new namespaces, which exist for their user only.
const OWN_NAMESPACES: [&str; 4] = ["--user", "--map-current-user", "--keep-caps", "--net"];

impl PrivateNetwork {
    /// Fails where the servers' user cannot make such a network.
    pub fn check(guard: &mut Guard) -> Result<(), ClusterError> {
        let (unshare, ip) = (find("unshare", "util-linux")?, find("ip", "iproute2")?);
        let ip = ip.to_string_lossy();
        let arguments = [&OWN_NAMESPACES[..], &[&*ip, "link", "set", "lo", "up"]].concat();
        match guard.run(&unshare, &arguments) {
            Ok(_) => Ok(()),
            Err(ClusterError::Program { output, .. }) => {
                let reason = output.lines().next().unwrap_or_default().trim().to_owned();
                Err(ClusterError::NoPrivateNetwork { reason })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes one. Programs can use it once [`is_up`](Self::is_up).
    pub fn begin(guard: &mut Guard, name: &str) -> Result<Self, ClusterError> {
        let (unshare, ip) = (find("unshare", "util-linux")?, find("ip", "iproute2")?);
        let nsenter = find("nsenter", "util-linux")?;
        let script =
            format!("{} link set lo up && echo {READY} && exec sleep infinity", ip.display());
        let arguments = [&OWN_NAMESPACES[..], &["/bin/sh", "-c", &script]].concat();
        let holder = guard.spawn(name, &unshare, &arguments, &BTreeMap::new())?;
        Ok(Self { name: name.to_owned(), holder, nsenter })
    }

    /// Whether programs can use it.
    pub fn is_up(&self, guard: &mut Guard) -> Result<bool, ClusterError> {
        if let Some(ended) = guard.has_ended(&self.name)? {
            return Err(ClusterError::NoPrivateNetwork { reason: ended.tail.trim().to_owned() });
        }
        Ok(tail(&guard.program_log(&self.name), LOG_BYTES).contains(READY))
    }

    /// The address of a host in it.
    pub fn address(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, number)
    }

    /// Starts a program in it, in the background.
    pub fn spawn(
        &self,
        guard: &mut Guard,
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<i32, ClusterError> {
        let (nsenter, all) = self.command(program, arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        guard.spawn(name, &nsenter, &all, environment)
    }

    /// Runs a program in it to its end.
    pub fn run(
        &self,
        guard: &mut Guard,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<Output, ClusterError> {
        let (nsenter, all) = self.command(program, arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        guard.run_with(&nsenter, &all, environment).map_err(|error| match error {
            ClusterError::Program { status, output, .. } => {
                let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
                ClusterError::Program { program: name, status, output }
            }
            error => error,
        })
    }

    /// What runs a program in it: a program, and its arguments.
    pub fn command(&self, program: &Path, arguments: &[&str]) -> (PathBuf, Vec<String>) {
        let (holder, program) = (self.holder.to_string(), program.to_string_lossy());
        let own = ["--user", "--preserve-credentials", "--net", "--target", &holder, "--"];
        let all = own.into_iter().chain([&*program]).chain(arguments.iter().copied());
        (self.nsenter.clone(), all.map(str::to_owned).collect())
    }

    /// Ends it. Programs in it keep it until they end.
    pub fn end(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.reap(&self.name, Duration::ZERO)?;
        Ok(())
    }
}

fn find(program: &'static str, package: &str) -> Result<PathBuf, ClusterError> {
    find_daemon(program).ok_or_else(|| ClusterError::NoEngine {
        program,
        place: "in PATH and /usr/sbin".to_owned(),
        packages: package.to_owned(),
    })
}
