//! Both sides of partitions, over the runs of a case.

use pgtoll_record::{FailoverEngine, FailoverRun, PartitionOutcome, PartitionSide};
use pgtoll_stats::median;

use crate::wal_numbers::count;

/// Columns behind those of a case, a row for each side.
pub(super) const SIDES_HEAD: [&str; 6] = ["side", "outage", "acked", "lost", "ended", "two"];

/// An explanation of the columns of [`SIDES_HEAD`].
pub(super) const SIDES_WORDS: &str = "Outage: the longest time without an \
    acknowledgement to a side's clients (median over runs), what was acknowledged to them since it began \
    and what of that is lost (all runs), when the old primary took no more writes, for how long there were \
    two primaries (medians).";

/// The partitions of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartitionSummary {
    sides: Vec<SideSummary>,
    /// When the old primary ended, in seconds.
    ended: Option<f64>,
    /// An administrator ended it in some run.
    is_by_hand: bool,
    /// Seconds with two primaries; `None` where no standby was promoted.
    two: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
struct SideSummary {
    name: String,
    /// The outages of the runs, in seconds.
    outages: Vec<f64>,
    /// In a run no acknowledgement ended it.
    is_open: bool,
    acknowledged: u64,
    /// `None` where the final set of a run could not be read.
    lost: Option<u64>,
}

impl PartitionSummary {
    /// `None` where the runs are of other faults.
    pub(super) fn from_runs(runs: &[&FailoverRun]) -> Option<Self> {
        let all: Vec<&PartitionOutcome> =
            runs.iter().filter_map(|run| run.partition.as_ref()).collect();
        let names = all.first()?.sides.iter().map(|side| side.name.clone());
        let sides = names.enumerate().map(|(at, name)| {
            let own: Vec<&PartitionSide> =
                all.iter().filter_map(|outcome| outcome.sides.get(at)).collect();
            SideSummary {
                name,
                outages: own.iter().filter_map(|side| side.outage_s).collect(),
                is_open: own.iter().any(|side| side.outage_open),
                acknowledged: own.iter().map(|side| side.acknowledged).fold(0, u64::saturating_add),
                lost: own
                    .iter()
                    .map(|side| side.lost)
                    .try_fold(0_u64, |sum, lost| lost.map(|lost| sum.saturating_add(lost))),
            }
        });
        let middle = |value: fn(&PartitionOutcome) -> Option<f64>| {
            median(&all.iter().filter_map(|item| value(item)).collect::<Vec<_>>())
        };
        Some(Self {
            sides: sides.collect(),
            ended: middle(|item| item.old_primary_ended_s),
            is_by_hand: all.iter().any(|item| item.ended_by_hand),
            two: middle(|item| item.two_primaries_s),
        })
    }

    /// A row for each side, as in [`SIDES_HEAD`].
    pub(super) fn cells(&self) -> Vec<Vec<String>> {
        let row = |(at, side): (usize, &SideSummary)| {
            let short = side.name.trim_end_matches(" side").to_owned();
            let outage = side.outage();
            let lost = side.lost.map_or_else(|| "?".to_owned(), count);
            let mut row = vec![short, outage, count(side.acknowledged), lost];
            // They are of both sides.
            row.extend(if at == 0 { self.ends() } else { [String::new(), String::new()] });
            row
        };
        self.sides.iter().enumerate().map(row).collect()
    }

    fn ends(&self) -> [String; 2] {
        let at_least = if self.is_by_hand { ">" } else { "" };
        let ended = match (self.ended, self.two) {
            (Some(ended), _) => format!("{at_least}{ended:.1} s"),
            (None, Some(_)) => "never".to_owned(),
            (None, None) => "-".to_owned(),
        };
        let two = match self.two {
            None => "-".to_owned(),
            Some(0.0) => "0".to_owned(),
            Some(two) => format!("{at_least}{two:.1} s"),
        };
        [ended, two]
    }

    /// Outages of both sides, and who took writes, for a manager.
    pub(super) fn describe(&self, engine: FailoverEngine) -> String {
        let sides: Vec<String> = self
            .sides
            .iter()
            .map(|side| format!("{} on the {}", side.outage(), side.name))
            .collect();
        let primaries = match (self.two, self.ended) {
            (None, _) => "no standby was promoted".to_owned(),
            (Some(0.0), Some(ended)) => {
                format!(
                    "{} ended the old primary {ended:.1} s after the cut, before the standby took writes",
                    engine.title()
                )
            }
            (Some(two), Some(_)) if self.is_by_hand => {
                format!("two primaries for {two:.1} s, until an administrator stopped the old one")
            }
            (Some(two), Some(_)) => format!("two primaries for {two:.1} s"),
            (Some(two), None) => {
                format!("two primaries for {two:.1} s, neither of which was stopped")
            }
        };
        format!("no service for {}; {primaries}", sides.join(", for "))
    }
}

impl SideSummary {
    fn outage(&self) -> String {
        let at_least = if self.is_open { ">" } else { "" };
        median(&self.outages)
            .map_or_else(|| "-".to_owned(), |outage| format!("{at_least}{outage:.2} s"))
    }
}
