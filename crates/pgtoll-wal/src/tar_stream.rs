//! A tar, member by member, in bounded memory whatever it says of itself.
//!
//! Two zero blocks end a tar, and only zeros may follow them. One zero block in front of something
//! else is damage: a reader that took it for the end would miss all members behind it.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use tar::{EntryType, Header, PaxExtensions};

/// Reads a tar from its beginning to its end.
#[derive(Debug)]
pub struct TarStream<R> {
    input: R,
    /// Bytes that were read.
    at: u64,
    /// The unread bytes of the member.
    left: u64,
    /// The padding to whole tar blocks.
    padding: u64,
    member: String,
    /// The error that follows the last data.
    error: Option<io::Error>,
    seek: Option<Seek<R>>,
}

/// How what is not read is passed over in an input that can seek.
#[derive(Debug)]
struct Seek<R> {
    /// Bytes of the input.
    length: u64,
    forward: fn(&mut R, u64) -> io::Result<()>,
}

/// A member, whose bytes are read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarMember {
    /// Its path, as the tar has it.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether it has content.
    pub kind: TarMemberKind,
}

/// The kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarMemberKind {
    /// A file.
    File,
    /// A file without its holes, as GNU tar makes them if told to: they are not put back.
    Sparse,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A hard link, a device, or what else has no bytes that matter.
    Other,
}

/// Why a tar cannot be read further. `at` counts bytes from its beginning; `member` is the path of the
/// member that was read last, empty before the first.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are described above")]
pub enum TarError {
    /// It ends in the middle.
    #[error("cut short: it ends after {at} bytes{}", within(member))]
    Cut { at: u64, member: String },
    /// A header is damaged.
    #[error("damaged: no tar header at byte {at}{}", behind(member))]
    Header { at: u64, member: String },
    /// One zero block, which is neither a member nor the end.
    #[error("damaged: a lone zero block at byte {at}{}; two end a tar", behind(member))]
    LoneZeroBlock { at: u64, member: String },
    /// Data behind the two zero blocks.
    #[error("damaged: data behind the end of the tar, from byte {at} on")]
    BehindEnd { at: u64 },
    /// The file, or its compression, cannot be read.
    #[error("cannot be read further, after {at} bytes{}: {source}", within(member))]
    Read { at: u64, member: String, source: io::Error },
}

fn within(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", in {member}") }
}

fn behind(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", behind {member}") }
}

impl<'a> TarStream<&'a File> {
    /// Seeks over what is not read.
    pub fn seeking(mut input: &'a File) -> io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        input.rewind()?;
        let forward = |input: &mut &'a File, bytes: u64| {
            let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
            input.seek_relative(bytes)
        };
        Ok(Self { seek: Some(Seek { length, forward }), ..Self::new(input) })
    }
}

impl<R: Read> TarStream<R> {
    /// A tar that begins at the input's next byte.
    pub fn new(input: R) -> Self {
        let member = String::new();
        Self { input, at: 0, left: 0, padding: 0, member, error: None, seek: None }
    }

