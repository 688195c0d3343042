//! The comparison of the journals with the ids that are there in the end: set arithmetic, in one
//! pass over both, in constant memory.

use pgtoll_record::{IdSet, LostTransactions, TransactionExample};

use super::journal::{Attempt, AttemptOutcome};

/// An id that is there in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PresentId {
    pub(crate) client: u64,
    pub(crate) sequence: u64,
    pub(crate) payload: i64,
}

/// Returns the payload of a transaction: it exposes a row that another program wrote.
pub(crate) fn payload(run: u64, client: u64, sequence: u64) -> i64 {
    // The finalizer of splitmix64.
    let mut mixed = run ^ client.rotate_left(40) ^ sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)).cast_signed()
}

/// The times and servers that split losses.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossSplit {
    /// When the fault began, in ns from the begin of the run.
    pub(crate) fault_ns: Option<u64>,
    /// From how many sides clients come in; 0: from one.
    pub(crate) sides: u64,
    /// For each server that answered: another primary has taken its place.
    pub(crate) deposed: Vec<bool>,
}

/// The sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sets {
    pub(crate) rows: u64,
    pub(crate) lost: LostTransactions,
    /// The losses of each side.
    pub(crate) lost_by_side: Vec<u64>,
    pub(crate) recovered: IdSet,
    pub(crate) ghosts: IdSet,
    pub(crate) phantoms: IdSet,
    pub(crate) duplicates: IdSet,
}

/// Compares clients' journals with ids, which come ordered by client and sequence.
///
/// `open` gives the transactions of a client in their order. Ids and transactions are looked at once
/// each, so that a million of them take no more memory than ten.
pub(crate) struct SetComparison<O, I> {
    run: u64,
    clients: u64,
    open: O,
    split: LossSplit,
    client: u64,
    attempts: Option<I>,
    /// The transaction that is compared, and how many rows have its id.
    current: Option<(Attempt, u64)>,
    sets: Sets,
}

impl<E, O, I> SetComparison<O, I>
where
    O: FnMut(u64) -> Result<I, E>,
    I: Iterator<Item = Attempt>,
{
    pub(crate) fn new(run: u64, clients: u64, split: LossSplit, open: O) -> Self {
        let lost_by_side = (0..split.sides).map(|_| 0).collect();
        let sets = Sets { lost_by_side, ..Sets::default() };
        Self { run, clients, open, split, client: 0, attempts: None, current: None, sets }
    }

    /// The next id that is there.
    pub(crate) fn present(&mut self, id: PresentId) -> Result<(), E> {
        self.sets.rows += 1;
        if id.client < self.clients {
            while self.client < id.client {
                self.finish_client()?;
            }
            self.advance_to(id.sequence)?;
        }
        let is_of_client = id.client == self.client;
        match &mut self.current {
            Some((attempt, rows))
                if is_of_client
                    && attempt.sequence == id.sequence
                    && id.payload == payload(self.run, id.client, id.sequence) =>
            {
                *rows += 1;
                if *rows == 2 {
                    let example = example(id.client, attempt);
                    add(&mut self.sets.duplicates, example);
                }
            }
            _ => {
                let PresentId { client, sequence, .. } = id;
                let example = TransactionExample { client, sequence, at_s: None, node: None };
                add(&mut self.sets.phantoms, example);
            }
        }
        Ok(())
    }

    /// There are no more ids.
    pub(crate) fn finish(mut self) -> Result<Sets, E> {
        while self.client < self.clients {
            self.finish_client()?;
        }
        Ok(self.sets)
    }

    /// Settles what comes before this transaction of the client.
    fn advance_to(&mut self, sequence: u64) -> Result<(), E> {
        self.begin_client()?;
        while self.current.is_some_and(|(attempt, _)| attempt.sequence < sequence) {
            self.next_attempt();
        }
        Ok(())
    }

    fn finish_client(&mut self) -> Result<(), E> {
        self.begin_client()?;
        while self.current.is_some() {
            self.next_attempt();
        }
        self.attempts = None;
        self.client += 1;
        Ok(())
    }

    fn begin_client(&mut self) -> Result<(), E> {
        if self.attempts.is_none() && self.client < self.clients {
            self.attempts = Some((self.open)(self.client)?);
            self.next_attempt();
        }
        Ok(())
    }

    fn next_attempt(&mut self) {
        if let Some((attempt, rows)) = self.current.take() {
            self.settle(&attempt, rows);
        }
        self.current = self.attempts.as_mut().and_then(Iterator::next).map(|next| (next, 0));
    }

    fn settle(&mut self, attempt: &Attempt, rows: u64) {
        let outcome = attempt.end.map_or(AttemptOutcome::Unknown, |end| end.outcome);
        let example = example(self.client, attempt);
        match (outcome.is_acknowledged(), rows > 0) {
            (true, false) => self.lose(attempt, example),
            (false, true) if outcome.is_failure() => add(&mut self.sets.ghosts, example),
            (false, true) => add(&mut self.sets.recovered, example),
            (true, true) | (false, false) => {}
        }
    }

    fn lose(&mut self, attempt: &Attempt, example: TransactionExample) {
        let Some(end) = attempt.end else { return };
        let side = self.client.checked_rem(self.split.sides).unwrap_or_default();
        if let Some(of_side) =
            usize::try_from(side).ok().and_then(|item| self.sets.lost_by_side.get_mut(item))
        {
            *of_side += 1;
        }
        let lost = &mut self.sets.lost;
        lost.count += 1;
        lost.unreplicated += u64::from(end.outcome == AttemptOutcome::Unreplicated);
        let deposed = |node: u16| self.split.deposed.get(usize::from(node)) == Some(&true);
        match self.split.fault_ns {
            Some(fault) if end.at_ns < fault => {
                lost.before_fault += 1;
                let before_s = seconds(fault - end.at_ns);
                let oldest = lost.oldest_before_s.unwrap_or_default().max(before_s);
                lost.oldest_before_s = Some(oldest);
            }
            _ if end.node.is_some_and(deposed) => lost.by_deposed += 1,
            _ => lost.by_survivor += 1,
        }
        if lost.examples.len() < EXAMPLES {
            lost.examples.push(example);
        }
    }
}

