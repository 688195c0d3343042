//! A client's connection: passed on to the server, and followed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use pgtoll_wire::{Interruption, RelayEnd, RelayTraffic, await_traffic};

use super::CaptureContext;
use super::observer::{Mark, ObservedCounts, SessionObserver};
use super::startup::{
    AuthenticationStep, FirstPacket, SessionStart, TERMINATE, authentication_step, fatal,
    first_packet, may_enter_unasked,
};
use super::writer::CaptureEvent;
use crate::fields::Malformed;
use crate::values::ParameterValue;
use crate::workload::{CapturedStep, StatementRequest};

/// Serves a client to the end of its connection.
pub(crate) fn serve(
    context: &CaptureContext<'_>,
    id: u64,
    client: RelayEnd,
    writer: &Sender<CaptureEvent>,
) {
    let mut session = ClientSession {
        context,
        writer,
        id,
        client,
        buffer: vec![0; BUFFER_BYTES],
        is_draining: false,
        capture: None,
        end: None,
    };
    let Some((packet, bytes)) = session.await_first_packet() else { return };
    let begin = context.mark();
    let Ok(mut server) = context.dsn.connect_relayed() else {
        context.wire().unreached += 1;
        let text = "pgtoll, which captures this work, does not reach the server";
        session.client.send(&fatal("08001", text));
        return;
    };
    server.send(&bytes);
    match packet {
        FirstPacket::Session(start) if !start.is_replication => {
            if session.authenticate(&mut server, &bytes, start, begin).is_none() {
                return;
            }
        }
        FirstPacket::Cancel => context.wire().cancel_requests += 1,
        _ => context.wire().sessions_not_captured += 1,
    }
    session.relay(&mut server);
    session.end_capture();
}

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// An end that has more unsent bytes is not given more.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// As the server's `authentication_timeout`.
const FIRST_PACKET_TIME: Duration = Duration::from_secs(60);

struct ClientSession<'a> {
    context: &'a CaptureContext<'a>,
    writer: &'a Sender<CaptureEvent>,
    id: u64,
    client: RelayEnd,
    buffer: Vec<u8>,
    /// The capture is to end: the session ends as soon as the server has answered.
    is_draining: bool,
    capture: Option<SessionCapture>,
    /// When the client said that it goes.
    end: Option<Mark>,
}

/// The captured part of a session.
struct SessionCapture {
    observer: SessionObserver,
    steps: Vec<CapturedStep>,
    bytes: usize,
    counts: ObservedCounts,
    told: Instant,
}

