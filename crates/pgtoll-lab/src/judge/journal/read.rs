//! Reading of a journal, whole or broken off.

use std::io::{self, Read};

use super::entry::{AttemptOutcome, ENTRY_BYTES, JournalEntry, decode_header};

/// A transaction that a client began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number with this client, from 0.
    pub sequence: u64,
    /// When it fell due, in ns from the begin of the run.
    pub due_ns: u64,
    /// When the client began with it.
    pub begun_ns: u64,
    /// The outcome of it; `None`: the client still waited when the journal ended.
    pub end: Option<AttemptEnd>,
}

/// How a transaction ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// When, in ns from the begin of the run.
    pub at_ns: u64,
    /// The outcome of it.
    pub outcome: AttemptOutcome,
    /// The server that answered, by its number in the run.
    pub node: Option<u16>,
    /// The SQLSTATE of the error; zeros where there was none.
    pub code: [u8; 5],
}

/// Reads a client's journal, one transaction after the other, in constant memory. It ends at the
/// first bytes that do not follow from those before.
#[derive(Debug)]
pub struct JournalReader<R> {
    source: R,
    run: u64,
    client: u64,
    next_sequence: u64,
    /// The next transaction, whose beginning was read already.
    begun: Option<Attempt>,
    is_broken: bool,
    ended: bool,
}

impl<R: Read> JournalReader<R> {
    /// Reads the header. An error of kind `InvalidData` where these bytes are no journal.
    pub fn new(mut source: R) -> io::Result<Self> {
        let mut bytes = [0; ENTRY_BYTES];
        source.read_exact(&mut bytes)?;
        let no_journal = || io::Error::new(io::ErrorKind::InvalidData, "no journal of a client");
        let (run, client) = decode_header(&bytes).ok_or_else(no_journal)?;
        Ok(Self {
            source,
            run,
            client,
            next_sequence: 0,
            begun: None,
            is_broken: false,
            ended: false,
        })
    }

    /// The number of the run that wrote it.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// The client's number.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Bytes were found that are no entry, or not the next one: only what was before was read.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn entry(&mut self) -> Option<JournalEntry> {
        let mut bytes = [0; ENTRY_BYTES];
        let mut filled = 0;
        while filled < ENTRY_BYTES {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_broken = true;
                    return None;
                }
            }
        }
        if filled == 0 {
            return None;
        }
        let entry = (filled == ENTRY_BYTES).then(|| JournalEntry::decode(&bytes)).flatten();
        self.is_broken |= entry.is_none();
        entry
    }

    /// Ends here: what follows is not to be trusted.
    fn break_off(&mut self) {
        self.is_broken = true;
        self.ended = true;
    }
}

impl<R: Read> Iterator for JournalReader<R> {
    type Item = Attempt;

    fn next(&mut self) -> Option<Attempt> {
        while !self.ended {
            let Some(entry) = self.entry() else {
                self.ended = true;
                break;
            };
            match (entry, self.begun.take()) {
                (JournalEntry::Begun { sequence, at_ns, due_ns }, None)
                    if sequence == self.next_sequence =>
                {
                    self.next_sequence = sequence.saturating_add(1);
                    self.begun = Some(Attempt { sequence, due_ns, begun_ns: at_ns, end: None });
                }
                (JournalEntry::Ended { sequence, at_ns, outcome, node, code }, Some(begun))
                    if sequence == begun.sequence =>
                {
                    let end = AttemptEnd { at_ns, outcome, node, code };
                    return Some(Attempt { end: Some(end), ..begun });
                }
                (_, begun) => {
                    self.begun = begun;
                    self.break_off();
                }
            }
        }
        self.begun.take()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entry::encode_header;
    use super::*;

    fn outcome() -> impl Strategy<Value = AttemptOutcome> {
        prop_oneof![
            Just(AttemptOutcome::Acknowledged),
            Just(AttemptOutcome::Unreplicated),
            Just(AttemptOutcome::Failed),
            Just(AttemptOutcome::Refused),
            Just(AttemptOutcome::Unknown),
            Just(AttemptOutcome::TimedOut),
        ]
    }

    fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
        let end = (any::<u64>(), outcome(), any::<[u8; 5]>())
            .prop_map(|(at_ns, outcome, code)| AttemptEnd { at_ns, outcome, node: Some(3), code });
        let attempt = (any::<u64>(), any::<u64>(), end);
        prop::collection::vec(attempt, 0..20).prop_map(|attempts| {
            let numbered = (0..).zip(attempts);
            let attempt = |(sequence, (due_ns, begun_ns, end))| Attempt {
                sequence,
                due_ns,
                begun_ns,
                end: Some(end),
            };
            numbered.map(attempt).collect()
        })
    }

    fn written(attempts: &[Attempt]) -> Vec<u8> {
        let mut bytes = encode_header(7, 9).to_vec();
        for attempt in attempts {
            let Attempt { sequence, due_ns, begun_ns, .. } = *attempt;
            bytes.extend(JournalEntry::Begun { sequence, at_ns: begun_ns, due_ns }.encode());
            if let Some(AttemptEnd { at_ns, outcome, node, code }) = attempt.end {
                let ended = JournalEntry::Ended { sequence, at_ns, outcome, node, code };
                bytes.extend(ended.encode());
            }
        }
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<Attempt>, bool) {
        let mut reader = JournalReader::new(bytes).unwrap();
        let attempts = reader.by_ref().collect();
        (attempts, reader.is_broken())
    }

    proptest! {
        #[test]
        fn a_journal_is_read_as_it_was_written(attempts in attempts()) {
            let bytes = written(&attempts);
            let reader = JournalReader::new(&bytes[..]).unwrap();
            prop_assert_eq!((reader.run(), reader.client()), (7, 9));
            prop_assert_eq!(read(&bytes), (attempts, false));
        }

        #[test]
        fn cut_short_anywhere_the_begin_is_read(attempts in attempts(), cut in any::<prop::sample::Index>()) {
            let bytes = written(&attempts);
            let cut = ENTRY_BYTES + cut.index(bytes.len() - ENTRY_BYTES + 1);
            let (found, is_broken) = read(&bytes[..cut]);
            let entries = cut / ENTRY_BYTES - 1;
            prop_assert_eq!(is_broken, !cut.is_multiple_of(ENTRY_BYTES));
            prop_assert_eq!(found.len(), entries.div_ceil(2));
            for (index, item) in found.iter().enumerate() {
                let mut expected = attempts[index];
                if entries % 2 == 1 && index + 1 == found.len() {
                    // Its end was cut off: it is as if the client still waited.
                    expected.end = None;
                }
                prop_assert_eq!(*item, expected);
            }
        }

        #[test]
        fn a_damaged_journal_is_read_up_to_the_damage(
            attempts in attempts(), at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let mut bytes = written(&attempts);
            prop_assume!(bytes.len() > ENTRY_BYTES);
            let at = ENTRY_BYTES + at.index(bytes.len() - ENTRY_BYTES);
            bytes[at] ^= 1_u8 << bit;
            let (found, is_broken) = read(&bytes);
            let before = read(&bytes[..at / ENTRY_BYTES * ENTRY_BYTES]).0;
            prop_assert!(is_broken);
            prop_assert_eq!(found, before);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(reader) = JournalReader::new(&bytes[..]) {
                prop_assert!(reader.count() <= bytes.len() / ENTRY_BYTES);
            }
        }
    }
}
