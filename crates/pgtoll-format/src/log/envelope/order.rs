//! Events in the order of their times, as far as a window of them reaches.

use std::collections::{HashSet, VecDeque};

use super::EnvelopeCounts;

/// Limits of the events that wait for earlier ones.
const EVENTS_MAX: usize = 20_000;
const BYTES_MAX: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct OrderWindow {
    waiting: VecDeque<WaitingEvent>,
    bytes: usize,
    ids: HashSet<String>,
    /// The time of the last event that was handed over.
    handed_ns: Option<i64>,
    /// Events come backwards: so do those of the same time.
    is_descending: bool,
    /// The place of the last event.
    last: usize,
}

#[derive(Debug)]
struct WaitingEvent {
    time_ns: i64,
    id: Option<String>,
    text: Vec<u8>,
}

impl OrderWindow {
    pub(super) fn push(
        &mut self,
        time_ns: i64,
        id: Option<&str>,
        text: &[u8],
        counts: &mut EnvelopeCounts,
        log: &mut Vec<u8>,
    ) {
        if id.is_some_and(|id| !self.ids.insert(id.to_owned())) {
            counts.duplicates += 1;
            return;
        }
        counts.events += 1;
        counts.late += u64::from(self.handed_ns.is_some_and(|handed| time_ns < handed));
        let at = self.place(time_ns);
        counts.reordered += u64::from(at < self.waiting.len());
        self.bytes += text.len();
        let event = WaitingEvent { time_ns, id: id.map(str::to_owned), text: text.to_vec() };
        self.waiting.insert(at, event);
        self.last = at;
        while self.waiting.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            self.hand_over(log);
        }
    }

    /// The place of an event of this time: behind those of the same time, or before them where events come
    /// backwards.
    fn place(&mut self, time_ns: i64) -> usize {
        let Some(newest) = self.waiting.back() else { return 0 };
        if time_ns > newest.time_ns || (time_ns == newest.time_ns && !self.is_descending) {
            self.is_descending = false;
            return self.waiting.len();
        }
        let before = self.waiting.get(self.last).map_or(i64::MAX, |last| last.time_ns);
        if time_ns != before {
            self.is_descending = time_ns < before;
        }
        if self.is_descending && self.handed_ns.is_none() && self.are_of_one_time() {
            self.waiting.make_contiguous().reverse();
        }
        if self.is_descending {
            self.waiting.partition_point(|event| event.time_ns < time_ns)
        } else {
            self.waiting.partition_point(|event| event.time_ns <= time_ns)
        }
    }

    /// All events so far were of one time: only now it shows that they come backwards.
    fn are_of_one_time(&self) -> bool {
        let times = |event: Option<&WaitingEvent>| event.map(|event| event.time_ns);
        times(self.waiting.front()) == times(self.waiting.back())
    }

    fn hand_over(&mut self, log: &mut Vec<u8>) {
        let Some(event) = self.waiting.pop_front() else { return };
        self.last = self.last.saturating_sub(1);
        self.bytes -= event.text.len();
        if let Some(id) = event.id {
            self.ids.remove(&id);
        }
        self.handed_ns = self.handed_ns.max(Some(event.time_ns));
        log.extend_from_slice(&event.text);
        if !event.text.ends_with(b"\n") {
            log.push(b'\n');
        }
    }

    /// Hands over all.
    pub(super) fn drain(&mut self, log: &mut Vec<u8>) {
        while !self.waiting.is_empty() {
            self.hand_over(log);
        }
    }
}