impl ClientSession<'_> {
    fn interruption(&self) -> &Interruption {
        if self.is_draining { &self.context.stop_now } else { &self.context.stop }
    }

    /// The first packet that is one of a session, with all bytes that came with it. `None` when the client
    /// goes, or says something else, or the capture ends.
    fn await_first_packet(&mut self) -> Option<(FirstPacket, Vec<u8>)> {
        let until = Instant::now() + FIRST_PACKET_TIME;
        let mut bytes = Vec::new();
        loop {
            match first_packet(&bytes).ok()? {
                Some((FirstPacket::Encryption, length)) => {
                    bytes.drain(..length);
                    self.client.send(b"N");
                    continue;
                }
                Some((packet, _)) => return Some((packet, bytes)),
                None => {}
            }
            let left = until.checked_duration_since(Instant::now())?;
            let stop = self.interruption().clone();
            let reads = [true, false];
            let traffic = await_traffic(&mut self.client, None, reads, &stop, Some(left)).ok()?;
            if traffic.is_interrupted {
                return None;
            }
            match self.client.receive(&mut self.buffer) {
                Some(0) => return None,
                Some(length) => bytes.extend_from_slice(&self.buffer[..length]),
                None => {}
            }
        }
    }

    /// Passes on what leads to a session; `None` when there is none. What a client proves itself with is
    /// passed on and not looked at.
    fn authenticate(
        &mut self,
        server: &mut RelayEnd,
        first: &[u8],
        start: SessionStart,
        begin: Mark,
    ) -> Option<()> {
        let mut observer = SessionObserver::new(self.context.copy_data_max);
        let length = first.first_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length));
        let packet_end = usize::try_from(length).unwrap_or(usize::MAX).min(first.len());
        observer.sent(&first[packet_end..], begin).ok()?;
        let mut replies = Vec::new();
        let mut was_asked = false;
        loop {
            let traffic = self.await_both(server)?;
            if traffic.first_readable
                && let Some(length) = self.client.receive(&mut self.buffer)
            {
                if length == 0 {
                    return None;
                }
                let mark = self.context.mark();
                let bytes = &self.buffer[..length];
                server.send(bytes);
                // A query may come before the server is ready. Passwords are not kept.
                observer.sent(bytes, mark).ok()?;
            }
            if traffic.second_readable
                && let Some(length) = server.receive(&mut self.buffer)
            {
                if length == 0 {
                    return None;
                }
                replies.extend_from_slice(&self.buffer[..length]);
                if self.pass_replies(server, &mut replies, &mut was_asked)? {
                    break;
                }
            }
            if traffic.is_interrupted {
                return None;
            }
        }
        let event = CaptureEvent::Begun { id: self.id, start, mark: begin };
        self.context.state.tell(self.writer, event);
        self.capture = Some(SessionCapture {
            observer,
            steps: Vec::new(),
            bytes: 0,
            counts: ObservedCounts::default(),
            told: Instant::now(),
        });
        let mark = self.context.mark();
        self.client.send(&replies);
        self.observe(|observer| observer.received(&replies, mark));
        Some(())
    }

    /// Passes whole messages on, and leaves the rest; whether the server is ready.
    fn pass_replies(
        &mut self,
        server: &RelayEnd,
        replies: &mut Vec<u8>,
        was_asked: &mut bool,
    ) -> Option<bool> {
        while let Some((&tag, rest)) = replies.split_first() {
            let Some(length) = rest.first_chunk::<4>() else { break };
            let length = u32::from_be_bytes(*length) as usize;
            if !(4..=AUTHENTICATION_BYTES_MAX).contains(&length) {
                return None;
            }
            let Some(message) = replies.get(..length + 1) else { break };
            if tag == b'R' {
                match authentication_step(&message[5..]).ok()? {
                    AuthenticationStep::Ok if !*was_asked && !self.may_enter(server) => {
                        self.context.wire().refused += 1;
                        self.client.send(&fatal("28000", REFUSAL));
                        return None;
                    }
                    AuthenticationStep::Rewritten(message) => {
                        *was_asked = true;
                        self.client.send(&message);
                    }
                    step => {
                        *was_asked |= step == AuthenticationStep::Proof;
                        self.client.send(message);
                    }
                }
            } else {
                self.client.send(message);
            }
            replies.drain(..=length);
            if tag == b'Z' {
                return Some(true);
            }
        }
        Some(false)
    }

    fn may_enter(&self, server: &RelayEnd) -> bool {
        let (Ok(client), Ok(server)) = (self.client.peer(), server.peer()) else { return false };
        may_enter_unasked(client, server, self.context.own_uid)
    }

    fn await_both(&mut self, server: &mut RelayEnd) -> Option<RelayTraffic> {
        let reads = [server.unsent() < UNSENT_BYTES_MAX, self.client.unsent() < UNSENT_BYTES_MAX];
        let stop = self.interruption().clone();
        await_traffic(&mut self.client, Some(server), reads, &stop, None).ok()
    }

    /// Passes bytes on in both directions until both are over.
    fn relay(&mut self, server: &mut RelayEnd) {
        let mut has_told_server = false;
        while let Some(traffic) = self.await_both(server) {
            if traffic.first_readable {
                self.pass_to_server(server);
            }
            if traffic.second_readable {
                self.pass_to_client(server);
            }
            if traffic.is_interrupted {
                if self.is_draining {
                    break;
                }
                self.is_draining = true;
            }
            if self.client.has_ended() && server.unsent() == 0 && !has_told_server {
                server.end_sending();
                has_told_server = true;
            }
            if server.has_ended() && self.client.unsent() == 0 {
                return;
            }
            let is_idle = self.capture.as_ref().is_some_and(|capture| capture.observer.is_idle());
            if self.is_draining && is_idle {
                break;
            }
        }
        server.send(TERMINATE);
        self.client.send(&fatal("57P01", FAREWELL));
    }

    fn pass_to_server(&mut self, server: &mut RelayEnd) {
        let Some(length) = self.client.receive(&mut self.buffer) else { return };
        // Before the server can do anything about it.
        let mark = self.context.mark();
        if length == 0 {
            self.end.get_or_insert(mark);
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let bytes = &buffer[..length];
        server.send(bytes);
        self.count_bytes(length);
        self.observe(|observer| observer.sent(bytes, mark));
        self.buffer = buffer;
    }

    fn pass_to_client(&mut self, server: &mut RelayEnd) {
        let Some(length) = server.receive(&mut self.buffer).filter(|length| *length > 0) else {
            return;
        };
        let mark = self.context.mark();
        let buffer = std::mem::take(&mut self.buffer);
        let bytes = &buffer[..length];
        self.client.send(bytes);
        self.count_bytes(length);
        self.observe(|observer| observer.received(bytes, mark));
        self.buffer = buffer;
    }

    fn count_bytes(&self, length: usize) {
        self.context.bytes.fetch_add(length as u64, std::sync::atomic::Ordering::Relaxed);
    }

    /// Follows what passed. Messages that are not understood, and mistakes of ours, end the capture of this
    /// session and nothing else.
    fn observe(&mut self, look: impl FnOnce(&mut SessionObserver) -> Result<(), Malformed>) {
        let Some(capture) = &mut self.capture else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| look(&mut capture.observer)));
        if !matches!(outcome, Ok(Ok(()))) {
            self.context.wire().sessions_untracked += 1;
            self.end_capture();
            return;
        }
        capture.collect();
        let is_due = capture.told.elapsed() >= TELL_INTERVAL || capture.bytes > TELL_BYTES;
        if !capture.steps.is_empty() && is_due {
            let event = capture.event(self.id);
            self.context.state.tell(self.writer, event);
        }
    }

    /// Hands what was captured to the writer.
    fn end_capture(&mut self) {
        let Some(mut capture) = self.capture.take() else { return };
        capture.observer.end();
        capture.collect();
        let mark = self.end.unwrap_or_else(|| self.context.mark());
        if !capture.steps.is_empty() {
            let event = capture.event(self.id);
            self.context.state.tell(self.writer, event);
        }
        let event = CaptureEvent::Ended { id: self.id, mark, counts: capture.counts };
        self.context.state.tell(self.writer, event);
    }
}

