//! The engines of labs on this machine, and the way to install the others.

use std::fs;

use super::{AutoFailover, Etcd, Haproxy, Patroni, Pgbouncer, Pgpool, Redis, Repmgr};
use crate::environment::find_program;
use crate::{ClusterError, Guard, Installation, Origin, UserCommand, UserCommandEnd};

/// The engines of labs on this machine.
#[derive(Clone, Debug)]
pub struct EngineSurvey {
    /// The server that repmgr is for: the newest that has it, else the newest that others installed.
    pub installation: Option<Installation>,
    /// repmgr for this server.
    pub repmgr: Option<Repmgr>,
    /// PgBouncer, if it is installed.
    pub pgbouncer: Option<Pgbouncer>,
    /// Pgpool-II.
    pub pgpool: Option<Pgpool>,
    /// Redis, if it is installed.
    pub redis: Option<Redis>,
    /// Patroni and what is used beside it.
    pub patroni: Option<(Patroni, Etcd, Haproxy)>,
    /// `pg_auto_failover` for this server.
    pub auto_failover: Option<AutoFailover>,
}

/// The versions that pgtoll is tested with, as the programs report them.
pub const TESTED_ENGINES: [&str; 8] = [
    "repmgr 5.3.3",
    "PgBouncer 1.18.0",
    "Pgpool-II 4.3.5",
    "Redis 7.0.15",
    "Patroni 3.0.2",
    "etcd 3.4.23",
    "HAProxy 2.6.12",
    "pg_auto_failover 2.0",
];

impl EngineSurvey {
    /// Looks at the servers of this machine, the newest first, and for engines beside them.
    pub fn from_installations(installations: &[Installation]) -> Self {
        let mut fit = installations.iter().filter(|installation| {
            installation.version.facts().is_ok() && installation.origin != Origin::Embedded
        });
        let with_repmgr = fit.clone().find(|fit| Repmgr::from_installation(fit).is_ok());
        let installation = with_repmgr.or_else(|| fit.next()).cloned();
        let repmgr = installation
            .as_ref()
            .and_then(|installation| Repmgr::from_installation(installation).ok());
        let pgbouncer = Pgbouncer::find("pgbouncer").ok();
        let pgpool = Pgpool::find().ok();
        let auto_failover = installation
            .as_ref()
            .and_then(|installation| AutoFailover::from_installation(installation).ok());
        let redis = Redis::find().ok();
        let patroni = find_patroni();
        Self { installation, repmgr, pgbouncer, pgpool, redis, patroni, auto_failover }
    }

    /// Debian's packages that are missing.
    pub fn missing_packages(&self) -> Vec<String> {
        let mut packages = Vec::new();
        if self.repmgr.is_none() {
            packages.push("repmgr".to_owned());
            // The package `repmgr` depends on the one for the distribution's own server.
            let own = self.installation.as_ref();
            packages.extend(
                own.map(|installation| {
                    format!("postgresql-{}-repmgr", installation.version.major())
                }),
            );
        }
        if self.pgbouncer.is_none() {
            packages.push("pgbouncer".to_owned());
        }
        if self.pgpool.is_none() {
            packages.push(Pgpool::PACKAGE.to_owned());
        }
        if self.redis.is_none() {
            packages.extend(Redis::PACKAGES.map(str::to_owned));
        }
        if self.patroni.is_none() {
            packages.extend(Patroni::PACKAGES.map(str::to_owned));
        }
        if let (None, Some(own)) = (&self.auto_failover, &self.installation) {
            packages.extend(AutoFailover::packages(own.version.major()));
        }
        packages
    }

    /// Returns the versions of the engines that are installed.
    pub fn versions(&self, guard: &mut Guard) -> Result<Vec<String>, ClusterError> {
        let repmgr = self.repmgr.as_ref().map(|repmgr| repmgr.version(guard)).transpose()?;
        let pgbouncer =
            self.pgbouncer.as_ref().map(|pgbouncer| pgbouncer.version(guard)).transpose()?;
        let pgpool = self.pgpool.as_ref().map(|pgpool| pgpool.version(guard)).transpose()?;
        let redis = self.redis.as_ref().map(|redis| redis.version(guard)).transpose()?;
        let mut versions: Vec<String> =
            [repmgr, pgbouncer, pgpool, redis].into_iter().flatten().collect();
        if let Some((patroni, etcd, haproxy)) = &self.patroni {
            versions.extend([patroni.version(guard)?, etcd.version(guard)?]);
            versions.push(haproxy.version(guard)?);
        }
        if let Some(auto_failover) = &self.auto_failover {
            versions.push(auto_failover.version(guard)?);
        }
        Ok(versions)
    }
}

fn find_patroni() -> Option<(Patroni, Etcd, Haproxy)> {
    Some((Patroni::find().ok()?, Etcd::find("").ok()?, Haproxy::find("").ok()?))
}

/// The command line that installs these packages without starting their services; `None` where there
/// is no apt.
pub fn apt_line(packages: &[String]) -> Option<String> {
    let apt = find_program("apt-get")?;
    let packages = packages.join(" ");
    Some(format!(
        "RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive {} install -y --no-install-recommends {packages}",
        apt.display()
    ))
}

/// Installs these packages, as root. It continues when pgtoll is ended: half an installation helps nobody.
pub fn apt_install(packages: &[String]) -> Result<UserCommandEnd, ClusterError> {
    let missing = || ClusterError::NoEngine {
        program: "apt-get",
        place: "in PATH".to_owned(),
        packages: packages.join(" "),
    };
    UserCommand::start(&apt_line(packages).ok_or_else(missing)?)?.wait()
}

/// Whether this is Debian or one of its relatives, whose packages these are.
pub fn is_debian() -> bool {
    fs::metadata("/etc/debian_version").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_by_its_packages() {
        let none = EngineSurvey {
            installation: None,
            repmgr: None,
            pgbouncer: None,
            pgpool: None,
            redis: None,
            patroni: None,
            auto_failover: None,
        };
        let others = [&Redis::PACKAGES[..], &Patroni::PACKAGES].concat();
        assert_eq!(
            none.missing_packages(),
            [&["repmgr", "pgbouncer", "pgpool2"], &others[..]].concat()
        );
        let installation = Installation {
            bin: "/usr/lib/postgresql/17/bin".into(),
            version: "17.5".parse().unwrap(),
            origin: Origin::Installed,
        };
        let one = EngineSurvey { installation: Some(installation), ..none };
        let missing = ["repmgr", "postgresql-17-repmgr", "pgbouncer", "pgpool2"];
        let last = ["pg-auto-failover-cli", "postgresql-17-auto-failover"];
        assert_eq!(one.missing_packages(), [&missing[..], &others[..], &last].concat());
    }
}
