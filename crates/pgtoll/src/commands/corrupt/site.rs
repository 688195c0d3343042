//! The data directory that is damaged: held, or with the server that runs on it.

use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_alter::{DamagePlan, Hold, HoldPolicy, any_block, any_block_where, become_owner_of};
use pgtoll_datadir::{DataDirectory, Names, RelationFile};
use pgtoll_format::{ControlFile, RelationFork};
use pgtoll_system::Interrupt;
use pgtoll_verify::{RunningServer, Unsettled};

use crate::arguments::CorruptArguments;
use crate::commands::server_waits::ServerWaits;
use crate::commands::verify::online;
use crate::mistakes::Usage;

/// The place of the damage.
pub(super) enum Site {
    /// No server runs; while it is held, none can start.
    Stopped(Box<Stopped>),
    /// A server runs, and is asked what it has in memory.
    Running(Box<Running>),
}

pub(super) struct Stopped {
    data: PathBuf,
    control: ControlFile,
    policy: HoldPolicy,
    hold: Option<Hold>,
}

pub(super) struct Running {
    data: DataDirectory,
    names: Names,
    server: RunningServer,
    _waits: ServerWaits,
}

impl Site {
    /// Looks at the directory, and changes nothing.
    pub(super) fn from_arguments(arguments: &CorruptArguments) -> anyhow::Result<Self> {
        if !arguments.online {
            let data = arguments.data.clone();
            let policy = if arguments.crashed {
                HoldPolicy::Crashed
            } else {
                HoldPolicy::ShutDownOrUnlocked
            };
            let control = Hold::check_left(&data, policy)?;
            return Ok(Self::Stopped(Box::new(Stopped { data, control, policy, hold: None })));
        }
        let data = DataDirectory::open(&arguments.data)?;
        let interrupt = Interrupt::new();
        interrupt.catch_signals().context("catch signals")?;
        let waits = ServerWaits::until(&interrupt)?;
        let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
        let Some(mut attached) = online::attach(&data, dsn.as_ref(), &waits)? else {
            let message = format!("no server runs on {}", arguments.data.display());
            return Err(Usage::error(message, "leave out --online"));
        };
        if let Some(why) = attached.unasked() {
            let message = format!("the server could not be asked what it has in memory: {why}");
            return Err(Usage::error(message, "name a connection with --dsn"));
        }
        let names = attached.names(&data)?;
        let server = RunningServer::attached(&mut attached, &data, 1)?;
        Ok(Self::Running(Box::new(Running { data, names, server, _waits: waits })))
    }

    pub(super) fn control(&self) -> &ControlFile {
        match self {
            Self::Stopped(stopped) => &stopped.control,
            Self::Running(running) => &running.data.control,
        }
    }

    pub(super) fn names(&self) -> anyhow::Result<Names> {
        match self {
            Self::Stopped(stopped) => Ok(Names::of_data_directory(&stopped.data)?),
            Self::Running(running) => Ok(running.names.clone()),
        }
    }

    /// A block of the file by chance; with a running server one that it does not have in memory.
    pub(super) fn any_block(&mut self, file: &RelationFile, seed: u64) -> anyhow::Result<u64> {
        let block_bytes = self.control().block_bytes as usize;
        let Self::Running(running) = self else {
            return Ok(any_block(&file.path, block_bytes, seed)?.unwrap_or_default());
        };
        let is_allowed = |block| running.has_in_memory(file, block).map(|has| !has);
        let found = any_block_where(&file.path, block_bytes, seed, is_allowed)?;
        found.ok_or_else(|| {
            Usage::error(
                format!("the server has {} in memory", file.path.display()),
                "choose a relation that is not in memory, or restart the server",
            )
        })
    }

    /// The last step before a byte changes: holds the directory of a stopped server, and as root
    /// becomes its owner.
    pub(super) fn take(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Stopped(stopped) => {
                stopped.hold = Some(Hold::take_with(&stopped.data, stopped.policy)?);
            }
            Self::Running(running) => become_owner_of(&running.data.path)?,
        }
        Ok(())
    }

    /// Says so when the damage would hit what a running server has.
    pub(super) fn check(&mut self, plan: &DamagePlan, file: &RelationFile) -> anyhow::Result<()> {
        let Self::Running(running) = self else { return Ok(()) };
        if !plan.keeps_length() {
            return Err(Usage::error(
                "a running server has the file open: it would not notice that it is cut or gone",
                "stop the server for this kind of damage",
            ));
        }
        for block in plan.changed_blocks(running.data.control.block_bytes) {
            if running.has_in_memory(file, block)? {
                return Err(Usage::error(
                    format!("the server has block {block} of {} in memory", file.path.display()),
                    "choose another block, or have it evicted: pg_buffercache_evict() (17 and \
                     later), or a restart",
                ));
            }
        }
        Ok(())
    }
}

impl Running {
    fn has_in_memory(&mut self, file: &RelationFile, block: u64) -> anyhow::Result<bool> {
        let first = file.first_block(&self.data.control).context("a file beyond all blocks")?;
        let block = u32::try_from(block).ok().and_then(|block| first.checked_add(block));
        let block = block.context("a block beyond all blocks")?;
        let fork = RelationFork { relation: file.relation, number: file.name.fork };
        self.server.has_in_memory(fork, block).map_err(|why| match why {
            Unsettled::NoWay => Usage::error(
                "the server cannot list the pages in its memory",
                "CREATE EXTENSION pg_buffercache in the relation's database, or stop the server",
            ),
            Unsettled::Refused(why) => Usage::error(
                format!("the server does not list the pages in its memory: {why}"),
                "connect as a superuser: --dsn",
            ),
            _ => Usage::error(
                "the server could not be asked what it has in memory",
                "name a connection with --dsn",
            ),
        })
    }
}
