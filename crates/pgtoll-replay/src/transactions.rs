//! Transactions of a workload: which steps belong together, and where each was committed.

use std::collections::BTreeMap;

use pgtoll_record::LogCounts;

use crate::sql::{self, TwoPhase};
use crate::workload::{CapturedStep, CapturedWorkload, IncompleteReason, StatementRequest};

/// The steps of a workload as transactions, and what is done with each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayTransactions {
    /// In the order of their commits.
    pub(crate) list: Vec<Transaction>,
    /// The transaction of each step: an index into `list`.
    pub(crate) of_step: Vec<u32>,
    /// The treatment of each step.
    pub(crate) treatment: Vec<Treatment>,
    /// The effects of each step.
    pub(crate) effects: Vec<sql::Effect>,
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) session: u32,
    /// The number of an entry: before it the transaction held its locks, behind it its effects are
    /// visible.
    pub(crate) position: u64,
    /// Its steps, in order.
    pub(crate) steps: Vec<u32>,
    /// Whether the position may be off, as that of a simple statement outside of a block.
    pub(crate) is_uncertain: bool,
    /// The place of its preparation, if it was committed in two phases. Its session may have gone on to other
    /// transactions, and the last step may be another session's.
    pub(crate) prepared: Option<u64>,
}

/// The treatment of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Treatment {
    /// It is executed.
    #[default]
    Execute,
    /// It is not: the log does not have all of it.
    SkipIncomplete,
    /// It is not: the plan does not have its values.
    SkipRedacted,
    /// It is not: it failed for a lock, a serialization failure, or was cancelled.
    SkipFailed,
    /// As before, and the failure ended its transaction: `ROLLBACK` takes its place.
    Rollback,
    /// It is not: its transaction was ended in the step where it failed.
    SkipEnded,
}

impl ReplayTransactions {
    pub(crate) fn from_workload(workload: &CapturedWorkload) -> Self {
        let effects: Vec<sql::Effect> = workload.steps.iter().map(effect).collect();
        let mut by_session = vec![Vec::new(); workload.sessions.len()];
        for (index, step) in (0_u32..).zip(&workload.steps) {
            if let Some(steps) = by_session.get_mut(step.session as usize) {
                steps.push(index);
            }
        }
        let mut all = Self {
            list: Vec::new(),
            of_step: vec![0; workload.steps.len()],
            treatment: vec![Treatment::Execute; workload.steps.len()],
            effects,
        };
        for (session, steps) in (0_u32..).zip(&by_session) {
            all.add_session(session, steps, workload);
        }
        all.join_two_phases(workload);
        all.find_hidden_writes(workload);
        if workload.header.redacted {
            all.leave_out_redacted(workload);
        }
        all.list.sort_by_key(|item| (item.position, item.steps.first().copied()));
        for (rank, transaction) in (0_u32..).zip(&all.list) {
            for step in &transaction.steps {
                all.of_step[*step as usize] = rank;
            }
        }
        all
    }

    fn add_session(&mut self, session: u32, steps: &[u32], workload: &CapturedWorkload) {
        let mut open: Option<Transaction> = None;
        // Where the open block failed: there its locks were released.
        let mut aborted_at = None;
        let mut at = 0;
        while let Some(&index) = steps.get(at) {
            at += 1;
            let step = &workload.steps[index as usize];
            let was_open = open.is_some() || step.in_block == Some(true);
            let transaction =
                open.get_or_insert_with(|| Transaction { session, ..Transaction::default() });
            transaction.steps.push(index);
            if matches!(step.request, StatementRequest::Incomplete { .. }) && step.failed.is_none()
            {
                self.treatment[index as usize] = Treatment::SkipIncomplete;
            } else if is_unrepeatable(step) {
                let rest = &steps[at..];
                let ended = self.end_failed(index, rest, was_open, transaction);
                if let Some(skipped) = ended {
                    transaction.position = step.end;
                    self.list.extend(open.take());
                    at += skipped;
                    continue;
                }
            }
            if step.failed.is_some() && was_open {
                aborted_at.get_or_insert(step.end);
            } else if self.effects[index as usize].control.last() == Some(&sql::Control::RollbackTo)
            {
                aborted_at = None;
            }
            if let Some((position, is_uncertain)) = self.end_of(index, step, was_open) {
                transaction.position = aborted_at.take().unwrap_or(position);
                transaction.is_uncertain = is_uncertain;
                self.list.extend(open.take());
            }
        }
        if let Some(mut last) = open {
            last.position = workload.sessions[session as usize]
                .end
                .max(last.steps.last().map_or(0, |step| workload.steps[*step as usize].end));
            self.list.push(last);
        }
    }

