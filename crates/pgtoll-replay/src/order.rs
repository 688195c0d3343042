//! Waits between steps: commit-ordered first touch.
//!
//! Transactions are taken in the order of their commit positions. Whoever touches a row first in a
//! transaction waits until the transaction before it that touched the same row has done so; then the
//! server's own row lock makes it wait for the rest. All waits, the server's and ours, then lead from
//! later to earlier commits, so that no circle of waits comes about. A later transaction waits for an
//! earlier one's end only where its statement would not see the rows otherwise: rows that were inserted,
//! and conditions on more than the key.
//!
//! A transaction of one snapshot (`REPEATABLE READ`, `SERIALIZABLE`) takes it when all are over that were
//! committed before in the log: otherwise it would miss rows that it saw, or fail (40001) where it did not.
//! That it takes it before those commit whose rows it did not see is left to time: such waits would lead from
//! earlier to later commits.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use crate::catalog::TableFacts;
use crate::sql::{self, KeyTerm, KeyValue, RowTouch, TouchKind, TwoPhase};
use crate::transactions::{ReplayTransactions, Transaction, Treatment};
use crate::workload::{CapturedSession, CapturedStep, CapturedWorkload, StatementRequest};

/// By what steps are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderMode {
    /// First touches of rows, where statements name them by a key; else of tables.
    #[default]
    Key,
    /// Writes to tables.
    Table,
    /// Nothing but a session's own order.
    None,
}

impl OrderMode {
    /// All, the default first.
    pub const ALL: [Self; 3] = [Self::Key, Self::Table, Self::None];

    /// The mode's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Table => "table",
            Self::None => "none",
        }
    }
}

/// The waits of each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Steps that have to be done before.
    pub(crate) predecessors: Vec<Vec<u32>>,
    /// Sequences of transactions, and how many of each have to be over before.
    pub(crate) waits: FxHashMap<u32, Vec<SequenceWait>>,
    /// Each a list of transactions in commit order. The first one has all.
    pub(crate) sequences: Vec<Vec<u32>>,
    /// Edges between steps of two sessions.
    pub(crate) edges: u64,
    /// Steps that wait for all transactions before theirs.
    pub(crate) barriers: u64,
    /// Pairs whose order the log leaves open: simple statements outside of blocks, on the same rows, at the
    /// same time; and statements with a condition, or on an inserted row, that had begun when the other
    /// transaction was committed, so that the log does not say whether they saw its rows.
    pub(crate) uncertain_pairs: u64,
}

/// A step waits until this many of a sequence's transactions are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequenceWait {
    pub(crate) sequence: u32,
    pub(crate) count: u32,
}

/// A transaction's isolation level is said in one of its first statements.
const LEVEL_WITHIN: usize = 3;

/// All transactions.
const EVERYTHING: u32 = 0;

/// Orders the steps of a workload.
pub(crate) fn order(
    workload: &CapturedWorkload,
    transactions: &ReplayTransactions,
    facts: &TableFacts,
    mode: OrderMode,
) -> Order {
    let all = (0_u32..).take(transactions.list.len()).collect();
    let order = Order {
        predecessors: vec![Vec::new(); workload.steps.len()],
        sequences: vec![all],
        ..Order::default()
    };
    if mode == OrderMode::None {
        return order;
    }
    let keys =
        if mode == OrderMode::Key { key_columns(transactions, facts) } else { HashMap::new() };
    let mut builder = Builder {
        steps: &workload.steps,
        transactions,
        facts,
        mode,
        keys,
        domains: HashMap::new(),
        two_phases: HashMap::new(),
        snapshots: snapshots(workload, transactions),
        order,
        barrier: 0,
    };
    for rank in 0..transactions.list.len() {
        builder.add(u32::try_from(rank).unwrap_or(u32::MAX));
    }
    builder.order
}

