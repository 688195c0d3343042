//! Clients' observations over time, from their journals: one pass over all of them in the order of
//! the answers, in memory that depends on clients and bins only.
//! answers, in memory that depends on clients and bins only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use pgtoll_record::{
    AcknowledgementGap, JudgedClient, JudgedNode, JudgedSide, Latencies, NodeIdentity, SeenError,
    TransactionCounts,
};

use super::journal::{Attempt, AttemptEnd, AttemptOutcome};
use super::node::is_deposed;
use super::outcome::code_name;
use super::schedule::DueSchedule;
use super::verdict::seconds;

/// The facts of a run beside the journals. Times are ns from its start.
#[derive(Clone, Debug)]
pub(crate) struct RunFrame {
    pub(crate) clients: u32,
    pub(crate) rate_per_second: f64,
    pub(crate) bursts: bool,
    pub(crate) wait_limit_ns: u64,
    /// Names of the sides from which clients come in, in turn.
    pub(crate) sides: Vec<String>,
    /// When the fault began.
    pub(crate) fault_ns: Option<u64>,
    /// When nothing fell due any more; `None` where the run ended before.
    pub(crate) heal_from_ns: Option<u64>,
    pub(crate) ended_ns: u64,
    /// The servers that answered, by number.
    pub(crate) nodes: Vec<NodeIdentity>,
    /// The primary in the end.
    pub(crate) last_node: Option<NodeIdentity>,
    /// The words of an error of each kind.
    pub(crate) error_words: BTreeMap<String, String>,
}

/// The observations of clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) transactions: TransactionCounts,
    pub(crate) outage: Option<AcknowledgementGap>,
    pub(crate) sides: Vec<JudgedSide>,
    pub(crate) clients: Vec<JudgedClient>,
    pub(crate) bin_s: f64,
    pub(crate) errors: Vec<SeenError>,
    pub(crate) nodes: Vec<JudgedNode>,
}

/// Bins of a client's line at most; fewer where transactions are far apart, but not fewer than these.
const BINS: u64 = 240;
const BINS_MIN: u64 = 24;
/// Kinds of errors that are listed.
const ERRORS_MAX: usize = 20;

/// Looks at all transactions, given as each client's in their order.
pub(crate) fn observe<I: Iterator<Item = Attempt>>(
    frame: &RunFrame,
    attempts: Vec<I>,
) -> Observations {
    let mut observer = Observer::new(frame);
    let mut sources: Vec<I> = attempts;
    let mut next: BinaryHeap<Reverse<(u64, usize, AttemptKey)>> = BinaryHeap::new();
    let push = |next: &mut BinaryHeap<_>, sources: &mut Vec<I>, client: usize| {
        if let Some(attempt) = sources[client].next() {
            let at_ns = attempt.end.map_or(u64::MAX, |end| end.at_ns);
            next.push(Reverse((at_ns, client, AttemptKey(attempt))));
        }
    };
    for client in 0..sources.len() {
        push(&mut next, &mut sources, client);
    }
    while let Some(Reverse((_, client, AttemptKey(attempt)))) = next.pop() {
        observer.take(client, &attempt);
        push(&mut next, &mut sources, client);
    }
    observer.finish()
}

/// Two of them are never compared: time and client differ.
#[derive(Clone, Copy, Debug)]
struct AttemptKey(Attempt);

impl PartialEq for AttemptKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.sequence == other.0.sequence
    }
}

impl Eq for AttemptKey {}

impl PartialOrd for AttemptKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AttemptKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}

struct Observer<'a> {
    frame: &'a RunFrame,
    counts: TransactionCounts,
    latencies: Latencies,
    gaps: GapSearch,
    sides: Vec<SideObserver>,
    clients: Vec<ClientObserver>,
    errors: BTreeMap<String, u64>,
    nodes: Vec<JudgedNode>,
    /// The latest timeline that acknowledged so far.
    latest_timeline: Option<u32>,
    bin_ns: u64,
}