    /// A prepared transaction ends, and lets its locks go, where it is finished: by its session or another one.
    fn join_two_phases(&mut self, workload: &CapturedWorkload) {
        // By name, from where on each is prepared: names are used again.
        let mut prepared: BTreeMap<&str, BTreeMap<u64, usize>> = BTreeMap::new();
        let mut finishing = Vec::new();
        for (at, transaction) in self.list.iter().enumerate() {
            let Some(last) = transaction.steps.last() else { continue };
            let step = &workload.steps[*last as usize];
            match &self.effects[*last as usize].two_phase {
                _ if step.failed.is_some() => {}
                Some(TwoPhase::Prepare(name)) => {
                    prepared.entry(name).or_default().insert(step.end, at);
                }
                Some(TwoPhase::Finish(name)) => finishing.push((step.begin, name.as_str(), at)),
                None => {}
            }
        }
        finishing.sort_unstable();
        let mut pairs = Vec::new();
        for (begin, name, finish) in finishing {
            let of_name = prepared.get_mut(name);
            let found =
                of_name.and_then(|item| item.range(..=begin).next_back().map(|(at, _)| *at));
            if let Some(at) = found
                && let Some(transaction) =
                    prepared.get_mut(name).and_then(|prepared| prepared.remove(&at))
            {
                pairs.push((transaction, finish, at, begin));
            }
        }
        for (transaction, finish, prepared, begin) in pairs {
            let steps = std::mem::take(&mut self.list[finish].steps);
            let transaction = &mut self.list[transaction];
            transaction.steps.extend(steps);
            (transaction.position, transaction.prepared) = (begin, Some(prepared));
        }
        self.list.retain(|transaction| !transaction.steps.is_empty());
    }

    /// Orders steps whose values were redacted, without executing them.
    fn leave_out_redacted(&mut self, workload: &CapturedWorkload) {
        for (step, treatment) in workload.steps.iter().zip(&mut self.treatment) {
            let is_left = matches!(treatment, Treatment::Execute | Treatment::SkipIncomplete);
            if is_left && step.request.has_values() {
                *treatment = Treatment::SkipRedacted;
            }
        }
    }

    /// A statement with which a transaction got its id wrote, whatever its text says: a function did it.
    fn find_hidden_writes(&mut self, workload: &CapturedWorkload) {
        for transaction in &self.list {
            for index in &transaction.steps {
                let step = &workload.steps[*index as usize];
                let effect = &mut self.effects[*index as usize];
                if effect.is_everything || !effect.touches.is_empty() {
                    break;
                }
                if step.has_written == Some(true) {
                    // A sequence's next value may take an id.
                    let is_sequence = step.request.texts().any(|sql| sql.contains("nextval"));
                    let is_incomplete = matches!(step.request, StatementRequest::Incomplete { .. });
                    effect.is_everything = !is_sequence && !is_incomplete;
                    break;
                }
            }
        }
    }

    /// A step that failed in a way that is not repeated: how many steps behind it are over with it; `None`
    /// where the transaction continues, by `ROLLBACK TO`.
    fn end_failed(
        &mut self,
        index: u32,
        rest: &[u32],
        was_open: bool,
        transaction: &mut Transaction,
    ) -> Option<usize> {
        self.treatment[index as usize] = Treatment::SkipFailed;
        if !was_open {
            return Some(0);
        }
        let is_control = |step: &&u32| !self.effects[**step as usize].control.is_empty();
        let own_end =
            self.effects[index as usize].control.iter().any(|control| control.ends_block());
        let goes_back = !own_end
            && rest.iter().find(is_control).is_some_and(|step| {
                self.effects[*step as usize].control.first() == Some(&sql::Control::RollbackTo)
            });
        if goes_back {
            return None;
        }
        self.treatment[index as usize] = Treatment::Rollback;
        let ends = |step: &u32| {
            self.effects[*step as usize].control.iter().any(|control| control.ends_block())
        };
        // A COMMIT that failed, as with a serialization failure: the next step is another transaction's.
        if own_end {
            return Some(0);
        }
        let skipped = rest.iter().position(ends).map_or(rest.len(), |end| end + 1);
        for step in &rest[..skipped] {
            self.treatment[*step as usize] = Treatment::SkipEnded;
            transaction.steps.push(*step);
        }
        Some(skipped)
    }

