//! Writes pages into a data directory that is held, and takes them back.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use pgtoll_datadir::{RelationFileList, RelationFileName, relation_directories};
use pgtoll_format::{ControlFile, Lsn, PageHeader, Verdict, hex, unhex};
use pgtoll_record::{EvidenceClass, RepairBlock};
use pgtoll_system::Draft;
use serde::{Deserialize, Serialize};

use super::proof::page_verdict;
use super::refusal::BlockRefusal;
use super::{RepairError, RepairPlan};
use crate::hold::Hold;
use crate::{MaybeOverwritten, WriteError};

/// Pages before and after a repair. The undo file is this, as JSON: it is on disk before a page is
/// written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairUndo {
    schema: String,
    /// The cluster's identifier, in decimal.
    system_identifier: String,
    /// The start of the shutdown's record, after which the pages were written.
    checkpoint: Lsn,
    /// The pages.
    pub pages: Vec<UndoPage>,
}

/// The version of the form of undo files.
const REPAIR_UNDO_SCHEMA: &str = "pgtoll.repair-undo/1";

/// A page before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoPage {
    /// The file, absolute.
    file: PathBuf,
    /// The start of the page, in bytes from the file's begin.
    at: u64,
    /// The block's number in its fork, which its checksum depends on.
    block: u32,
    /// The page that was there, in hexadecimal.
    before: String,
    /// The page that is to be there, in hexadecimal.
    after: String,
    /// Why that is the right one.
    proof: RepairBlock,
}

impl UndoPage {
    pub(super) fn new(
        path: &Path,
        at: u64,
        block: u32,
        before: &[u8],
        after: &[u8],
        proof: RepairBlock,
    ) -> Self {
        // The directory was read a moment ago; a link in it leads to a tablespace.
        let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
        let file = parent.unwrap_or_default().join(path.file_name().unwrap_or_default());
        Self { file, at, block, before: hex(before), after: hex(after), proof }
    }

    /// Whether it is of this block.
    pub fn is_of(&self, block: &RepairBlock) -> bool {
        let key = |block: &RepairBlock| {
            (block.tablespace, block.database, block.filenode, block.fork.clone(), block.block)
        };
        key(&self.proof) == key(block)
    }

    /// The file that has it.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The start of the page, in bytes from the file's begin.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The block's number in its fork.
    pub(super) fn block(&self) -> u32 {
        self.block
    }

    /// The page that is to be there, in hexadecimal.
    pub(super) fn after(&self) -> &str {
        &self.after
    }

    /// The block, with why its page is the right one.
    pub fn proof(&self) -> &RepairBlock {
        &self.proof
    }

    fn changed(&self) -> RepairError {
        let bytes = (self.before.len() / 2).max(1) as u64;
        RepairError::PageChanged { path: self.file.clone(), block: self.at / bytes }
    }

    /// Whether a repair can have made it.
    fn is_possible(&self) -> bool {
        let before = unhex(&self.before);
        let after = unhex(&self.after);
        before.zip(after).is_some_and(|(before, after)| {
            !before.is_empty()
                && before.len() == after.len()
                && self.at.is_multiple_of(before.len() as u64)
                && self.at.checked_add(before.len() as u64).is_some()
                && page_verdict(&after, self.block) == Verdict::Valid
        })
    }

    pub(super) fn open(&self, data: &Path, control: &ControlFile) -> Result<File, RepairError> {
        if !self.is_below(data, control) {
            return Err(RepairError::OtherFile { path: self.file.clone() });
        }
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
        let file = File::options().read(true).write(true).custom_flags(flags).open(&self.file);
        Ok(file.map_err(WriteError::read(&self.file))?)
    }

    /// Whether its file is a relation's of this data directory.
    fn is_below(&self, data: &Path, control: &ControlFile) -> bool {
        let name = self.file.file_name().and_then(|name| name.to_str());
        let is_relation = name.and_then(RelationFileName::parse).is_some();
        let places = relation_directories(data, control, &mut RelationFileList::default());
        let parent = self.file.parent();
        is_relation
            && places.iter().any(|place| fs::canonicalize(&place.path).ok().as_deref() == parent)
    }

