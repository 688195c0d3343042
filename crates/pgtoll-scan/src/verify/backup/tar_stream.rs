//! A tar, member by member, in bounded memory whatever it says of itself.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

/// Reads a tar from its beginning to its end.
pub(super) struct TarStream<R> {
    input: R,
    /// Bytes that were read.
    at: u64,
    /// Of the member, bytes that were not.
    left: u64,
    /// What fills it up to whole tar blocks.
    padding: u64,
    member: String,
    /// What comes when all before it was given out.
    error: Option<io::Error>,
}

/// A member, whose bytes are read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) kind: MemberKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    /// A file without its holes, as GNU tar makes them if told to: they are not put back.
    Sparse,
    /// A directory, a link, or what has no bytes that matter.
    Other,
}

/// Why a tar is not read further.
#[derive(Debug, thiserror::Error)]
pub(super) enum TarError {
    #[error("cut short: it ends after {at} bytes{}", within(member))]
    Cut { at: u64, member: String },
    #[error("damaged: no tar header at byte {at}{}", behind(member))]
    Header { at: u64, member: String },
    #[error("cannot be read further, after {at} bytes{}: {source}", within(member))]
    Read { at: u64, member: String, source: io::Error },
}

fn within(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", in {member}") }
}

fn behind(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", behind {member}") }
}

impl<R: Read> TarStream<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, at: 0, left: 0, padding: 0, member: String::new(), error: None }
    }

    /// The next member; `None` at the tar's end. What was not read of the one before is passed over.
    pub(super) fn next(&mut self) -> Result<Option<Member>, TarError> {
        self.pass_over()?;
        let (mut long_name, mut long_bytes) = (None, None);
        loop {
            let mut block = [0; BLOCK];
            let begin = self.at;
            if self.fill(&mut block)? < BLOCK {
                return Err(self.cut());
            }
            if block.iter().all(|byte| *byte == 0) {
                // Whatever follows is read all the same: it may be what a sum over all stands in.
                self.member.clear();
                self.drain()?;
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            let damaged = |of: &Self| TarError::Header { at: begin, member: of.member.clone() };
            let bytes =
                header.entry_size().ok().filter(|_| header.cksum().ok() == Some(sum(&block)));
            let bytes = bytes.ok_or_else(|| damaged(self))?;
            self.left = bytes;
            self.padding = padding(bytes);
            match header.entry_type() {
                EntryType::GNULongName => {
                    let name = self.extension().ok_or_else(|| damaged(self))??;
                    long_name = Some(text(&name));
                }
                EntryType::XHeader => {
                    let extension = self.extension().ok_or_else(|| damaged(self))??;
                    for pair in PaxExtensions::new(&extension).flatten() {
                        match pair.key() {
                            Ok("path") => long_name = Some(text(pair.value_bytes())),
                            Ok("size") => {
                                long_bytes = pair.value().ok().and_then(|of| of.parse().ok());
                            }
                            _ => {}
                        }
                    }
                }
                EntryType::GNULongLink | EntryType::XGlobalHeader => self.pass_over()?,
                kind => {
                    if let Some(bytes) = long_bytes {
                        (self.left, self.padding) = (bytes, padding(bytes));
                    }
                    let path = long_name.unwrap_or_else(|| text(&header.path_bytes()));
                    self.member.clone_from(&path);
                    let kind = match kind {
                        EntryType::Regular | EntryType::Continuous => MemberKind::File,
                        EntryType::GNUSparse => MemberKind::Sparse,
                        _ => MemberKind::Other,
                    };
                    return Ok(Some(Member { path, bytes: self.left, kind }));
                }
            }
        }
    }

    /// Fills the buffer with the member's bytes, or with all that are left of them. The tar's own
    /// end is an error, after what is before it was given out.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.fill(&mut buffer[..room])?;
        self.left -= read as u64;
        if read == 0 && room > 0 { Err(self.cut()) } else { Ok(read) }
    }

    /// A member that tells of the next one; `None` where it is longer than any is.
    fn extension(&mut self) -> Option<Result<Vec<u8>, TarError>> {
        let bytes = usize::try_from(self.left).ok().filter(|bytes| *bytes <= EXTENSION_MAX)?;
        let mut buffer = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match self.read(&mut buffer[filled..]) {
                Ok(read) => filled += read,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(self.pass_over().map(|()| buffer))
    }

    fn pass_over(&mut self) -> Result<(), TarError> {
        let mut left = self.left.saturating_add(self.padding);
        let mut buffer = [0; PASS];
        while left > 0 {
            let room = usize::try_from(left).unwrap_or(PASS).min(PASS);
            let read = self.fill(&mut buffer[..room])?;
            if read == 0 {
                return Err(self.cut());
            }
            left -= read as u64;
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), TarError> {
        let mut buffer = [0; PASS];
        while self.fill(&mut buffer)? > 0 {}
        Ok(())
    }

    /// Less than asked for only at the input's end, or before what cannot be read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = match self.error.take() {
                Some(error) => Err(error),
                None => self.input.read(&mut buffer[filled..]),
            };
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled > 0 => {
                    self.error = Some(error);
                    break;
                }
                Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.cut());
                }
                Err(source) => {
                    return Err(TarError::Read {
                        at: self.at,
                        member: self.member.clone(),
                        source,
                    });
                }
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    fn cut(&self) -> TarError {
        TarError::Cut { at: self.at, member: self.member.clone() }
    }
}

