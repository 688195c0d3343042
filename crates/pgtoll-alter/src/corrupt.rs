//! Damages a page on purpose, and puts it right again.
//!
//! What a damage changes is worked out first, as a list of bytes before and after; then the undo
//! file is written and synced; only then the data.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use pgtoll_format::{ControlFile, SplitMix64, hex, unhex};
use pgtoll_system::Draft;
use serde::{Deserialize, Serialize};

use crate::WriteError;
use pgtoll_datadir::{RelationFile, RelationFileList, RelationFileName, relation_directories};

/// How a block is damaged, with what it takes. The command line's `--kind` has the names alone.
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
pub struct DamagePlan {
    /// [`UNDO_SCHEMA`].
    pub schema: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// Bytes of the file before.
    pub length: u64,
    /// Bytes of the file after; `None`: it is gone.
    pub length_after: Option<u64>,
    /// The changed or cut bytes.
    pub changes: Vec<ByteChange>,
    /// The file as a whole, moved beside itself, where it is gone.
    pub moved_to: Option<PathBuf>,
}

/// The version of the form of undo files.
pub const UNDO_SCHEMA: &str = "pgtoll.undo/1";

/// Bytes that were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteChange {
    /// Their start, in bytes from the file's begin.
    pub at: u64,
    /// The bytes before, in hexadecimal.
    pub before: String,
    /// The bytes now; empty if the file was cut.
    pub after: String,
}

