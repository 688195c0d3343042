//! Cuts a stream of bytes into the protocol's messages.

use crate::fields::Malformed;

/// Cuts one direction of a connection, from the first message with a tag on. Bytes come in pieces of any
/// length; messages that are not wanted are passed over without being kept.
#[derive(Debug)]
pub(crate) struct MessageSplitter {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    header_bytes: usize,
    /// The received part of a body.
    body: Vec<u8>,
    /// Bytes of the body that are still to come.
    left: usize,
    wanted: fn(u8) -> bool,
    is_broken: bool,
}

impl MessageSplitter {
    /// `wanted` says of a message's tag whether its body is needed; others' bodies are handed on empty.
    pub(crate) fn new(wanted: fn(u8) -> bool) -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            body: Vec::new(),
            left: 0,
            wanted,
            is_broken: false,
        }
    }

    /// Adds bytes, and hands each message that is complete now on: its tag and its body. An error is not the
    /// protocol, or a message longer than one that can be kept.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        mut on_message: impl FnMut(u8, &[u8]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.is_broken {
            return Err(Malformed);
        }
        let outcome = loop {
            if self.header_bytes < HEADER_BYTES {
                let taken = bytes.len().min(HEADER_BYTES - self.header_bytes);
                self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
                self.header_bytes += taken;
                bytes = &bytes[taken..];
                if self.header_bytes < HEADER_BYTES {
                    break Ok(());
                }
                match self.body_length() {
                    Ok(length) => self.left = length,
                    Err(broken) => break Err(broken),
                }
            }
            let tag = self.header[0];
            let keeps = (self.wanted)(tag);
            let taken = bytes.len().min(self.left);
            let (here, rest) = bytes.split_at(taken);
            let is_whole = taken == self.left && self.body.is_empty();
            if keeps && !is_whole {
                self.body.extend_from_slice(here);
            }
            self.left -= taken;
            bytes = rest;
            if self.left > 0 {
                break Ok(());
            }
            let body = match (keeps, is_whole) {
                (false, _) => &[][..],
                (true, true) => here,
                (true, false) => &self.body[..],
            };
            self.header_bytes = 0;
            let handed = on_message(tag, body);
            self.body.clear();
            self.body.shrink_to(KEPT_BYTES);
            if handed.is_err() {
                break handed;
            }
        };
        self.is_broken = outcome.is_err();
        outcome
    }

    fn body_length(&self) -> Result<usize, Malformed> {
        let [tag, length @ ..] = self.header;
        let length = u32::from_be_bytes(length);
        let body = length.checked_sub(4).ok_or(Malformed)? as usize;
        let is_possible = length <= i32::MAX.unsigned_abs();
        let fits = !(self.wanted)(tag) || body <= BODY_BYTES_MAX;
        if is_possible && fits { Ok(body) } else { Err(Malformed) }
    }
}

const HEADER_BYTES: usize = 5;

/// The longest statement, or parameters, of which a copy is kept.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Room that a long message does not leave behind.
const KEPT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&[u8]]) -> (Vec<(u8, Vec<u8>)>, bool) {
        let mut splitter = MessageSplitter::new(|tag| tag != b'd');
        let mut found = Vec::new();
        for piece in pieces {
            let pushed = splitter.push(piece, |tag, body| {
                found.push((tag, body.to_vec()));
                Ok(())
            });
            if pushed.is_err() {
                return (found, true);
            }
        }
        (found, false)
    }

    fn message() -> impl Strategy<Value = Vec<u8>> {
        let body = prop::collection::vec(any::<u8>(), 0..40);
        (prop::sample::select(&b"QdPZ"[..]), body).prop_map(|(tag, body)| {
            let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
            [&[tag], &length[..], &body].concat()
        })
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            sent in prop::collection::vec(message(), 0..20),
            garbage in prop::collection::vec(any::<u8>(), 0..20),
            lengths in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let stream = [sent.concat(), garbage].concat();
            let mut pieces = Vec::new();
            let mut rest = &stream[..];
            for length in lengths.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*length).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            let whole = all(&[&stream]);
            prop_assert_eq!(&all(&pieces), &whole);
            prop_assert!(whole.0.len() >= sent.len());
            let expected = |message: &Vec<u8>| {
                let body = if message[0] == b'd' { &[][..] } else { &message[5..] };
                (message[0], body.to_vec())
            };
            prop_assert!(whole.0.iter().zip(&sent).all(|(found, sent)| *found == expected(sent)));
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_and_allocate_nothing() {
        let check = |tag: u8, length: u32, expected: bool| {
            let header = [&[tag][..], &length.to_be_bytes()].concat();
            assert_eq!(all(&[&header]).1, expected, "{tag} {length}");
        };
        check(b'Q', 3, true);
        check(b'Q', u32::MAX, true);
        check(b'Q', 0x4000_0000, true);
        check(b'Q', 1000, false);
        check(b'd', 0x4000_0000, false);
    }
}
