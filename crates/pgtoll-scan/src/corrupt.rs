//! Damages a page on purpose, and puts it right again.
//!
//! What a damage changes is worked out first, as a list of bytes before and after; then the undo
//! file is written and synced; only then the data.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::WriteError;

/// How a block is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit is turned over.
    Bit,
    /// Random bytes all over.
    Garbage,
    /// The block and this one change places.
    Transposed {
        /// The other block's number in the file.
        with: u64,
    },
    /// The first half is of `older`, the second as it is: a write that power cut.
    Torn {
        /// The block as it was before.
        older: Vec<u8>,
    },
    /// All bytes are zero.
    Zero,
    /// The first half is zero: a sector that was lost.
    ZeroHalf,
    /// The whole block is as it was before: a write that was lost.
    Stale {
        /// The block as it was before.
        older: Vec<u8>,
    },
    /// The file ends in the middle of the block.
    Cut,
    /// The file ends where the block begins.
    CutAtBlock,
    /// The file is gone.
    MissingSegment,
}

/// Changes of one file, before and after. The undo file is this, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wound {
    /// [`UNDO_SCHEMA`].
    pub schema: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// Bytes of the file before.
    pub length: u64,
    /// Bytes of the file after; `None`: it is gone.
    pub length_after: Option<u64>,
    /// Where bytes were changed or cut off.
    pub changes: Vec<Change>,
    /// The file as a whole, moved beside itself, where it is gone.
    pub moved_to: Option<PathBuf>,
}

/// The version of the form of undo files.
pub const UNDO_SCHEMA: &str = "pgtoll.undo/1";

/// Bytes that were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where they begin, in bytes from the file's begin.
    pub at: u64,
    /// What was there, in hexadecimal.
    pub before: String,
    /// What is there now; nothing where the file was cut.
    pub after: String,
}

/// A file cannot be damaged so, or not be put right.
#[derive(Debug, thiserror::Error)]
pub enum CorruptError {
    /// The file has no such block.
    #[error("{} has {blocks} blocks: there is no block {block}", path.display())]
    NoBlock {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
        /// How many there are.
        blocks: u64,
    },
    /// The damage would change nothing.
    #[error("that would change nothing in block {block} of {}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
    },
    /// The undo file is none.
    #[error("{} is no undo file of pgtoll", path.display())]
    NotUndo {
        /// The file.
        path: PathBuf,
    },
    /// Something else was written since.
    #[error("{} was written to since: it is not as the damage left it", path.display())]
    Changed {
        /// The file that was damaged.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl CorruptError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoBlock { .. } => "blocks are counted from 0 in each file",
            Self::Nothing { .. } => "choose another block or another --kind",
            Self::NotUndo { .. } => "name the file that pgtoll corrupt wrote",
            Self::Changed { .. } => "it cannot be put right any more; restore it from a backup",
            Self::Write(error) => return error.hint(),
        };
        Some(text.to_owned())
    }
}

/// A block of a file, by chance; `None` where there is none. The same seed takes the same one.
pub fn any_block(file: &Path, block_bytes: usize, seed: u64) -> Result<Option<u64>, CorruptError> {
    let found = fs::metadata(file).map_err(WriteError::read(file))?;
    let blocks = found.len() / block_bytes as u64;
    Ok((blocks > 0).then(|| Random(!seed).below(blocks)))
}

