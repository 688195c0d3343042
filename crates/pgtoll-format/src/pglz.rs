//! pglz, PostgreSQL's own compression, both ways.
//!
//! The compressor makes the same bytes as the server's, so that their number answers what
//! `wal_compression = pglz` would have saved. It follows `pg_lzcompress.c` (PostgreSQL licence,
//! Copyright (c) 1999-2026, PostgreSQL Global Development Group): which match is taken hangs on the
//! order in which older places are looked at, and on when the search is given up.
//!
//! ```
//! use pgtoll_format::pglz;
//!
//! let page = [7; 8192];
//! let compressed = pglz::compress(&page).expect("it can be compressed");
//! assert_eq!(pglz::decompress(&compressed, page.len()).as_deref(), Some(&page[..]));
//! ```

/// How far back a match may begin.
const WINDOW: usize = 0x0FFF;
/// Places that are remembered.
const HISTORY: usize = 4096;
const LONGEST_MATCH: usize = 273;
/// Shorter input is not worth it.
const SHORTEST_INPUT: usize = 32;
/// Output without any match after which it is given up.
const FIRST_MATCH_BY: usize = 1024;
/// The output is this part smaller, or there is none.
const SAVES_PERCENT: usize = 25;
/// A match of this length ends the search; it is lowered with each place that was looked at.
const GOOD_MATCH: usize = 128;
const GOOD_MATCH_DROPS_PERCENT: usize = 10;
/// Matches longer than this take a third byte.
const LONGEST_SHORT_MATCH: usize = 17;

/// Compresses as the server's default strategy does; `None` where it gives up, since not enough
/// would be saved.
pub fn compress(source: &[u8]) -> Option<Vec<u8>> {
    if source.len() < SHORTEST_INPUT {
        return None;
    }
    let most = source.len() / 100 * (100 - SAVES_PERCENT)
        + source.len() % 100 * (100 - SAVES_PERCENT) / 100;
    let mut history = History::new(source);
    let mut output = Output { bytes: Vec::with_capacity(most + 4), control: 0, bit: 0 };
    let mut at = 0;
    let mut has_match = false;
    while at < source.len() {
        let written = output.bytes.len();
        if written >= most || (!has_match && written >= FIRST_MATCH_BY) {
            return None;
        }
        let length = if let Some(found) = history.find(at) {
            output.reference(&found);
            has_match = true;
            found.length
        } else {
            output.literal(source[at]);
            1
        };
        for _ in 0..length {
            history.add(at);
            at += 1;
        }
    }
    (output.bytes.len() < most).then_some(output.bytes)
}

/// Decompresses into `length` bytes; `None` where the source is damaged or makes another number of
/// bytes.
pub fn decompress(source: &[u8], length: usize) -> Option<Vec<u8>> {
    // What is too long is found out when it gets there: the length may be anything.
    let mut output: Vec<u8> = Vec::with_capacity(length.min(source.len().saturating_mul(256)));
    let mut input = source.iter().copied();
    'all: while let Some(control) = input.next() {
        for bit in 0..8 {
            let Some(first) = input.next() else { break 'all };
            if control >> bit & 1 == 0 {
                output.push(first);
            } else {
                let mut length = usize::from(first & 0x0F) + 3;
                let offset = usize::from(first & 0xF0) << 4 | usize::from(input.next()?);
                if length > LONGEST_SHORT_MATCH {
                    length += usize::from(input.next()?);
                }
                let from = output.len().checked_sub(offset).filter(|_| offset > 0)?;
                // It may overlap what it makes.
                for index in from..from + length {
                    output.push(output[index]);
                }
            }
            if output.len() > length {
                return None;
            }
        }
    }
    (output.len() == length).then_some(output)
}

/// The output: after each control byte eight items, whose bits mark references.
struct Output {
    bytes: Vec<u8>,
    /// The place of the control byte.
    control: usize,
    /// The next item's bit; 0 before the first item.
    bit: u8,
}

impl Output {
    fn item(&mut self, is_reference: bool) {
        if self.bit == 0 {
            self.control = self.bytes.len();
            self.bytes.push(0);
            self.bit = 1;
        }
        if is_reference {
            self.bytes[self.control] |= self.bit;
        }
        self.bit <<= 1;
    }

    fn literal(&mut self, byte: u8) {
        self.item(false);
        self.bytes.push(byte);
    }

    #[expect(clippy::cast_possible_truncation, reason = "each part is masked or small")]
    fn reference(&mut self, found: &Match) {
        self.item(true);
        let high = (found.offset & 0xF00) >> 4;
        let low = (found.offset & 0xFF) as u8;
        if found.length > LONGEST_SHORT_MATCH {
            let longer = (found.length - LONGEST_SHORT_MATCH - 1) as u8;
            self.bytes.extend([(high | 0x0F) as u8, low, longer]);
        } else {
            self.bytes.extend([(high | (found.length - 3)) as u8, low]);
        }
    }
}

