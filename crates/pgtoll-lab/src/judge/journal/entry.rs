//! The bytes of a journal.

/// Bytes of an entry, and of a journal's header.
pub const ENTRY_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"pgtollJ1";
const BEGUN: u8 = b'B';
const ENDED: u8 = b'E';
const NO_NODE: u16 = u16::MAX;
/// The range of the CRC in header and entries.
const CRC: std::ops::Range<usize> = 4..8;

/// The outcome of a transaction, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// `COMMIT` was acknowledged.
    Acknowledged,
    /// `COMMIT` was acknowledged, with the warning that the wait for synchronous standbys was
    /// cancelled.
    Unreplicated,
    /// An error before `COMMIT` was sent, or a rollback: it has failed for certain.
    Failed,
    /// No connection could be made: nothing was sent.
    Refused,
    /// `COMMIT` was sent, and no definite answer came.
    Unknown,
    /// `COMMIT` was sent, and no answer came within the time that the client waits.
    TimedOut,
}

impl AttemptOutcome {
    const ALL: [Self; 6] = [
        Self::Acknowledged,
        Self::Unreplicated,
        Self::Failed,
        Self::Refused,
        Self::Unknown,
        Self::TimedOut,
    ];

    /// The client was told that it has committed.
    pub fn is_acknowledged(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Unreplicated)
    }

    /// It has failed for certain.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Refused)
    }

    fn code(self) -> u8 {
        match self {
            Self::Acknowledged => 1,
            Self::Unreplicated => 2,
            Self::Failed => 3,
            Self::Refused => 4,
            Self::Unknown => 5,
            Self::TimedOut => 6,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.code() == code)
    }
}

/// An entry of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    /// The transaction is about to be sent.
    Begun { sequence: u64, at_ns: u64, due_ns: u64 },
    /// An answer came, or none will.
    Ended { sequence: u64, at_ns: u64, outcome: AttemptOutcome, node: Option<u16>, code: [u8; 5] },
}

impl JournalEntry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let (sequence, at_ns) = match *self {
            Self::Begun { sequence, at_ns, due_ns } => {
                bytes[0] = BEGUN;
                bytes[24..].copy_from_slice(&due_ns.to_le_bytes());
                (sequence, at_ns)
            }
            Self::Ended { sequence, at_ns, outcome, node, code } => {
                bytes[0] = ENDED;
                bytes[1] = outcome.code();
                bytes[2..4].copy_from_slice(&node.unwrap_or(NO_NODE).to_le_bytes());
                bytes[24..29].copy_from_slice(&code);
                (sequence, at_ns)
            }
        };
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&at_ns.to_le_bytes());
        sealed(bytes)
    }

    /// `None` where the bytes are no entry.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        if !is_sealed(bytes) {
            return None;
        }
        let sequence = number(bytes, 8);
        let at_ns = number(bytes, 16);
        match bytes[0] {
            BEGUN => Some(Self::Begun { sequence, at_ns, due_ns: number(bytes, 24) }),
            ENDED => {
                let node = u16::from_le_bytes([bytes[2], bytes[3]]);
                Some(Self::Ended {
                    sequence,
                    at_ns,
                    outcome: AttemptOutcome::of_code(bytes[1])?,
                    node: (node != NO_NODE).then_some(node),
                    code: [bytes[24], bytes[25], bytes[26], bytes[27], bytes[28]],
                })
            }
            _ => None,
        }
    }
}

/// The header of a client's journal.
pub(crate) fn encode_header(run: u64, client: u64) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..4].copy_from_slice(&MAGIC[..4]);
    bytes[8..12].copy_from_slice(&MAGIC[4..]);
    bytes[16..24].copy_from_slice(&run.to_le_bytes());
    bytes[24..].copy_from_slice(&client.to_le_bytes());
    sealed(bytes)
}

/// Run and client; `None` where the bytes are no header.
pub(crate) fn decode_header(bytes: &[u8; ENTRY_BYTES]) -> Option<(u64, u64)> {
    let is_ours = bytes[..4] == MAGIC[..4] && bytes[8..12] == MAGIC[4..] && is_sealed(bytes);
    is_ours.then(|| (number(bytes, 16), number(bytes, 24)))
}

fn sealed(mut bytes: [u8; ENTRY_BYTES]) -> [u8; ENTRY_BYTES] {
    let crc = crc32c::crc32c(&bytes);
    bytes[CRC].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8; ENTRY_BYTES]) -> bool {
    let mut unsealed = *bytes;
    unsealed[CRC].fill(0);
    sealed(unsealed) == *bytes
}

fn number(bytes: &[u8; ENTRY_BYTES], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_read_as_written(
            sequence: u64, at_ns: u64, due_ns: u64, outcome in 0_usize..6,
            node in proptest::option::of(0..NO_NODE), code: [u8; 5],
        ) {
            let begun = JournalEntry::Begun { sequence, at_ns, due_ns };
            prop_assert_eq!(JournalEntry::decode(&begun.encode()), Some(begun));
            let outcome = AttemptOutcome::ALL[outcome];
            let ended = JournalEntry::Ended { sequence, at_ns, outcome, node, code };
            prop_assert_eq!(JournalEntry::decode(&ended.encode()), Some(ended));
            prop_assert_eq!(decode_header(&encode_header(sequence, at_ns)), Some((sequence, at_ns)));
        }

        #[test]
        fn a_bit_that_changed_is_noticed(sequence: u64, bit in 0_usize..ENTRY_BYTES * 8) {
            let mut bytes = JournalEntry::Begun { sequence, at_ns: 1, due_ns: 2 }.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(JournalEntry::decode(&bytes), None);
        }
    }
}