    pub(super) fn read(&self, file: &File) -> Result<Vec<u8>, RepairError> {
        let mut page = vec![0; self.before.len() / 2];
        match file.read_exact_at(&mut page, self.at) {
            Ok(()) => Ok(page),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.changed()),
            Err(error) => Err(WriteError::read(&self.file)(error).into()),
        }
    }

    /// How the page is found: `None`, where something else was written.
    pub(super) fn state(&self, now: &[u8]) -> Option<PageState> {
        let before = unhex(&self.before)?;
        let after = unhex(&self.after)?;
        if now == before {
            return Some(PageState::Before);
        }
        if now == after {
            return Some(PageState::After);
        }
        let sectors = now.chunks(SECTOR_BYTES).zip(before.chunks(SECTOR_BYTES));
        let is_mix = sectors
            .zip(after.chunks(SECTOR_BYTES))
            .all(|((now, before), after)| now == before || now == after);
        is_mix.then_some(PageState::Mixed)
    }

    /// Writes one of the two, and has it on disk and read again.
    fn put(&self, file: &File, page: &[u8], hold: &Hold) -> Result<(), RepairError> {
        let write = |source| WriteError::Write { path: self.file.clone(), source };
        let sync = |source| WriteError::Sync { path: self.file.clone(), source };
        let block = self.at / page.len().max(1) as u64;
        hold.check()?;
        file.write_all_at(page, self.at).map_err(write)?;
        if !hold.is_held() {
            let blocks = Some(block..block + 1);
            return Err(hold
                .lost(vec![MaybeOverwritten { path: self.file.clone(), blocks }])
                .into());
        }
        file.sync_all().map_err(sync)?;
        if self.read(file)? != page {
            return Err(WriteError::NotAsWritten { path: self.file.clone(), block }.into());
        }
        Ok(())
    }
}

/// How a page is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// As it was before the repair.
    Before,
    /// As the repair left it.
    After,
    /// Each sector is one or the other: a write that was cut off.
    Mixed,
}

/// The bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// The work of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairStep {
    /// All pages were found as they were when the plan was made.
    Checked,
    /// This page, from 0, was written and is on disk.
    Written(usize),
}

impl RepairUndo {
    /// Makes the undo file of a plan.
    pub fn new(plan: &RepairPlan, control: &ControlFile) -> Self {
        Self {
            schema: REPAIR_UNDO_SCHEMA.to_owned(),
            system_identifier: control.system_identifier.to_string(),
            checkpoint: control.checkpoint,
            pages: plan.pages.clone(),
        }
    }

    /// Writes it to `path`, complete and synced, unless something has that name.
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
    pub fn load(path: &Path) -> Result<Self, RepairError> {
        let bytes = pgtoll_system::read(path, UNDO_BYTES_MAX).map_err(WriteError::read(path))?;
        Self::read(&bytes).ok_or_else(|| RepairError::NotRepairUndo { path: path.to_owned() })
    }

    /// The content of an undo file; `None` if no repair could have made it.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let undo: Option<Self> = serde_json::from_slice(bytes).ok();
        undo.filter(|undo| {
            undo.schema == REPAIR_UNDO_SCHEMA && undo.pages.iter().all(UndoPage::is_possible)
        })
    }

    /// Writes the pages, each once it was found as it was when the plan was made: still refused by a
    /// server, all zeros, or older than the page that replaces it. Calls `done` for each step.
    pub fn apply(&self, hold: &Hold, done: &mut dyn FnMut(RepairStep)) -> Result<(), RepairError> {
        let control = hold.control();
        self.check_cluster(control)?;
        if control.checkpoint != self.checkpoint {
            return Err(RepairError::UsedSince { path: hold.data().to_owned() });
        }
        let open = |page: &UndoPage| {
            let file = page.open(hold.data(), control)?;
            let now = page.read(&file)?;
            let is_before = page.state(&now) == Some(PageState::Before);
            let is_damaged = page_verdict(&now, page.block) != Verdict::Valid;
            if is_before && (is_damaged || page.is_newer_than(&now)) {
                Ok(file)
            } else {
                Err(page.changed())
            }
        };
        // Nothing is written where one of them is another one.
        self.pages.iter().try_for_each(|page| open(page).map(drop))?;
        done(RepairStep::Checked);
        for (number, page) in self.pages.iter().enumerate() {
            let file = open(page)?;
            let after = unhex(&page.after).unwrap_or_default();
            page.put(&file, &after, hold)?;
            done(RepairStep::Written(number));
        }
        Ok(())
    }

    /// Whether it is of this cluster.
    pub(super) fn check_cluster(&self, control: &ControlFile) -> Result<(), RepairError> {
        if control.system_identifier.to_string() == self.system_identifier {
            return Ok(());
        }
        let path = self.pages.first().map(|page| page.file.clone()).unwrap_or_default();
        Err(RepairError::OtherFile { path })
    }

    /// Puts the pages back that were there before, where nobody wrote since; how many were written.
    pub fn revert(&self, hold: &Hold) -> Result<usize, RepairError> {
        let control = hold.control();
        self.check_cluster(control)?;
        let mut found = Vec::new();
        for page in &self.pages {
            let file = page.open(hold.data(), control)?;
            let state = page.state(&page.read(&file)?).ok_or_else(|| page.changed())?;
            if state != PageState::Before {
                found.push((page, file));
            }
        }
        for (page, file) in &found {
            page.put(file, &unhex(&page.before).unwrap_or_default(), hold)?;
        }
        Ok(found.len())
    }
}

