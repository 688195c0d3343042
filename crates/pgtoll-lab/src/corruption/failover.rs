//! A failover away from a damaged page: a reader meets it, a watcher notices, the standby's table is
//! verified, the old primary is stopped, the standby promoted.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, RunningPgbouncer, StopMode};
use pgtoll_record::{ClientTimeline, CorruptionFailover, JudgeRecord, JudgedEvent, RowState};
use pgtoll_wire::Connection;

use super::pair::{DamagedPair, row_state};
use super::{CorruptionError, LabContext};
use crate::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};
use pgtoll_system::error_chain;

/// Between two looks of the watcher.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// The reader's error, until the watcher must have noticed.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// Lets a reader meet the damage under load, and fails over.
pub(super) fn fail_over(
    context: &LabContext<'_>,
    template: &Cluster,
    run: u32,
) -> Result<CorruptionFailover, CorruptionError> {
    let pair = DamagedPair::start(context, template)?;
    let switched = Arc::new(Mutex::new(None));
    let plan = JudgePlan {
        clients: context.plan.clients,
        readers: 0,
        rate_per_second: context.plan.rate_per_second,
        duration: context.plan.duration,
        ..JudgePlan::new(pair.dsn()?)
    };
    // The middles of equal parts of the watcher's interval, one a run: their mean is that of all moments.
    let after_look = POLL * (2 * run - 1) / (2 * context.plan.runs.max(1));
    let fault = fault(context, &pair, &switched, after_look);
    let provenance = context.provenance.clone();
    let judged = judge(&plan, Some(fault), provenance, context.interrupt, &mut |_| {})?;
    let taken = pgtoll_system::lock(&switched).take();
    let switch = taken.ok_or_else(|| {
        CorruptionError::Unexpected("the failover was not over in time".to_owned())
    })??;
    pair.remove(context, false)?;
    Ok(failover_record(run, switch, &judged))
}

type Switched = Arc<Mutex<Option<Result<Switch, CorruptionError>>>>;

fn fault(
    context: &LabContext<'_>,
    pair: &DamagedPair,
    switched: &Switched,
    after_look: Duration,
) -> JudgeFault {
    let guard = context.guard.clone();
    let switched = switched.clone();
    let primary = pair.primary.clone();
    let standby = pair.standby.clone();
    let pooler = pair.pooler.clone();
    let text = pair.text.clone();
    JudgeFault {
        what: "a damaged page is read, failover to the standby".to_owned(),
        at: context.plan.duration / 3,
        action: Box::new(move || {
            let way = Way { guard: &guard, pooler: pooler.as_ref(), after_look };
            let outcome = way.switch_over(&primary, &standby, &text);
            let end = match &outcome {
                Ok(_) => JudgeFaultEnd::done("the standby was promoted"),
                Err(error) => JudgeFaultEnd {
                    success: false,
                    status: error_chain(error),
                    output: String::new(),
                },
            };
            *pgtoll_system::lock(&switched) = Some(outcome);
            end
        }),
    }
}

/// The reader's error, and the times of the steps since.
struct Switch {
    error: String,
    /// From the begin of the fault to the reader's error.
    met: Duration,
    noticed: Duration,
    verified: Duration,
    paused: Option<Duration>,
    stopped: Duration,
    promoted: Duration,
    readable: Duration,
}

/// The servers and clients of a switchover.
struct Way<'a> {
    guard: &'a Mutex<Guard>,
    pooler: Option<&'a RunningPgbouncer>,
    /// When the reader meets the page, after a look of the watcher.
    after_look: Duration,
}

impl Way<'_> {
    fn switch_over(
        &self,
        primary: &Cluster,
        standby: &Cluster,
        text: &str,
    ) -> Result<Switch, CorruptionError> {
        let began = Instant::now();
        let (error, met, noticed) = meet_under_watch(primary, self.after_look)?;
        let mut connection = standby.connect("postgres")?;
        verify(&mut connection, text)?;
        let verified = met.elapsed();
        let paused = self.console("PAUSE postgres")?.map(|()| met.elapsed());
        primary.stop(&mut pgtoll_system::lock(self.guard), StopMode::Fast)?;
        let stopped = met.elapsed();
        standby.promote()?;
        if let Some(pooler) = self.pooler {
            let databases = pooler.databases(standby.directory())?;
            pgtoll_system::lock(self.guard).write(&pooler.databases_file(), databases)?;
        }
        self.console("RELOAD")?;
        self.console("RESUME postgres")?;
        let promoted = met.elapsed();
        verify(&mut connection, text)?;
        let readable = met.elapsed();
        connection.close();
        let noticed = noticed - met;
        let after_begin = met - began;
        Ok(Switch {
            error,
            met: after_begin,
            noticed,
            verified,
            paused,
            stopped,
            promoted,
            readable,
        })
    }

    /// Tells the pooler something; `None` without one.
    fn console(&self, statement: &str) -> Result<Option<()>, CorruptionError> {
        let Some(pooler) = self.pooler else { return Ok(None) };
        let mut console = pooler.console()?;
        console.execute(statement)?;
        console.close();
        Ok(Some(()))
    }
}

/// Lets a reader meet the damage this long after a look of the watcher: the server's error, and the times of
/// both.
fn meet_under_watch(
    primary: &Cluster,
    after_look: Duration,
) -> Result<(String, Instant, Instant), CorruptionError> {
    let mut watcher = primary.connect("postgres")?;
    let mut reader = primary.connect("postgres")?;
    thread::scope(|scope| {
        let (stop, stopped) = channel();
        let (notice, notices) = channel();
        scope.spawn(move || watch(&mut watcher, &stopped, &notice));
        let outcome = await_moment(&notices, after_look).and_then(|()| meet(&mut reader, &notices));
        drop(stop);
        outcome
    })
}