/// This many of each set are named.
const EXAMPLES: usize = 20;

fn add(set: &mut IdSet, example: TransactionExample) {
    set.count += 1;
    if set.examples.len() < EXAMPLES {
        set.examples.push(example);
    }
}

fn example(client: u64, attempt: &Attempt) -> TransactionExample {
    TransactionExample {
        client,
        sequence: attempt.sequence,
        at_s: attempt.end.map(|end| seconds(end.at_ns)),
        node: attempt.end.and_then(|end| end.node).map(u32::from),
    }
}

/// Seconds of nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^53 nanoseconds")]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::journal::AttemptEnd;
    use super::*;

    const RUN: u64 = 42;

    #[derive(Clone, Copy, Debug)]
    struct Planted {
        outcome: Option<AttemptOutcome>,
        rows: u64,
    }

    fn planted() -> impl Strategy<Value = Planted> {
        let outcome = prop_oneof![
            6 => Just(Some(AttemptOutcome::Acknowledged)),
            1 => Just(Some(AttemptOutcome::Unreplicated)),
            1 => Just(Some(AttemptOutcome::Failed)),
            1 => Just(Some(AttemptOutcome::Refused)),
            1 => Just(Some(AttemptOutcome::Unknown)),
            1 => Just(Some(AttemptOutcome::TimedOut)),
            1 => Just(None),
        ];
        (outcome, 0_u64..4).prop_map(|(outcome, rows)| Planted { outcome, rows })
    }

    fn attempt(sequence: u64, planted: Planted) -> Attempt {
        let end = planted.outcome.map(|outcome| AttemptEnd {
            at_ns: sequence * 1000,
            outcome,
            node: Some(u16::from(sequence.is_multiple_of(2))),
            code: [0; 5],
        });
        Attempt { sequence, due_ns: sequence * 1000, begun_ns: sequence * 1000, end }
    }

    fn compared(clients: &[Vec<Planted>], strangers: &[(u64, u64, i64)], split: LossSplit) -> Sets {
        let mut ids: Vec<PresentId> = strangers
            .iter()
            .map(|&(client, sequence, payload)| PresentId { client, sequence, payload })
            .collect();
        for (client, planted) in (0..).zip(clients) {
            for (sequence, item) in (0..).zip(planted) {
                let payload = payload(RUN, client, sequence);
                let id = PresentId { client, sequence, payload };
                ids.extend(std::iter::repeat_n(id, usize::try_from(item.rows).unwrap()));
            }
        }
        ids.sort_by_key(|id| (id.client, id.sequence));
        let open = |client: u64| {
            let planted = clients[usize::try_from(client).unwrap()].clone();
            Ok::<_, Infallible>((0..).zip(planted).map(|(sequence, item)| attempt(sequence, item)))
        };
        let mut comparison = SetComparison::new(RUN, clients.len() as u64, split, open);
        for id in ids {
            comparison.present(id).unwrap();
        }
        comparison.finish().unwrap()
    }

    proptest! {
        #[test]
        fn every_planted_fault_is_found_and_none_is_invented(
            clients in prop::collection::vec(prop::collection::vec(planted(), 0..30), 1..5),
            strangers in prop::collection::vec((0_u64..8, 0_u64..40, any::<i64>()), 0..5),
        ) {
            let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
            for client in clients.iter().flatten() {
                let kind = match (client.outcome, client.rows) {
                    (Some(AttemptOutcome::Acknowledged | AttemptOutcome::Unreplicated), 0) => "lost",
                    (Some(AttemptOutcome::Acknowledged | AttemptOutcome::Unreplicated), _) | (_, 0) => "",
                    (Some(AttemptOutcome::Failed | AttemptOutcome::Refused), _) => "ghosts",
                    _ => "recovered",
                };
                *expected.entry(kind).or_default() += 1;
                *expected.entry("duplicates").or_default() += u64::from(client.rows > 1);
            }
            let expected = |kind| expected.get(kind).copied().unwrap_or_default();
            let sets = compared(&clients, &strangers, LossSplit::default());
            prop_assert_eq!(sets.lost.count, expected("lost"));
            prop_assert_eq!(sets.recovered.count, expected("recovered"));
            prop_assert_eq!(sets.ghosts.count, expected("ghosts"));
            prop_assert_eq!(sets.duplicates.count, expected("duplicates"));
            // A random payload is no transaction's, but for one in 2^64.
            prop_assert_eq!(sets.phantoms.count, strangers.len() as u64);
            let rows: u64 = clients.iter().flatten().map(|client| client.rows).sum();
            prop_assert_eq!(sets.rows, rows + strangers.len() as u64);
        }

        #[test]
        fn losses_are_split_by_time_and_node(
            planted in prop::collection::vec(planted(), 0..40), fault in 0_u64..40_000,
        ) {
            let split = LossSplit { fault_ns: Some(fault), sides: 0, deposed: vec![true, false] };
            let lost = compared(std::slice::from_ref(&planted), &[], split).lost;
            let pick = |is_in: &dyn Fn(u64) -> bool| {
                (0..).zip(&planted).filter(|(sequence, item)| {
                    item.rows == 0 && item.outcome.is_some_and(AttemptOutcome::is_acknowledged)
                        && is_in(*sequence)
                }).count() as u64
            };
            prop_assert_eq!(lost.before_fault, pick(&|sequence| sequence * 1000 < fault));
            prop_assert_eq!(lost.by_deposed, pick(&|sequence| sequence * 1000 >= fault && sequence % 2 == 1));
            prop_assert_eq!(lost.by_survivor, pick(&|sequence| sequence * 1000 >= fault && sequence % 2 == 0));
            prop_assert_eq!(lost.count, lost.before_fault + lost.by_deposed + lost.by_survivor);
        }
    }

    #[test]
    fn each_side_has_its_own_losses() {
        let lost = Planted { outcome: Some(AttemptOutcome::Acknowledged), rows: 0 };
        let kept = Planted { rows: 1, ..lost };
        let clients = [vec![lost, lost], vec![kept], vec![lost]];
        let pick = |sides| compared(&clients, &[], LossSplit { sides, ..LossSplit::default() });
        assert_eq!((pick(2).lost_by_side, pick(2).lost.count), (vec![3, 0], 3));
        assert_eq!(pick(0).lost_by_side, Vec::<u64>::new());
    }

    #[test]
    fn another_payload_is_not_the_transaction() {
        let planted = vec![Planted { outcome: Some(AttemptOutcome::Acknowledged), rows: 0 }];
        let forged = payload(RUN, 0, 0) ^ 1;
        let sets = compared(&[planted], &[(0, 0, forged)], LossSplit::default());
        assert_eq!((sets.lost.count, sets.phantoms.count), (1, 1));
        let example = &sets.lost.examples[0];
        assert_eq!((example.client, example.sequence, example.node), (0, 0, Some(1)));
    }
}
