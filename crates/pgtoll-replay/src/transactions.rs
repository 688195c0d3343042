//! Transactions of a workload: which steps belong together, and where each was committed.

use crate::sql;
use crate::workload::{CapturedStep, CapturedWorkload, StatementRequest};

/// The steps of a workload as transactions, and what is done with each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayTransactions {
    /// In the order of their commits.
    pub(crate) list: Vec<Transaction>,
    /// The transaction of each step: an index into `list`.
    pub(crate) of_step: Vec<u32>,
    /// What is done with each step.
    pub(crate) treatment: Vec<Treatment>,
    /// What each step does.
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
}

/// What is done with a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Treatment {
    /// It is executed.
    #[default]
    Execute,
    /// It is not: the log does not have all of it.
    SkipIncomplete,
    /// It is not: it failed for a lock, a serialization failure, or was cancelled.
    SkipFailed,
    /// As before, and the failure ended its transaction: `ROLLBACK` takes its place.
    Rollback,
    /// It is not: its transaction was ended in the step where it failed.
    SkipEnded,
}

impl ReplayTransactions {
    pub(crate) fn of(workload: &CapturedWorkload) -> Self {
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
        all.find_hidden_writes(workload);
        all.list.sort_by_key(|of| (of.position, of.steps.first().copied()));
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
    /// where the transaction goes on, by `ROLLBACK TO`.
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
        let goes_back = rest.iter().find(is_control).is_some_and(|step| {
            self.effects[*step as usize].control.first() == Some(&sql::Control::RollbackTo)
        });
        if goes_back {
            return None;
        }
        self.treatment[index as usize] = Treatment::Rollback;
        let ends = |step: &u32| {
            let control = &self.effects[*step as usize].control;
            control.iter().any(|of| matches!(of, sql::Control::Commit | sql::Control::Rollback))
        };
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
        let last = control.iter().rfind(|of| **of != sql::Control::RollbackTo);
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

/// What the steps' statements do, together. What is incomplete does nothing.
fn effect(step: &CapturedStep) -> sql::Effect {
    let mut all = sql::Effect::default();
    if matches!(step.request, StatementRequest::Incomplete { .. }) {
        return all;
    }
    for text in step.request.texts() {
        let one = sql::effect(text);
        all.control.extend(one.control);
        all.touches.extend(one.touches);
        all.is_everything |= one.is_everything;
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

/// Counts the simple statements that write outside of transaction blocks.
pub(crate) fn count_autocommits(workload: &mut CapturedWorkload) {
    let transactions = ReplayTransactions::of(workload);
    let counts = &mut workload.header.counts;
    for transaction in &transactions.list {
        let [step] = transaction.steps.as_slice() else { continue };
        let step = &workload.steps[*step as usize];
        let writes = !transactions.effects[transaction.steps[0] as usize].touches.is_empty();
        if writes
            && matches!(step.request, StatementRequest::Simple(_))
            && step.in_block != Some(true)
        {
            counts.autocommit_simple += 1;
            counts.autocommit_exact += u64::from(step.before_commit.is_some());
        }
    }
}

/// Deadlock, serialization failure, lock not available, cancel; the server's shutdown and crash.
const UNREPEATABLE: [&str; 7] = ["40P01", "40001", "55P03", "57014", "57P01", "57P02", "57P03"];
