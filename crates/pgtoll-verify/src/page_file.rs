//! Pages of one file: a page in all its parts, checksums, and in what two pages differ.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pgtoll_checksum::page_checksum;
use pgtoll_datadir::{RelationFileName, control_file};
use pgtoll_format::{
    ForkNumber, HeaderField, LinePointer, LinePointerState, PAGE_BYTES, PageDifference, PageHeader,
    PageKind, hex, line_pointers,
};
use pgtoll_record::{
    FieldDifference, LinePointerRecord, PAGE_CHECKSUMS_SCHEMA, PAGE_DIFFERENCE_SCHEMA, PAGE_SCHEMA,
    PageChecksumRecord, PageChecksumsRecord, PageDifferenceRecord, PageHeaderRecord, PageRecord,
};

/// Why a page of a file cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum PageFileError {
    /// A file, or a block of it, cannot be read.
    #[error("read {what}")]
    Read {
        /// The path, or the block and the path.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A directory, a device or the like.
    #[error("{path} is not a file")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// The file ends before.
    #[error("{path} has {blocks} blocks: no block {block}")]
    NoBlock {
        /// The path.
        path: String,
        /// Blocks that the file has.
        blocks: u64,
        /// The block that was asked for.
        block: u64,
    },
    /// The block has a number that no fork reaches.
    #[error("no block of a relation has so high a number")]
    BlockNumber,
    /// Pages of so few bytes do not exist.
    #[error("the page is shorter than a header")]
    Short,
    /// Two pages of clusters with different block sizes.
    #[error("the pages have different lengths")]
    Lengths,
}

impl PageFileError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotAFile { .. } => "name a relation's file",
            Self::NoBlock { .. } => "blocks are counted from 0 in each file",
            Self::Lengths => "name files of one cluster",
            Self::Read { .. } | Self::BlockNumber | Self::Short => return None,
        };
        Some(hint.to_owned())
    }
}

/// A page in all its parts. `block` counts from 0 in the file.
pub fn page_record(path: &Path, block: u64) -> Result<PageRecord, PageFileError> {
    let file = RelationPages::open(path)?;
    let page = file.page(block)?;
    let header = PageHeader::read(&page).ok_or(PageFileError::Short)?;
    let sum = file.checksum(block, &page)?;
    let is_plausible = !header.is_new() && header.is_plausible(page.len());
    Ok(PageRecord {
        schema: PAGE_SCHEMA.to_owned(),
        file: path.display().to_string(),
        block,
        block_of_fork: sum.block_of_fork,
        kind: file.kind(&page),
        header: PageHeaderRecord {
            lsn: header.lsn.to_string(),
            checksum: header.checksum,
            flags: header.flags,
            lower: header.lower,
            upper: header.upper,
            special: header.special,
            pagesize: u32::from(header.size_and_layout & 0xFF00),
            version: header.layout(),
            prune_xid: header.prune_xid,
        },
        checksum_computed: sum.computed,
        accepted: sum.accepted,
        free_bytes: is_plausible.then(|| header.upper - header.lower),
        line_pointers: if is_plausible { pointers(&page) } else { Vec::new() },
        bytes: hex(&page),
    })
}

/// Whether a file's pages have the checksums that they should have, of one block or of all.
pub fn page_checksums_record(
    path: &Path,
    block: Option<u64>,
) -> Result<PageChecksumsRecord, PageFileError> {
    let file = RelationPages::open(path)?;
    let blocks = block.map_or(0..file.blocks(), |block| block..block + 1);
    let pages: Result<Vec<PageChecksumRecord>, PageFileError> =
        blocks.map(|block| file.checksum(block, &file.page(block)?)).collect();
    Ok(PageChecksumsRecord {
        schema: PAGE_CHECKSUMS_SCHEMA.to_owned(),
        file: path.display().to_string(),
        pages: pages?,
        bytes_left: file.bytes % file.block_bytes as u64,
    })
}

/// In what a block of two files differs.
pub fn page_difference_record(
    a: &Path,
    b: &Path,
    block: u64,
) -> Result<PageDifferenceRecord, PageFileError> {
    let pages = [RelationPages::open(a)?.page(block)?, RelationPages::open(b)?.page(block)?];
    let [header_a, header_b] = [&pages[0], &pages[1]].map(|page| PageHeader::read(page));
    let difference = PageDifference::between(&pages[0], &pages[1]);
    let ((found, header_a), header_b) =
        difference.zip(header_a).zip(header_b).ok_or(PageFileError::Lengths)?;
    let field = |&field: &HeaderField| FieldDifference {
        name: field.name().to_owned(),
        values: [value(&header_a, field), value(&header_b, field)],
    };
    Ok(PageDifferenceRecord {
        schema: PAGE_DIFFERENCE_SCHEMA.to_owned(),
        files: [a, b].map(|path| path.display().to_string()),
        block,
        bytes: found.bytes,
        only_hints: found.bytes > 0 && found.is_only_hints(),
        header: found.header.iter().map(field).collect(),
        line_pointers: found.line_pointers,
        items: found.items,
        hints: found.hints,
        special: found.special,
        elsewhere: found.elsewhere,
    })
}

