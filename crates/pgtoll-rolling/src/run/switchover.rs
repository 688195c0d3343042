//! The primary hands over to a standby, and becomes a standby itself.
//!
//! The order is what makes it safe: the old primary is shut down, then made a standby on disk, and
//! only then is the other one promoted. Whenever this process dies, at most one of them takes writes.

use std::time::{Duration, Instant};

use pgtoll_cluster::UserCommand;
use pgtoll_format::Lsn;
use pgtoll_record::RollingSwitchover;
use pgtoll_wire::Dsn;

use super::RollingRun;
use crate::journal::{OpenSwitchover, OwnSlot};
use crate::options::RollingQuestion;
use crate::site::{NodeConnection, NodeSite, quoted};
use crate::survey::flush_position;
use crate::{NodeAnswer, NodeVerb, RollingError};

/// How long a standby may take to confirm what the primary wrote.
const REPLY_LIMIT: Duration = Duration::from_secs(15);
/// How long the new primary may take to replay what the old one left.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);
/// How long a server may take to read its configuration again.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a promotion may take.
const PROMOTION_LIMIT: Duration = Duration::from_secs(60);

/// When the parts of a switchover were done.
#[derive(Debug, Default)]
struct Timing {
    /// `None`: an earlier run has begun it.
    began: Option<Instant>,
    stop: Duration,
    fence: Duration,
    replay: Duration,
    promote: Duration,
}

