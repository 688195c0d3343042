//! Engines: programs of others that make a service of several servers, or are a part of one. They
//! listen on Unix sockets in directories of their own, like servers do, and the guard starts and ends
//! them.

mod auto_failover;
mod daemon;
mod etcd;
mod haproxy;
mod network;
mod patroni;
mod pgbouncer;
mod pgpool;
mod redis;
mod repmgr;
mod survey;

pub use auto_failover::{AutoFailover, AutoFailoverSettings};
pub use daemon::EngineDaemon;
pub use etcd::{Etcd, RunningEtcd};
pub use haproxy::{Haproxy, HaproxyChecks, RunningHaproxy};
pub use network::{NetworkCut, PrivateNetwork};
pub use patroni::{Patroni, PatroniSettings};
pub use pgbouncer::{Pgbouncer, RunningPgbouncer};
pub use pgpool::{Pgpool, PgpoolNode, RunningPgpool};
pub use redis::{Redis, RunningRedis};
pub use repmgr::{Repmgr, RepmgrNode, RepmgrSettings};
pub use survey::{EngineSurvey, TESTED_ENGINES, apt_install, apt_line, is_debian};

use std::path::Path;

use crate::{ClusterError, Guard};

/// The first line that a program prints for `--version`.
fn version(guard: &mut Guard, program: &Path) -> Result<String, ClusterError> {
    let printed = guard.run(program, &["--version"])?.tail;
    Ok(printed.lines().next().unwrap_or_default().trim().to_owned())
}
