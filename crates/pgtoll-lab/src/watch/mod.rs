//! Watches a primary of the user's for pages that it refuses to read, and verifies these pages of its
//! standby. It changes nothing.

mod log;
mod page;
mod servers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pgtoll_format::Verdict;
use pgtoll_record::{PageCondition, Provenance, WATCH_SCHEMA, WatchRecord, WatchedPage};
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Dsn, DsnError, Error};

use self::log::LogTail;
use self::page::{RefusedPage, refused_pages};
use self::servers::{Standby, primary_page, relation_of};
use pgtoll_system::error_chain;

/// The plan of a watch.
#[derive(Clone, Debug)]
pub struct DamageWatchPlan {
    /// The primary.
    pub primary: Dsn,
    /// Its standby.
    pub standby: Option<Dsn>,
    /// The primary's log: a file, or the directory of its files. Without it the place of a damage is
    /// unknown.
    pub log: Option<PathBuf>,
    /// Between two looks.
    pub every: Duration,
    /// How long; `None`: until a signal.
    pub duration: Option<Duration>,
    /// A server's verdict on a page at a block, with checksums.
    pub judge_page: JudgePage,
}

/// A server's verdict on a page at a block, with or without checksums.
pub type JudgePage = fn(&[u8], u32, bool) -> Verdict;

/// Why nothing could be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The connection to a server.
    #[error(transparent)]
    Wire(#[from] Error),
    /// A connection string.
    #[error(transparent)]
    Dsn(#[from] DsnError),
    /// The log.
    #[error("read the log {}", path.display())]
    Log {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Without checksums servers notice next to nothing.
    #[error("the server has no data checksums, so it counts no failures")]
    NoChecksums,
    /// A standby counts what it reads itself.
    #[error("the server is a standby")]
    NotPrimary,
    /// The other server is none of this primary's.
    #[error("{0}")]
    WrongStandby(String),
}

impl WatchError {
    /// Returns advice.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Wire(error) => return error.hint(),
            Self::Dsn(error) => return error.hint(),
            Self::NoChecksums => "`pgtoll enable` turns them on, in a stopped cluster",
            Self::NotPrimary => "name the primary with --dsn, and the standby with --standby",
            Self::Log { .. } => "--log takes a file, or the directory of the server's log files",
            Self::WrongStandby(_) => "name a standby that streams from this primary",
        };
        Some(hint.to_owned())
    }
}