/// Waits for the watcher's first look, and `after_look` more.
fn await_moment(notices: &Receiver<Notice>, after_look: Duration) -> Result<(), CorruptionError> {
    match notices.recv_timeout(NOTICE_LIMIT) {
        Ok(Notice::Nothing) => {}
        Ok(Notice::Failure(_)) => return Err(early_failure()),
        Ok(Notice::Broken(error)) => return Err(error),
        Err(_) => {
            let message = "the watcher does not get an answer from the primary";
            return Err(CorruptionError::Unexpected(message.to_owned()));
        }
    }
    match notices.recv_timeout(after_look) {
        Ok(Notice::Failure(_)) => Err(early_failure()),
        Ok(Notice::Broken(error)) => Err(error),
        Ok(Notice::Nothing) | Err(_) => Ok(()),
    }
}

fn early_failure() -> CorruptionError {
    let message = "a checksum failure was counted before the damaged page was read";
    CorruptionError::Unexpected(message.to_owned())
}

/// Reads the damaged page, and waits until the watcher has noticed: the server's error, and the times of
/// both.
fn meet(
    reader: &mut Connection,
    notices: &Receiver<Notice>,
) -> Result<(String, Instant, Instant), CorruptionError> {
    let Err(error) = reader.query("SELECT count(text) FROM victim") else {
        let message = "the primary read the damaged page without an error";
        return Err(CorruptionError::Unexpected(message.to_owned()));
    };
    let met = Instant::now();
    match notices.recv_timeout(NOTICE_LIMIT) {
        Ok(Notice::Failure(noticed)) => Ok((error.to_string(), met, noticed.max(met))),
        Ok(Notice::Broken(error)) => Err(error),
        Ok(Notice::Nothing) | Err(_) => {
            let seconds = NOTICE_LIMIT.as_secs();
            let message = format!("no checksum failure was counted within {seconds} s of: {error}");
            Err(CorruptionError::Unexpected(message))
        }
    }
}

/// The reports of the watcher: its first look, then the end of watching.
enum Notice {
    /// No checksum failure was counted.
    Nothing,
    /// One was counted at this time.
    Failure(Instant),
    /// The server could not be asked.
    Broken(CorruptionError),
}

/// Looks at the counters until they have risen, or the other end of `stopped` is gone.
fn watch(connection: &mut Connection, stopped: &Receiver<()>, notice: &Sender<Notice>) {
    let mut is_first = true;
    loop {
        let failures = connection
            .query_one(
                "SELECT coalesce(sum(checksum_failures), 0) > 0 AS risen FROM pg_stat_database",
            )
            .and_then(|row| Ok(row.text("risen")? == "t"));
        let news = match failures {
            Ok(false) => Notice::Nothing,
            Ok(true) => Notice::Failure(Instant::now()),
            Err(error) => Notice::Broken(error.into()),
        };
        let is_last = !matches!(news, Notice::Nothing);
        if is_last || is_first {
            // The other end is gone where the reader has failed.
            let _ = notice.send(news);
        }
        if is_last {
            return;
        }
        is_first = false;
        if stopped.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Whether this server reads the whole table, and the damaged row as it was written.
fn verify(connection: &mut Connection, text: &str) -> Result<(), CorruptionError> {
    connection.query("SELECT count(text) FROM victim")?;
    match row_state(connection, text)? {
        RowState::Right => Ok(()),
        state => {
            let message = format!("the standby shows the damaged row too ({state:?})");
            Err(CorruptionError::Unexpected(message))
        }
    }
}

/// Each writer over time, with the steps.
fn timeline(switch: &Switch, judged: &JudgeRecord) -> ClientTimeline {
    let began_s = judged.fault.as_ref().map_or(0.0, |fault| fault.began_s);
    let steps = [
        ("the reader got the error", Some(Duration::ZERO)),
        ("the watcher noticed", Some(switch.noticed)),
        ("the standby was verified", Some(switch.verified)),
        ("writers are held back", switch.paused),
        ("the old primary has stopped", Some(switch.stopped)),
        ("the standby is promoted", Some(switch.promoted)),
    ];
    let event = |(label, since_error): (&str, Option<Duration>)| {
        let at_s = began_s + (switch.met + since_error?).as_secs_f64();
        Some(JudgedEvent { at_s, what: label.to_owned() })
    };
    ClientTimeline {
        seconds: judged.seconds,
        bin_s: judged.bin_s,
        clients: judged.clients.iter().map(|client| client.line.clone()).collect(),
        events: steps.into_iter().filter_map(event).collect(),
    }
}

fn failover_record(run: u32, switch: Switch, judged: &JudgeRecord) -> CorruptionFailover {
    let verdict = judged.verdict.as_ref();
    let timeline = timeline(&switch, judged);
    let impossible = verdict
        .map(|verdict| verdict.ghosts.count + verdict.phantoms.count + verdict.duplicates.count);
    CorruptionFailover {
        run,
        error: switch.error,
        noticed_s: switch.noticed.as_secs_f64(),
        verified_s: switch.verified.as_secs_f64(),
        paused_s: switch.paused.map(|time| time.as_secs_f64()),
        stopped_s: switch.stopped.as_secs_f64(),
        promoted_s: switch.promoted.as_secs_f64(),
        readable_s: switch.readable.as_secs_f64(),
        gap_s: judged.outage.as_ref().map(|gap| gap.seconds),
        acknowledged: judged.transactions.acknowledged,
        lost: verdict.map(|verdict| verdict.lost.count),
        failed: judged.transactions.failed,
        unknown: judged.transactions.unknown,
        impossible,
        timeline: Some(timeline),
        findings: judged.findings.clone(),
    }
}