    /// The position of the transaction's end, and whether that is uncertain, if it ends with this step.
    fn end_of(&self, index: u32, step: &CapturedStep, was_open: bool) -> Option<(u64, bool)> {
        let control = &self.effects[index as usize].control;
        let last = control.iter().rfind(|control| **control != sql::Control::RollbackTo);
        let is_block_end = matches!(last, Some(sql::Control::Commit | sql::Control::Rollback));
        match last {
            Some(sql::Control::Begin) => None,
            // Its begin comes before the commit, its end behind it.
            Some(_) if is_block_end && was_open => Some((step.begin, step.ends_late)),
            None if was_open => None,
            _ => {
                let is_simple =
                    step.ends_late || matches!(step.request, StatementRequest::Simple(_));
                let writes = !self.effects[index as usize].touches.is_empty();
                let uncertain = is_simple && writes && step.before_commit.is_none();
                Some((step.before_commit.unwrap_or(step.end), uncertain))
            }
        }
    }
}

/// Returns the effect of all statements of a step. Incomplete ones have none.
fn effect(step: &CapturedStep) -> sql::Effect {
    let mut all = sql::Effect::default();
    match &step.request {
        StatementRequest::Incomplete { reason: IncompleteReason::Redacted, .. } => {
            all.is_everything = step.failed.is_none() && step.has_written != Some(false);
            return all;
        }
        StatementRequest::Incomplete { .. } => return all,
        StatementRequest::Simple(_)
        | StatementRequest::Copy { .. }
        | StatementRequest::Extended(_) => {}
    }
    for text in step.request.texts() {
        let one = sql::effect(text);
        all.control.extend(one.control);
        all.touches.extend(one.touches);
        all.is_everything |= one.is_everything;
        all.two_phase = one.two_phase.or(all.two_phase);
    }
    if let StatementRequest::Extended(executions) = &step.request
        && executions.len() > 1
    {
        // Parameters belong to one of several executions.
        for touch in &mut all.touches {
            touch.terms.clear();
            touch.is_conditional = true;
        }
    }
    // The log knows better: until here nothing was written.
    if step.has_written == Some(false) && !step.request.texts().any(|sql| sql.contains("advisory"))
    {
        let is_ddl = step.request.texts().any(|sql| !sql::is_query(sql));
        all.touches.clear();
        all.is_everything &= is_ddl;
    }
    all
}

/// Deadlock, serialization failure, lock timeout, cancel: a replay need not come into the same situation.
/// And what failed before it was logged completely.
fn is_unrepeatable(step: &CapturedStep) -> bool {
    let incomplete = matches!(step.request, StatementRequest::Incomplete { .. });
    let code = step.failed.as_deref();
    incomplete || code.is_some_and(|code| UNREPEATABLE.contains(&code))
}

/// Counts the simple statements that write outside of transaction blocks, while the steps of a session come
/// in: [`ReplayTransactions`] need all of them.
#[derive(Debug, Default)]
pub(crate) struct AutocommitCounter {
    state: BlockState,
    /// The step with which the open block began, until another one follows: its writes.
    alone: Option<WritesOutside>,
}

/// The transaction state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlockState {
    #[default]
    Outside,
    Open,
    /// A block that failed in a way that is not repeated: the next transaction control says whether it goes
    /// on.
    Failed,
    /// As before, and it does not.
    Ended,
}

/// A simple statement that writes outside of a block.
#[derive(Clone, Copy, Debug)]
struct WritesOutside {
    is_exact: bool,
}

impl WritesOutside {
    fn from_step(step: &CapturedStep) -> Option<Self> {
        let is_simple = matches!(step.request, StatementRequest::Simple(_));
        let writes = is_simple && !effect(step).touches.is_empty();
        writes.then_some(Self { is_exact: step.before_commit.is_some() })
    }

    fn count(self, counts: &mut LogCounts) {
        counts.autocommit_simple += 1;
        counts.autocommit_exact += u64::from(self.is_exact);
    }
}

impl AutocommitCounter {
    /// The session's next step.
    pub(crate) fn add(&mut self, step: &CapturedStep, counts: &mut LogCounts) {
        let is_incomplete = matches!(step.request, StatementRequest::Incomplete { .. });
        let texts = step.request.texts().filter(|_| !is_incomplete);
        let control: Vec<sql::Control> = texts.flat_map(sql::controls).collect();
        let ends = control.iter().any(|control| control.ends_block());
        self.alone = None;
        if self.state == BlockState::Failed && !control.is_empty() {
            let goes_on = control.first() == Some(&sql::Control::RollbackTo);
            self.state = if goes_on { BlockState::Open } else { BlockState::Ended };
        }
        match self.state {
            BlockState::Failed => return,
            BlockState::Ended => {
                self.state = if ends { BlockState::Outside } else { BlockState::Ended };
                return;
            }
            BlockState::Outside | BlockState::Open => {}
        }
        let was_open = self.state == BlockState::Open || step.in_block == Some(true);
        let is_over = step.failed.is_some() && is_unrepeatable(step);
        let last = control.iter().rfind(|control| **control != sql::Control::RollbackTo);
        self.state = match last {
            _ if is_over && was_open && !ends => BlockState::Failed,
            _ if is_over => BlockState::Outside,
            Some(sql::Control::Begin) => BlockState::Open,
            None if was_open => BlockState::Open,
            _ => BlockState::Outside,
        };
        if was_open {
            return;
        }
        match (WritesOutside::from_step(step), self.state) {
            (Some(writes), BlockState::Outside) => writes.count(counts),
            (writes, _) => self.alone = writes,
        }
    }

