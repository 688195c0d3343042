//! `HAProxy`: leads clients to the server of which Patroni says that it is the primary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Patroni, PrivateNetwork};
use crate::cluster::{PORT, plain_path};
use crate::environment::find_daemon;
use crate::{ClusterError, Guard};

/// The program.
#[derive(Clone, Debug)]
pub struct Haproxy {
    program: PathBuf,
}

/// How it checks servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaproxyChecks {
    /// `inter`: milliseconds between two checks.
    pub interval_ms: u32,
    /// `fall`: failed checks until a server is down.
    pub fall: u32,
    /// `rise`: passed checks until a server is up.
    pub rise: u32,
}

/// One that was started.
#[derive(Clone, Debug)]
pub struct RunningHaproxy {
    name: String,
    directory: PathBuf,
}

impl Haproxy {
    /// It listens on a Unix socket in a directory of its own, as a server of this port would.
    pub const PORT: u16 = 5000;

    /// The one in `PATH`, or where daemons are. `packages`: Debian's packages with it, and with what is
    /// used beside it.
    pub fn find(packages: &str) -> Result<Self, ClusterError> {
        find_daemon("haproxy").map(|program| Self { program }).ok_or_else(|| {
            ClusterError::NoEngine {
                program: "haproxy",
                place: "in PATH and /usr/sbin".to_owned(),
                packages: packages.to_owned(),
            }
        })
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        Ok(version_words(&guard.run(&self.program, &["-v"])?.tail))
    }

    /// Starts one of this name on a host of the network, in front of these servers: names, and numbers of
    /// their addresses.
    pub fn start(
        &self,
        guard: &mut Guard,
        name: &str,
        network: &PrivateNetwork,
        host: u8,
        checks: HaproxyChecks,
        servers: &[(&str, u8)],
    ) -> Result<RunningHaproxy, ClusterError> {
        let directory = guard.directory().join(name);
        let place = plain_path(&directory)?;
        guard.run(Path::new("mkdir"), &[place])?;
        let haproxy = RunningHaproxy { name: name.to_owned(), directory: directory.clone() };
        let servers: Vec<(&str, Ipv4Addr)> =
            servers.iter().map(|(name, host)| (*name, network.address(*host))).collect();
        let configuration = directory.join("haproxy.cfg");
        guard.write(&configuration, text(place, checks, &servers))?;
        let arguments = ["-db", "-f", &*configuration.to_string_lossy()];
        network.spawn(guard, host, &haproxy.name, &self.program, &arguments, &BTreeMap::new())?;
        Ok(haproxy)
    }
}

/// As in Patroni's templates, but for the socket, the log and the checks' times.
fn text(place: &str, checks: HaproxyChecks, servers: &[(&str, Ipv4Addr)]) -> String {
    let HaproxyChecks { interval_ms, fall, rise } = checks;
    let mut text = format!(
        "global\n\
         \x20   maxconn 1000\n\
         \x20   log stdout format iso local0 notice\n\
         defaults\n\
         \x20   log global\n\
         \x20   mode tcp\n\
         \x20   retries 2\n\
         \x20   timeout client 30m\n\
         \x20   timeout connect 4s\n\
         \x20   timeout server 30m\n\
         \x20   timeout check 5s\n\
         listen postgres\n\
         \x20   bind unix@{place}/.s.PGSQL.{}\n\
         \x20   option httpchk OPTIONS /primary\n\
         \x20   http-check expect status 200\n\
         \x20   default-server inter {interval_ms}ms fall {fall} rise {rise} \
         on-marked-down shutdown-sessions\n",
        Haproxy::PORT
    );
    for (name, address) in servers {
        let check = Patroni::REST_PORT;
        let _ = writeln!(text, "    server {name} {address}:{PORT} maxconn 200 check port {check}");
    }
    text
}

/// Returns the version from lines like `HAProxy version 2.6.12-1+deb12u4 2023/12/16 - https://haproxy.org/`.
fn version_words(printed: &str) -> String {
    let mut words = printed.split_whitespace().skip_while(|word| *word != "version").skip(1);
    let version = words.next().and_then(|version| version.split('-').next());
    version.map_or_else(|| printed.trim().to_owned(), |version| format!("HAProxy {version}"))
}

impl RunningHaproxy {
    /// Returns the directory of its socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its name with the guard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends it, and removes its directory.
    pub fn remove(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.reap(&self.name, Duration::ZERO)?;
        guard.run(Path::new("rm"), &["-rf", &self.directory.to_string_lossy()])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_word_of_what_is_printed() {
        let line =
            "HAProxy version 2.6.12-1+deb12u4 2023/12/16 - https://haproxy.org/\nStatus: x\n";
        assert_eq!(version_words(line), "HAProxy 2.6.12");
        assert_eq!(version_words("HA-Proxy"), "HA-Proxy");
    }

    #[test]
    fn every_server_is_checked_by_its_own_patroni() {
        let checks = HaproxyChecks { interval_ms: 3000, fall: 3, rise: 2 };
        let servers =
            [("node1", Ipv4Addr::new(127, 0, 0, 11)), ("node2", Ipv4Addr::new(127, 0, 0, 12))];
        let text = text("/d", checks, &servers);
        assert!(text.contains("bind unix@/d/.s.PGSQL.5000\n"), "{text}");
        assert!(
            text.contains("default-server inter 3000ms fall 3 rise 2 on-marked-down"),
            "{text}"
        );
        assert!(
            text.ends_with("server node2 127.0.0.12:5432 maxconn 200 check port 8008\n"),
            "{text}"
        );
    }
}
