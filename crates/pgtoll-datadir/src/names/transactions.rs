//! Outcomes of transactions, by `pg_xact` and `pg_multixact`.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_format::heap::{TransactionStatus, Transactions};
use pgtoll_format::{ControlFacts, ControlFile};

/// Looks up transactions in a data directory's files. Pages are read once.
pub(super) struct TransactionFiles {
    xact: Pages,
    offsets: Pages,
    members: Pages,
    block_bytes: u64,
    offset_bytes: u64,
    /// The end of the members of the newest multixact, at the last checkpoint.
    next_offset: u64,
}

impl TransactionFiles {
    pub(super) fn new(data: &Path, control: &ControlFile, facts: &ControlFacts) -> Self {
        let pages = |name: &str| Pages::new(data.join(name), control);
        Self {
            xact: pages("pg_xact"),
            offsets: pages("pg_multixact/offsets"),
            members: pages("pg_multixact/members"),
            block_bytes: control.block_bytes.into(),
            offset_bytes: facts.multixact_offset_bytes as u64,
            next_offset: control.last_checkpoint.next_multixact_offset,
        }
    }

    /// Returns the number of the first member of a multixact.
    fn first_member(&mut self, multixact: u32) -> Option<u64> {
        let in_page = self.block_bytes / self.offset_bytes;
        let page = self.offsets.page(u64::from(multixact) / in_page)?;
        let at = usize::try_from(u64::from(multixact) % in_page * self.offset_bytes).ok()?;
        let bytes = page.get(at..at + usize::try_from(self.offset_bytes).ok()?)?;
        let mut number = [0; 8];
        number.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(number)).filter(|offset| *offset != 0)
    }

    /// A member's transaction, and whether it changed the row rather than locked it.
    fn member(&mut self, offset: u64) -> Option<(u32, bool)> {
        let groups_in_page = self.block_bytes / GROUP_BYTES;
        let in_page = groups_in_page * GROUP_MEMBERS;
        let page = self.members.page(offset / in_page)?;
        let group = usize::try_from(offset % in_page / GROUP_MEMBERS * GROUP_BYTES).ok()?;
        let member = usize::try_from(offset % GROUP_MEMBERS).ok()?;
        let status = *page.get(group + member)?;
        let xid = page.get(group + 4 + member * 4..)?.first_chunk()?;
        Some((u32::from_le_bytes(*xid), status >= NO_KEY_UPDATE))
    }
}

impl Transactions for TransactionFiles {
    fn status(&mut self, xid: u32) -> Option<TransactionStatus> {
        let in_page = self.block_bytes * u64::from(TransactionStatus::PER_BYTE);
        let page = self.xact.page(u64::from(xid) / in_page)?;
        TransactionStatus::in_page(page, xid)
    }

    fn updater(&mut self, multixact: u32) -> Option<u32> {
        let first = self.first_member(multixact)?;
        let next = self.first_member(multixact.wrapping_add(1)).unwrap_or(self.next_offset);
        // Numbers of members begin again at 2^32 where they have 4 bytes; no server that pgtoll
        // knows of has come that far in the other case.
        let end = if next < first { first + MEMBERS_MAX } else { next };
        (first..end.min(first + MEMBERS_MAX)).find_map(|offset| {
            let (xid, updates) = self.member(offset)?;
            updates.then_some(xid)
        })
    }
}

/// Flags of four members stand before their transactions.
const GROUP_MEMBERS: u64 = 4;
/// Four flags of a byte, and four transactions.
const GROUP_BYTES: u64 = 20;
/// `MultiXactStatusNoKeyUpdate`: it and what is above it is a change, what is below a lock.
const NO_KEY_UPDATE: u8 = 4;
/// As many as a server can have sessions (`MAX_BACKENDS`): no multixact has more members.
const MEMBERS_MAX: u64 = 1 << 18;

/// The pages of one SLRU: files of some pages each, whose names are their numbers.
struct Pages {
    directory: PathBuf,
    block_bytes: usize,
    file_blocks: u64,
    /// `None`: there is no such page.
    read: HashMap<u64, Option<Vec<u8>>>,
}

impl Pages {
    fn new(directory: PathBuf, control: &ControlFile) -> Self {
        Self {
            directory,
            block_bytes: control.block_bytes as usize,
            file_blocks: control.slru_file_blocks.into(),
            read: HashMap::new(),
        }
    }

    fn page(&mut self, number: u64) -> Option<&[u8]> {
        if !self.read.contains_key(&number) {
            let page = self.read_page(number).ok();
            self.read.insert(number, page);
        }
        self.read.get(&number)?.as_deref()
    }

    fn read_page(&self, number: u64) -> io::Result<Vec<u8>> {
        let file = number / self.file_blocks;
        // The members of multixacts have longer names in 19.
        let file = pgtoll_system::open(&self.directory.join(format!("{file:04X}")))
            .or_else(|_| pgtoll_system::open(&self.directory.join(format!("{file:015X}"))))?;
        let mut page = vec![0; self.block_bytes];
        file.read_exact_at(&mut page, number % self.file_blocks * self.block_bytes as u64)?;
        Ok(page)
    }
}
