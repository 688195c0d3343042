//! Messages out of, and into, one socket, through buffers that live as long as the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::backend::{
    COPY_DATA_TAG, DATA_ROW_TAG, ERROR_RESPONSE_TAG, Header, Message, NOTICE_RESPONSE_TAG,
    NOTIFICATION_RESPONSE_TAG, PARAMETER_STATUS_TAG, ROW_DESCRIPTION_TAG,
};

use crate::error::hung_up;
use crate::stream::Stream;
use crate::waiting::{time_left, time_out_unset, wait_readable, wait_writable};
use crate::{Error, Interruption};

/// A socket with its two buffers.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: Stream,
    inbox: Inbox,
    outbox: BytesMut,
    deadline: Option<Instant>,
    interruption: Option<Interruption>,
    unasked: Unasked,
}

impl Transport {
    /// Until [`Transport::lift_deadline`], no call waits longer than to the deadline.
    pub(crate) fn new(
        stream: Stream,
        deadline: Option<Instant>,
        interruption: Option<Interruption>,
    ) -> Self {
        Self {
            stream,
            inbox: Inbox::new(),
            outbox: BytesMut::with_capacity(BUFFER_BYTES),
            deadline,
            interruption,
            unasked: Unasked::default(),
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the empty buffer for the next messages.
    pub(crate) fn outbox(&mut self) -> &mut BytesMut {
        self.outbox.clear();
        &mut self.outbox
    }

    /// Sends what is in the outbox.
    pub(crate) fn send(&mut self) -> Result<(), Error> {
        self.unasked = Unasked::default();
        let sent = match &self.interruption {
            None => 0,
            Some(interruption) => {
                let sent = self.stream.send_at_once(&self.outbox);
                if sent < self.outbox.len() {
                    // What pgtoll sends over such connections fits into the socket's buffer.
                    let socket = self.stream.as_fd();
                    while !wait_writable(socket, time_left(self.deadline)?, Some(interruption))? {}
                }
                sent
            }
        };
        match self.stream.write_all(&self.outbox[sent..]).and_then(|()| self.stream.flush()) {
            Ok(()) => Ok(()),
            // The server has hung up. Why is in what it sent before, if anywhere, and reading
            // finds that or the end of the stream.
            Err(error) if hung_up(&error) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Error::ConnectTimeout),
            Err(source) => Err(Error::Io { action: "send to the server", source }),
        }
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> Result<MessageFrame<'_>, Error> {
        let length = loop {
            match self.inbox.frame_length()? {
                Some(length) => break length,
                None => self.wait_for_bytes()?,
            }
        };
        let frame = self.inbox.take(length);
        self.unasked.count(frame)?;
        Ok(frame)
    }

    /// Waits until a whole message is there, or the time has come, or a signal interrupts. Returns
    /// the message's tag, and leaves the message to [`receive`](Self::receive).
    pub(crate) fn arrives_before(&mut self, limit: Option<Instant>) -> Result<Option<u8>, Error> {
        loop {
            if let Some(tag) = self.inbox.whole_frame()? {
                return Ok(Some(tag));
            }
            let patience = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
            if self.poll(patience)? {
                self.read()?;
            } else {
                return Ok(None);
            }
        }
    }

    /// The first byte after the next message's header.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.inbox.unread().get(HEADER_BYTES).copied()
    }

    /// From now on, nothing but time ends waiting: for a farewell.
    pub(crate) fn forget_interruption(&mut self) {
        self.interruption = None;
    }

    /// From now on, calls wait as long as it takes.
    pub(crate) fn lift_deadline(&mut self) -> Result<(), Error> {
        if self.deadline.take().is_some() {
            self.stream.set_write_timeout(None).map_err(time_out_unset)?;
        }
        Ok(())
    }