/// The event that just happened.
#[derive(Clone, Copy, Debug)]
pub enum DamageWatchProgress<'a> {
    /// The watch began; this many failures had been counted before.
    Began(u64),
    /// The primary does not answer.
    Silent(&'a str),
    /// It answers again.
    Answers,
    /// Failures were counted.
    Failures(u64),
    /// A page was refused, and judged.
    Page(&'a WatchedPage),
}

/// Looks at the primary until pages are refused, the time is over or a signal comes.
///
/// # Errors
///
/// Where the watch could not begin.
pub fn watch(
    plan: &DamageWatchPlan,
    provenance: Provenance,
    interrupt: &Interrupt,
    on_progress: &mut dyn FnMut(DamageWatchProgress<'_>),
) -> Result<WatchRecord, WatchError> {
    let mut watcher = Watcher::begin(plan)?;
    on_progress(DamageWatchProgress::Began(watcher.failures_before));
    let end = plan.duration.map(|duration| Instant::now() + duration);
    while !watcher.has_found() && end.is_none_or(|end| Instant::now() < end) {
        watcher.look(on_progress)?;
        if !watcher.has_found() && interrupt.wait(plan.every).is_err() {
            break;
        }
    }
    // The counter may rise before the log says where.
    let late = Instant::now() + LOG_LATENESS;
    while watcher.lacks_place() && Instant::now() < late && interrupt.wait(LOG_LOOK).is_ok() {
        watcher.read_log()?;
    }
    let pages = watcher.judge_pages(on_progress);
    Ok(watcher.record(pages, provenance, interrupt))
}

/// A server counts a failure before it logs the error, and may be held up in between.
const LOG_LATENESS: Duration = Duration::from_secs(10);
/// Between two looks at the log then.
const LOG_LOOK: Duration = Duration::from_millis(100);

struct Watcher<'a> {
    plan: &'a DamageWatchPlan,
    primary: Option<Connection>,
    standby: Option<Standby>,
    log: Option<LogTail>,
    failures_before: u64,
    failures: u64,
    looks: u64,
    missed: u64,
    refused: Vec<RefusedPage>,
}

impl<'a> Watcher<'a> {
    fn begin(plan: &'a DamageWatchPlan) -> Result<Self, WatchError> {
        let mut primary = plan.primary.connect()?;
        let identifier = servers::primary_identifier(&mut primary)?;
        let standby =
            plan.standby.as_ref().map(|dsn| Standby::new(dsn, &identifier)).transpose()?;
        let log = plan.log.as_deref().map(LogTail::at_end).transpose()?;
        let failures_before = counted_failures(&mut primary)?;
        Ok(Self {
            plan,
            primary: Some(primary),
            standby,
            log,
            failures_before,
            failures: 0,
            looks: 0,
            missed: 0,
            refused: Vec::new(),
        })
    }

    fn has_found(&self) -> bool {
        self.failures > 0 || !self.refused.is_empty()
    }

    /// Failures were counted, and the log has not said where.
    fn lacks_place(&self) -> bool {
        self.log.is_some() && self.failures > 0 && self.refused.is_empty()
    }

    fn look(
        &mut self,
        on_progress: &mut dyn FnMut(DamageWatchProgress<'_>),
    ) -> Result<(), WatchError> {
        let was_silent = self.primary.is_none();
        match self.counted() {
            Ok(failures) => {
                self.looks += 1;
                if was_silent {
                    on_progress(DamageWatchProgress::Answers);
                }
                // A restart after a crash sets it back.
                self.failures = failures.saturating_sub(self.failures_before);
                self.failures_before = self.failures_before.min(failures);
                if self.failures > 0 {
                    on_progress(DamageWatchProgress::Failures(self.failures));
                }
            }
            Err(error) => {
                self.missed += 1;
                self.primary = None;
                if !was_silent {
                    on_progress(DamageWatchProgress::Silent(&error_chain(&error)));
                }
            }
        }
        self.read_log()
    }

    fn counted(&mut self) -> Result<u64, Error> {
        let mut primary = match self.primary.take() {
            Some(primary) => primary,
            None => self.plan.primary.connect()?,
        };
        primary.wait_until(Instant::now().checked_add(ANSWER_LIMIT));
        let failures = counted_failures(&mut primary)?;
        self.primary = Some(primary);
        Ok(failures)
    }

    fn read_log(&mut self) -> Result<(), WatchError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        for page in refused_pages(&log.new_lines()?) {
            if !self.refused.contains(&page) {
                self.refused.push(page);
            }
        }
        Ok(())
    }

    /// Looks at the refused pages in the files of both servers.
    fn judge_pages(
        &mut self,
        on_progress: &mut dyn FnMut(DamageWatchProgress<'_>),
    ) -> Vec<WatchedPage> {
        let refused = std::mem::take(&mut self.refused);
        let pages = refused.iter().map(|page| {
            let judged = self.judge(page);
            on_progress(DamageWatchProgress::Page(&judged));
            judged
        });
        pages.collect()
    }

    fn judge(&mut self, page: &RefusedPage) -> WatchedPage {
        let judge = self.plan.judge_page;
        let named = relation_of(&self.plan.primary, page);
        let (database, relation) = named.unwrap_or_default();
        let standby = match &mut self.standby {
            Some(standby) => standby.page(&self.plan.primary, page, judge),
            None => PageCondition::Unknown { reason: "no standby was named".to_owned() },
        };
        let primary = primary_page(&self.plan.primary, page, judge);
        let file = page.file.clone();
        let block = page.block;
        WatchedPage { file, block, database, relation, primary, standby }
    }

    fn record(
        self,
        pages: Vec<WatchedPage>,
        provenance: Provenance,
        interrupt: &Interrupt,
    ) -> WatchRecord {
        let standby_is_verified =
            !pages.is_empty() && pages.iter().all(|page| page.standby == PageCondition::Sound);
        let proposals = if pages.is_empty() && self.failures == 0 {
            Vec::new()
        } else {
            let standby = self.plan.standby.as_ref().filter(|_| standby_is_verified);
            proposals(&pages, standby)
        };
        WatchRecord {
            schema: WATCH_SCHEMA.to_owned(),
            pgtoll: provenance.version,
            command: provenance.command,
            made: jiff::Timestamp::now().to_string(),
            primary: self.plan.primary.redacted(),
            standby: self.plan.standby.as_ref().map(Dsn::redacted),
            looks: self.looks,
            missed: self.missed,
            failures_before: self.failures_before,
            failures: self.failures,
            pages,
            standby_is_verified,
            action_requested: false,
            action: None,
            proposals,
            ended: interrupt.signal().map(|signal| format!("interrupted by {signal}")),
        }
    }
}

/// How long the primary may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

fn counted_failures(connection: &mut Connection) -> Result<u64, Error> {
    let sql = "SELECT coalesce(pg_catalog.sum(checksum_failures), 0)::bigint AS failures \
               FROM pg_catalog.pg_stat_database";
    connection.query_one(sql)?.parse("failures")
}

/// Returns proposals, the least invasive first. `standby` has sound pages.
fn proposals(pages: &[WatchedPage], standby: Option<&Dsn>) -> Vec<String> {
    let mut proposals = Vec::new();
    if pages.is_empty() {
        proposals.push(
            "the server's log names the page (--log); `pgtoll verify PGDATA` reads all of \
             them"
                .to_owned(),
        );
        return proposals;
    }
    let repairable: Vec<String> = pages.iter().filter_map(repair_block).collect();
    if !repairable.is_empty() {
        let blocks: Vec<String> =
            repairable.iter().map(|repairable| format!("--block {repairable}")).collect();
        let from = match standby {
            Some(dsn) => format!("--from-standby {}", pgtoll_format::shell_quoted(&dsn.redacted())),
            None => "--from-backup BACKUP --wal ARCHIVE".to_owned(),
        };
        proposals.push(format!(
            "repair, without a failover: `pgtoll repair PGDATA {from} {}`",
            blocks.join(" ")
        ));
    }
    if standby.is_some() {
        proposals.push(
            "or fail over to the standby, whose pages are sound; others of its pages were not read: \
             `pgtoll verify` there first"
                .to_owned(),
        );
    } else {
        proposals
            .push("do not fail over: the standby's pages are not known to be sound".to_owned());
    }
    proposals
}

/// The block as `pgtoll repair` takes it: of the main fork of a named relation.
fn repair_block(page: &WatchedPage) -> Option<String> {
    let is_main = page.file.rsplit('/').next().is_some_and(|name| !name.contains('_'));
    let database = page.database.as_ref()?;
    let relation = page.relation.as_ref()?;
    is_main.then(|| pgtoll_format::shell_quoted(&format!("{database}.{relation}:{}", page.block)))
}