/// Returns for each table the column by which most statements name rows. Statements that name rows of a table by
/// different columns cannot be told to be about different rows.
fn key_columns(transactions: &ReplayTransactions, facts: &TableFacts) -> HashMap<String, String> {
    let mut counts: HashMap<&str, BTreeMap<&str, u64>> = HashMap::new();
    let touches = transactions.effects.iter().flat_map(|effect| &effect.touches);
    for touch in touches.filter(|touch| touch.kind == TouchKind::Write) {
        let columns = counts.entry(&touch.table).or_default();
        for term in &touch.terms {
            *columns.entry(&term.column).or_default() += 1;
        }
    }
    let most = |columns: BTreeMap<&str, u64>| {
        columns.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
    };
    let keyed = counts.into_iter().filter(|(table, _)| facts.group_of(table).is_none());
    keyed.filter_map(|(table, columns)| Some((table.to_owned(), most(columns)?))).collect()
}

/// The step that takes the snapshot, for each transaction of one snapshot: the first one that is not
/// transaction control, or a setting. The level is said in one of a transaction's first statements, or for all of a session's.
fn snapshots(workload: &CapturedWorkload, transactions: &ReplayTransactions) -> Vec<Option<u32>> {
    let texts = |step: u32| workload.steps[step as usize].request.texts();
    let of_settings = |session: &CapturedSession| {
        let mut settings = session.settings.iter();
        settings.any(|(name, value)| sql::sets_one_snapshot(name, value))
    };
    let mut by_default: Vec<bool> = workload.sessions.iter().map(of_settings).collect();
    let mut is_of_step = Vec::with_capacity(workload.steps.len());
    for step in &workload.steps {
        is_of_step.push(by_default[step.session as usize]);
        let levels = step.request.texts().filter_map(sql::isolation_level);
        if let Some(level) =
            levels.filter(|level| level.is_of_session && step.failed.is_none()).last()
        {
            by_default[step.session as usize] = level.has_one_snapshot;
        }
    }
    let snapshot = |transaction: &Transaction| {
        let mut first = transaction.steps.iter().take(LEVEL_WITHIN);
        let level = first.find_map(|step| texts(*step).find_map(sql::isolation_level));
        let own = level.filter(|level| !level.is_of_session).map(|level| level.has_one_snapshot);
        let begin = transaction.steps.first()?;
        if !own.unwrap_or(is_of_step[*begin as usize]) {
            return None;
        }
        transaction.steps.iter().copied().find(|step| texts(*step).any(sql::takes_snapshot))
    };
    transactions.list.iter().map(snapshot).collect()
}

struct Builder<'a> {
    steps: &'a [CapturedStep],
    transactions: &'a ReplayTransactions,
    facts: &'a TableFacts,
    mode: OrderMode,
    keys: HashMap<String, String>,
    domains: HashMap<String, Domain>,
    /// The last step of a two-phase commit under each name.
    two_phases: HashMap<&'a str, u32>,
    /// The step that takes the snapshot, for each transaction of one snapshot.
    snapshots: Vec<Option<u32>>,
    order: Order,
    /// Transactions that have to be over before any later one begins.
    barrier: u32,
}

/// A table, or several that are connected.
#[derive(Default)]
struct Domain {
    keys: FxHashMap<String, LastTouch>,
    /// The last transaction that touched rows without a key.
    whole: Option<LastTouch>,
    /// Transactions since that one: the last step of each on this domain.
    since: Vec<LastTouch>,
    /// The sequence of transactions that inserted rows without a key.
    inserts: Option<u32>,
}

#[derive(Clone, Copy)]
struct LastTouch {
    rank: u32,
    /// For rows by key the first step that touched it, for others the last one on the domain.
    step: u32,
    /// The rows can be seen when the transaction is over, and not before.
    is_insert: bool,
}

/// The touches of a transaction in a domain.
#[derive(Default)]
struct DomainTouches {
    keys: BTreeMap<String, KeyTouch>,
    /// The first step without a key, if any.
    whole: Option<u32>,
    /// An insert without a key.
    has_insert: bool,
    /// Rows that are there are changed, so that inserted ones have to be seen.
    has_write: bool,
    first: Option<u32>,
    last: u32,
    is_conditional: bool,
}

struct KeyTouch {
    step: u32,
    is_insert: bool,
    is_conditional: bool,
}