impl<'a> Observer<'a> {
    fn new(frame: &'a RunFrame) -> Self {
        // Wide enough for two transactions of a client, so that one that is served has no gaps.
        let schedule =
            DueSchedule::of_client(0, frame.clients, frame.rate_per_second, frame.bursts);
        let for_two_ns = schedule.least_distance_ns().saturating_mul(4);
        let bin_ns = (frame.ended_ns / BINS + 1).max(for_two_ns.min(frame.ended_ns / BINS_MIN));
        let clients = (0..frame.clients).map(|client| ClientObserver::new(frame, client));
        let last = frame.last_node.as_ref();
        let latest = frame.nodes.iter().chain(last).filter_map(|node| node.timeline).max();
        let node = |identity: &NodeIdentity| JudgedNode {
            identity: identity.clone(),
            deposed: is_deposed(identity, last, latest),
            ..JudgedNode::default()
        };
        Self {
            frame,
            counts: TransactionCounts::default(),
            latencies: Latencies::new(),
            gaps: GapSearch::default(),
            sides: frame.sides.iter().map(|name| SideObserver::new(name)).collect(),
            clients: clients.collect(),
            errors: BTreeMap::new(),
            nodes: frame.nodes.iter().map(node).collect(),
            latest_timeline: None,
            bin_ns,
        }
    }

    fn take(&mut self, client: usize, attempt: &Attempt) {
        let Some(item) = self.clients.get_mut(client) else { return };
        let limit_ns = self.frame.wait_limit_ns;
        let end_ns = attempt.end.map_or(self.frame.ended_ns, |end| end.at_ns);
        let latency_ns = end_ns.saturating_sub(attempt.due_ns);
        let waited = latency_ns > limit_ns;
        let acknowledged = attempt.end.is_some_and(|end| end.outcome.is_acknowledged());
        let counts = &mut self.counts;
        counts.begun += 1;
        counts.late += u64::from(attempt.begun_ns.saturating_sub(attempt.due_ns) > limit_ns);
        counts.waited += u64::from(waited && acknowledged);
        counts.unaffected += u64::from(!waited && acknowledged);
        item.take(attempt, waited, end_ns, self.bin_ns, self.frame.heal_from_ns);
        let Some(end) = attempt.end else {
            counts.unknown += 1;
            counts.hung += 1;
            return;
        };
        count_outcome(counts, end.outcome);
        if !end.outcome.is_acknowledged() {
            *self.errors.entry(code_name(end.code)).or_default() += 1;
            return;
        }
        self.latencies.record(Duration::from_nanos(latency_ns));
        self.gaps.acknowledged(end.at_ns);
        let side = client.checked_rem(self.sides.len()).and_then(|side| self.sides.get_mut(side));
        if let Some(side) = side {
            side.acknowledged(end.at_ns, self.frame.fault_ns);
        }
        self.acknowledged_by(&end);
    }

    fn acknowledged_by(&mut self, end: &AttemptEnd) {
        let Some(node) = end.node.and_then(|node| self.nodes.get_mut(usize::from(node))) else {
            return;
        };
        node.acknowledged += 1;
        node.first_s = node.first_s.or(Some(seconds(end.at_ns)));
        node.last_s = Some(seconds(end.at_ns));
        let timeline = node.identity.timeline;
        node.after_successor += u64::from(timeline < self.latest_timeline && timeline.is_some());
        self.latest_timeline = self.latest_timeline.max(timeline);
    }

    fn finish(mut self) -> Observations {
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
        self.counts.p50_ms = milliseconds(self.latencies.quantile(0.5));
        self.counts.p99_ms = milliseconds(self.latencies.quantile(0.99));
        self.counts.max_ms = milliseconds(self.latencies.max());
        let mut due = 0;
        let mut healed = false;
        let mut clients = Vec::new();
        for (client, item) in self.clients.into_iter().enumerate() {
            let side =
                client.checked_rem(self.sides.len()).and_then(|side| self.sides.get_mut(side));
            if let Some(side) = side {
                side.judged.clients += 1;
                side.has_healed |= item.judged.healed_s.is_some();
            }
            due += item.due(self.frame);
            healed |= item.judged.healed_s.is_some();
            clients.push(item.finish(self.frame, self.bin_ns));
        }
        self.counts.due = due.max(self.counts.begun);
        self.counts.unsent = self.counts.due - self.counts.begun;
        let mut errors: Vec<SeenError> = self
            .errors
            .into_iter()
            .map(|(code, count)| {
                let message = self.frame.error_words.get(&code).cloned().unwrap_or_default();
                SeenError { code, message, count }
            })
            .collect();
        errors.sort_by_key(|error| Reverse(error.count));
        errors.truncate(ERRORS_MAX);
        Observations {
            transactions: self.counts,
            outage: self.gaps.longest(tail(self.frame, healed)),
            sides: self.sides.into_iter().map(|side| side.finish(self.frame)).collect(),
            clients,
            bin_s: seconds(self.bin_ns),
            errors,
            nodes: self.nodes,
        }
    }
}

