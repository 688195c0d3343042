//! Compression of files.

use std::io::{self, Read};
use std::path::Path;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// Compressed by gzip.
    Gzip,
    /// LZ4 frames.
    Lz4,
    /// Compressed by Zstandard.
    Zstd,
    /// In a way that pgtoll does not read, or encrypted.
    Unread,
}

impl Packing {
    /// Returns the packing of a segment's or tar's name by its ending; `None` for other endings.
    pub(crate) fn of_ending(ending: &str) -> Option<Self> {
        Some(match ending {
            "" => Self::Plain,
            ".gz" => Self::Gzip,
            ".lz4" => Self::Lz4,
            ".zst" => Self::Zstd,
            ".bz2" | ".xz" | ".br" | ".lzma" | ".gpg" | ".pgp" => Self::Unread,
            _ => return None,
        })
    }

    /// How a tar of this name is compressed; `None`: the name is not a tar's.
    pub fn of_tar(path: &Path) -> Option<Self> {
        if path.extension().is_some_and(|ending| ending == "tgz") {
            return Some(Self::Gzip);
        }
        let (_, ending) = path.file_name()?.to_str()?.rsplit_once(".tar")?;
        Self::of_ending(ending)
    }

    /// By its first bytes: Barman's archives keep a segment's name when they compress it.
    fn of_begin(begin: &[u8]) -> Self {
        match begin {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0x04, 0x22, 0x4D, 0x18, ..] => Self::Lz4,
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Self::Zstd,
            [b'B', b'Z', b'h', ..] | [0xFD, b'7', b'z', b'X', ..] => Self::Unread,
            _ => Self::Plain,
        }
    }

    /// Opens a file and decompresses it while it is read.
    pub fn open<'a>(
        self,
        mut packed: Box<dyn Read + Send + 'a>,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        if self != Self::Plain {
            return self.unpack(packed);
        }
        let mut begin = Vec::new();
        packed.by_ref().take(4).read_to_end(&mut begin)?;
        let packing = Self::of_begin(&begin);
        packing.unpack(Box::new(io::Cursor::new(begin).chain(packed)))
    }

    /// The same of what is surely packed so: what is plain is not looked at.
    pub fn unpack<'a>(
        self,
        packed: Box<dyn Read + Send + 'a>,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Plain => packed,
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Self::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
            Self::Zstd => Box::new(zstd::Decoder::new(packed)?),
            Self::Unread => {
                let words = "pgtoll reads gzip, LZ4 and Zstandard; unpack it first";
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
        })
    }
}