impl RollingRun<'_> {
    /// Hands over from one node to the other.
    pub(crate) fn switch_over(&mut self, from: &str, to: &str) -> Result<(), RollingError> {
        let old = self.site(from)?.clone();
        let new = self.site(to)?.clone();
        let mut of_old = old.connect()?;
        let mut of_new = new.connect()?;
        self.event(&format!("switchover from {from} to {to}: check"));
        self.prepare_old(&old, &new, &mut of_old, &mut of_new)?;
        if !self.journal.is_switchover_confirmed {
            let question = RollingQuestion::Switchover { from, to };
            if !self.dialogue.confirm(&question) {
                let label = format!("the switchover from {from} to {to}");
                return Err(RollingError::NotConfirmed { what: label });
            }
        }
        self.interrupt.check()?;
        let has_hook = self.journal.before_switch.is_some();
        let open = OpenSwitchover { from: from.into(), to: to.into(), has_hook_run: has_hook };
        self.journal.switchover = Some(open);
        self.write_journal()?;
        self.point("switch-begun");
        let began = match self.stop_old(&old, of_old, &mut of_new) {
            Ok(began) => began,
            // Clients may be waiting: the hook after it is run, too.
            Err(error) => return self.take_back_after(&old, error),
        };
        let timing = Timing { began: Some(began), stop: began.elapsed(), ..Timing::default() };
        self.point("switch-stopped");
        self.finish_switchover(&old, &new, of_new, timing)
    }

    /// Stops the primary, when that will be quick: when the stop began.
    fn stop_old(
        &mut self,
        old: &NodeSite,
        mut of_old: NodeConnection,
        of_new: &mut NodeConnection,
    ) -> Result<Instant, RollingError> {
        if let Some(line) = self.journal.before_switch.clone() {
            self.hook("--before-switch", &line, old.name())?;
        }
        of_old.execute("CHECKPOINT")?;
        of_new.execute("CHECKPOINT")?;
        check_replies(&mut of_old)?;
        let target = flush_position(&mut of_old)?;
        of_new.wait_until(&is_replayed(target, ">="), "did not catch up", REPLAY_LIMIT)?;
        of_old.close();
        self.interrupt.check()?;
        self.point("switch-ready");
        self.event(&format!("{}: stop", old.name()));
        let began = Instant::now();
        old.stop()?;
        Ok(began)
    }

    /// The same, where the old primary is down already, or runs as a standby.
    pub(crate) fn go_on_switching_over(
        &mut self,
        from: &str,
        to: &str,
    ) -> Result<(), RollingError> {
        let old = self.site(from)?.clone();
        let new = self.site(to)?.clone();
        let of_new = new.connect()?;
        self.finish_switchover(&old, &new, of_new, Timing::default())
    }

    /// From the stopped primary to the new one. Signals are not heeded here.
    fn finish_switchover(
        &mut self,
        old: &NodeSite,
        new: &NodeSite,
        mut of_new: NodeConnection,
        mut timing: Timing,
    ) -> Result<(), RollingError> {
        let began = Instant::now();
        let last = match if timing.began.is_some() { fence(old) } else { fence_found(old) } {
            Ok(last) => last,
            // Nobody was promoted: the caller decides.
            Err(error) => return self.take_back_after(old, error),
        };
        timing.fence = began.elapsed();
        self.point("switch-fenced");
        let replayed = match last {
            // Greater than where the shutdown's record begins is: that record was replayed.
            LastWal::Shutdown(checkpoint) => {
                of_new.wait_until(&is_replayed(checkpoint, ">"), WAL_MISSING, REPLAY_LIMIT)
            }
            LastWal::Received(position) => {
                of_new.wait_until(&is_replayed(position, ">="), WAL_MISSING, REPLAY_LIMIT)
            }
        };
        timing.replay = match replayed {
            Ok(replay) => replay,
            Err(error) => return self.take_back_after(old, error),
        };
        self.point("switch-replayed");
        timing.promote = promote(new, &mut of_new)?;
        let gap = timing.began.map(|began| began.elapsed());
        self.point("switch-promoted");
        self.event(&format!("{} takes writes", new.name()));
        let timeline = of_new.row(TIMELINE)?.number("timeline")?;
        self.journal.switchovers.push(RollingSwitchover {
            from: old.name().to_owned(),
            to: new.name().to_owned(),
            stop_seconds: timing.stop.as_secs_f64(),
            fence_seconds: timing.fence.as_secs_f64(),
            replay_seconds: timing.replay.as_secs_f64(),
            promote_seconds: timing.promote.as_secs_f64(),
            gap_seconds: gap.map(|gap| gap.as_secs_f64()),
            rejoin_seconds: None,
            timeline: u32::try_from(timeline).unwrap_or(0),
        });
        self.write_journal()?;
        self.end_switchover(new.name())?;
        if old.report()?.server.is_none() {
            old.start()?;
        }
        self.point("switch-rejoined");
        self.await_streaming(old)?;
        let rejoin = timing.began.map(|began| began.elapsed().as_secs_f64());
        if let Some(last) = self.journal.switchovers.last_mut() {
            last.rejoin_seconds = rejoin;
        }
        self.write_journal()
    }

    /// Runs the hook after a switchover, or after one that was taken back, and forgets it.
    pub(crate) fn end_switchover(&mut self, primary: &str) -> Result<(), RollingError> {
        let has_hook_run =
            self.journal.switchover.as_ref().is_some_and(|switchover| switchover.has_hook_run);
        let is_switched =
            self.journal.switchover.as_ref().is_some_and(|switchover| switchover.to == primary);
        if is_switched
            && self.journal.switchovers.last().is_none_or(|switchover| switchover.to != primary)
        {
            self.add_unseen_switchover();
        }
        if let Some(line) = self.journal.after_switch.clone()
            && (has_hook_run || is_switched)
        {
            self.hook("--after-switch", &line, primary)?;
        }
        self.journal.switchover = None;
        primary.clone_into(&mut self.journal.primary);
        self.write_journal()
    }

    /// One whose run ended between the promotion and its note in the journal.
    fn add_unseen_switchover(&mut self) {
        let Some(open) = &self.journal.switchover else { return };
        self.journal.switchovers.push(RollingSwitchover {
            from: open.from.clone(),
            to: open.to.clone(),
            stop_seconds: 0.0,
            fence_seconds: 0.0,
            replay_seconds: 0.0,
            promote_seconds: 0.0,
            gap_seconds: None,
            rejoin_seconds: None,
            timeline: 0,
        });
    }

    /// A switchover failed before the promotion: the old primary takes writes again.
    fn take_back_after(&mut self, old: &NodeSite, error: RollingError) -> Result<(), RollingError> {
        self.event(&format!("{} takes writes again, since: {error}", old.name()));
        self.take_back(old)?;
        let name = old.name().to_owned();
        self.end_switchover(&name)?;
        Err(error)
    }

    /// Lets the old primary take writes again. Nobody was promoted.
    pub(crate) fn take_back(&mut self, old: &NodeSite) -> Result<(), RollingError> {
        let report = old.report()?;
        if report.server.is_some() {
            let mut connection = old.connect_within(PROMOTION_LIMIT)?;
            if !connection.row(RECEIVED)?.is_true("recovery")? {
                return Ok(());
            }
            connection.close();
            old.stop()?;
        }
        if old.report()?.is_shut_down {
            old.ask(NodeVerb::Unfence)?;
        }
        self.point("abort-unfenced");
        old.start()?;
        let mut connection = old.connect_within(PROMOTION_LIMIT)?;
        connection.wait_until(IS_PRIMARY, "takes no writes", PROMOTION_LIMIT).map(drop)
    }

    /// Has the old primary know how to stream from the new one, and tries that. Both settings mean
    /// nothing to a primary.
    fn prepare_old(
        &mut self,
        old: &NodeSite,
        new: &NodeSite,
        of_old: &mut NodeConnection,
        of_new: &mut NodeConnection,
    ) -> Result<(), RollingError> {
        // Neither statement is to be in the server's log with a password.
        of_old.execute(
            "SET log_statement = 'none'; SET log_min_duration_statement = -1; \
             SET log_min_error_statement = 'panic'",
        )?;
        let own = of_old.row(CONNINFO)?.text_of_column("conninfo")?;
        if !leads_to(&own, new) {
            let conninfo = if let Some(conninfo) = &new.config.conninfo {
                conninfo.clone()
            } else {
                redirected(&of_new.row(CONNINFO)?.text_of_column("conninfo")?, old, new)?
            };
            of_old.set("primary_conninfo", &conninfo)?;
            of_old.execute("SELECT pg_reload_conf()")?;
            let in_force = format!(
                "SELECT current_setting('primary_conninfo') = {} AS done",
                quoted(&conninfo)
            );
            let label = "did not take its primary_conninfo (is it set on the command line?)";
            of_old.wait_until(&in_force, label, RELOAD_LIMIT)?;
        }
        if !of_new.row(SLOT)?.text_of_column("slot")?.is_empty() {
            self.prepare_slot(old, new, of_old, of_new)?;
        }
        of_old.execute("SELECT pg_reload_conf()")?;
        match old.ask(NodeVerb::Reach)? {
            NodeAnswer::Done => Ok(()),
            other => Err(old.strange(&other)),
        }
    }

    /// A slot for the old primary, where the new one used a slot.
    fn prepare_slot(
        &mut self,
        old: &NodeSite,
        new: &NodeSite,
        of_old: &mut NodeConnection,
        of_new: &mut NodeConnection,
    ) -> Result<(), RollingError> {
        let current = of_old.row(SLOT)?.text_of_column("slot")?;
        let name = if current.is_empty() {
            let plain =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            format!("pgtoll_{}", old.name().chars().map(plain).collect::<String>())
        } else {
            current.clone()
        };
        let exists = format!(
            "SELECT count(*) AS n FROM pg_replication_slots WHERE slot_name = {}",
            quoted(&name)
        );
        if of_new.row(&exists)?.number("n")? == 0 {
            let make =
                format!("SELECT pg_create_physical_replication_slot({}, true)", quoted(&name));
            of_new.execute(&make)?;
            let node = new.name().to_owned();
            let standby = old.name().to_owned();
            self.journal.slots.push(OwnSlot { node, name: name.clone(), standby });
            self.write_journal()?;
        }
        if current.is_empty() { of_old.set("primary_slot_name", &name) } else { Ok(()) }
    }

    /// Runs a command of the user's on this machine.
    fn hook(
        &mut self,
        option: &'static str,
        line: &str,
        primary: &str,
    ) -> Result<(), RollingError> {
        self.event(&format!("run {option}"));
        let end = UserCommand::start(&line.replace("{primary}", primary))?.wait()?;
        if end.success {
            return Ok(());
        }
        let output = end.tail.lines().last().unwrap_or_default().to_owned();
        let node = "this machine".to_owned();
        Err(RollingError::Command { node, what: option, status: end.status, output })
    }
}