    /// From now on, calls wait until then at the longest.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    fn wait_for_bytes(&mut self) -> Result<(), Error> {
        let patience = time_left(self.deadline)?;
        // Nothing: interrupted, or so late that the next look at the clock will tell.
        if self.poll(patience)? { self.read() } else { Ok(()) }
    }

    /// Whether there is something to read before the time is over.
    ///
    /// Waiting is left to `poll`, and that is cheaper than a `read` that blocks: the latter is also
    /// woken when the server takes our question out of the socket, only to sleep again. On Linux
    /// 6.18 with two processors that cost a fifth of the throughput of `SELECT 1`.
    fn poll(&self, patience: Option<Duration>) -> Result<bool, Error> {
        let socket = self.stream.as_fd();
        match (self.stream.has_decrypted(), &self.interruption) {
            (false, interruption) => wait_readable(socket, patience, interruption.as_ref()),
            (true, None) => Ok(true),
            (true, interruption) => {
                wait_readable(socket, Some(Duration::ZERO), interruption.as_ref())?;
                Ok(true)
            }
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        match self.inbox.fill(&mut self.stream) {
            Ok(0) => Err(Error::Closed { source: None }),
            Ok(_) => Ok(()),
            // Interrupted, or not yet a whole record of TLS.
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) =>
            {
                Ok(())
            }
            Err(error) if hung_up(&error) => Err(Error::Closed { source: Some(error) }),
            Err(source) => Err(Error::Io { action: "receive from the server", source }),
        }
    }
}

/// Bytes from the server that were not read yet.
///
/// A plain vector that stays initialized: reading into spare capacity would need either unsafe
/// code or zeroing before each read.
#[derive(Debug)]
struct Inbox {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn new() -> Self {
        Self { storage: vec![0; BUFFER_BYTES], start: 0, end: 0 }
    }

    /// The length of the next message, tag included, once all of it is here.
    fn frame_length(&self) -> Result<Option<usize>, Error> {
        let unread = self.unread();
        let Some(header) = Header::parse(unread)
            .map_err(|source| Error::undecodable("malformed message header", source))?
        else {
            return Ok(None);
        };
        let limit = message_bytes_max(header.tag());
        match usize::try_from(header.len()) {
            Ok(length) if length < limit => Ok((length < unread.len()).then_some(length + 1)),
            _ => {
                let finding = format!("message of {} bytes, more than {limit}", header.len());
                Err(Error::protocol(finding))
            }
        }
    }

    fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// The tag of the next message, if all of it is there.
    fn whole_frame(&self) -> Result<Option<u8>, Error> {
        let length = self.frame_length()?;
        Ok(length.map(|_| self.storage[self.start]))
    }

    fn take(&mut self, length: usize) -> MessageFrame<'_> {
        let start = self.start;
        self.start += length;
        MessageFrame { bytes: &self.storage[start..self.start] }
    }

    /// Reads once. The buffer grows only when it is full of a single message's bytes, so what a
    /// header claims costs nothing until it has been sent.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.storage.len() {
            self.storage.resize(self.end * 2, 0);
        }
        let length = source.read(&mut self.storage[self.end..])?;
        self.end += length;
        Ok(length)
    }
}

/// One message of the server, not decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageFrame<'a> {
    bytes: &'a [u8],
}

impl<'a> MessageFrame<'a> {
    pub(crate) fn tag(self) -> u8 {
        self.bytes[0]
    }

    pub(crate) fn body(self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Decodes a message that is not worth avoiding a copy for.
    pub(crate) fn decode(self) -> Result<Message, Error> {
        match Message::parse(&mut BytesMut::from(self.bytes)) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Error::protocol("incomplete message")),
            Err(source) => Err(Error::undecodable("malformed message", source)),
        }
    }
}

/// Tag and length.
const HEADER_BYTES: usize = 5;

/// Two of the server's send buffers, so that a result that exceeds one needs no second read.
const BUFFER_BYTES: usize = 16 * 1024;

/// As libpq has it, only some kinds of messages are long.
fn message_bytes_max(tag: u8) -> usize {
    match tag {
        DATA_ROW_TAG | COPY_DATA_TAG | ROW_DESCRIPTION_TAG => MESSAGE_BYTES_MAX,
        ERROR_RESPONSE_TAG | NOTICE_RESPONSE_TAG | NOTIFICATION_RESPONSE_TAG => TEXT_BYTES_MAX,
        PARAMETER_DESCRIPTION_TAG => PARAMETERS_BYTES_MAX,
        _ => OTHER_BYTES_MAX,
    }
}

