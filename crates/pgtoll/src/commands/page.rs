//! `pgtoll page`: a page in all its parts, checksums, and in what two pages differ. Only reads.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_checksum::page_checksum;
use pgtoll_datadir::{RelationFileName, control_file};
use pgtoll_format::{
    ForkNumber, HeaderField, LinePointerState, PAGE_BYTES, PageDifference, PageHeader, PageKind,
    line_pointers,
};
use pgtoll_record::{
    FieldDifference, LinePointerRecord, PAGE_CHECKSUMS_SCHEMA, PAGE_DIFFERENCE_SCHEMA, PAGE_SCHEMA,
    PageChecksumRecord, PageChecksumsRecord, PageDifferenceRecord, PageHeaderRecord, PageRecord,
};
use serde::Serialize;

use crate::arguments::{PageArguments, PageCommand};
use crate::commands::{Usage, output};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &PageArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        PageCommand::Show { file, block, json } => show(file, *block, *json, printer),
        PageCommand::Checksum { file, block, json } => checksum(file, *block, *json, printer),
        PageCommand::Diff { a, b, block, json } => diff(a, b, *block, *json, printer),
    }
}

fn show(path: &Path, block: u64, json: bool, printer: &mut Printer) -> anyhow::Result<Status> {
    let file = RelationPages::open(path)?;
    let page = file.page(block)?;
    let header = PageHeader::read(&page).context("the page is shorter than a header")?;
    let sum = file.checksum(block, &page)?;
    let is_plausible = !header.is_new() && header.is_plausible(page.len());
    let record = PageRecord {
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
    };
    deliver(&record, json, pgtoll_report::page_text, printer);
    Ok(if sum.accepted { Status::Done } else { Status::Finding })
}

fn pointers(page: &[u8]) -> Vec<LinePointerRecord> {
    let state = |state| match state {
        LinePointerState::Unused => "unused",
        LinePointerState::Normal => "normal",
        LinePointerState::Redirect => "redirect",
        LinePointerState::Dead => "dead",
    };
    let of = |(number, pointer): (usize, pgtoll_format::LinePointer)| LinePointerRecord {
        number,
        offset: pointer.offset,
        length: pointer.bytes,
        state: state(pointer.state).to_owned(),
    };
    (1..).zip(line_pointers(page)).map(of).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn checksum(
    path: &Path,
    block: Option<u64>,
    json: bool,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let file = RelationPages::open(path)?;
    let blocks = block.map_or(0..file.blocks(), |block| block..block + 1);
    let pages: anyhow::Result<Vec<PageChecksumRecord>> =
        blocks.map(|block| file.checksum(block, &file.page(block)?)).collect();
    let pages = pages?;
    let bytes_left = file.bytes % file.block_bytes as u64;
    let is_sound = pages.iter().all(|page| page.accepted) && bytes_left == 0;
    let (schema, file) = (PAGE_CHECKSUMS_SCHEMA.to_owned(), path.display().to_string());
    let record = PageChecksumsRecord { schema, file, pages, bytes_left };
    deliver(&record, json, pgtoll_report::page_checksums_text, printer);
    Ok(if is_sound { Status::Done } else { Status::Finding })
}

fn diff(
    a: &Path,
    b: &Path,
    block: u64,
    json: bool,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let pages = [RelationPages::open(a)?.page(block)?, RelationPages::open(b)?.page(block)?];
    let [of_a, of_b] = [&pages[0], &pages[1]].map(|page| PageHeader::read(page));
    let found = PageDifference::between(&pages[0], &pages[1]);
    let Some(((found, of_a), of_b)) = found.zip(of_a).zip(of_b) else {
        return Err(Usage::error("the pages have different lengths", "name files of one cluster"));
    };
    let field = |&field: &HeaderField| FieldDifference {
        name: field.name().to_owned(),
        values: [value(&of_a, field), value(&of_b, field)],
    };
    let record = PageDifferenceRecord {
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
    };
    deliver(&record, json, pgtoll_report::page_difference_text, printer);
    Ok(if record.bytes == 0 { Status::Done } else { Status::Finding })
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

fn deliver<T: Serialize>(
    record: &T,
    json: bool,
    text: impl FnOnce(&T) -> String,
    printer: &mut Printer,
) {
    // It is made of strings and numbers.
    let json = json.then(|| output::json(record).unwrap_or_default());
    printer.data(&json.unwrap_or_else(|| text(record)));
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
    fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        let found = std::fs::metadata(path).with_context(|| format!("read {shown}"))?;
        if !found.is_file() {
            return Err(Usage::error(format!("{shown} is no file"), "name a relation's file"));
        }
        let file = File::open(path).with_context(|| format!("read {shown}"))?;
        let above = std::path::absolute(path).context("find the current directory")?;
        let control = above.ancestors().skip(1).find_map(|above| control_file(above).ok());
        let sizes = control.map(|of| (of.block_bytes as usize, of.file_blocks));
        let (block_bytes, file_blocks) = sizes.unwrap_or((PAGE_BYTES, FILE_BLOCKS));
        let name = path.file_name().and_then(|name| RelationFileName::parse(name.to_str()?));
        Ok(Self { file, name, path: shown, bytes: found.len(), block_bytes, file_blocks })
    }

    fn blocks(&self) -> u64 {
        self.bytes / self.block_bytes as u64
    }

    fn page(&self, block: u64) -> anyhow::Result<Vec<u8>> {
        if block >= self.blocks() {
            let message =
                format!("{} has {} blocks: there is no block {block}", self.path, self.blocks());
            return Err(Usage::error(message, "blocks are counted from 0 in each file"));
        }
        let mut page = vec![0; self.block_bytes];
        self.file
            .read_exact_at(&mut page, block * self.block_bytes as u64)
            .with_context(|| format!("read block {block} of {}", self.path))?;
        Ok(page)
    }

    fn checksum(&self, block: u64, page: &[u8]) -> anyhow::Result<PageChecksumRecord> {
        let first =
            self.name.map_or(0, |name| u64::from(name.segment) * u64::from(self.file_blocks));
        let of_fork = u32::try_from(first + block);
        let block_of_fork = of_fork.context("no block of a relation has so high a number")?;
        let header = PageHeader::read(page).context("the page is shorter than a header")?;
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
        let kind = PageKind::of(page);
        match (kind, self.name.map(|name| name.fork)) {
            (PageKind::Heap | PageKind::Map, Some(ForkNumber::FSM)) => "fsm".to_owned(),
            (PageKind::Heap | PageKind::Map, Some(ForkNumber::VM)) => "vm".to_owned(),
            _ => kind.to_string(),
        }
    }
}

/// `RELSEG_SIZE` of all packages.
const FILE_BLOCKS: u32 = 131_072;