/// Until when the end without an acknowledgement counts: not where service came back.
fn tail(frame: &RunFrame, healed: bool) -> Option<u64> {
    (!healed && frame.heal_from_ns.is_some()).then_some(frame.ended_ns)
}

fn count_outcome(counts: &mut TransactionCounts, outcome: AttemptOutcome) {
    let counters: &mut [&mut u64] = match outcome {
        AttemptOutcome::Acknowledged => &mut [&mut counts.acknowledged],
        AttemptOutcome::Unreplicated => &mut [&mut counts.acknowledged, &mut counts.unreplicated],
        AttemptOutcome::Failed => &mut [&mut counts.failed],
        AttemptOutcome::Refused => &mut [&mut counts.failed, &mut counts.refused],
        AttemptOutcome::Unknown => &mut [&mut counts.unknown],
        AttemptOutcome::TimedOut => &mut [&mut counts.unknown, &mut counts.timed_out],
    };
    for counter in counters {
        **counter += 1;
    }
}

/// The longest time between acknowledgements, from the begin of the run on.
#[derive(Clone, Copy, Debug, Default)]
struct GapSearch {
    last_ns: u64,
    longest: (u64, u64),
}

impl GapSearch {
    fn acknowledged(&mut self, at_ns: u64) {
        let length_ns = at_ns.saturating_sub(self.last_ns);
        if length_ns > self.longest.1 {
            self.longest = (self.last_ns, length_ns);
        }
        self.last_ns = self.last_ns.max(at_ns);
    }

    /// `tail_ns`: the time after the last acknowledgement counts until then.
    fn longest(self, tail_ns: Option<u64>) -> Option<AcknowledgementGap> {
        let (mut began_ns, mut length_ns) = self.longest;
        let rest_ns = tail_ns.map_or(0, |tail| tail.saturating_sub(self.last_ns));
        let open = rest_ns > length_ns;
        if open {
            (began_ns, length_ns) = (self.last_ns, rest_ns);
        }
        let gap =
            AcknowledgementGap { began_s: seconds(began_ns), seconds: seconds(length_ns), open };
        (length_ns > 0).then_some(gap)
    }
}

struct SideObserver {
    judged: JudgedSide,
    gaps: GapSearch,
    has_healed: bool,
}

impl SideObserver {
    fn new(name: &str) -> Self {
        let judged = JudgedSide { name: name.to_owned(), ..JudgedSide::default() };
        Self { judged, gaps: GapSearch::default(), has_healed: false }
    }

    fn acknowledged(&mut self, at_ns: u64, fault_ns: Option<u64>) {
        self.judged.acknowledged += 1;
        self.judged.acknowledged_since_fault +=
            u64::from(fault_ns.is_some_and(|fault_ns| at_ns >= fault_ns));
        self.gaps.acknowledged(at_ns);
    }

    fn finish(mut self, frame: &RunFrame) -> JudgedSide {
        self.judged.outage = self.gaps.longest(tail(frame, self.has_healed));
        self.judged
    }
}

struct ClientObserver {
    schedule: DueSchedule,
    judged: JudgedClient,
    gaps: GapSearch,
    line: Vec<u8>,
    /// Bins before this one are marked as waiting where they are to be.
    waiting_until: usize,
    begun_before_heal: u64,
    begun_in_heal: u64,
}

impl ClientObserver {
    fn new(frame: &RunFrame, client: u32) -> Self {
        Self {
            schedule: DueSchedule::of_client(
                client,
                frame.clients,
                frame.rate_per_second,
                frame.bursts,
            ),
            judged: JudgedClient::default(),
            gaps: GapSearch::default(),
            line: Vec::new(),
            waiting_until: 0,
            begun_before_heal: 0,
            begun_in_heal: 0,
        }
    }

