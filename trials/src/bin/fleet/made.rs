//! A base backup's tar of any length, made when it is asked for: tables of a gigabyte whose pages are
//! sound, and a control file.

use std::io::{self, Write};
use std::ops::Range;

use anyhow::Context as _;
use pgtoll_checksum::page_checksum;
use pgtoll_format::ControlFile;
use pgtoll_testing::{MadeObject, control_file};
use tar::{EntryType, Header};

const PAGE: usize = 8192;
/// Blocks of a file of a relation.
const BLOCKS: u64 = 131_072;
/// Bytes of a member's header in a tar.
const HEADER: u64 = 512;
/// Zeros behind the last member.
const END: usize = 1024;

/// The tar. Its tables have the same pages, which differ by their block's number.
pub(crate) struct MadeBackup {
    tables: u64,
    /// Blocks of a table.
    blocks: u64,
    page: Vec<u8>,
    /// By block.
    checksums: Vec<u16>,
    /// What is behind the tables.
    end: Vec<u8>,
}

impl std::fmt::Debug for MadeBackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tables of {} blocks", self.tables, self.blocks)
    }
}

impl MadeBackup {
    /// Of about this size: tables of a gigabyte, or one that is shorter.
    pub(crate) fn from_bytes(bytes: u64) -> anyhow::Result<Self> {
        let blocks = (bytes / PAGE as u64).clamp(1, BLOCKS);
        let tables = (bytes / (blocks * PAGE as u64)).max(1);
        let page = page();
        let checksums = (0..u32::try_from(blocks)?).map(|block| page_checksum(&page, block));
        let checksums = checksums.collect();
        let control = ControlFile::with_checksum_version(&control_file(), 1, 0)?;
        let mut end = header("global/pg_control", control.len() as u64)?;
        end.extend(&control);
        end.extend([0; END]);
        Ok(Self { tables, blocks, page, checksums, end })
    }

    fn table_bytes(&self) -> u64 {
        HEADER + self.blocks * PAGE as u64
    }

    /// The bytes of a table's member from this place on, as many as are together.
    fn write_table(&self, table: u64, range: Range<u64>, to: &mut dyn Write) -> io::Result<u64> {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        if range.start < HEADER {
            let name = format!("base/5/{}", 16_384 + table);
            let header = header(&name, self.blocks * PAGE as u64).map_err(io::Error::other)?;
            let end = range.end.min(HEADER);
            to.write_all(&header[place(range.start)?..place(end)?])?;
            return Ok(end - range.start);
        }
        let mut at = range.start - HEADER;
        let mut pages = Vec::with_capacity(AT_ONCE);
        let end = (range.end - HEADER).min(at + AT_ONCE as u64);
        while at < end {
            let block = place(at / PAGE as u64)?;
            let within = place(at % PAGE as u64)?;
            let mut page = [0; PAGE];
            page.copy_from_slice(&self.page);
            page[8..10].copy_from_slice(&self.checksums[block].to_le_bytes());
            let until = PAGE.min(within + place(end - at)?);
            pages.extend_from_slice(&page[within..until]);
            at += (until - within) as u64;
        }
        to.write_all(&pages)?;
        Ok(pages.len() as u64)
    }
}

impl MadeObject for MadeBackup {
    fn bytes(&self) -> u64 {
        self.tables * self.table_bytes() + self.end.len() as u64
    }

    fn write(&self, range: Range<u64>, to: &mut dyn Write) -> io::Result<()> {
        let mut at = range.start;
        let tables_end = self.tables * self.table_bytes();
        while at < range.end.min(tables_end) {
            let table = at / self.table_bytes();
            let within = at % self.table_bytes();
            let end = self.table_bytes().min(within + (range.end - at));
            at += self.write_table(table, within..end, to)?;
        }
        if at < range.end {
            let place = |at: u64| usize::try_from(at - tables_end).map_err(io::Error::other);
            to.write_all(&self.end[place(at)?..place(range.end)?])?;
        }
        Ok(())
    }
}

/// A full page of a table, without its checksum.
fn page() -> Vec<u8> {
    let mut page: Vec<u8> = (0..=250).cycle().take(PAGE).collect();
    let fields: [(usize, u16); 6] =
        [(8, 0), (10, 0), (12, 28), (14, 32), (16, 8192), (18, 8192 | 4)];
    page[..8].fill(0);
    page[4..8].copy_from_slice(&0x0100_0000_u32.to_le_bytes());
    for (at, value) in fields {
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    page[20..24].fill(0);
    page
}

fn header(path: &str, bytes: u64) -> anyhow::Result<Vec<u8>> {
    let mut header = Header::new_gnu();
    header.set_path(path).context("name a member")?;
    header.set_size(bytes);
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

/// Bytes that are made at once.
const AT_ONCE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_bytes_of_the_whole() {
        let backup = MadeBackup::from_bytes(3 * PAGE as u64).unwrap();
        let mut whole = Vec::new();
        backup.write(0..backup.bytes(), &mut whole).unwrap();
        assert_eq!(whole.len() as u64, backup.bytes());
        assert_eq!(whole.len() % 512, 0);
        for from in (0..backup.bytes()).step_by(1000) {
            let end = backup.bytes().min(from + 5000);
            let mut range = Vec::new();
            backup.write(from..end, &mut range).unwrap();
            assert!(range == whole[usize::try_from(from).unwrap()..usize::try_from(end).unwrap()]);
        }
        let second = &whole[512 + PAGE..512 + 2 * PAGE];
        let checksum = u16::from_le_bytes([second[8], second[9]]);
        assert_eq!(checksum, page_checksum(second, 1));
    }
}