    /// Bytes before what is read next. After [`next_member`](Self::next_member) the member's first byte.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next member; `None` at the tar's end. What was not read of the one before is passed over.
    pub fn next_member(&mut self) -> Result<Option<TarMember>, TarError> {
        self.pass_over()?;
        let mut long_name = None;
        let mut long_bytes = None;
        let mut is_sparse = false;
        loop {
            let mut block = [0; BLOCK];
            let begin = self.at;
            if self.fill(&mut block)? < BLOCK {
                return Err(self.cut());
            }
            if is_zero(&block) {
                self.end(begin)?;
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            let damaged =
                |other_one: &Self| TarError::Header { at: begin, member: other_one.member.clone() };
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
                                long_bytes = pair.value().ok().and_then(|value| value.parse().ok());
                            }
                            Ok(key) if key.starts_with("GNU.sparse.") => is_sparse = true,
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
                        EntryType::Regular | EntryType::Continuous if !is_sparse => {
                            TarMemberKind::File
                        }
                        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                            TarMemberKind::Sparse
                        }
                        EntryType::Directory => TarMemberKind::Directory,
                        EntryType::Symlink => TarMemberKind::Link,
                        _ => TarMemberKind::Other,
                    };
                    return Ok(Some(TarMember { path, bytes: self.left, kind }));
                }
            }
        }
    }

    /// Fills the buffer with the member's bytes, or with all that are left of them. The tar's own
    /// end is an error, after what is before it was given out.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
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
        if let Some(Seek { length, forward }) = &self.seek
            && left > 0
        {
            if self.at.saturating_add(left) > *length {
                self.at = *length;
                return Err(self.cut());
            }
            let forward = forward(&mut self.input, left);
            forward.map_err(|source| self.unreadable(source))?;
            self.at += left;
            left = 0;
        }
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

    /// Behind the first zero block comes a second one, and then nothing but zeros. They are read to
    /// the input's end, where a compressed one has its checksum.
    fn end(&mut self, begin: u64) -> Result<(), TarError> {
        let mut block = [0; BLOCK];
        let read = self.fill(&mut block)?;
        if !is_zero(&block[..read]) {
            return Err(TarError::LoneZeroBlock { at: begin, member: self.member.clone() });
        }
        if read < BLOCK {
            return Err(self.cut());
        }
        self.member.clear();
        let mut buffer = [0; PASS];
        loop {
            let at = self.at;
            let read = self.fill(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            if let Some(found) = buffer[..read].iter().position(|byte| *byte != 0) {
                return Err(TarError::BehindEnd { at: at + found as u64 });
            }
        }
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
                Err(source) => return Err(self.unreadable(source)),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    fn cut(&self) -> TarError {
        TarError::Cut { at: self.at, member: self.member.clone() }
    }

    fn unreadable(&self, source: io::Error) -> TarError {
        TarError::Read { at: self.at, member: self.member.clone(), source }
    }
}

/// Reads the rest of a member.
#[derive(Debug)]
pub struct TarMemberReader<'a, R> {
    /// The tar, behind the member's header.
    pub stream: &'a mut TarStream<R>,
}

impl<R: Read> Read for TarMemberReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer).map_err(io::Error::from)
    }
}

impl From<TarError> for io::Error {
    fn from(error: TarError) -> Self {
        Self::other(error.to_string())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
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
/// The bytes that are skipped at once.
const PASS: usize = 16 << 10;
/// No extended header has more bytes: a name, and what else PAX says of a file.
const EXTENSION_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every member with its bytes, and how it ended.
    fn all(bytes: &[u8]) -> (Vec<(TarMember, Vec<u8>)>, Option<TarError>) {
        let mut stream = TarStream::new(bytes);
        let mut members = Vec::new();
        loop {
            let member = match stream.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => return (members, None),
                Err(error) => return (members, Some(error)),
            };
            let mut read = Vec::new();
            let mut buffer = [0; 700];
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
        // Within a header, within a member, between members, and within the end's own two blocks.
        for (end, members) in [(100, 0), (700, 1), (1536, 1), (2560, 2), (2816, 2), (3072, 2)] {
            let (found, error) = all(&tar[..end]);
            assert_eq!(found.len(), members, "{end}");
            assert!(matches!(error, Some(TarError::Cut { .. })), "{end}: {error:?}");
        }
        let mut damaged = tar.clone();
        damaged[1536 + 3] ^= 1;
        let (found, error) = all(&damaged);
        assert_eq!(found.len(), 1);
        let output = error.unwrap().to_string();
        assert_eq!(output, "damaged: no tar header at byte 1536, behind a");
    }

    #[test]
    fn one_zero_block_is_no_end_and_only_zeros_follow_two() {
        let check = |change: &dyn Fn(&mut Vec<u8>), expected: Option<&str>| {
            let mut tar = tar_of(&[("a".into(), vec![1; 600]), ("b".into(), vec![2; 10])]);
            assert_eq!(tar.len(), 3584);
            change(&mut tar);
            let (_, error) = all(&tar);
            assert_eq!(error.map(|error| error.to_string()).as_deref(), expected);
        };
        check(&|_| {}, None);
        check(&|tar| tar.resize(1 << 20, 0), None);
        check(
            &|tar| tar[1536..2048].fill(0),
            Some("damaged: a lone zero block at byte 1536, behind a; two end a tar"),
        );
        check(
            &|tar| tar.extend([0, 0, 7]),
            Some("damaged: data behind the end of the tar, from byte 3586 on"),
        );
        let twice = tar_of(&[]);
        check(
            &|tar| tar.extend_from_slice(&tar.clone()),
            Some("damaged: data behind the end of the tar, from byte 3584 on"),
        );
        assert!(all(&twice).1.is_none(), "an empty tar is one");
    }

    #[test]
    fn seeking_finds_what_reading_finds() {
        let tar = tar_of(&[("a".into(), vec![1; 70_000]), ("b".into(), vec![2; 10])]);
        let file = tempfile::tempfile().unwrap();
        for end in [tar.len(), tar.len() - 1024, 71_000, 60_000] {
            file.set_len(0).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &tar[..end], 0).unwrap();
            let places = |stream: &mut dyn FnMut()
                -> Result<Option<(TarMember, u64)>, TarError>| {
                let mut found = Vec::new();
                loop {
                    match stream() {
                        Ok(Some(stream)) => found.push(stream),
                        Ok(None) => return (found, None),
                        Err(error) => return (found, Some(error.to_string())),
                    }
                }
            };
            let mut seeking = TarStream::seeking(&file).unwrap();
            let sought = places(&mut || {
                seeking
                    .next_member()
                    .map(|next_member| next_member.map(|item| (item, seeking.position())))
            });
            let mut reading = TarStream::new(&tar[..end]);
            let read = places(&mut || {
                reading
                    .next_member()
                    .map(|next_member| next_member.map(|item| (item, reading.position())))
            });
            assert_eq!(sought, read, "{end}");
        }
    }