    fn take(
        &mut self,
        attempt: &Attempt,
        waited: bool,
        end_ns: u64,
        bin_ns: u64,
        heal_from_ns: Option<u64>,
    ) {
        let judged = &mut self.judged;
        judged.begun += 1;
        if heal_from_ns.is_some_and(|heal| attempt.due_ns >= heal) {
            self.begun_in_heal += 1;
        } else {
            self.begun_before_heal += 1;
        }
        let outcome = attempt.end.map(|end| end.outcome);
        let acknowledged = outcome.is_some_and(AttemptOutcome::is_acknowledged);
        if acknowledged {
            judged.acknowledged += 1;
            judged.waited += u64::from(waited);
            self.gaps.acknowledged(end_ns);
            let healed = heal_from_ns.filter(|heal| attempt.begun_ns >= *heal);
            if let (Some(heal_ns), None) = (healed, judged.healed_s) {
                judged.healed_s = Some(seconds(end_ns.saturating_sub(heal_ns)));
            }
        } else if outcome.is_some_and(AttemptOutcome::is_failure) {
            judged.failed += 1;
        } else {
            judged.unknown += 1;
            judged.hung |= outcome.is_none();
        }
        if waited {
            let from = bin(attempt.due_ns, bin_ns).max(self.waiting_until);
            let to = bin(end_ns, bin_ns);
            for at in from..=to {
                self.mark(at, b'w');
            }
            self.waiting_until = self.waiting_until.max(to + 1);
        }
        let letter = match outcome {
            None => b'w',
            Some(outcome) if outcome.is_acknowledged() => b's',
            Some(_) => b'e',
        };
        self.mark(bin(end_ns, bin_ns), letter);
    }

    /// A bin shows the worst that was in it.
    fn mark(&mut self, at: usize, letter: u8) {
        const ORDER: [u8; 4] = [b'.', b's', b'w', b'e'];
        let rank = |byte: u8| ORDER.iter().position(|letter| *letter == byte);
        if self.line.len() <= at {
            self.line.resize(at + 1, b'.');
        }
        if rank(letter) > rank(self.line[at]) {
            self.line[at] = letter;
        }
    }

    /// Transactions that fell due: those before healing, and those that were begun in it.
    fn due(&self, frame: &RunFrame) -> u64 {
        let until_ns = frame.heal_from_ns.unwrap_or(frame.ended_ns);
        self.schedule.due_before(until_ns).max(self.begun_before_heal) + self.begun_in_heal
    }

    fn finish(mut self, frame: &RunFrame, bin_ns: u64) -> JudgedClient {
        let ended = tail(frame, self.judged.healed_s.is_some());
        self.judged.outage =
            self.gaps.longest(ended.or(self.judged.hung.then_some(frame.ended_ns)));
        if ended.is_some() {
            self.mark(bin(frame.ended_ns, bin_ns), b'.');
        }
        self.judged.line = String::from_utf8_lossy(&self.line).into_owned();
        self.judged
    }
}

