//! A primary with a damaged page, and its standby.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgtoll_alter::{ByteChange, DamagePlan, UNDO_SCHEMA};
use pgtoll_cluster::{Cluster, Pgbouncer, RunningPgbouncer, StopMode};
use pgtoll_format::hex;
use pgtoll_record::RowState;
use pgtoll_wire::{Connection, Dsn};

use super::{CorruptionError, LabContext};

/// A primary with a damaged page that it has not read since, and its standby.
pub(super) struct DamagedPair {
    pub(super) primary: Arc<Cluster>,
    pub(super) standby: Arc<Cluster>,
    /// The pooler of the clients; `None`: they connect to both servers.
    pub(super) pooler: Option<RunningPgbouncer>,
    /// The damaged row's text, as it was written.
    pub(super) text: String,
}

/// How long a server may take to do what it will do anyway.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of the row's text that are changed.
const CHANGED_BYTES: usize = 16;

impl DamagedPair {
    /// Makes both from a stopped cluster, with the standby's page sound, and lets them run.
    pub(super) fn start(
        context: &LabContext<'_>,
        template: &Cluster,
    ) -> Result<Self, CorruptionError> {
        let mut guard = pgtoll_system::lock(context.guard);
        let primary = template.copy(&mut guard, "primary")?;
        primary.start(&mut guard)?;
        let standby = primary.standby(&mut guard, "standby", primary.directory())?;
        standby.start(&mut guard)?;
        let target = DamageTarget::find(&primary)?;
        // Written, and no longer in memory.
        primary.stop(&mut guard, StopMode::Fast)?;
        target.damage()?;
        primary.start(&mut guard)?;
        let start = |pgbouncer: &Pgbouncer| {
            pgbouncer.start(&mut guard, "pooler", "postgres", primary.directory())
        };
        let pooler = context.plan.pooler.as_ref().map(start).transpose()?;
        drop(guard);
        let primary = Arc::new(primary);
        let standby = Arc::new(standby);
        let pair = Self { primary, standby, pooler, text: target.text };
        pair.wait_for_streaming(context)?;
        if let Some(pooler) = &pair.pooler {
            wait(context, "pgbouncer listens", || Ok(pooler.console().is_ok()))?;
        }
        Ok(pair)
    }

    fn wait_for_streaming(&self, context: &LabContext<'_>) -> Result<(), CorruptionError> {
        let mut connection = self.primary.connect("postgres")?;
        wait(context, "the standby streams", || {
            let sql = "SELECT count(*) AS count FROM pg_stat_replication WHERE state = 'streaming'";
            Ok(connection.query_one(sql)?.text("count")? == "1")
        })?;
        connection.close();
        Ok(())
    }

    /// Waits until the standby has replayed all that the primary has flushed.
    pub(super) fn wait_for_replay(&self, context: &LabContext<'_>) -> Result<(), CorruptionError> {
        let mut connection = self.primary.connect("postgres")?;
        let row = connection.query_one("SELECT pg_current_wal_flush_lsn() AS lsn")?;
        let lsn = row.text("lsn")?.to_owned();
        connection.close();
        let mut connection = self.standby.connect("postgres")?;
        wait(context, "the standby has replayed", || {
            let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}' AS done");
            Ok(connection.query_one(&sql)?.text("done")? == "t")
        })?;
        connection.close();
        Ok(())
    }

    /// The way to whichever of both is the primary.
    pub(super) fn dsn(&self) -> Result<Dsn, CorruptionError> {
        if let Some(pooler) = &self.pooler {
            let host = pooler.directory().display();
            let port = Pgbouncer::PORT;
            return Ok(format!("host='{host}' port={port} user=postgres dbname=postgres").parse()?);
        }
        let environment = self.primary.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        Ok(format!(
            "host='{},{}' port={} user={} dbname={} target_session_attrs=primary",
            self.primary.directory().display(),
            self.standby.directory().display(),
            value("PGPORT"),
            value("PGUSER"),
            value("PGDATABASE"),
        )
        .parse()?)
    }

    /// The damaged row, as a server shows it now.
    pub(super) fn row(&self, server: &Cluster) -> Result<RowState, CorruptionError> {
        let mut connection = server.connect("postgres")?;
        let state = row_state(&mut connection, &self.text);
        connection.close();
        state
    }

    /// Stops what runs and removes both.
    pub(super) fn remove(
        self,
        context: &LabContext<'_>,
        primary_runs: bool,
    ) -> Result<(), CorruptionError> {
        let mut guard = pgtoll_system::lock(context.guard);
        if let Some(pooler) = &self.pooler {
            pooler.remove(&mut guard)?;
        }
        if primary_runs {
            self.primary.stop(&mut guard, StopMode::Immediate)?;
        }
        self.standby.stop(&mut guard, StopMode::Immediate)?;
        for cluster in [self.primary, self.standby] {
            Cluster::clone(&cluster).remove(&mut guard)?;
        }
        Ok(())
    }
}