    #[test]
    fn a_name_of_gigabytes_is_refused_before_it_is_read() {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_path("././@LongLink").unwrap();
        header.set_size(4 << 30);
        header.set_cksum();
        let endless = header.as_bytes().chain(io::repeat(b'x'));
        let mut stream = TarStream::new(endless);
        let error = stream.next_member().unwrap_err().to_string();
        assert_eq!(error, "damaged: no tar header at byte 0");
        assert_eq!(stream.position(), 512);
    }

    #[test]
    fn long_names_are_read() {
        let name = format!("{}/base/5/1259", "x".repeat(300));
        let (found, error) = all(&tar_of(&[(name.clone(), vec![7; 5])]));
        assert!(error.is_none());
        assert_eq!(found[0].0, TarMember { path: name, bytes: 5, kind: TarMemberKind::File });
    }

    #[test]
    fn kinds_of_members_are_told_apart() {
        use TarMemberKind::{Directory, Link, Other, Sparse};

        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind) in [
            ("d/", EntryType::Directory),
            ("l", EntryType::Symlink),
            ("h", EntryType::Link),
            ("c", EntryType::Char),
            ("p", EntryType::Fifo),
        ] {
            let mut header = Header::new_gnu();
            header.set_size(0);
            header.set_entry_type(kind);
            header.set_link_name("f").unwrap();
            builder.append_data(&mut header, name, io::empty()).unwrap();
        }
        // A sparse file of the newer kind is a regular one that another header speaks of.
        builder.append_pax_extensions([("GNU.sparse.major", b"1".as_slice())]).unwrap();
        let mut header = Header::new_ustar();
        header.set_size(3);
        builder.append_data(&mut header, "GNUSparseFile.1/s", b"0\n0".as_slice()).unwrap();
        let (found, error) = all(&builder.into_inner().unwrap());
        assert!(error.is_none());
        let kinds: Vec<TarMemberKind> = found.iter().map(|(item, _)| item.kind).collect();
        assert_eq!(kinds, [Directory, Link, Other, Other, Other, Sparse]);
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
            let found: Vec<_> = found.into_iter().map(|(s, bytes)| (s.path, bytes)).collect();
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
                if let Some(tar) = tar.get_mut(at) {
                    *tar = byte;
                }
            }
            let bytes: u64 = all(&tar).0.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            prop_assert!(bytes <= tar.len() as u64);
        }
    }
}