fn pointers(page: &[u8]) -> Vec<LinePointerRecord> {
    let state = |state| match state {
        LinePointerState::Unused => "unused",
        LinePointerState::Normal => "normal",
        LinePointerState::Redirect => "redirect",
        LinePointerState::Dead => "dead",
    };
    let record = |(number, pointer): (usize, LinePointer)| LinePointerRecord {
        number,
        offset: pointer.offset,
        length: pointer.bytes,
        state: state(pointer.state).to_owned(),
    };
    (1..).zip(line_pointers(page)).map(record).collect()
}

fn value(header: &PageHeader, field: HeaderField) -> String {
    match field {
        HeaderField::Lsn => header.lsn.to_string(),
        HeaderField::Checksum => header.checksum.to_string(),
        HeaderField::Flags => header.flags.to_string(),
        HeaderField::Lower => header.lower.to_string(),
        HeaderField::Upper => header.upper.to_string(),
        HeaderField::Special => header.special.to_string(),
        HeaderField::SizeAndLayout => header.size_and_layout.to_string(),
        HeaderField::PruneXid => header.prune_xid.to_string(),
    }
}

/// A relation's file, with what is needed to know its blocks' numbers.
struct RelationPages {
    file: File,
    name: Option<RelationFileName>,
    path: String,
    bytes: u64,
    block_bytes: usize,
    file_blocks: u32,
}

impl RelationPages {
    /// The sizes are those of the data directory that the file is in; of a file elsewhere, those
    /// that all packages have.
    fn open(path: &Path) -> Result<Self, PageFileError> {
        let shown = path.display().to_string();
        let read = |source| PageFileError::Read { what: shown.clone(), source };
        let found = std::fs::metadata(path).map_err(read)?;
        if !found.is_file() {
            return Err(PageFileError::NotAFile { path: shown });
        }
        let file = pgtoll_system::open(path).map_err(read)?;
        let above = std::path::absolute(path).map_err(read)?;
        let control = above.ancestors().skip(1).find_map(|above| control_file(above).ok());
        let sizes = control.map(|control| (control.block_bytes as usize, control.file_blocks));
        let (block_bytes, file_blocks) = sizes.unwrap_or((PAGE_BYTES, FILE_BLOCKS));
        let name = path.file_name().and_then(|name| RelationFileName::parse(name.to_str()?));
        Ok(Self { file, name, path: shown, bytes: found.len(), block_bytes, file_blocks })
    }

    fn blocks(&self) -> u64 {
        self.bytes / self.block_bytes as u64
    }

    fn page(&self, block: u64) -> Result<Vec<u8>, PageFileError> {
        if block >= self.blocks() {
            let path = self.path.clone();
            let blocks = self.blocks();
            return Err(PageFileError::NoBlock { path, blocks, block });
        }
        let mut page = vec![0; self.block_bytes];
        let read = self.file.read_exact_at(&mut page, block * self.block_bytes as u64);
        read.map_err(|source| {
            let label = format!("block {block} of {}", self.path);
            PageFileError::Read { what: label, source }
        })?;
        Ok(page)
    }

    fn checksum(&self, block: u64, page: &[u8]) -> Result<PageChecksumRecord, PageFileError> {
        let first =
            self.name.map_or(0, |name| u64::from(name.segment) * u64::from(self.file_blocks));
        let block_of_fork = u32::try_from(first + block).map_err(|_| PageFileError::BlockNumber)?;
        let header = PageHeader::read(page).ok_or(PageFileError::Short)?;
        let computed = (!header.is_new()).then(|| page_checksum(page, block_of_fork));
        let accepted = match computed {
            // As PageIsVerified has it.
            Some(sum) => sum == header.checksum && header.is_plausible(page.len()),
            None => page.iter().all(|&byte| byte == 0),
        };
        Ok(PageChecksumRecord { block, block_of_fork, stored: header.checksum, computed, accepted })
    }

    /// Maps have a name that says so.
    fn kind(&self, page: &[u8]) -> String {
        let kind = PageKind::from_page(page);
        match (kind, self.name.map(|name| name.fork)) {
            (PageKind::Heap | PageKind::Map, Some(ForkNumber::FSM)) => "fsm".to_owned(),
            (PageKind::Heap | PageKind::Map, Some(ForkNumber::VM)) => "vm".to_owned(),
            _ => kind.to_string(),
        }
    }
}

/// `RELSEG_SIZE` of all packages.
const FILE_BLOCKS: u32 = 131_072;