/// Works out a damage, and changes nothing yet. The same seed makes the same damage.
pub fn plan(
    file: &Path,
    block: u64,
    block_bytes: usize,
    damage: &Damage,
    seed: u64,
) -> Result<Wound, CorruptError> {
    let path = fs::canonicalize(file).map_err(WriteError::read(file))?;
    let open = File::open(&path).map_err(WriteError::read(file))?;
    let length = open.metadata().map_err(WriteError::read(file))?.len();
    let size = block_bytes as u64;
    let blocks = length / size;
    let page = |block: u64| -> Result<Vec<u8>, CorruptError> {
        if block >= blocks {
            return Err(CorruptError::NoBlock { path: path.clone(), block, blocks });
        }
        let mut page = vec![0; block_bytes];
        open.read_exact_at(&mut page, block * size).map_err(WriteError::read(file))?;
        Ok(page)
    };
    let before = page(block)?;
    let mut wound = Wound {
        schema: UNDO_SCHEMA.to_owned(),
        file: path.clone(),
        length,
        length_after: Some(length),
        changes: Vec::new(),
        moved_to: None,
    };
    let half = block_bytes / 2;
    let mut random = Random(seed);
    let mut after = before.clone();
    match damage {
        Damage::Bit => {
            let bit = random.below(block_bytes as u64 * 8);
            after[usize::try_from(bit / 8).unwrap_or(0)] ^= 1 << (bit % 8);
        }
        Damage::Garbage => after.fill_with(|| random.next().to_le_bytes()[7]),
        Damage::Transposed { with } => {
            after = page(*with)?;
            wound.add(*with * size, &after, &before);
        }
        Damage::Torn { older } if older.len() == block_bytes => {
            after[..half].copy_from_slice(&older[..half]);
        }
        Damage::Stale { older } if older.len() == block_bytes => after.copy_from_slice(older),
        Damage::Torn { .. } | Damage::Stale { .. } => {}
        Damage::Zero => after.fill(0),
        Damage::ZeroHalf => after[..half].fill(0),
        Damage::Cut => return wound.cut(&open, block * size + half as u64),
        Damage::CutAtBlock => return wound.cut(&open, block * size),
        Damage::MissingSegment => {
            let mut name = path.clone().into_os_string();
            name.push(".pgtoll-moved");
            wound.length_after = None;
            wound.moved_to = Some(name.into());
            return Ok(wound);
        }
    }
    wound.add(block * size, &before, &after);
    if wound.changes.is_empty() {
        return Err(CorruptError::Nothing { path, block });
    }
    Ok(wound)
}

impl Wound {
    /// Adds what differs, from the first byte that does to the last.
    fn add(&mut self, at: u64, before: &[u8], after: &[u8]) {
        let differs = |(a, b): (&u8, &u8)| a != b;
        let first = before.iter().zip(after).position(differs);
        let last = before.iter().zip(after).rposition(differs);
        if let (Some(first), Some(last)) = (first, last) {
            self.changes.push(Change {
                at: at + first as u64,
                before: hex(&before[first..=last]),
                after: hex(&after[first..=last]),
            });
        }
    }

    fn cut(mut self, file: &File, at: u64) -> Result<Self, CorruptError> {
        let path = self.file.clone();
        let missing = usize::try_from(self.length - at).unwrap_or(usize::MAX);
        if missing > CUT_BYTES_MAX {
            let source = io::Error::other("more than 64 MiB would have to go into the undo file");
            return Err(WriteError::Read { path, source }.into());
        }
        let mut tail = vec![0; missing];
        file.read_exact_at(&mut tail, at).map_err(WriteError::read(&path))?;
        self.length_after = Some(at);
        self.changes.push(Change { at, before: hex(&tail), after: String::new() });
        Ok(self)
    }

    /// Writes what undoes it into `file`, which is at `path`, and syncs it.
    pub fn save(&self, mut file: &File, path: &Path) -> Result<(), CorruptError> {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let saved = text.and_then(|text| {
            file.write_all(&text)?;
            file.sync_all()
        });
        Ok(saved.map_err(|source| WriteError::Write { path: path.to_owned(), source })?)
    }

    /// Reads an undo file.
    pub fn load(path: &Path) -> Result<Self, CorruptError> {
        let bytes = fs::read(path).map_err(WriteError::read(path))?;
        let wound: Option<Self> = serde_json::from_slice(&bytes).ok();
        let is_one = |wound: &Self| {
            wound.schema == UNDO_SCHEMA
                && wound
                    .changes
                    .iter()
                    .all(|of| unhex(&of.before).is_some() && unhex(&of.after).is_some())
        };
        wound.filter(is_one).ok_or_else(|| CorruptError::NotUndo { path: path.to_owned() })
    }