/// The row of the damage, in the page's first place.
const ROW: &str = "SELECT text FROM victim WHERE ctid = '(10,1)'";

/// The damaged row, as this session sees it.
pub(super) fn row_state(
    connection: &mut Connection,
    expected: &str,
) -> Result<RowState, CorruptionError> {
    match connection.query_one(ROW) {
        Ok(row) if row.text("text")? == expected => Ok(RowState::Right),
        Ok(_) => Ok(RowState::Wrong),
        Err(error) if error.sqlstate().is_some() => Ok(RowState::Error),
        Err(error) => Err(error.into()),
    }
}

/// The text of a row in a stopped server's file.
struct DamageTarget {
    file: PathBuf,
    block_bytes: u64,
    text: String,
}

/// The block of the row of [`ROW`].
const BLOCK: u64 = 10;

impl DamageTarget {
    fn find(primary: &Cluster) -> Result<Self, CorruptionError> {
        let mut connection = primary.connect("postgres")?;
        let sql = "SELECT pg_relation_filepath('victim') AS path, \
                   current_setting('block_size') AS block_size";
        let row = connection.query_one(sql)?;
        let file = primary.data().join(row.text("path")?);
        let block_bytes: u64 = row.parse("block_size")?;
        let text = connection.query_one(ROW)?.text("text")?.to_owned();
        connection.close();
        Ok(Self { file, block_bytes, text })
    }

    /// Changes the first bytes of the text in the file, and nothing else of the page.
    fn damage(&self) -> Result<(), CorruptionError> {
        let read = |source| CorruptionError::Read { path: self.file.display().to_string(), source };
        let bytes = pgtoll_system::read(&self.file, FILE_BYTES_MAX).map_err(read)?;
        let page = usize::try_from(BLOCK * self.block_bytes).unwrap_or(usize::MAX);
        let rest = bytes.get(page..).unwrap_or_default();
        let text = self.text.as_bytes();
        let found =
            rest.windows(text.len()).position(|window| window == text).ok_or_else(|| {
                let message = format!("the row of block {BLOCK} is not in {}", self.file.display());
                CorruptionError::Unexpected(message)
            })?;
        let before = &text[..CHANGED_BYTES];
        let after: Vec<u8> = before.iter().map(|byte| byte ^ 1).collect();
        let change =
            ByteChange { at: (page + found) as u64, before: hex(before), after: hex(&after) };
        let length = bytes.len() as u64;
        let plan = DamagePlan {
            schema: UNDO_SCHEMA.to_owned(),
            file: self.file.clone(),
            length,
            length_after: Some(length),
            changes: vec![change],
            moved_to: None,
        };
        Ok(plan.apply()?)
    }
}

/// The table has some 40 pages.
const FILE_BYTES_MAX: u64 = 64 << 20;

fn wait(
    context: &LabContext<'_>,
    label: &str,
    mut is_so: impl FnMut() -> Result<bool, CorruptionError>,
) -> Result<(), CorruptionError> {
    let until = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > until {
            let message = format!("waited for {} s until {label}", PATIENCE.as_secs());
            return Err(CorruptionError::Unexpected(message));
        }
        context.interrupt.wait(LOOK)?;
    }
    Ok(())
}