/// Three times the largest plan.
const UNDO_BYTES_MAX: u64 = 1 << 30;

impl UndoPage {
    /// Whether the page that is to be written was changed by later WAL than this one.
    fn is_newer_than(&self, now: &[u8]) -> bool {
        let after = unhex(&self.after).unwrap_or_default();
        let lsn = |page: &[u8]| PageHeader::read(page).map(|header| header.lsn);
        lsn(&after).zip(lsn(now)).is_some_and(|(after, now)| after > now)
    }
}

impl RepairPlan {
    /// Notes that these pages were written.
    pub fn mark_installed(&mut self, written: &[usize]) {
        for number in written {
            let Some(page) = self.pages.get(*number) else { continue };
            for block in self.record.blocks.iter_mut().filter(|block| page.is_of(block)) {
                block.installed = block.class > EvidenceClass::Derivable;
            }
        }
        self.record.remaining = super::count_remaining(&self.record.blocks);
    }

    /// Notes of pages why they were not written.
    pub fn mark_not_written(&mut self, not_written: &[(usize, BlockRefusal)]) {
        for (number, reason) in not_written {
            let Some(page) = self.pages.get(*number) else { continue };
            for block in self.record.blocks.iter_mut().filter(|block| page.is_of(block)) {
                block.reason = format!("not written: {reason}; {}", block.reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_format::{PAGE_BYTES, PAGE_CHECKSUM};

    use super::*;

    const BLOCK: u32 = 2;

    /// A sound page.
    fn sound() -> Vec<u8> {
        let mut page = vec![7; PAGE_BYTES];
        for (at, value) in [(10, 0_u16), (12, 24), (14, 8000), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = pgtoll_checksum::page_checksum(&page, BLOCK);
        page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    fn proof() -> RepairBlock {
        RepairBlock {
            tablespace: 1663,
            database: 5,
            filenode: 16384,
            fork: "main".to_owned(),
            block: BLOCK,
            path: Some("base/5/16384".to_owned()),
            name: None,
            damage: String::new(),
            lsn: None,
            last_record: None,
            class: EvidenceClass::Proved,
            reason: String::new(),
            candidates: Vec::new(),
            chosen: None,
            changed_bytes: 0,
            changed: Vec::new(),
            installed: false,
            advice: Vec::new(),
        }
    }

    fn undo() -> RepairUndo {
        let mut damaged = sound();
        damaged[..1000].fill(1);
        let at = u64::from(BLOCK) * PAGE_BYTES as u64;
        let page = UndoPage::new(Path::new("/tmp/16384"), at, BLOCK, &damaged, &sound(), proof());
        RepairUndo {
            schema: REPAIR_UNDO_SCHEMA.to_owned(),
            system_identifier: "7".to_owned(),
            checkpoint: Lsn(8),
            pages: vec![page],
        }
    }

    #[test]
    fn an_undo_file_that_no_repair_made_is_refused() {
        let read = |undo: &RepairUndo| RepairUndo::read(&serde_json::to_vec(undo).unwrap());
        assert_eq!(read(&undo()), Some(undo()));
        let check = |forge: &dyn Fn(&mut RepairUndo)| {
            let mut undo = undo();
            forge(&mut undo);
            assert_eq!(read(&undo), None);
        };
        check(&|item| item.schema = "pgtoll.undo/1".to_owned());
        check(&|item| item.pages[0].at += 1);
        check(&|item| item.pages[0].at = u64::MAX - 8191);
        check(&|item| item.pages[0].block += 1);
        check(&|item| item.pages[0].before.truncate(2));
        check(&|item| item.pages[0].before.clear());
        check(&|item| {
            let before = item.pages[0].before.clone();
            item.pages[0].after = before;
        });
        assert_eq!(RepairUndo::read(b"{}"), None);
    }

    #[test]
    fn a_page_is_the_old_one_the_new_one_or_sectors_of_both() {
        let page = undo().pages.swap_remove(0);
        let before = unhex(&page.before).unwrap();
        let after = unhex(&page.after).unwrap();
        let mut mixed = after.clone();
        mixed[..512].copy_from_slice(&before[..512]);
        let mut other = after.clone();
        other[600] ^= 4;
        let check = |now: &[u8], expected| assert_eq!(page.state(now), expected);
        check(&before, Some(PageState::Before));
        check(&after, Some(PageState::After));
        check(&mixed, Some(PageState::Mixed));
        check(&other, None);
    }
}