/// Waking the writer for each statement would cost more than the statement.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
const TELL_BYTES: usize = 64 << 10;

/// No message before the server is ready is longer.
const AUTHENTICATION_BYTES_MAX: usize = 64 << 10;

const REFUSAL: &str = "the server asks for no password and sees the user that runs pgtoll, so other users cannot connect through the capture";
const FAREWELL: &str = "terminating connection: the capture by pgtoll has ended";

impl SessionCapture {
    fn collect(&mut self) {
        let steps = self.observer.take_steps();
        self.bytes += steps.iter().map(size_of_step).sum::<usize>();
        self.steps.extend(steps);
        self.counts.add(self.observer.take_counts());
    }

    fn event(&mut self, id: u64) -> CaptureEvent {
        self.told = Instant::now();
        CaptureEvent::Steps {
            id,
            steps: std::mem::take(&mut self.steps),
            counts: std::mem::take(&mut self.counts),
            bytes: std::mem::take(&mut self.bytes),
        }
    }
}

/// About as many bytes as it takes in memory.
fn size_of_step(step: &CapturedStep) -> usize {
    let texts: usize = step.request.texts().map(str::len).sum();
    let parameters: usize = match &step.request {
        StatementRequest::Extended(executions) => {
            let values =
                executions.iter().flat_map(|execution| execution.parameters.iter().flatten());
            values.map(|value| value.len() + size_of::<ParameterValue>()).sum()
        }
        StatementRequest::Copy { data, .. } => data.len(),
        StatementRequest::Simple(_) | StatementRequest::Incomplete { .. } => 0,
    };
    texts + parameters + size_of::<CapturedStep>()
}