fn bin(at_ns: u64, bin_ns: u64) -> usize {
    // A journal that is wrong may name any time.
    usize::try_from((at_ns / bin_ns.max(1)).min(2 * BINS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn frame() -> RunFrame {
        RunFrame {
            clients: 2,
            rate_per_second: 2.0,
            bursts: false,
            wait_limit_ns: SECOND / 4,
            sides: Vec::new(),
            fault_ns: None,
            heal_from_ns: Some(10 * SECOND),
            ended_ns: 12 * SECOND,
            nodes: vec![
                NodeIdentity { timeline: Some(1), ..NodeIdentity::default() },
                NodeIdentity { timeline: Some(2), ..NodeIdentity::default() },
            ],
            last_node: Some(NodeIdentity { timeline: Some(2), ..NodeIdentity::default() }),
            error_words: BTreeMap::new(),
        }
    }

    /// When it fell due, and when it ended with which outcome by which server; in tenths of a second.
    type Planned = (u64, Option<(u64, AttemptOutcome, u16)>);

    fn attempts(planneds: &[Planned]) -> std::vec::IntoIter<Attempt> {
        let tenth = SECOND / 10;
        let attempt = |(sequence, &(due, end)): (u64, &Planned)| {
            let end = end.map(|(at, outcome, node)| AttemptEnd {
                at_ns: at * tenth,
                outcome,
                node: Some(node),
                code: *b"57P01",
            });
            Attempt { sequence, due_ns: due * tenth, begun_ns: due * tenth, end }
        };
        (0..).zip(planneds).map(attempt).collect::<Vec<_>>().into_iter()
    }

    use AttemptOutcome::{Acknowledged, Failed, Unknown};

    #[test]
    fn outages_waits_errors_and_healing_are_counted() {
        let first = attempts(&[
            (0, Some((1, Acknowledged, 0))),
            (10, Some((60, Acknowledged, 1))),
            (100, Some((101, Acknowledged, 1))),
        ]);
        let second =
            attempts(&[(5, Some((6, Acknowledged, 0))), (15, Some((15, Failed, 0))), (25, None)]);
        let observe = observe(&frame(), vec![first, second]);
        let counts = &observe.transactions;
        assert_eq!((counts.begun, counts.acknowledged, counts.waited), (6, 4, 1));
        assert_eq!((counts.failed, counts.unknown, counts.hung), (1, 1, 1));
        // Ten a client were due in ten seconds, one in healing.
        assert_eq!((counts.due, counts.unsent), (21, 15));
        let outage = observe.outage.as_ref().unwrap();
        assert_eq!((outage.began_s, outage.seconds, outage.open), (0.6, 5.4, false));
        let [one, two] = &observe.clients[..] else { panic!("{observe:?}") };
        assert_eq!((one.healed_s, one.hung), (Some(0.1), false));
        assert_eq!(one.outage.as_ref().map(|gap| (gap.began_s, gap.seconds)), Some((0.1, 5.9)));
        assert_eq!((two.healed_s, two.hung), (None, true));
        let outage = two.outage.as_ref().unwrap();
        assert_eq!((outage.began_s, outage.seconds, outage.open), (0.6, 11.4, true));
        // Half a second a bin, as there are so few transactions.
        assert_eq!((observe.bin_s, one.line.as_str()), (0.5, "s.wwwwwwwwwww.......s"));
        assert_eq!(two.line, format!(".s.e.{}", "w".repeat(20)));
        assert_eq!((observe.errors[0].code.as_str(), observe.errors[0].count), ("57P01", 1));
    }

    #[test]
    fn acknowledgements_after_the_successors_are_a_split_brain() {
        let first = attempts(&[(0, Some((1, Acknowledged, 0))), (30, Some((31, Acknowledged, 0)))]);
        let second = attempts(&[(5, Some((6, Unknown, 0))), (20, Some((21, Acknowledged, 1)))]);
        let observe = observe(&frame(), vec![first, second]);
        let [old, new] = &observe.nodes[..] else { panic!("{observe:?}") };
        assert_eq!((old.acknowledged, old.after_successor, old.deposed), (2, 1, true));
        assert_eq!((new.acknowledged, new.after_successor, new.deposed), (1, 0, false));
        assert_eq!((old.first_s, old.last_s), (Some(0.1), Some(3.1)));
    }

    #[test]
    fn clients_of_each_side_have_an_outage_of_their_own() {
        let one = attempts(&[
            (0, Some((1, Acknowledged, 0))),
            (30, Some((31, Acknowledged, 0))),
            (100, Some((101, Acknowledged, 0))),
        ]);
        let other = attempts(&[(5, Some((6, Acknowledged, 0))), (90, Some((91, Failed, 0)))]);
        let sides = ["here", "there"].map(str::to_owned).to_vec();
        let observe =
            observe(&RunFrame { sides, fault_ns: Some(3 * SECOND), ..frame() }, vec![one, other]);
        let [here, there] = &observe.sides[..] else { panic!("{observe:?}") };
        assert_eq!((&*here.name, here.clients, here.acknowledged), ("here", 1, 3));
        assert_eq!((here.acknowledged_since_fault, there.acknowledged_since_fault), (2, 0));
        let gap = |side: &JudgedSide| side.outage.as_ref().map(|gap| (gap.began_s, gap.open));
        // Only the one was served again.
        assert_eq!((gap(here), gap(there)), (Some((3.1, false)), Some((0.6, true))));
    }
}