/// A file cannot be damaged so, or not be put right.
#[derive(Debug, thiserror::Error)]
pub enum CorruptError {
    /// The file has no such block.
    #[error("{} has {blocks} blocks: no block {block}", path.display())]
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
    /// The file is not an undo file of `pgtoll corrupt`.
    #[error("{} is not an undo file of pgtoll", path.display())]
    NotUndo {
        /// The file.
        path: PathBuf,
    },
    /// Something else was written between the plan and the damage.
    #[error("{} was written to meanwhile", path.display())]
    NotAsPlanned {
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
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoBlock { .. } => "blocks are counted from 0 in each file",
            Self::Nothing { .. } => "choose another block or another --kind",
            Self::NotUndo { .. } => "name the file that pgtoll corrupt wrote",
            Self::NotAsPlanned { .. } => "run the same command again",
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
    Ok((blocks > 0).then(|| SplitMix64(!seed).below(blocks)))
}

/// A block of a file, by chance, that `is_allowed`; `None`: none of some hundred was. The same seed
/// takes the same one. A file without blocks has block 0.
pub fn any_block_where<E: From<CorruptError>>(
    file: &Path,
    block_bytes: usize,
    seed: u64,
    mut is_allowed: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    for seed in (seed..).take(TRIES) {
        let block = any_block(file, block_bytes, seed)?.unwrap_or_default();
        if is_allowed(block)? {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// How often another block is tried.
const TRIES: usize = 100;

/// Works out a damage, and changes nothing yet. The same seed makes the same damage.
pub fn plan_damage(
    file: &Path,
    block: u64,
    block_bytes: usize,
    damage: &Damage,
    seed: u64,
) -> Result<DamagePlan, CorruptError> {
    // Links lead to tablespaces; a file itself is none.
    let parent = file.parent().map(fs::canonicalize).transpose().map_err(WriteError::read(file))?;
    let path = parent.unwrap_or_default().join(file.file_name().unwrap_or_default());
    let open = pgtoll_system::open_unlinked(&path).map_err(WriteError::read(file))?;
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
    let mut plan = DamagePlan {
        schema: UNDO_SCHEMA.to_owned(),
        file: path.clone(),
        length,
        length_after: Some(length),
        changes: Vec::new(),
        moved_to: None,
    };
    let half = block_bytes / 2;
    let mut random = SplitMix64(seed);
    let mut after = before.clone();
    match damage {
        Damage::Bit => {
            let bit = random.below(block_bytes as u64 * 8);
            after[usize::try_from(bit / 8).unwrap_or(0)] ^= 1 << (bit % 8);
        }
        Damage::Garbage => after.fill_with(|| random.draw().to_le_bytes()[7]),
        Damage::Transposed { with } => {
            after = page(*with)?;
            plan.add(*with * size, &after, &before);
        }
        Damage::Torn { older } if older.len() == block_bytes => {
            after[..half].copy_from_slice(&older[..half]);
        }
        Damage::Stale { older } if older.len() == block_bytes => after.copy_from_slice(older),
        Damage::Torn { .. } | Damage::Stale { .. } => {}
        Damage::Zero => after.fill(0),
        Damage::ZeroHalf => after[..half].fill(0),
        Damage::Cut => return plan.cut(&open, block * size + half as u64),
        Damage::CutAtBlock => return plan.cut(&open, block * size),
        Damage::MissingSegment => {
            plan.length_after = None;
            plan.moved_to = Some(moved(&path));
            return Ok(plan);
        }
    }
    plan.add(block * size, &before, &after);
    if plan.changes.is_empty() {
        return Err(CorruptError::Nothing { path, block });
    }
    Ok(plan)
}

impl DamagePlan {
    /// Adds what differs, from the first byte that does to the last.
    fn add(&mut self, at: u64, before: &[u8], after: &[u8]) {
        let differs = |(a, b): (&u8, &u8)| a != b;
        let first = before.iter().zip(after).position(differs);
        let last = before.iter().zip(after).rposition(differs);
        if let (Some(first), Some(last)) = (first, last) {
            self.changes.push(ByteChange {
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
        self.changes.push(ByteChange { at, before: hex(&tail), after: String::new() });
        Ok(self)
    }

    /// Writes what undoes it to `path`, complete and synced, unless something has that name.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut draft = Draft::from_path(path)?;
        draft.write_all(&serde_json::to_vec(self)?)?;
        draft.publish_new()?;
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        // Some file systems cannot sync directories.
        let _ = File::open(directory.unwrap_or(Path::new("."))).and_then(|open| open.sync_all());
        Ok(())
    }

    /// Reads an undo file.
    pub fn load(path: &Path) -> Result<Self, CorruptError> {
        let bytes = pgtoll_system::read(path, UNDO_BYTES_MAX).map_err(WriteError::read(path))?;
        Self::read(&bytes).ok_or_else(|| CorruptError::NotUndo { path: path.to_owned() })
    }

    /// The content of an undo file; `None` if no damage could have made it.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let plan: Option<Self> = serde_json::from_slice(bytes).ok();
        plan.filter(Self::is_possible)
    }

    /// Whether [`plan_damage`] could have made it.
    fn is_possible(&self) -> bool {
        let bytes = |text: &str| unhex(text).map(|bytes| bytes.len() as u64);
        let is_kept = |change: &ByteChange| {
            let before = bytes(&change.before);
            let after = bytes(&change.after);
            let end = before.and_then(|before| change.at.checked_add(before));
            before == after && end.is_some_and(|end| end <= self.length)
        };
        let is_cut = |change: &ByteChange, at: u64| {
            let missing = self.length.checked_sub(at);
            change.at == at
                && change.after.is_empty()
                && missing.is_some()
                && bytes(&change.before) == missing
        };
        let is_as_planned = match (&self.moved_to, self.length_after, &*self.changes) {
            (Some(to), None, []) => *to == moved(&self.file),
            (None, Some(at), [cut]) if at < self.length => is_cut(cut, at),
            (None, Some(length), changes) => length == self.length && changes.iter().all(is_kept),
            _ => false,
        };
        self.schema == UNDO_SCHEMA && is_as_planned
    }

    /// The relation's file that it is about; `None`: none of this data directory.
    pub fn file_in(&self, data: &Path, control: &ControlFile) -> Option<RelationFile> {
        let name = RelationFileName::parse(self.file.file_name()?.to_str()?)?;
        let parent = self.file.parent()?;
        let places = relation_directories(data, control, &mut RelationFileList::default());
        let is_here = |path: &Path| fs::canonicalize(path).is_ok_and(|found| found == parent);
        let place = places.into_iter().find(|place| is_here(&place.path))?;
        let relation = place.relation(name.number);
        Some(RelationFile { relation, name, path: self.file.clone(), bytes: self.length })
    }

    /// Does the damage, if the file is as it was when that was planned.
    pub fn apply(&self) -> Result<(), CorruptError> {
        if !self.is_untouched() {
            return Err(CorruptError::NotAsPlanned { path: self.file.clone() });
        }
        let damaged = match &self.moved_to {
            Some(to) => fs::rename(&self.file, to),
            None => self.put(|change| &change.after, self.length_after.unwrap_or(self.length)),
        };
        Ok(damaged.map_err(|source| WriteError::Write { path: self.file.clone(), source })?)
    }

    /// Puts everything as it was, also where only a part was damaged; `false`: it is as it was, and
    /// nothing was written.
    pub fn revert(&self) -> Result<bool, CorruptError> {
        match self.state() {
            FileState::Before => return Ok(false),
            FileState::Damaged => {}
            FileState::Other => return Err(CorruptError::Changed { path: self.file.clone() }),
        }
        let reverted = match &self.moved_to {
            Some(from) => fs::rename(from, &self.file),
            None => self.put(|change| &change.before, self.length),
        };
        reverted.map_err(|source| WriteError::Write { path: self.file.clone(), source })?;
        Ok(true)
    }

    fn put(&self, bytes: impl Fn(&ByteChange) -> &String, length: u64) -> io::Result<()> {
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let file = File::options().write(true).custom_flags(flags).open(&self.file)?;
        for change in &self.changes {
            let bytes = unhex(bytes(change)).unwrap_or_default();
            file.write_all_at(&bytes, change.at)?;
        }
        file.set_len(length)?;
        file.sync_all()
    }

    /// Whether the file stays, and as long as it is: only then a server that has it open reads the
    /// damage.
    pub fn keeps_length(&self) -> bool {
        self.length_after == Some(self.length)
    }

    /// The blocks of the file that change, of `block_bytes` each.
    pub fn changed_blocks(&self, block_bytes: u32) -> impl Iterator<Item = u64> + '_ {
        let block_bytes = u64::from(block_bytes.max(1));
        self.changes.iter().flat_map(move |change| {
            // Two digits a byte.
            let last = change.at + (change.before.len() as u64 / 2).saturating_sub(1);
            change.at / block_bytes..=last / block_bytes
        })
    }

    /// Whether the file is as it was before the damage.
    pub fn is_untouched(&self) -> bool {
        self.state() == FileState::Before
    }

    fn state(&self) -> FileState {
        if let Some(moved) = &self.moved_to {
            let length = |path: &Path| {
                fs::symlink_metadata(path).ok().map(|found| found.is_file().then_some(found.len()))
            };
            return match (length(&self.file), length(moved)) {
                (Some(Some(here)), None) if here == self.length => FileState::Before,
                (None, Some(Some(there))) if there == self.length => FileState::Damaged,
                _ => FileState::Other,
            };
        }
        self.state_of_bytes().unwrap_or(FileState::Other)
    }

    /// A write, and its undoing, may have been ended in the middle: the damage is done in part.
    fn state_of_bytes(&self) -> io::Result<FileState> {
        let file = pgtoll_system::open_unlinked(&self.file)?;
        let length = file.metadata()?.len();
        let shortest = self.length_after.unwrap_or(self.length);
        if !(shortest..=self.length).contains(&length) {
            return Ok(FileState::Other);
        }
        let mut is_before = length == self.length;
        for change in &self.changes {
            let before = unhex(&change.before).unwrap_or_default();
            let after = unhex(&change.after).unwrap_or_default();
            let end = length.min(change.at.saturating_add(before.len() as u64));
            let present = usize::try_from(end.saturating_sub(change.at)).unwrap_or(before.len());
            let mut now = vec![0; present];
            file.read_exact_at(&mut now, change.at)?;
            let mut at = 0;
            while at < present {
                let sector_end = (change.at + at as u64 + 1).next_multiple_of(SECTOR_BYTES);
                let end = usize::try_from(sector_end - change.at).unwrap_or(present).min(present);
                let sector = Some(&now[at..end]);
                if sector != before.get(at..end) {
                    is_before = false;
                    if sector != after.get(at..end) {
                        return Ok(FileState::Other);
                    }
                }
                at = end;
            }
        }
        Ok(if is_before { FileState::Before } else { FileState::Damaged })
    }
}

/// How a damaged file is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// As it was before the damage.
    Before,
    /// As the damage left it, or each sector one or the other.
    Damaged,
    /// Something else was written.
    Other,
}

/// The bytes that a disk writes atomically.
const SECTOR_BYTES: u64 = 512;

/// Returns the place to which a file is moved that shall be missing.
fn moved(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pgtoll-moved");
    name.into()
}

/// In hexadecimal, with what else is in an undo file.
const UNDO_BYTES_MAX: u64 = 2 * CUT_BYTES_MAX as u64 + (1 << 20);

/// Bytes that go into an undo file at most.
const CUT_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
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
            let plan = plan_damage(&path, 2, 8192, &damage, 7).unwrap();
            assert!(fs::read(&path).unwrap() == before, "{damage:?}");
            plan.save(&undo).unwrap();
            plan.apply().unwrap();
            assert!(fs::read(&path).ok().is_none_or(|now| now != before), "{damage:?}");
            assert_eq!(plan_again(&path, &before, &damage), plan);
            assert!(DamagePlan::load(&undo).unwrap().revert().unwrap(), "{damage:?}");
            assert!(fs::read(&path).unwrap() == before, "{damage:?}");
            assert!(!DamagePlan::load(&undo).unwrap().revert().unwrap(), "nothing is left to undo");
            assert!(fs::read(&path).unwrap() == before, "{damage:?}");
        }
    }