    /// The session has no more steps.
    pub(crate) fn finish(self, counts: &mut LogCounts) {
        if let Some(writes) = self.alone {
            writes.count(counts);
        }
    }
}

/// Deadlock, serialization failure, lock not available, cancel; the server's shutdown and crash.
const UNREPEATABLE: [&str; 7] = ["40P01", "40001", "55P03", "57014", "57P01", "57P02", "57P03"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogInput, LogReading, read_logs};

    /// What [`AutocommitCounter`] counts, by the transactions of the whole workload.
    fn autocommits(workload: &CapturedWorkload) -> (u64, u64) {
        let transactions = ReplayTransactions::from_workload(workload);
        let mut simple = 0;
        let mut exact = 0;
        for transaction in &transactions.list {
            let [index] = transaction.steps.as_slice() else { continue };
            let step = &workload.steps[*index as usize];
            let writes = !transactions.effects[*index as usize].touches.is_empty();
            let is_simple = matches!(step.request, StatementRequest::Simple(_));
            if writes && is_simple && step.in_block != Some(true) {
                simple += 1;
                exact += u64::from(step.before_commit.is_some());
            }
        }
        (simple, exact)
    }

    fn check(log: &str) -> CapturedWorkload {
        let input = LogInput { name: "log".to_owned(), content: Box::new(log.as_bytes()) };
        let workload = read_logs([input], &LogReading::default(), |_| {}).unwrap();
        let counts = &workload.header.counts;
        let counted = (counts.autocommit_simple, counts.autocommit_exact);
        assert_eq!(counted, autocommits(&workload), "{log}");
        workload
    }

    #[test]
    fn autocommits_are_counted_as_steps_come_in() {
        for log in [
            include_str!("../tests/server-logs/zoo15.csv"),
            include_str!("../tests/server-logs/zoo18.json"),
        ] {
            assert!(check(log).header.counts.autocommit_simple > 0);
        }
    }

    /// A session's statements, each with the code that it fails with.
    fn log(statements: &[(&str, &str)]) -> String {
        let mut log = String::new();
        for (number, (sql, code)) in statements.iter().enumerate() {
            let at = format!("2026-11-21 19:46:17.{number:03} UTC [7] ");
            let end = match *code {
                "" => "LOG:  duration: 0.100 ms".to_owned(),
                message => format!("ERROR:  {message}"),
            };
            log.extend([format!("{at}LOG:  statement: {sql}\n{at}{end}\n")]);
        }
        log
    }

    const WRITES: &str = "update t set v = 1 where id = 1";
    const CANCEL: &str = "canceling statement due to user request";
    const SERIALIZE: &str = "could not serialize access due to concurrent update";

    #[test]
    fn blocks_that_fail_end_where_they_end() {
        let count =
            |statements: &[(&str, &str)]| check(&log(statements)).header.counts.autocommit_simple;
        assert_eq!(count(&[(WRITES, ""), ("begin", ""), (WRITES, ""), ("commit", "")]), 1);
        assert_eq!(count(&[(WRITES, CANCEL), (WRITES, "")]), 2);
        let block = [("begin", ""), (WRITES, CANCEL), (WRITES, ""), ("rollback", ""), (WRITES, "")];
        assert_eq!(count(&block), 1);
        let saved =
            [("begin", ""), (WRITES, CANCEL), ("rollback to s", ""), (WRITES, ""), ("end", "")];
        assert_eq!(count(&saved), 0);
        assert_eq!(count(&[("begin; update t set v = 1 where id = 1", "")]), 1);
    }

    #[test]
    fn a_commit_that_fails_does_not_take_the_next_transaction_along() {
        let one = [("begin", ""), (WRITES, ""), ("commit", SERIALIZE)];
        let next = [("begin", ""), (WRITES, ""), ("commit", "")];
        let transactions = ReplayTransactions::from_workload(&check(&log(&[one, next].concat())));
        assert_eq!(transactions.list.len(), 2);
        let execute = Treatment::Execute;
        let expected = [execute, execute, Treatment::Rollback, execute, execute, execute];
        assert_eq!(transactions.treatment, expected);
    }
}
