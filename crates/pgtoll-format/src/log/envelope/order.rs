//! Events in the order of their times, as far as a window of them reaches.

use std::collections::{HashSet, VecDeque};

use super::{EnvelopeCounts, Stream};

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
    /// The process, and the last piece of its message.
    piece: Option<(Stream, Piece)>,
    /// A piece is missing.
    is_damaged: bool,
    text: Vec<u8>,
}

/// The number of a message's piece, from 1, and its bytes.
pub(super) type Piece = (u64, usize);

/// Pieces of a message follow each other: other events between them are not more.
const PIECES_BETWEEN_MAX: usize = 2000;

impl OrderWindow {
    pub(super) fn push(
        &mut self,
        time_ns: i64,
        id: Option<&str>,
        piece: Option<(Stream, Piece)>,
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
        let (id, text) = (id.map(str::to_owned), text.to_vec());
        let event = WaitingEvent { time_ns, id, piece, is_damaged: false, text };
        self.waiting.insert(at, event);
        self.last = at;
        while self.waiting.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            self.hand_over(counts, log);
        }
    }

    /// The last piece of a process's last message, while it waits.
    pub(super) fn last_piece(&mut self, stream: &Stream) -> Option<Piece> {
        self.last_of(stream)?.piece.as_ref().map(|(_, piece)| *piece)
    }

    /// Adds a piece to the last message of its process, if it waits. If another piece than the `next` one
    /// was to come, the message is damaged.
    pub(super) fn append(
        &mut self,
        stream: &Stream,
        next: Option<u64>,
        piece: Piece,
        text: &[u8],
    ) -> bool {
        let Some(event) = self.last_of(stream) else { return false };
        if let Some((_, last)) = &mut event.piece {
            event.is_damaged |= next.is_some_and(|next| next != last.0 + 1);
            *last = piece;
        }
        event.text.extend_from_slice(text);
        self.bytes += text.len();
        true
    }

    fn last_of(&mut self, stream: &Stream) -> Option<&mut WaitingEvent> {
        let is_of = |event: &&mut WaitingEvent| {
            event.piece.as_ref().is_some_and(|(of_event, _)| of_event == stream)
        };
        self.waiting.iter_mut().rev().take(PIECES_BETWEEN_MAX).find(is_of)
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

    fn hand_over(&mut self, counts: &mut EnvelopeCounts, log: &mut Vec<u8>) {
        let Some(event) = self.waiting.pop_front() else { return };
        self.last = self.last.saturating_sub(1);
        self.bytes -= event.text.len();
        if let Some(id) = event.id {
            self.ids.remove(&id);
        }
        self.handed_ns = self.handed_ns.max(Some(event.time_ns));
        if event.is_damaged {
            counts.events -= 1;
            counts.damaged += 1;
            return;
        }
        log.extend_from_slice(&event.text);
        if !event.text.ends_with(b"\n") {
            log.push(b'\n');
        }
    }

    /// Hands over all.
    pub(super) fn drain(&mut self, counts: &mut EnvelopeCounts, log: &mut Vec<u8>) {
        while !self.waiting.is_empty() {
            self.hand_over(counts, log);
        }
    }
}
