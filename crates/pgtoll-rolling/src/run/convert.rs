//! A standby is stopped, converted, started, and has caught up.

use std::time::{Duration, Instant};

use pgtoll_record::RollingNode;

use super::RollingRun;
use crate::site::{NodeSite, RECOVERY_LIMIT, pause};
use crate::survey::{NodeState, Survey, flush_position};
use crate::{NodeAnswer, NodeVerb, RollingError};

/// How long a standby may replay nothing before it is given up.
const STALL_LIMIT: Duration = Duration::from_secs(120);
impl RollingRun<'_> {
    /// Converts a standby, which runs or was stopped in good order.
    pub(crate) fn convert(&mut self, node: &NodeState) -> Result<(), RollingError> {
        let site = self.site(&node.name)?.clone();
        if node.server.is_some() {
            self.event(&format!("{}: stop", node.name));
            // A restart point now leaves less to be written while it is down.
            site.connect()?.execute("CHECKPOINT")?;
            self.interrupt.check()?;
            self.point("convert-stop");
        }
        let began = Instant::now();
        if node.server.is_some() {
            site.stop()?;
        }
        self.point("convert-stopped");
        let verb = if self.journal.enable { NodeVerb::Enable } else { NodeVerb::Disable };
        self.event(&format!("{}: checksums {}", node.name, self.journal_word()));
        let converted = site.ask(verb);
        self.point("convert-converted");
        // Whatever came of it, the standby is to be up again.
        site.start()?;
        let connection = site.connect_within(RECOVERY_LIMIT)?;
        connection.close();
        let down_seconds = began.elapsed().as_secs_f64();
        self.point("convert-started");
        let (seconds, refused_pages) = match converted? {
            NodeAnswer::Converted { seconds, refused_pages, .. } => (seconds, refused_pages),
            other => return Err(site.strange(&other)),
        };
        let catch_up_seconds = self.await_streaming(&site)?.as_secs_f64();
        self.update(&node.name, |item| {
            item.checksums = Some(verb == NodeVerb::Enable);
            item.convert_seconds = Some(seconds);
            item.down_seconds = Some(down_seconds).filter(|_| node.server.is_some());
            item.catch_up_seconds = Some(catch_up_seconds);
            item.refused_pages = refused_pages;
        })?;
        self.point("convert-streaming");
        if verb == NodeVerb::Enable && self.journal.verify {
            self.verify(&site)?;
        }
        Ok(())
    }

    /// Waits until a standby streams and has replayed what the primary has flushed by now.
    pub(crate) fn await_streaming(&mut self, site: &NodeSite) -> Result<Duration, RollingError> {
        let began = Instant::now();
        let target = {
            let survey = Survey::from_sites(&self.sites)?;
            let primary = survey.primary()?.ok_or_else(|| RollingError::State {
                message: format!("{} waits for a primary, and no node takes writes", site.name()),
                hint: "start the primary, then --resume".to_owned(),
            })?;
            let mut connection = self.site(&primary.name)?.connect()?;
            flush_position(&mut connection)?
        };
        let sql = format!(
            "SELECT coalesce(pg_last_wal_replay_lsn() >= '{target}'::pg_lsn, false) AND EXISTS \
             (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming') AS done, \
             coalesce(pg_last_wal_replay_lsn()::text, '') AS position"
        );
        let mut connection = site.connect_within(RECOVERY_LIMIT)?;
        let mut position = String::new();
        let mut moved = Instant::now();
        loop {
            let row = connection.row(&sql)?;
            if row.is_true("done")? {
                connection.close();
                return Ok(began.elapsed());
            }
            let now = row.text_of_column("position")?;
            if now != position {
                (position, moved) = (now, Instant::now());
            }
            if moved.elapsed() > STALL_LIMIT {
                let node = site.name().to_owned();
                let label = "did not stream".to_owned();
                return Err(RollingError::NotInTime {
                    node,
                    what: label,
                    seconds: STALL_LIMIT.as_secs(),
                });
            }
            self.interrupt.check()?;
            pause(Duration::from_millis(10));
        }
    }

    /// Verifies a node that was converted. Damage does not end the run: checksums show it from now on.
    fn verify(&mut self, site: &NodeSite) -> Result<(), RollingError> {
        self.event(&format!("{}: verify", site.name()));
        let (is_sound, words) = site.verify()?;
        if is_sound != Some(true) {
            self.event(&format!("{}: not verified as sound: {words}", site.name()));
        }
        self.update(site.name(), |item| item.verified = Some(is_sound == Some(true)))
    }

    /// Changes what the journal says of a node.
    pub(crate) fn update(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut RollingNode),
    ) -> Result<(), RollingError> {
        if let Some(node) = self.journal.nodes.iter_mut().find(|node| node.name == name) {
            change(node);
        }
        self.write_journal()
    }
}
