//! PostgreSQL servers of our own: find or install PostgreSQL, then initdb, configure, start, stop,
//! kill and copy clusters. This is the only crate that starts processes.
//!
//! Everything is started by the [guard](Guard), a child of pgtoll that outlives it by just as long
//! as it takes to stop every process and remove every file, however pgtoll ends.
//!
//! ```no_run
//! use pgtoll_cluster::{Cluster, Guard, GuardOptions, Installation, ServerUser, StopMode};
//! use pgtoll_system::Interrupt;
//!
//! let interrupt = Interrupt::new();
//! let installation = Installation::find(None)?.expect("a server is installed");
//! let options = GuardOptions::of_this_program("/var/tmp".into(), ServerUser::choose()?);
//! let mut guard = Guard::begin(&options, &interrupt)?;
//! let cluster = Cluster::init(&mut guard, &installation, "off", false)?;
//! cluster.configure(&mut guard, &[("shared_buffers".into(), "16MB".into())].into())?;
//! cluster.start(&mut guard)?;
//! cluster.connect("postgres")?.execute("CHECKPOINT")?;
//! let usage = cluster.stop(&mut guard, StopMode::Fast)?;
//! println!("{:?} of CPU", usage.cpu());
//! guard.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cluster;
mod cpus;
mod difference;
mod engine;
mod environment;
mod error;
mod find;
mod guard;
mod import;
mod install;
mod leftover;
mod memory;
mod not_imported;
mod package;
mod package_installer;
mod process;
mod profiler;
mod startup;
mod suspend;
mod trust;
mod upgrade;
mod user;
mod user_command;
mod volume;

pub use cluster::Cluster;
pub use cpus::{PinnedThread, pin, usable_cpus};
pub use difference::{Difference, DifferenceKind};
pub use engine::{
    AutoFailover, AutoFailoverSettings, EngineDaemon, EngineSurvey, Etcd, Haproxy, HaproxyChecks,
    NetworkCut, Patroni, PatroniSettings, Pgbouncer, Pgpool, PgpoolNode, PrivateNetwork, Redis,
    Repmgr, RepmgrNode, RepmgrSettings, RunningEtcd, RunningHaproxy, RunningPgbouncer,
    RunningPgpool, RunningRedis, TESTED_ENGINES, apt_install, apt_line, is_debian,
};
pub use environment::search_path;
pub use error::{ClusterError, Untrusted};
pub use find::{Finder, Found, Installation, Origin, Skipped};
pub use guard::{
    Confinement, Guard, GuardOptions, LaunchState, Output, ProgramSignal, StopMode, Usage,
    guard_main,
};
pub use leftover::{Leftover, leftovers};
pub use memory::{MemoryGroup, MemoryUse};
pub use not_imported::NotImported;
pub use package::{SERVER_PACKAGES, ServerPackage};
pub use package_installer::PackageInstaller;
pub use profiler::{NoProfile, Profiler};
pub use startup::StartupActivity;
pub use suspend::{ServerProcesses, wait_for_exit};
pub use user::ServerUser;
pub use user_command::{UserCommand, UserCommandEnd};
pub use volume::{Volume, VolumeKind, VolumeMaker, Volumes, keeper_main};