    #[test]
    fn a_damage_that_was_done_in_part_is_undone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, before) = file(directory.path());
        let plan = plan_damage(&path, 2, 8192, &Damage::Transposed { with: 0 }, 7).unwrap();
        plan.apply().unwrap();
        let after = fs::read(&path).unwrap();
        // Written so far, front to back: after the first block, and in the middle of the second.
        for written in [8192, 2 * 8192 + 512, 2 * 8192 + 4096] {
            fs::write(&path, [&after[..written], &before[written..]].concat()).unwrap();
            assert!(plan.revert().unwrap(), "{written}");
            assert!(fs::read(&path).unwrap() == before, "{written}");
        }
        // The middle of a sector is where somebody else wrote.
        fs::write(&path, [&after[..700], &before[700..]].concat()).unwrap();
        let changed = plan.revert().unwrap_err();
        assert!(matches!(changed, CorruptError::Changed { .. }), "{changed:?}");
    }

    #[test]
    fn a_cut_that_was_undone_in_part_is_undone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, before) = file(directory.path());
        let plan = plan_damage(&path, 2, 8192, &Damage::Cut, 7).unwrap();
        for length in [plan.length_after.unwrap(), 3 * 8192, plan.length - 1] {
            fs::write(&path, &before[..usize::try_from(length).unwrap()]).unwrap();
            assert!(plan.revert().unwrap(), "{length}");
            assert!(fs::read(&path).unwrap() == before, "{length}");
        }
    }

    #[test]
    fn a_file_that_changed_after_the_plan_is_not_damaged() {
        let directory = tempfile::tempdir().unwrap();
        for damage in damages() {
            let (path, mut bytes) = file(directory.path());
            let plan = plan_damage(&path, 2, 8192, &damage, 7).unwrap();
            bytes.truncate(1000);
            fs::write(&path, &bytes).unwrap();
            let refused = plan.apply().unwrap_err();
            assert!(matches!(refused, CorruptError::NotAsPlanned { .. }), "{refused:?}");
            assert!(fs::read(&path).unwrap() == bytes, "{damage:?}");
        }
    }

    #[test]
    fn an_undo_file_that_no_damage_made_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let undo = directory.path().join("undo");
        let (path, _) = file(directory.path());
        let check = |damage: &Damage, forge: &dyn Fn(&mut DamagePlan)| {
            let mut plan = plan_damage(&path, 2, 8192, damage, 7).unwrap();
            forge(&mut plan);
            let _ = fs::remove_file(&undo);
            plan.save(&undo).unwrap();
            let refused = DamagePlan::load(&undo).unwrap_err();
            assert!(matches!(refused, CorruptError::NotUndo { .. }), "{refused:?}");
        };
        check(&Damage::MissingSegment, &|item| item.moved_to = Some("/etc/passwd".into()));
        check(&Damage::MissingSegment, &|item| item.file = "/etc/passwd".into());
        check(&Damage::MissingSegment, &|item| item.length_after = Some(item.length));
        check(&Damage::Zero, &|item| item.changes[0].at = u64::MAX);
        check(&Damage::Zero, &|item| item.changes[0].at = item.length - 1);
        check(&Damage::Zero, &|item| item.length_after = Some(u64::MAX));
        check(&Damage::Zero, &|item| item.changes[0].after.truncate(2));
        check(&Damage::Cut, &|item| item.changes[0].before.truncate(2));
        check(&Damage::Cut, &|item| item.length = u64::MAX);
        fs::remove_file(&undo).unwrap();
        nix::unistd::mkfifo(&undo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = DamagePlan::load(&undo).unwrap_err();
        assert!(matches!(refused, CorruptError::Write(_)), "{refused:?}");
    }

    #[test]
    fn an_undo_file_is_about_a_relations_file_of_the_directory() {
        let data = tempfile::tempdir().unwrap();
        let data = fs::canonicalize(data.path()).unwrap();
        for place in ["base/5", "global", "pg_tblspc", "base/pgsql_tmp"] {
            fs::create_dir_all(data.join(place)).unwrap();
        }
        let control = ControlFile::read(&pgtoll_testing::control_file()).unwrap();
        let check = |name: &str, expected: bool| {
            let file = data.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, [7; 8192]).unwrap();
            let plan = plan_damage(&file, 0, 8192, &Damage::MissingSegment, 7).unwrap();
            assert_eq!(plan.file_in(&data, &control).is_some(), expected, "{name}");
        };
        check("base/5/16384", true);
        check("base/5/16384_vm.1", true);
        check("global/1262", true);
        check("base/5/authorized_keys", false);
        check("base/pgsql_tmp/16384", false);
        check("16384", false);
        check("elsewhere/16384", false);
    }

    /// The same seed again, on the same bytes.
    fn plan_again(path: &Path, before: &[u8], damage: &Damage) -> DamagePlan {
        let left = fs::read(path).ok();
        fs::write(path, before).unwrap();
        let plan = plan_damage(path, 2, 8192, damage, 7).unwrap();
        match left {
            Some(left) => fs::write(path, left).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        plan
    }

    #[test]
    fn what_cannot_be_damaged_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = file(directory.path());
        let none = plan_damage(&path, 4, 8192, &Damage::Bit, 0).unwrap_err();
        assert!(matches!(none, CorruptError::NoBlock { blocks: 4, .. }), "{none:?}");
        let same = plan_damage(&path, 1, 8192, &Damage::Transposed { with: 1 }, 0).unwrap_err();
        assert!(matches!(same, CorruptError::Nothing { .. }), "{same:?}");
        fs::write(directory.path().join("x"), "{}").unwrap();
        let none = DamagePlan::load(&directory.path().join("x")).unwrap_err();
        assert!(matches!(none, CorruptError::NotUndo { .. }), "{none:?}");
    }

    #[test]
    fn changed_blocks_are_all_that_a_damage_touches() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = file(directory.path());
        let blocks = |damage: &Damage| {
            let plan = plan_damage(&path, 2, 8192, damage, 7).unwrap();
            (plan.keeps_length(), plan.changed_blocks(8192).collect::<Vec<_>>())
        };
        assert_eq!(blocks(&Damage::Garbage), (true, vec![2]));
        assert_eq!(blocks(&Damage::Transposed { with: 0 }), (true, vec![0, 2]));
        assert!(!blocks(&Damage::Cut).0 && !blocks(&Damage::MissingSegment).0);
    }

    #[test]
    fn a_block_by_chance_is_one_that_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = file(directory.path());
        let find = |is_allowed: &dyn Fn(u64) -> bool| {
            any_block_where::<CorruptError>(&path, 8192, 3, |block| Ok(is_allowed(block))).unwrap()
        };
        assert_eq!(find(&|block| block == 1), Some(1));
        assert_eq!(find(&|_| true), any_block(&path, 8192, 3).unwrap());
        assert_eq!(find(&|_| false), None);
    }
}
