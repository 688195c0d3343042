//! Redis: keys and values in memory, which a server can read as a foreign table.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::{LONGEST_SOCKET_PATH, plain_path};
use crate::environment::find_daemon;
use crate::{ClusterError, Guard, Output, ProgramSignal};

/// The programs: `redis-server` and `redis-cli`.
#[derive(Clone, Debug)]
pub struct Redis {
    server: PathBuf,
    client: PathBuf,
}

impl Redis {
    /// Debian's packages with both programs.
    pub const PACKAGES: [&str; 2] = ["redis-server", "redis-tools"];

    /// Those in `PATH`, or where daemons are.
    pub fn find() -> Result<Self, ClusterError> {
        Ok(Self { server: find("redis-server")?, client: find("redis-cli")? })
    }

    /// Returns the server's version, such as `Redis 7.0.15`.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        Ok(version_words(&super::version(guard, &self.server)?))
    }

    /// Whether `redis-cli -e` ends with another status than 0 when Redis answers with an error. Before
    /// Redis 7 there is no such option.
    pub fn reports_errors(&self, guard: &mut Guard) -> Result<bool, ClusterError> {
        match guard.run(&self.client, &["-e", "--version"]) {
            Ok(_) => Ok(true),
            Err(ClusterError::Program { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of `redis-cli`, quoted for a shell.
    pub fn client(&self) -> Result<&str, ClusterError> {
        plain_path(&self.client)
    }

    /// Starts a server that keeps nothing on disk and listens on a Unix socket in a directory of its
    /// own. It answers once [`RunningRedis::is_listening`].
    pub fn start(&self, guard: &mut Guard, name: &str) -> Result<RunningRedis, ClusterError> {
        let directory = guard.directory().join(name);
        let redis = RunningRedis {
            name: name.to_owned(),
            client: self.client.clone(),
            directory: directory.clone(),
        };
        if redis.socket().as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(ClusterError::PathTooLong { path: directory });
        }
        let place = plain_path(&directory)?;
        guard.run(Path::new("mkdir"), &[place])?;
        let configuration = directory.join("redis.conf");
        let text = format!(
            "port 0\n\
             unixsocket {place}/{SOCKET}\n\
             unixsocketperm 700\n\
             dir {place}\n\
             save \"\"\n\
             appendonly no\n\
             daemonize no\n"
        );
        guard.write(&configuration, text)?;
        let arguments = [&*configuration.to_string_lossy()];
        guard.spawn(name, &self.server, &arguments, &BTreeMap::new())?;
        Ok(redis)
    }
}

const SOCKET: &str = "redis.sock";

fn find(program: &'static str) -> Result<PathBuf, ClusterError> {
    find_daemon(program).ok_or_else(|| ClusterError::NoEngine {
        program,
        place: "in PATH and /usr/sbin".to_owned(),
        packages: Redis::PACKAGES.join(" "),
    })
}

/// Returns the version from a line like `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64`.
fn version_words(printed: &str) -> String {
    let version = printed.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.map_or_else(|| printed.to_owned(), |version| format!("Redis {version}"))
}

/// A Redis that was started.
#[derive(Clone, Debug)]
pub struct RunningRedis {
    name: String,
    client: PathBuf,
    directory: PathBuf,
}

impl RunningRedis {
    /// Returns the directory of its socket and configuration.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Whether it takes connections.
    pub fn is_listening(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// How it ended; `None` while it runs.
    pub fn has_ended(&self, guard: &mut Guard) -> Result<Option<Output>, ClusterError> {
        guard.has_ended(&self.name)
    }

    /// Lets `redis-cli` send a command, whose error is one of this function.
    pub fn command(&self, guard: &mut Guard, words: &[&str]) -> Result<Output, ClusterError> {
        let socket = self.socket();
        guard.run(&self.client, &[&["-e", "-s", &*socket.to_string_lossy()], words].concat())
    }

    /// Freezes it: it takes connections, and answers none.
    pub fn freeze(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.signal(&self.name, ProgramSignal::Stop)
    }

    /// Ends it at once, frozen or not.
    pub fn kill(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.signal(&self.name, ProgramSignal::Kill)?;
        guard.reap(&self.name, Duration::from_secs(10))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_word_of_what_is_printed() {
        let line = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1f3";
        assert_eq!(version_words(line), "Redis 7.0.15");
        assert_eq!(version_words("Valkey 8"), "Valkey 8");
    }
}