fn padding(bytes: u64) -> u64 {
    (BLOCK as u64 - bytes % BLOCK as u64) % BLOCK as u64
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A header's sum; its own field counts as spaces.
fn sum(block: &[u8; BLOCK]) -> u32 {
    let own = 148..156;
    let all = block.iter().enumerate();
    all.map(|(at, byte)| if own.contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

const BLOCK: usize = 512;
/// What is passed over is read in such pieces.
const PASS: usize = 16 << 10;
/// No name has more bytes, and no more is kept.
const EXTENSION_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every member with its bytes, and how it ended.
    fn all(bytes: &[u8]) -> (Vec<(Member, Vec<u8>)>, Option<TarError>) {
        let (mut stream, mut members) = (TarStream::new(bytes), Vec::new());
        loop {
            let member = match stream.next() {
                Ok(Some(member)) => member,
                Ok(None) => return (members, None),
                Err(error) => return (members, Some(error)),
            };
            let (mut read, mut buffer) = (Vec::new(), [0; 700]);
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => read.extend(&buffer[..count]),
                    Err(error) => {
                        members.push((member, read));
                        return (members, Some(error));
                    }
                }
            }
            members.push((member, read));
        }
    }

    fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_tar_that_ends_early_is_told() {
        let tar = tar_of(&[("a".into(), vec![1; 600]), ("b".into(), vec![2; 10])]);
        let whole = all(&tar);
        assert!(whole.1.is_none() && whole.0.len() == 2);
        // Within a header, within a member, between members, and before the end's own blocks.
        for (end, members) in [(100, 0), (700, 1), (1536, 1), (2560, 2)] {
            let (found, error) = all(&tar[..end]);
            assert_eq!(found.len(), members, "{end}");
            assert!(matches!(error, Some(TarError::Cut { .. })), "{end}: {error:?}");
        }
        let mut damaged = tar.clone();
        damaged[1536 + 3] ^= 1;
        let (found, error) = all(&damaged);
        assert_eq!(found.len(), 1);
        let said = error.unwrap().to_string();
        assert_eq!(said, "damaged: no tar header at byte 1536, behind a");
    }

    #[test]
    fn long_names_are_read() {
        let name = format!("{}/base/5/1259", "x".repeat(300));
        let (found, error) = all(&tar_of(&[(name.clone(), vec![7; 5])]));
        assert!(error.is_none());
        assert_eq!(found[0].0, Member { path: name, bytes: 5, kind: MemberKind::File });
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(
            files in prop::collection::vec(
                ("[a-z]{1,120}", prop::collection::vec(any::<u8>(), 0..2000)), 0..5,
            ),
        ) {
            let (found, error) = all(&tar_of(&files));
            prop_assert!(error.is_none());
            let found: Vec<_> = found.into_iter().map(|(of, bytes)| (of.path, bytes)).collect();
            prop_assert_eq!(found, files);
        }

        /// Any bytes, and real ones with some changed, end somehow.
        #[test]
        fn any_bytes_end(
            noise in prop::collection::vec(any::<u8>(), 0..3000),
            changes in prop::collection::vec((0_usize..4096, any::<u8>()), 0..10),
        ) {
            let _ = all(&noise);
            let mut tar = tar_of(&[("a".into(), noise), ("b".repeat(200), vec![1; 600])]);
            for (at, byte) in changes {
                if let Some(of) = tar.get_mut(at) {
                    *of = byte;
                }
            }
            let bytes: u64 = all(&tar).0.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            prop_assert!(bytes <= tar.len() as u64);
        }
    }
}