impl<'a> Builder<'a> {
    fn add(&mut self, rank: u32) {
        let transactions = self.transactions;
        let transaction = &transactions.list[rank as usize];
        // What its session did between both phases, and waits for it, it does not wait for.
        let before = transaction.prepared.map_or(rank, |prepared| {
            let earlier = transactions.list.partition_point(|item| item.position < prepared);
            u32::try_from(earlier).unwrap_or(u32::MAX)
        });
        if let Some(first) = transaction.steps.first().filter(|_| self.barrier > 0) {
            let count = self.barrier.min(before);
            self.wait_for_sequence(*first, SequenceWait { sequence: EVERYTHING, count });
        }
        if let Some(step) = self.snapshots[rank as usize] {
            let begin = self.steps[step as usize].begin;
            let earlier = transactions.list.partition_point(|item| item.position < begin);
            let count = u32::try_from(earlier).unwrap_or(u32::MAX).min(before);
            self.wait_for_sequence(step, SequenceWait { sequence: EVERYTHING, count });
        }
        let mut domains: BTreeMap<String, DomainTouches> = BTreeMap::new();
        for step in &transaction.steps {
            // What is not executed again, since a conflict had ended it, waits for nothing, and nothing for it.
            let treatment = transactions.treatment[*step as usize];
            if matches!(
                treatment,
                Treatment::SkipFailed | Treatment::Rollback | Treatment::SkipEnded
            ) {
                continue;
            }
            let effect = &transactions.effects[*step as usize];
            let is_unknown = |touch: &RowTouch| self.facts.unknown.contains(&touch.table);
            if effect.is_everything || effect.touches.iter().any(is_unknown) {
                self.order.barriers += 1;
                self.wait_for_sequence(*step, SequenceWait { sequence: EVERYTHING, count: before });
                self.barrier = rank + 1;
            }
            let failed = self.steps[*step as usize].failed.is_some();
            if let Some(TwoPhase::Prepare(name) | TwoPhase::Finish(name)) = &effect.two_phase
                && !failed
            {
                self.wait_for_phase(name, *step);
            }
            for touch in &effect.touches {
                let table = self.facts.group_of(&touch.table).unwrap_or(&touch.table);
                let found = domains.entry(table.to_owned()).or_default();
                let key = self.key_values(touch, &self.steps[*step as usize]);
                found.add(*step, touch, key, self.mode, failed);
            }
        }
        for (name, touches) in domains {
            self.add_touches(rank, &name, &touches);
        }
    }

    /// Waits for a prepared transaction: it was prepared before, and a name is free again when it is finished, by whatever
    /// sessions.
    fn wait_for_phase(&mut self, name: &'a str, step: u32) {
        let Some(before) = self.two_phases.insert(name, step) else { return };
        if self.steps[before as usize].session != self.steps[step as usize].session {
            self.order.predecessors[step as usize].push(before);
            self.order.edges += 1;
        }
    }

    /// The values of the table's key column; `None` where the touch is not by that column alone.
    fn key_values(&self, touch: &RowTouch, step: &CapturedStep) -> Option<Vec<String>> {
        let column = self.keys.get(&touch.table)?;
        if touch.assigned.contains(column) {
            return None;
        }
        let term: &KeyTerm = touch.terms.iter().find(|term| term.column == *column)?;
        let value = |value: &KeyValue| match value {
            KeyValue::Literal(text) => Some(text.clone()),
            KeyValue::Parameter(number) => match &step.request {
                StatementRequest::Extended(executions) => {
                    let parameters = &executions.first()?.parameters;
                    let value = parameters.get(number.checked_sub(1)?)?.as_ref()?;
                    value.text().map(Cow::into_owned)
                }
                _ => None,
            },
        };
        let values: Option<Vec<String>> = term.values.iter().map(value).collect();
        values.map(|values| values.iter().map(|value| normal(value)).collect())
    }

