//! The probe for Long Fork: two writers commit the halves of a pair at the same time, and two
//! readers, one at each place, look which half they see first. A standby shows commits in the order
//! of the WAL, the primary in the order in which sessions end their transactions. If one place shows
//! only the one half and the other place only the other, no order of the two explains both.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_wire::{Connection, Dsn, Error};

use super::schema::schema_name;
use super::shared::{JudgeState, nanoseconds};

/// Pairs fall due so far apart.
const DISTANCE: Duration = Duration::from_millis(25);
/// A reader looks at most so often.
const LOOK: Duration = Duration::from_micros(500);
/// This many of the latest pairs are looked at; earlier ones are complete, or lost.
const WINDOW: u64 = 8;

/// Pairs of which only one half was seen at some time: which one it was first.
pub(crate) type HalfSeen = BTreeMap<u64, u8>;

/// One of the threads of the probe.
pub(crate) struct PairClient<'a> {
    pub(crate) run: u64,
    pub(crate) dsn: Dsn,
    pub(crate) state: &'a JudgeState,
}

impl PairClient<'_> {
    fn table(&self) -> String {
        format!("{}.pairs", schema_name(self.run))
    }

    fn is_over(&self, now_ns: u64) -> bool {
        self.state.is_stopped() || now_ns >= self.state.heal_from_ns()
    }

    /// Writes one half of each pair when it falls due. Returns how many were acknowledged.
    pub(crate) fn write(&self, half: u8) -> u64 {
        let mut connection = None;
        let mut written = 0;
        loop {
            let now_ns = self.state.now_ns();
            let pair = now_ns / nanoseconds(DISTANCE) + 1;
            self.state.wait_until(pair * nanoseconds(DISTANCE), u64::MAX);
            if self.is_over(self.state.now_ns()) {
                return written;
            }
            let table = self.table();
            let sql = format!("INSERT INTO {table} (pair, half) VALUES ({pair}, {half})");
            match self.session(&mut connection).and_then(|session| session.execute(&sql)) {
                Ok(()) => written += 1,
                Err(_) => connection = None,
            }
        }
    }

    /// Looks at the latest pairs again and again.
    pub(crate) fn look(&self) -> HalfSeen {
        let mut connection = None;
        let mut half_seen = HalfSeen::new();
        loop {
            let now_ns = self.state.now_ns();
            if self.is_over(now_ns) {
                return half_seen;
            }
            let latest = now_ns / nanoseconds(DISTANCE);
            let table = self.table();
            let sql = format!(
                "SELECT pair, bit_or(1 << half::int) AS halves FROM {table} WHERE pair > {} \
                 GROUP BY pair",
                latest.saturating_sub(WINDOW)
            );
            match self.session(&mut connection).and_then(|session| looked(session, &sql)) {
                Ok(seen) => {
                    for (pair, halves) in seen.into_iter().filter(|(_, halves)| *halves != BOTH) {
                        half_seen.entry(pair).or_insert(halves);
                    }
                }
                Err(_) => connection = None,
            }
            self.state.wait_until(now_ns.saturating_add(nanoseconds(LOOK)), u64::MAX);
        }
    }

    fn session<'c>(
        &self,
        connection: &'c mut Option<Connection>,
    ) -> Result<&'c mut Connection, Error> {
        if connection.is_none() {
            *connection = match self.dsn.connect() {
                Ok(session) => Some(session),
                Err(error) => {
                    // Not in a circle while nobody answers.
                    self.state.wait_until(self.state.now_ns() + nanoseconds(DISTANCE), u64::MAX);
                    return Err(error);
                }
            };
        }
        connection.as_mut().ok_or(Error::GivenUp)
    }
}

const BOTH: u8 = 0b11;

fn looked(session: &mut Connection, sql: &str) -> Result<Vec<(u64, u8)>, Error> {
    let rows = session.query(sql)?;
    rows.iter().map(|row| Ok((row.parse("pair")?, row.parse("halves")?))).collect()
}

/// How many pairs were half seen at all, and how many as different halves at both places.
pub(crate) fn forks(here: &HalfSeen, there: &HalfSeen) -> (u64, u64) {
    let either = here.len() + there.keys().filter(|pair| !here.contains_key(pair)).count();
    let is_fork = |(pair, half): &(&u64, &u8)| there.get(pair).is_some_and(|other| other != *half);
    (either as u64, here.iter().filter(is_fork).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_first_halves_are_a_fork() {
        let here = HalfSeen::from([(1, 1), (2, 2), (3, 1)]);
        let there = HalfSeen::from([(1, 2), (2, 2), (4, 1)]);
        assert_eq!(forks(&here, &there), (4, 1));
        assert_eq!(forks(&HalfSeen::new(), &there), (3, 0));
    }
}
