//! `backup_manifest`, file by file: there may be millions.

use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sha2::{Digest as _, Sha256};

/// A file that a manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    /// In the data directory. What is not UTF-8 is replaced.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) algorithm: Algorithm,
    pub(crate) checksum: Vec<u8>,
}

/// How a file's checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    None,
    Crc32c,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The content of a manifest beside its files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ManifestFound {
    /// The cluster's; since version 2 (PostgreSQL 17).
    pub(crate) system_identifier: Option<u64>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("{0}")]
    Read(io::Error),
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("damaged: its own checksum is wrong")]
    Checksum,
    #[error("its version {0} is unknown")]
    Version(u64),
}

/// Reads a manifest and gives `each` its files. What `each` was given counts only if the whole
/// manifest is sound.
pub(crate) fn read(
    input: &mut dyn Read,
    each: &mut dyn FnMut(ManifestFile),
) -> Result<ManifestFound, ManifestError> {
    let mut lines = Lines::new(input);
    let parsed = {
        let mut json = serde_json::Deserializer::from_reader(&mut lines);
        json.deserialize_map(Root { each }).and_then(|found| json.end().map(|()| found))
    };
    let damaged = |error: serde_json::Error| {
        if error.is_io() {
            return ManifestError::Read(error.into());
        }
        ManifestError::Damaged(error.to_string())
    };
    // A manifest that does not parse is damaged, whatever its checksum.
    let parsed = parsed.map_err(damaged)?;
    if parsed.version.is_none_or(|version| !VERSIONS.contains(&version)) {
        return match parsed.version {
            Some(version) => Err(ManifestError::Version(version)),
            None => Err(ManifestError::Damaged("it has no version".to_owned())),
        };
    }
    if !parsed.has_files {
        return Err(ManifestError::Damaged("it has no list of files".to_owned()));
    }
    let computed = lines.checksum();
    let stored = parsed.checksum.as_deref().and_then(bytes_of_hex);
    match stored {
        Some(stored) if Some(&stored[..]) == computed.as_ref().map(|computed| &computed[..]) => {
            Ok(ManifestFound { system_identifier: parsed.system_identifier })
        }
        _ => Err(ManifestError::Checksum),
    }
}

/// 2 since PostgreSQL 17.
const VERSIONS: [u64; 2] = [1, 2];

/// The manifest's bytes, with the SHA-256 of all of its lines but the last.
struct Lines<'a> {
    input: &'a mut dyn Read,
    hash: Sha256,
    /// The line that is being read, or was read last.
    line: Vec<u8>,
    buffer: Vec<u8>,
    at: usize,
}

impl<'a> Lines<'a> {
    fn new(input: &'a mut dyn Read) -> Self {
        Self { input, hash: Sha256::new(), line: Vec::new(), buffer: Vec::new(), at: 0 }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.at = 0;
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    /// The checksum, once all was read; `None`: the last line is not whole, or the only one.
    fn checksum(self) -> Option<[u8; 32]> {
        self.line.ends_with(b"\n").then(|| self.hash.finalize().into())
    }

    fn hash(&mut self, from: usize, to: usize) -> io::Result<()> {
        for part in self.buffer[from..to].split_inclusive(|byte| *byte == b'\n') {
            if self.line.ends_with(b"\n") {
                self.hash.update(&self.line);
                self.line.clear();
            }
            if self.line.len() + part.len() > LINE_BYTES_MAX {
                let message = "a line is longer than any of a manifest";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            self.line.extend_from_slice(part);
        }
        Ok(())
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() {
            self.fill()?;
            self.hash(0, self.buffer.len())?;
        }
        let count = into.len().min(self.buffer.len() - self.at);
        into[..count].copy_from_slice(&self.buffer[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Each file has a line of its own, so that no name is longer.
const LINE_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 64 << 10;

/// The fields of the manifest's object.
#[derive(Debug, Default)]
struct Parsed {
    version: Option<u64>,
    system_identifier: Option<u64>,
    has_files: bool,
    checksum: Option<String>,
}

struct Root<'a> {
    each: &'a mut dyn FnMut(ManifestFile),
}

impl<'de> Visitor<'de> for Root<'_> {
    type Value = Parsed;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a backup manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut parsed = Parsed::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "PostgreSQL-Backup-Manifest-Version" => parsed.version = Some(map.next_value()?),
                "System-Identifier" => parsed.system_identifier = Some(map.next_value()?),
                "Files" if !parsed.has_files => {
                    map.next_value_seed(Files { each: &mut *self.each })?;
                    parsed.has_files = true;
                }
                "Files" => return Err(serde::de::Error::duplicate_field("Files")),
                "Manifest-Checksum" => parsed.checksum = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(parsed)
    }
}

struct Files<'a> {
    each: &'a mut dyn FnMut(ManifestFile),
}

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<(), A::Error> {
        while let Some(file) = files.next_element::<FileForm>()? {
            (self.each)(file.read().map_err(serde::de::Error::custom)?);
        }
        Ok(())
    }
}

/// As it is written.
#[derive(Deserialize)]
struct FileForm {
    #[serde(rename = "Path")]
    path: Option<String>,
    /// In hexadecimal digits, where it is not UTF-8.
    #[serde(rename = "Encoded-Path")]
    encoded: Option<String>,
    #[serde(rename = "Size")]
    bytes: u64,
    #[serde(rename = "Checksum-Algorithm")]
    algorithm: Option<String>,
    #[serde(rename = "Checksum")]
    checksum: Option<String>,
}

impl FileForm {
    fn read(self) -> Result<ManifestFile, &'static str> {
        let path = match (self.path, self.encoded) {
            (Some(path), None) => path,
            (None, Some(encoded)) => {
                let bytes = bytes_of_hex(&encoded).ok_or("a path is not hexadecimal")?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => return Err("a file has no path, or two"),
        };
        let algorithm = self.algorithm.as_deref().unwrap_or("NONE");
        let found = ALGORITHMS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(algorithm));
        let (_, algorithm, length) = *found.ok_or("a checksum is of an unknown kind")?;
        let checksum = bytes_of_hex(self.checksum.as_deref().unwrap_or_default());
        let checksum = checksum.filter(|checksum| checksum.len() == length);
        let checksum = checksum.ok_or("a file's checksum has another length")?;
        Ok(ManifestFile { path, bytes: self.bytes, algorithm, checksum })
    }
}

/// Names, and bytes of the checksums.
const ALGORITHMS: [(&str, Algorithm, usize); 6] = [
    ("NONE", Algorithm::None, 0),
    ("CRC32C", Algorithm::Crc32c, 4),
    ("SHA224", Algorithm::Sha224, 28),
    ("SHA256", Algorithm::Sha256, 32),
    ("SHA384", Algorithm::Sha384, 48),
    ("SHA512", Algorithm::Sha512, 64),
];

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let value =
        |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(value(pair.first()?)? << 4 | value(pair.get(1)?)?);
    digits.as_bytes().chunks(2).map(pair).collect()
}
