//! A network of a topology's own, which only the engine's programs reach: loopback addresses of one
//! namespace, or hosts with namespaces of their own at a switch, which can be cut off. Servers are reached
//! from outside by their Unix sockets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
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
    hosts: NetworkHosts,
}

/// The source of hosts.
#[derive(Clone, Debug)]
enum NetworkHosts {
    /// Addresses of the loopback device.
    Together,
    /// Each at a port of the switch; the process that keeps the namespace of each.
    Apart { ip: PathBuf, keepers: BTreeMap<u8, i32> },
}

/// A cut of a network with a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkCut {
    /// A host from all others.
    Host(u8),
    /// Two hosts from each other, and from no third one.
    Between([u8; 2]),
}

/// The line that its keeper prints when the loopback device is up.
const READY: &str = "ready";
/// The bytes of other output of a shell or `ip`.
const LOG_BYTES: u64 = 4096;
/// Options that give the root of a new user namespace, with the rights over the network made in it.
const AS_ROOT: [&str; 3] = ["--user", "--map-root-user", "--net"];
/// Keeps the rights over the new namespaces, which exist for their user only.
const OWN_NAMESPACES: [&str; 4] = ["--user", "--map-current-user", "--keep-caps", "--net"];

impl PrivateNetwork {
    /// Fails where the servers' user cannot make such a network.
    pub fn check(guard: &mut Guard) -> Result<(), ClusterError> {
        let unshare = find("unshare", "util-linux")?;
        let ip = find("ip", "iproute2")?;
        let ip = ip.to_string_lossy();
        let arguments = [&OWN_NAMESPACES[..], &[&*ip, "link", "set", "lo", "up"]].concat();
        made(guard.run(&unshare, &arguments))
    }

    /// Fails where the servers' user cannot make a network with a switch.
    pub fn check_switch(guard: &mut Guard) -> Result<(), ClusterError> {
        let unshare = find("unshare", "util-linux")?;
        let script = switch_script(guard, &[1, 2])?;
        let script = format!("{script}ip link set port1 type bridge_slave isolated on\n");
        made(guard.run(&unshare, &[&AS_ROOT[..], &["/bin/sh", "-c", &script]].concat()))
    }

    /// Makes one. Programs can use it once [`is_up`](Self::is_up).
    pub fn begin(guard: &mut Guard, name: &str) -> Result<Self, ClusterError> {
        let unshare = find("unshare", "util-linux")?;
        let ip = find("ip", "iproute2")?;
        let nsenter = find("nsenter", "util-linux")?;
        let script =
            format!("{} link set lo up && echo {READY} && exec sleep infinity", ip.display());
        let arguments = [&OWN_NAMESPACES[..], &["/bin/sh", "-c", &script]].concat();
        let holder = guard.spawn(name, &unshare, &arguments, &BTreeMap::new())?;
        Ok(Self { name: name.to_owned(), holder, nsenter, hosts: NetworkHosts::Together })
    }

    /// Makes one in which each of these hosts is at a port of a switch.
    pub fn begin_with_switch(
        guard: &mut Guard,
        name: &str,
        hosts: &[u8],
    ) -> Result<Self, ClusterError> {
        let unshare = find("unshare", "util-linux")?;
        let ip = find("ip", "iproute2")?;
        let nsenter = find("nsenter", "util-linux")?;
        let script = format!("{}exec sleep infinity\n", switch_script(guard, hosts)?);
        let arguments = [&AS_ROOT[..], &["/bin/sh", "-c", &script]].concat();
        let holder = guard.spawn(name, &unshare, &arguments, &BTreeMap::new())?;
        let hosts = NetworkHosts::Apart { ip, keepers: BTreeMap::new() };
        Ok(Self { name: name.to_owned(), holder, nsenter, hosts })
    }

    /// Whether programs can use it.
    pub fn is_up(&mut self, guard: &mut Guard) -> Result<bool, ClusterError> {
        if let Some(ended) = guard.has_ended(&self.name)? {
            return Err(ClusterError::NoPrivateNetwork { reason: ended.tail.trim().to_owned() });
        }
        let log = tail(&guard.program_log(&self.name), LOG_BYTES);
        let Some(line) = log.lines().find(|line| line.starts_with(READY)) else { return Ok(false) };
        if let NetworkHosts::Apart { keepers, .. } = &mut self.hosts {
            keepers.extend(line.split(' ').filter_map(keeper));
        }
        Ok(true)
    }