/// A row can be a gigabyte, but nothing that a benchmark asks for is.
const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A notice, or an error with the statements that led to it.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// 65,535 parameters at most, four bytes each.
const PARAMETERS_BYTES_MAX: usize = 512 * 1024;
const OTHER_BYTES_MAX: usize = 64 * 1024;
const PARAMETER_DESCRIPTION_TAG: u8 = b't';

/// Messages that the server sent on its own since the last question: it is passed over, so that
/// without a limit a server could continue for ever.
#[derive(Debug, Default)]
struct Unasked {
    messages: u32,
    bytes: usize,
}

impl Unasked {
    fn count(&mut self, frame: MessageFrame<'_>) -> Result<(), Error> {
        match frame.tag() {
            NOTICE_RESPONSE_TAG
            | NOTIFICATION_RESPONSE_TAG
            | PARAMETER_STATUS_TAG
            | ERROR_RESPONSE_TAG => {}
            // A stream of WAL continues for days without a question.
            COPY_DATA_TAG => {
                *self = Self::default();
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.messages += 1;
        self.bytes += frame.body().len();
        if self.messages > UNASKED_MAX {
            return Err(Error::TooMuch { limit: "100,000 notices in one answer" });
        }
        if self.bytes > UNASKED_BYTES_MAX {
            return Err(Error::TooMuch { limit: "64 MB of notices in one answer" });
        }
        Ok(())
    }
}

const UNASKED_MAX: u32 = 100_000;
const UNASKED_BYTES_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a stream through an inbox, this many bytes at a time: its frames, and whether it ended
    /// in an error.
    fn frames(stream: &[u8], chunks: &[usize]) -> (Vec<Vec<u8>>, bool) {
        let mut inbox = Inbox::new();
        let mut found = Vec::new();
        let mut unsent = stream;
        for &chunk in chunks.iter().cycle() {
            loop {
                match inbox.frame_length() {
                    Ok(Some(length)) => found.push(inbox.take(length).bytes.to_vec()),
                    Ok(None) => break,
                    Err(_) => return (found, true),
                }
            }
            let (now, later) = unsent.split_at(chunk.min(unsent.len()));
            unsent = later;
            for piece in now.chunks(BUFFER_BYTES) {
                let mut piece = piece;
                while !piece.is_empty() {
                    inbox.fill(&mut piece).unwrap();
                }
            }
            if now.is_empty() {
                break;
            }
        }
        (found, false)
    }

    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![
            8 => prop::collection::vec(any::<u8>(), 0..200),
            1 => prop::collection::vec(any::<u8>(), 0..3 * BUFFER_BYTES),
        ];
        (any::<u8>(), body).prop_map(|(tag, body)| {
            let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
            [&[tag], &length[..], &body].concat()
        })
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_chunks(
            sent in prop::collection::vec(frame(), 0..20),
            chunks in prop::collection::vec(1_usize..5000, 1..20),
            garbage in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut stream = sent.concat();
            prop_assert_eq!(&frames(&stream, &chunks), &(sent.clone(), false));
            prop_assert_eq!(&frames(&stream, &[1]), &(sent, false));

            stream.extend(garbage);
            prop_assert_eq!(frames(&stream, &chunks), frames(&stream, &[1]));
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let claim = i32::try_from(MESSAGE_BYTES_MAX - 1).unwrap().to_be_bytes();
        let mut inbox = Inbox::new();
        inbox.fill(&mut &[&b"D"[..], &claim].concat()[..]).unwrap();
        assert!(matches!(inbox.frame_length(), Ok(None)));
        for _ in 0..10 {
            inbox.fill(&mut &[0; 1024][..]).unwrap();
        }
        assert_eq!(inbox.storage.len(), BUFFER_BYTES);
    }

    #[test]
    fn impossible_lengths_are_errors() {
        for length in [i32::MIN, -1, 0, 3, 256 * 1024 * 1024, i32::MAX] {
            let mut inbox = Inbox::new();
            inbox.fill(&mut &[&b"D"[..], &length.to_be_bytes()].concat()[..]).unwrap();
            assert!(matches!(inbox.frame_length(), Err(Error::Protocol { .. })), "{length}");
        }
    }
}