    fn add_touches(&mut self, rank: u32, name: &str, touches: &DomainTouches) {
        let mut domain = self.domains.remove(name).unwrap_or_default();
        for (key, touch) in &touches.keys {
            if let Some(before) = domain.keys.get(key) {
                let before = *before;
                let until_end = touch.is_conditional || (before.is_insert && !touch.is_insert);
                self.wait_for(rank, touch.step, before, until_end);
            }
            let step = touch.step;
            domain.keys.insert(key.clone(), LastTouch { rank, step, is_insert: touch.is_insert });
        }
        let first = touches.whole.or(touches.first).unwrap_or(touches.last);
        let ends =
            |touch: LastTouch| touches.is_conditional || (touch.is_insert && touches.has_write);
        if touches.whole.is_some() {
            for before in std::mem::take(&mut domain.since) {
                self.wait_for(rank, first, before, ends(before));
            }
            domain.keys.clear();
        }
        if let Some(before) = domain.whole {
            self.wait_for(rank, touches.first.unwrap_or(first), before, ends(before));
        }
        let changes_rows = touches.whole.is_some() || !touches.keys.is_empty();
        if let Some(sequence) = domain.inserts.filter(|_| changes_rows && touches.first.is_some()) {
            let count = u32::try_from(self.order.sequences[sequence as usize].len());
            let wait = SequenceWait { sequence, count: count.unwrap_or(u32::MAX) };
            let step = touches.first.unwrap_or(first);
            if let Some(last) = self.order.sequences[sequence as usize].last() {
                let last = &self.transactions.list[*last as usize];
                let other_session = last.session != self.transactions.list[rank as usize].session;
                let is_open = other_session && self.snapshot(rank, step) < last.position;
                self.order.uncertain_pairs += u64::from(is_open);
            }
            self.wait_for_sequence(step, wait);
        }
        if touches.has_insert {
            let sequence = domain.inserts.unwrap_or_else(|| {
                self.order.sequences.push(Vec::new());
                u32::try_from(self.order.sequences.len() - 1).unwrap_or(u32::MAX)
            });
            self.order.sequences[sequence as usize].push(rank);
            domain.inserts = Some(sequence);
        }
        let last = LastTouch { rank, step: touches.last, is_insert: touches.has_insert };
        if touches.whole.is_some() {
            domain.whole = Some(last);
        } else {
            domain.since.push(last);
        }
        self.domains.insert(name.to_owned(), domain);
    }

    /// The step waits for the other transaction's touch, or for its end.
    fn wait_for(&mut self, rank: u32, step: u32, before: LastTouch, until_end: bool) {
        let mine = &self.transactions.list[rank as usize];
        let other = &self.transactions.list[before.rank as usize];
        let last = other.steps.last().copied().filter(|_| until_end).unwrap_or(before.step);
        if mine.session == self.steps[last as usize].session {
            return;
        }
        if mine.is_uncertain || other.is_uncertain {
            let first = |numbers: &[u32]| {
                numbers.first().map_or(0, |step| self.steps[*step as usize].begin)
            };
            self.order.uncertain_pairs += u64::from(first(&mine.steps) < other.position);
        } else if until_end && self.snapshot(rank, step) < other.position {
            self.order.uncertain_pairs += 1;
        }
        self.order.predecessors[step as usize].push(last);
        self.order.edges += 1;
    }

    /// The number of the entry before which a step took its snapshot: that of its begin, or of the step that
    /// took the transaction's only one.
    fn snapshot(&self, rank: u32, step: u32) -> u64 {
        self.steps[self.snapshots[rank as usize].unwrap_or(step) as usize].begin
    }

    fn wait_for_sequence(&mut self, step: u32, wait: SequenceWait) {
        if wait.count > 0 {
            self.order.waits.entry(step).or_default().push(wait);
        }
    }
}

impl DomainTouches {
    fn add(
        &mut self,
        step: u32,
        touch: &RowTouch,
        key: Option<Vec<String>>,
        mode: OrderMode,
        failed: bool,
    ) {
        self.first.get_or_insert(step);
        self.last = step;
        let is_insert = touch.kind == TouchKind::Insert;
        self.has_write |= !is_insert;
        match key {
            Some(values) if !failed => {
                for value in values {
                    let found = self.keys.entry(value).or_insert(KeyTouch {
                        step,
                        is_insert: false,
                        is_conditional: false,
                    });
                    found.is_insert |= is_insert;
                    found.is_conditional |= touch.is_conditional;
                }
            }
            // What failed may have failed for another row: all that came before decides that.
            _ if is_insert && !failed => {
                self.has_insert = true;
                if mode == OrderMode::Table {
                    self.whole.get_or_insert(step);
                }
            }
            _ => {
                self.whole.get_or_insert(step);
                self.is_conditional |= failed || mode == OrderMode::Key || touch.is_conditional;
            }
        }
    }
}