    /// The address of a host in it.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        match self.hosts {
            NetworkHosts::Together => Ipv4Addr::new(127, 0, 0, host),
            NetworkHosts::Apart { .. } => switched_address(host),
        }
    }

    /// Cuts it: what is sent that way vanishes, and nobody is told.
    pub fn cut(&self, guard: &mut Guard, cut: NetworkCut) -> Result<(), ClusterError> {
        match cut {
            NetworkCut::Host(host) => self.set_port(guard, host, &["nomaster"]),
            NetworkCut::Between(hosts) => self.isolate(guard, hosts, "on"),
        }
    }

    /// Makes it whole again.
    pub fn heal(&self, guard: &mut Guard, cut: NetworkCut) -> Result<(), ClusterError> {
        match cut {
            NetworkCut::Host(host) => self.set_port(guard, host, &["master", "switch"]),
            NetworkCut::Between(hosts) => self.isolate(guard, hosts, "off"),
        }
    }

    /// Isolated ports of a switch reach all others but each other.
    fn isolate(&self, guard: &mut Guard, hosts: [u8; 2], to: &str) -> Result<(), ClusterError> {
        let change = ["type", "bridge_slave", "isolated", to];
        hosts.into_iter().try_for_each(|host| self.set_port(guard, host, &change))
    }

    fn set_port(&self, guard: &mut Guard, host: u8, to: &[&str]) -> Result<(), ClusterError> {
        let NetworkHosts::Apart { ip, .. } = &self.hosts else {
            let reason = "its hosts are one".to_owned();
            return Err(ClusterError::NoPrivateNetwork { reason });
        };
        let port = format!("port{host}");
        let arguments = [&["link", "set", &port], to].concat();
        let (nsenter, all) = self.command_beside(self.holder, ip, &arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        guard.run(&nsenter, &all)?;
        Ok(())
    }

    /// Starts a program on a host of it, in the background.
    pub fn spawn(
        &self,
        guard: &mut Guard,
        host: u8,
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<i32, ClusterError> {
        let (nsenter, all) = self.command(host, program, arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        guard.spawn(name, &nsenter, &all, environment)
    }

    /// Runs a program on a host of it to its end.
    pub fn run(
        &self,
        guard: &mut Guard,
        host: u8,
        program: &Path,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Result<Output, ClusterError> {
        let (nsenter, all) = self.command(host, program, arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        guard.run_with(&nsenter, &all, environment).map_err(|error| match error {
            ClusterError::Program { status, output, .. } => {
                let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
                ClusterError::Program { program: name, status, output }
            }
            error => error,
        })
    }

    /// Returns the program and arguments that run a program on one of its hosts.
    pub fn command(&self, host: u8, program: &Path, arguments: &[&str]) -> (PathBuf, Vec<String>) {
        let keeper = match &self.hosts {
            NetworkHosts::Together => None,
            NetworkHosts::Apart { keepers, .. } => keepers.get(&host),
        };
        self.command_beside(keeper.copied().unwrap_or(self.holder), program, arguments)
    }

    /// Returns the command that runs a program in the namespaces of a process.
    fn command_beside(
        &self,
        process: i32,
        program: &Path,
        arguments: &[&str],
    ) -> (PathBuf, Vec<String>) {
        let process = process.to_string();
        let program = program.to_string_lossy();
        let own = ["--user", "--preserve-credentials", "--net", "--target", &process, "--"];
        let all = own.into_iter().chain([&*program]).chain(arguments.iter().copied());
        (self.nsenter.clone(), all.map(str::to_owned).collect())
    }

    /// Ends it. Programs in it keep it until they end.
    pub fn end(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.reap(&self.name, Duration::ZERO)?;
        Ok(())
    }
}

/// Parses a word like `11:4711`: a host, and the process that keeps its namespace.
fn keeper(word: &str) -> Option<(u8, i32)> {
    let (host, pid) = word.split_once(':')?;
    Some((host.parse().ok()?, pid.parse().ok()?))
}

fn switched_address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

/// An error of programs that make namespaces, in their own words.
fn made(outcome: Result<Output, ClusterError>) -> Result<(), ClusterError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(ClusterError::Program { output, .. }) => {
            let reason = output.lines().next().unwrap_or_default().trim().to_owned();
            Err(ClusterError::NoPrivateNetwork { reason })
        }
        Err(error) => Err(error),
    }
}

/// A script for the root of a user namespace, which makes a switch and a host at each of its ports, and
/// prints by which process each is kept. Programs on a host run as the servers' user, who is mapped back.
fn switch_script(guard: &Guard, hosts: &[u8]) -> Result<String, ClusterError> {
    let unshare = find("unshare", "util-linux")?;
    let ip = find("ip", "iproute2")?;
    let nsenter = find("nsenter", "util-linux")?;
    let unshare = unshare.display();
    let ip = ip.display();
    let nsenter = nsenter.display();
    let (user, group) = guard.user().ids();
    let mut script = format!(
        "set -e\n\
         trap 'kill $all' EXIT\n\
         ip() {{ {ip} \"$@\"; }}\n\
         ip link set lo up\n\
         ip link add switch type bridge\n\
         ip link set switch up\n\
         own=$(readlink /proc/$$/ns/net)\n"
    );
    for host in hosts {
        let address = switched_address(*host);
        let _ = write!(
            script,
            "{unshare} --user --map-user={user} --map-group={group} --net sleep infinity &\n\
             keeper=$!\n\
             all=\"$all $keeper\"\n\
             while [ \"$(readlink /proc/$keeper/ns/net)\" = \"$own\" ]; do sleep 0.01; done\n\
             ip link add port{host} type veth peer name eth0 netns $keeper\n\
             ip link set port{host} master switch up\n\
             {nsenter} --net --target $keeper -- /bin/sh -ec \\\n\
             \x20   '{ip} link set lo up; {ip} addr add {address}/24 dev eth0; {ip} link set eth0 up'\n\
             ready=\"$ready {host}:$keeper\"\n"
        );
    }
    let _ = writeln!(script, "echo {READY}$ready");
    Ok(script)
}

fn find(program: &'static str, package: &str) -> Result<PathBuf, ClusterError> {
    find_daemon(program).ok_or_else(|| ClusterError::NoEngine {
        program,
        place: "in PATH and /usr/sbin".to_owned(),
        packages: package.to_owned(),
    })
}