struct Match {
    offset: usize,
    length: usize,
}

/// Places by a hash of their first four bytes, the newest first.
struct History<'a> {
    source: &'a [u8],
    /// The newest place of each hash; 0: none.
    newest: Vec<u16>,
    mask: u16,
    /// Entry 0 is nobody's.
    entries: Vec<Entry>,
    /// The entry that is used next.
    next: u16,
    /// All entries are in use: the oldest is taken out first.
    is_full: bool,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    older: u16,
    newer: u16,
    hash: u16,
    place: usize,
}

impl<'a> History<'a> {
    fn new(source: &'a [u8]) -> Self {
        let hashes = match source.len() {
            0..128 => 512_u16,
            128..256 => 1024,
            256..512 => 2048,
            512..1024 => 4096,
            _ => 8192,
        };
        Self {
            source,
            newest: vec![0; usize::from(hashes)],
            mask: hashes - 1,
            entries: vec![Entry::default(); HISTORY + 1],
            next: 1,
            is_full: false,
        }
    }

    /// Hashes the first four bytes, taken as C's `char`, which is signed on x86.
    fn hash(&self, place: usize) -> u16 {
        let byte = |index: usize| i32::from(self.source[place + index].cast_signed());
        let hash = if self.source.len() - place < 4 {
            byte(0)
        } else {
            byte(0) << 6 ^ byte(1) << 4 ^ byte(2) << 2 ^ byte(3)
        };
        // Two's complement, whose low bits are at most 13.
        let [low, high, ..] = hash.to_le_bytes();
        u16::from_le_bytes([low, high]) & self.mask
    }

    fn add(&mut self, place: usize) {
        let hash = self.hash(place);
        if self.is_full {
            self.take_out(self.next);
        }
        let older = self.newest[usize::from(hash)];
        self.entries[usize::from(self.next)] = Entry { older, newer: 0, hash, place };
        self.entries[usize::from(older)].newer = self.next;
        self.newest[usize::from(hash)] = self.next;
        self.next += 1;
        if usize::from(self.next) > HISTORY {
            (self.next, self.is_full) = (1, true);
        }
    }

    fn take_out(&mut self, entry: u16) {
        let Entry { older, newer, hash, .. } = self.entries[usize::from(entry)];
        if newer == 0 {
            self.newest[usize::from(hash)] = older;
        } else {
            self.entries[usize::from(newer)].older = older;
        }
        if older != 0 {
            self.entries[usize::from(older)].newer = newer;
        }
    }

    /// The longest match that the search finds before it is content.
    fn find(&self, place: usize) -> Option<Match> {
        let mut best = Match { offset: 0, length: 0 };
        let mut good = GOOD_MATCH;
        let mut entry = self.newest[usize::from(self.hash(place))];
        while entry != 0 {
            let Entry { older, place: earlier, .. } = self.entries[usize::from(entry)];
            let offset = place - earlier;
            if offset >= WINDOW {
                break;
            }
            let length = self.common(place, earlier);
            if length > best.length {
                best = Match { offset, length };
            }
            entry = older;
            if entry != 0 {
                if best.length >= good {
                    break;
                }
                good -= good * GOOD_MATCH_DROPS_PERCENT / 100;
            }
        }
        (best.length > 2).then_some(best)
    }

    /// How many bytes are the same from both places on.
    fn common(&self, place: usize, earlier: usize) -> usize {
        let here = &self.source[place..];
        let there = &self.source[earlier..];
        here.iter().zip(there).take(LONGEST_MATCH).take_while(|(one, other)| one == other).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_compressed_is_not() {
        assert_eq!(compress(&[0; 31]), None);
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(compress(&all), None);
    }

    #[test]
    fn a_match_has_three_bytes_when_it_is_long() {
        // A literal, then itself 273 and 58 times.
        assert_eq!(compress(&[1; 332]).unwrap(), [0b110, 1, 0x0F, 1, 255, 0x0F, 1, 40]);
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(
            parts in prop::collection::vec((prop::collection::vec(0_u8..4, 1..40), 1..20_usize), 0..60),
        ) {
            let source: Vec<u8> =
                parts.into_iter().flat_map(|(part, times)| part.repeat(times)).collect();
            if let Some(compressed) = compress(&source) {
                prop_assert!(compressed.len() < source.len());
                prop_assert_eq!(decompress(&compressed, source.len()), Some(source));
            }
        }

        #[test]
        fn any_bytes_are_decompressed_or_not(source: Vec<u8>, length in 0..20_000_usize) {
            let made = decompress(&source, length);
            prop_assert!(made.is_none_or(|made| made.len() == length));
        }
    }
}