/// `07`, `7` and `7.0` may be the same number.
pub(crate) fn normal(value: &str) -> String {
    match value.trim().parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => match value.trim().parse::<f64>() {
            Ok(number) => number.to_string(),
            // Of some types neither case nor spaces at the end tell values apart.
            Err(_) => value.trim_end().to_lowercase(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogInput, LogReading, read_logs};

    /// The order of two sessions' statements: each line is a session and what it logs.
    fn order_of(lines: &[&str]) -> Order {
        let mut log = String::new();
        for (number, line) in lines.iter().enumerate() {
            let (session, message) = line.split_once(' ').unwrap();
            log.extend([format!(
                "2026-11-21 19:46:17.{number:03} UTC [{session}] app@shop LOG:  {message}\n"
            )]);
        }
        let content = Box::new(std::io::Cursor::new(log.into_bytes()));
        let input = LogInput { name: "written.log".to_owned(), content };
        let workload = read_logs([input], &LogReading::default(), |_| {}).unwrap();
        let transactions = ReplayTransactions::from_workload(&workload);
        order(&workload, &transactions, &TableFacts::default(), OrderMode::Key)
    }

    fn check(lines: &[&str], expected: u64) {
        assert_eq!(order_of(lines).uncertain_pairs, expected, "{lines:#?}");
    }

    const DONE: &str = "duration: 0.100 ms";

    #[test]
    fn a_condition_that_was_asked_before_another_commit_is_uncertain() {
        let done = [format!("1 {DONE}"), format!("2 {DONE}")];
        let [one, two] = done.each_ref().map(String::as_str);
        let keyed = "2 statement: UPDATE t SET v = 1 WHERE id = 1";
        let conditional = "1 statement: UPDATE t SET w = 2 WHERE id > 7";
        let begun = ["1 statement: BEGIN", one, "2 statement: BEGIN", two, keyed, two];
        let commit = ["2 statement: COMMIT", two];
        let end = [one, "1 statement: COMMIT", one];
        check(&[&begun[..], &[conditional], &commit, &end].concat(), 1);
        check(&[&begun[..], &commit, &[conditional], &end].concat(), 0);
        // Rows by key are locked in the order of commits, the one who asked first.
        let by_key = "1 statement: UPDATE t SET w = 2 WHERE id = 1";
        check(&[&begun[..], &[by_key], &commit, &end].concat(), 0);
    }

    #[test]
    fn a_transaction_of_one_snapshot_takes_it_where_it_did() {
        let done = [format!("1 {DONE}"), format!("2 {DONE}")];
        let [one, two] = done.each_ref().map(String::as_str);
        let begun = [
            "1 statement: BEGIN ISOLATION LEVEL REPEATABLE READ",
            one,
            "2 statement: BEGIN",
            two,
            "2 statement: INSERT INTO t (id) VALUES (1)",
            two,
        ];
        let commit = ["2 statement: COMMIT", two];
        let read = ["1 statement: SELECT 1", one];
        let conditional = ["1 statement: UPDATE t SET w = 2 WHERE id > 7", one];
        let end = ["1 statement: COMMIT", one];
        let after = order_of(&[&begun[..], &commit, &read, &conditional, &end].concat());
        // Steps are numbered in the order of their begins.
        assert_eq!(after.waits[&4], [SequenceWait { sequence: EVERYTHING, count: 1 }]);
        assert_eq!(after.uncertain_pairs, 0);
        // The other one's rows were not seen, which nothing ensures.
        let before = order_of(&[&begun[..], &read, &commit, &conditional, &end].concat());
        assert!(!before.waits.contains_key(&3), "{:?}", before.waits);
        assert!(before.uncertain_pairs > 0);
        // The level may be the session's.
        let set =
            "1 statement: SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE";
        let begun_plain = [&[set, one, "1 statement: BEGIN"][..], &begun[1..]].concat();
        let by_session = order_of(&[&begun_plain[..], &commit, &read, &conditional, &end].concat());
        // The setting is a transaction of its own.
        assert_eq!(by_session.waits[&5], [SequenceWait { sequence: EVERYTHING, count: 2 }]);
        // While the snapshot was taken the other one committed: the log does not say which came first.
        let (requested, message) = conditional.split_at(1);
        let meanwhile = order_of(&[&begun[..], requested, &commit, message, &end].concat());
        assert!(meanwhile.uncertain_pairs > 0);
    }
}
