//! Pages, their checksums, and how two of them differ.

use pgtoll_record::{LinePointerRecord, PageChecksumsRecord, PageDifferenceRecord, PageRecord};

use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::counted;

impl ReportedRecord for PageRecord {
    /// A page in all its parts, the bytes last.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll page show",
            question: "What is on this page?",
            answer: vec![page_answer(self)],
            ..Document::default()
        };
        document.push(Section::detail("Header", vec![Block::Facts(header_facts(self))]));
        let pointers = self.line_pointers.iter().map(pointer_row).collect();
        let head = ["line pointer", "offset", "length", "state"];
        document.push(Section::table("Line pointers", &head, pointers));
        document.push(Section::detail("Bytes", vec![Block::Code(dump(self))]));
        document
    }
}

fn page_answer(page: &PageRecord) -> String {
    let PageRecord { file, block, block_of_fork, kind, .. } = page;
    let verdict = if page.accepted { "takes" } else { "refuses" };
    format!(
        "{file} block {block} ({block_of_fork} of its fork): {kind}. A server with checksums \
         {verdict} it."
    )
}

fn header_facts(page: &PageRecord) -> Vec<(String, String)> {
    let header = &page.header;
    let computed = page.checksum_computed.map_or("none".to_owned(), |sum| sum.to_string());
    let facts = [
        ("lsn", header.lsn.clone()),
        ("checksum", format!("{} (computed: {computed})", header.checksum)),
        ("flags", format!("{:#06x}", header.flags)),
        ("lower", header.lower.to_string()),
        ("upper", header.upper.to_string()),
        ("special", header.special.to_string()),
        ("pagesize", header.pagesize.to_string()),
        ("version", header.version.to_string()),
        ("prune_xid", header.prune_xid.to_string()),
        ("free", page.free_bytes.map_or("-".to_owned(), |free| format!("{free} bytes"))),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

fn pointer_row(pointer: &LinePointerRecord) -> Vec<String> {
    vec![
        pointer.number.to_string(),
        pointer.offset.to_string(),
        pointer.length.to_string(),
        pointer.state.clone(),
    ]
}

/// Sixteen bytes a line, with the region that they begin in; equal lines are shown once.
fn dump(page: &PageRecord) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = String::new();
    let mut skipped = false;
    for (line, hex) in page.bytes.as_bytes().chunks(32).enumerate() {
        let at = line * 16;
        let region = region(page, at);
        let hex = String::from_utf8_lossy(hex);
        let shown = format!("{region} {hex}");
        if shown == last {
            if !skipped {
                lines.push("  *".to_owned());
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .filter_map(|byte| u8::from_str_radix(hex.get(byte * 2..byte * 2 + 2)?, 16).ok())
            .collect();
        let spaced: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let letter = |byte: &u8| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        };
        let letters: String = bytes.iter().map(letter).collect();
        lines.push(format!("  {at:04x}  {:<47}  {letters:<16}  {region}", spaced.join(" ")));
        last = shown;
    }
    lines
}

fn region(page: &PageRecord, at: usize) -> String {
    let header = &page.header;
    if page.free_bytes.is_none() {
        return String::new();
    }
    let item = page.line_pointers.iter().find(|pointer| {
        let begin = usize::from(pointer.offset);
        pointer.state == "normal" && (begin..begin + usize::from(pointer.length)).contains(&at)
    });
    match item {
        _ if at < 24 => "header".to_owned(),
        _ if at < usize::from(header.lower) => "line pointers".to_owned(),
        _ if at < usize::from(header.upper) => "free".to_owned(),
        _ if at >= usize::from(header.special) => "special".to_owned(),
        Some(pointer) => format!("item {}", pointer.number),
        None => String::new(),
    }
}

impl ReportedRecord for PageChecksumsRecord {
    /// A line a page.
    fn document(&self, _: &TableOptions) -> Document {
        let refused = self.pages.iter().filter(|page| !page.accepted).count() as u64;
        let pages = counted(self.pages.len() as u64, "page", "pages");
        let mut document = Document {
            command: "pgtoll page checksum",
            question: "Are the checksums of these pages right?",
            answer: vec![match refused {
                0 => format!("{pages}: a server with checksums takes all."),
                refused => format!("{pages}: a server with checksums refuses {refused}."),
            }],
            ..Document::default()
        };
        let rows = self.pages.iter().map(|page| {
            let computed = page.computed.map_or("-".to_owned(), |sum| sum.to_string());
            let verdict = if page.accepted { "" } else { "REFUSED" };
            vec![page.block.to_string(), page.stored.to_string(), computed, verdict.to_owned()]
        });
        let head = ["block", "stored", "computed", ""];
        document.push(Section::table("", &head, rows.collect()));
        if self.bytes_left > 0 {
            document.notes.push(format!("{} bytes behind the last whole page", self.bytes_left));
        }
        document
    }
}

impl ReportedRecord for PageDifferenceRecord {
    /// The differences, the most telling first.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll page diff",
            question: "How do these pages differ?",
            answer: vec![difference_answer(self)],
            ..Document::default()
        };
        if self.bytes > 0 {
            document.push(Section::detail("", vec![Block::Facts(difference_facts(self))]));
        }
        document
    }
}

fn difference_answer(difference: &PageDifferenceRecord) -> String {
    match difference.bytes {
        0 => "The pages are the same.".to_owned(),
        bytes if difference.only_hints => {
            format!("{bytes} bytes differ: only hint bits and the checksum.")
        }
        bytes => format!("{bytes} bytes differ."),
    }
}

fn difference_facts(difference: &PageDifferenceRecord) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = difference
        .header
        .iter()
        .map(|field| (field.name.clone(), field.values.join(" | ")))
        .collect();
    let lists = [
        ("line pointers", &difference.line_pointers),
        ("items", &difference.items),
        ("only hint bits", &difference.hints),
    ];
    for (name, numbers) in lists.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        facts.push((name.to_owned(), numbers.join(", ")));
    }
    let others = [
        (difference.special, "special area", "differs"),
        (
            difference.elsewhere,
            "elsewhere",
            "bytes outside of items (a map's content, or leavings)",
        ),
    ];
    let others = others.iter().filter(|(is_so, ..)| *is_so);
    facts.extend(others.map(|(_, name, words)| ((*name).to_owned(), (*words).to_owned())));
    facts
}
