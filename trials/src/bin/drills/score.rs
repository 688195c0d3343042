//! Results of all drills, beside the goals.

use std::collections::BTreeMap;
use std::fmt;

use crate::damage::Kind;
use crate::drill::{Detected, Outcome, RepairResult};

/// Counts of drills.
#[derive(Debug, Default)]
pub(crate) struct Score {
    kinds: BTreeMap<Kind, Counts>,
    /// Of repairs whose sources had a backup and all WAL: how many, and how many repaired or derivable.
    with_all: (u64, u64),
    is_running: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    drills: u64,
    found: u64,
    noted: u64,
    unknowable: u64,
    missed: u64,
    right: u64,
    wrong: u64,
}

impl Score {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.is_running |= outcome.is_running;
        let counts = self.kinds.entry(outcome.damage).or_default();
        counts.drills += 1;
        *match outcome.found {
            Detected::Found => &mut counts.found,
            Detected::Noted => &mut counts.noted,
            Detected::Unknowable => &mut counts.unknowable,
            Detected::Missed => &mut counts.missed,
        } += 1;
        let Some(repair) = &outcome.repair else { return };
        counts.right += u64::from(repair.result == RepairResult::Right);
        counts.wrong += u64::from(repair.result == RepairResult::Wrong);
        if ["backup and WAL", "tars and WAL"].contains(&repair.sources) {
            self.with_all.0 += 1;
            let is_good = repair.result == RepairResult::Right || repair.class == "derivable";
            self.with_all.1 += u64::from(is_good);
        }
    }

    fn total(&self) -> Counts {
        self.kinds.values().fold(Counts::default(), |sum, kind| Counts {
            drills: sum.drills + kind.drills,
            found: sum.found + kind.found,
            noted: sum.noted + kind.noted,
            unknowable: sum.unknowable + kind.unknowable,
            missed: sum.missed + kind.missed,
            right: sum.right + kind.right,
            wrong: sum.wrong + kind.wrong,
        })
    }

    /// Whether the goals are met: of what can be known 99 % found (95 % beside a server), nothing
    /// repaired wrong, and 95 % repaired or derivable with a backup and all WAL.
    pub(crate) fn is_good(&self) -> bool {
        let total = self.total();
        let knowable = total.drills - total.unknowable - total.noted;
        let share = if self.is_running { 95 } else { 99 };
        let (all, good) = self.with_all;
        total.found * 100 >= knowable * share && total.wrong == 0 && good * 100 >= all * 95
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16}{:>8}{:>8}{:>8}{:>12}{:>8}{:>10}{:>8}",
            "damage", "drills", "found", "noted", "unknowable", "missed", "repaired", "wrong"
        )?;
        let rows = self.kinds.iter().map(|(kind, counts)| (format!("{kind:?}"), *counts));
        for (name, counts) in rows.chain([("all".to_owned(), self.total())]) {
            let Counts { drills, found, noted, unknowable, missed, right, wrong } = counts;
            writeln!(
                f,
                "{name:<16}{drills:>8}{found:>8}{noted:>8}{unknowable:>12}{missed:>8}{right:>10}\
                 {wrong:>8}"
            )?;
        }
        let (all, good) = self.with_all;
        writeln!(f, "with a backup and all WAL: {good} of {all} repaired or derivable")
    }
}