const WAL_MISSING: &str = "did not get all of the old primary's WAL";

/// The end of the old primary's WAL.
#[derive(Clone, Copy, Debug)]
enum LastWal {
    /// The record of its shutdown begins here, and nothing follows it.
    Shutdown(Lsn),
    /// It has started as a standby, and has all up to here.
    Received(Lsn),
}

/// Makes a standby of the old primary that an earlier run left: where its WAL ends.
fn fence_found(old: &NodeSite) -> Result<LastWal, RollingError> {
    if old.report()?.server.is_none() {
        return fence(old);
    }
    // Somebody has started it.
    let mut connection = old.connect_within(PROMOTION_LIMIT)?;
    let row = connection.row(RECEIVED)?;
    if !row.is_true("recovery")? {
        return Err(RollingError::State {
            message: format!("{} runs as a primary again", old.name()),
            hint: "nothing was promoted; --resume restarts the switchover".to_owned(),
        });
    }
    Ok(LastWal::Received(row.text_of_column("lsn")?.parse().unwrap_or(Lsn(0))))
}

/// Makes a standby of the old primary, which must have been shut down: where its WAL ends.
fn fence(old: &NodeSite) -> Result<LastWal, RollingError> {
    match old.ask(NodeVerb::Fence)? {
        NodeAnswer::Fenced { checkpoint } => Ok(LastWal::Shutdown(checkpoint)),
        other => Err(old.strange(&other)),
    }
}

