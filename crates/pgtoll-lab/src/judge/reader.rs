//! A client that reads what a writer was told, here or on a standby.

use std::time::{Duration, Instant};

use pgtoll_wire::{Connection, Dsn, Error};

use super::schedule::DueSchedule;
use super::schema::schema_name;
use super::shared::JudgeState;

/// The observations of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadTally {
    pub(crate) reads: u64,
    pub(crate) failed: u64,
    pub(crate) stale: u64,
    pub(crate) stalest: u64,
    pub(crate) backwards: u64,
}

impl ReadTally {
    /// A read saw the transactions below `seen`, when those below `acknowledged` had been
    /// acknowledged and those below `before` been seen by the same reader.
    fn count(&mut self, seen: u64, acknowledged: u64, before: u64) {
        self.reads += 1;
        if seen < acknowledged {
            self.stale += 1;
            self.stalest = self.stalest.max(acknowledged - seen);
        }
        self.backwards += u64::from(seen < before);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.failed += other.failed;
        self.stale += other.stale;
        self.stalest = self.stalest.max(other.stalest);
        self.backwards += other.backwards;
    }
}

/// A client that reads the highest transaction of one writer, as often as that one writes.
pub(crate) struct ReaderClient<'a> {
    /// Whose transactions it reads.
    pub(crate) client: u32,
    pub(crate) run: u64,
    pub(crate) dsn: Dsn,
    pub(crate) reply_timeout: Option<Duration>,
    pub(crate) schedule: DueSchedule,
    pub(crate) state: &'a JudgeState,
}

impl ReaderClient<'_> {
    /// Reads until healing begins or the run is stopped.
    pub(crate) fn work(&self) -> ReadTally {
        let mut tally = ReadTally::default();
        let mut arrival = 0;
        let mut best = 0;
        let mut connection = None;
        let schema = schema_name(self.run);
        let sql = format!(
            "SELECT max(sequence) AS last FROM {schema}.transactions WHERE client = {}",
            self.client
        );
        loop {
            self.state.wait_until(self.schedule.due_ns(arrival), u64::MAX);
            let now_ns = self.state.now_ns();
            if self.state.is_stopped() || now_ns >= self.state.heal_from_ns() {
                return tally;
            }
            // Reads do not queue up.
            arrival = self.schedule.due_before(now_ns).max(arrival + 1);
            let acknowledged = self.state.acknowledged_of(self.client as usize);
            match self.read(&mut connection, &sql) {
                Ok(seen) => {
                    tally.count(seen, acknowledged, best);
                    best = best.max(seen);
                }
                Err(Error::Interrupted) => {}
                Err(_) => {
                    tally.failed += 1;
                    connection = None;
                }
            }
        }
    }

    /// One more than the highest transaction that is there.
    fn read(&self, connection: &mut Option<Connection>, sql: &str) -> Result<u64, Error> {
        let session = match connection {
            Some(session) => session,
            None => connection.insert(self.dsn.connect()?),
        };
        let deadline = self.reply_timeout.and_then(|time| Instant::now().checked_add(time));
        session.wait_until(deadline);
        let row = session.query_one(sql)?;
        Ok(match row.value("last")? {
            Some(_) => row.parse::<u64>("last")?.saturating_add(1),
            None => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_backwards_are_told_apart() {
        let pick = |seen, acknowledged, before| {
            let mut tally = ReadTally::default();
            tally.count(seen, acknowledged, before);
            (tally.stale, tally.stalest, tally.backwards)
        };
        assert_eq!(pick(5, 5, 5), (0, 0, 0));
        assert_eq!(pick(6, 5, 5), (0, 0, 0));
        assert_eq!(pick(3, 5, 2), (1, 2, 0));
        assert_eq!(pick(3, 3, 4), (0, 0, 1));
        assert_eq!(pick(0, 1, 1), (1, 1, 1));
    }
}