    /// Does the damage.
    pub fn inflict(&self) -> Result<(), CorruptError> {
        let damaged = match (&self.moved_to, self.length_after) {
            (Some(to), _) if !to.exists() => fs::rename(&self.file, to),
            (Some(_), _) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, length) => self.put(|change| &change.after, length.unwrap_or(self.length)),
        };
        Ok(damaged.map_err(|source| WriteError::Write { path: self.file.clone(), source })?)
    }

    /// Puts everything as it was, if it is as the damage left it.
    pub fn heal(&self) -> Result<(), CorruptError> {
        if !self.is_as_left() {
            return Err(CorruptError::Changed { path: self.file.clone() });
        }
        let healed = match &self.moved_to {
            Some(from) => fs::rename(from, &self.file),
            None => self.put(|change| &change.before, self.length),
        };
        Ok(healed.map_err(|source| WriteError::Write { path: self.file.clone(), source })?)
    }

    fn put(&self, bytes: impl Fn(&Change) -> &String, length: u64) -> io::Result<()> {
        let file = File::options().write(true).open(&self.file)?;
        for change in &self.changes {
            let bytes = unhex(bytes(change)).unwrap_or_default();
            file.write_all_at(&bytes, change.at)?;
        }
        file.set_len(length)?;
        file.sync_all()
    }

    fn is_as_left(&self) -> bool {
        let length = fs::symlink_metadata(&self.file).ok().map(|found| found.size());
        if let Some(moved) = &self.moved_to {
            let there = fs::symlink_metadata(moved).ok().map(|found| found.size());
            return length.is_none() && there == Some(self.length);
        }
        let as_left = |change: &Change| {
            let after = unhex(&change.after).unwrap_or_default();
            let mut now = vec![0; after.len()];
            let read =
                File::open(&self.file).and_then(|file| file.read_exact_at(&mut now, change.at));
            read.is_ok() && now == after
        };
        length == self.length_after && self.changes.iter().all(as_left)
    }
}

/// Bytes that go into an undo file at most.
const CUT_BYTES_MAX: usize = 64 << 20;

fn hex(bytes: &[u8]) -> String {
    let digit = |of: u8| char::from_digit(of.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Steele's and Vigna's `SplitMix64`: a few lines, the same everywhere and for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn damages() -> Vec<Damage> {
        let older = vec![0x11; 8192];
        vec![
            Damage::Bit,
            Damage::Garbage,
            Damage::Transposed { with: 0 },
            Damage::Torn { older: older.clone() },
            Damage::Zero,
            Damage::ZeroHalf,
            Damage::Stale { older },
            Damage::Cut,
            Damage::CutAtBlock,
            Damage::MissingSegment,
        ]
    }

    /// Four blocks, none of which is like another, and a bit.
    fn file(directory: &Path) -> (PathBuf, Vec<u8>) {
        let bytes: Vec<u8> = (0..4 * 8192 + 100_u32)
            .map(|at| (at / 8192 * 50 + at % 251).to_le_bytes()[0])
            .collect();
        let path = directory.join("16384");
        fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    #[test]
    fn every_damage_is_done_and_undone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, before) = file(directory.path());
        for (number, damage) in damages().into_iter().enumerate() {
            let undo = directory.path().join(format!("undo-{number}"));
            let wound = plan(&path, 2, 8192, &damage, 7).unwrap();
            assert!(fs::read(&path).unwrap() == before, "{damage:?}");
            wound.save(&File::create_new(&undo).unwrap(), &undo).unwrap();
            wound.inflict().unwrap();
            assert!(fs::read(&path).ok().is_none_or(|now| now != before), "{damage:?}");
            assert_eq!(plan_again(&path, &before, &damage), wound);
            Wound::load(&undo).unwrap().heal().unwrap();
            assert!(fs::read(&path).unwrap() == before, "{damage:?}");
            let twice = Wound::load(&undo).unwrap().heal().unwrap_err();
            assert!(matches!(twice, CorruptError::Changed { .. }), "{damage:?}: {twice:?}");
        }
    }

    /// The same seed again, on the same bytes.
    fn plan_again(path: &Path, before: &[u8], damage: &Damage) -> Wound {
        let left = fs::read(path).ok();
        fs::write(path, before).unwrap();
        let wound = plan(path, 2, 8192, damage, 7).unwrap();
        match left {
            Some(left) => fs::write(path, left).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        wound
    }

    #[test]
    fn what_cannot_be_damaged_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = file(directory.path());
        let none = plan(&path, 4, 8192, &Damage::Bit, 0).unwrap_err();
        assert!(matches!(none, CorruptError::NoBlock { blocks: 4, .. }), "{none:?}");
        let same = plan(&path, 1, 8192, &Damage::Transposed { with: 1 }, 0).unwrap_err();
        assert!(matches!(same, CorruptError::Nothing { .. }), "{same:?}");
        fs::write(directory.path().join("x"), "{}").unwrap();
        let none = Wound::load(&directory.path().join("x")).unwrap_err();
        assert!(matches!(none, CorruptError::NotUndo { .. }), "{none:?}");
    }

    proptest! {
        #[test]
        fn hexadecimal_comes_back(bytes: Vec<u8>, text in "[0-9a-fA-Fx]*") {
            prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes));
            let _ = unhex(&text);
        }
    }
}