fn promote(new: &NodeSite, of_new: &mut NodeConnection) -> Result<Duration, RollingError> {
    let began = Instant::now();
    match new.config.promote.clone() {
        Some(line) => {
            new.run("promote", &line)?;
        }
        // Looking is faster than the function's own waiting, which goes by tenths of a second.
        None => of_new.execute("SELECT pg_promote(false)")?,
    }
    of_new.wait_until(IS_PRIMARY, "was not promoted", PROMOTION_LIMIT)?;
    // A transaction with a commit record.
    of_new.execute("SELECT txid_current()")?;
    Ok(began.elapsed())
}

/// Every walsender confirms what was written by now. One that hangs would hold up the stop.
fn check_replies(of_old: &mut NodeConnection) -> Result<(), RollingError> {
    let target = flush_position(of_old)?;
    let sql = format!(
        "SELECT coalesce(bool_and(greatest(write_lsn, flush_lsn) >= '{target}'::pg_lsn), true) AS done \
         FROM pg_stat_replication WHERE state <> 'backup'"
    );
    if of_old.wait_until(&sql, "", REPLY_LIMIT).is_ok() {
        return Ok(());
    }
    let sql = format!(
        "SELECT coalesce(string_agg(application_name || ' (' || coalesce(host(client_addr), 'local') \
         || ', process ' || pid || ')', ', '), '') AS names FROM pg_stat_replication \
         WHERE coalesce(greatest(write_lsn, flush_lsn) < '{target}'::pg_lsn, true)"
    );
    let names = of_old.row(&sql)?.text_of_column("names")?;
    Err(RollingError::State {
        message: format!("receivers of WAL do not answer: {names}"),
        hint:
            "the primary would wait for them when it stops, up to wal_sender_timeout: end them or let them continue, then --resume"
                .to_owned(),
    })
}

fn is_replayed(position: Lsn, comparison: &str) -> String {
    format!(
        "SELECT coalesce(pg_last_wal_replay_lsn() {comparison} '{position}'::pg_lsn, false) AS done"
    )
}

const IS_PRIMARY: &str = "SELECT NOT pg_is_in_recovery() AS done";
const TIMELINE: &str =
    "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline";
const RECEIVED: &str = "SELECT pg_is_in_recovery() AS recovery, \
    CASE WHEN pg_is_in_recovery() THEN greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) \
    END AS lsn";
const CONNINFO: &str = "SELECT current_setting('primary_conninfo') AS conninfo";
const SLOT: &str = "SELECT current_setting('primary_slot_name') AS slot";

fn leads_to(conninfo: &str, new: &NodeSite) -> bool {
    let Ok(dsn) = Dsn::parse(conninfo) else { return false };
    !conninfo.trim().is_empty() && dsn.endpoints() == new.config.dsn.endpoints()
}

/// A standby's `primary_conninfo` for another upstream: its host and port are those of the new
/// primary, and its name is the old primary's.
fn redirected(conninfo: &str, old: &NodeSite, new: &NodeSite) -> Result<String, RollingError> {
    let endpoints = new.config.dsn.endpoints();
    let edited = endpoints.first().and_then(|(host, port)| {
        let port = port.to_string();
        let mut changes = vec![
            ("host", Some(&**host)),
            ("hostaddr", None),
            ("port", Some(&*port)),
            ("dbname", None),
        ];
        if conninfo.contains("application_name") {
            changes.push(("application_name", Some(old.name())));
        }
        Dsn::edited(conninfo, &changes).ok()
    });
    edited.ok_or_else(|| RollingError::State {
        message: format!("the primary_conninfo of {} cannot be turned around", new.name()),
        hint: format!("give {} the key conninfo: how {} reaches it", new.name(), old.name()),
    })
}
