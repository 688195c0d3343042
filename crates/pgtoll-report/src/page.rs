//! Pages as text.

use std::fmt::Write as _;

use pgtoll_record::{PageChecksumsRecord, PageDifferenceRecord, PageRecord};

use crate::printable::printable;
use crate::text::wrapped;

/// A page in all its parts, the bytes last.
pub(crate) fn page_text(of: &PageRecord) -> String {
    let mut text = String::new();
    let header = &of.header;
    let (file, kind) = (printable(&of.file), printable(&of.kind));
    let _ = writeln!(text, "{file} block {} ({} of its fork): {kind}", of.block, of.block_of_fork);
    let computed = of.checksum_computed.map_or("none".to_owned(), |sum| sum.to_string());
    let verdict = if of.accepted { "taken" } else { "REFUSED by a server with checksums" };
    let rows = [
        ("lsn", printable(&header.lsn).into_owned()),
        ("checksum", format!("{} (computed: {computed}; {verdict})", header.checksum)),
        ("flags", format!("{:#06x}", header.flags)),
        ("lower", header.lower.to_string()),
        ("upper", header.upper.to_string()),
        ("special", header.special.to_string()),
        ("pagesize", header.pagesize.to_string()),
        ("version", header.version.to_string()),
        ("prune_xid", header.prune_xid.to_string()),
        ("free", of.free_bytes.map_or("-".to_owned(), |free| format!("{free} bytes"))),
    ];
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<10} {value}");
    }
    if !of.line_pointers.is_empty() {
        let _ = writeln!(text, "\n  line pointer  offset  length  state");
    }
    for pointer in &of.line_pointers {
        let (number, offset, length) = (pointer.number, pointer.offset, pointer.length);
        let _ = writeln!(
            text,
            "  {number:>12}  {offset:>6}  {length:>6}  {}",
            printable(&pointer.state)
        );
    }
    text.push_str(&dump(of));
    text
}

/// Sixteen bytes a line, with the region that they begin in; equal lines are told once.
fn dump(of: &PageRecord) -> String {
    let mut text = "\n".to_owned();
    let (mut last, mut skipped) = (String::new(), false);
    for (line, hex) in of.bytes.as_bytes().chunks(32).enumerate() {
        let at = line * 16;
        let region = region(of, at);
        let hex = String::from_utf8_lossy(hex);
        let shown = format!("{region} {hex}");
        if shown == last {
            if !skipped {
                text.push_str("  *\n");
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .filter_map(|byte| u8::from_str_radix(hex.get(byte * 2..byte * 2 + 2)?, 16).ok())
            .collect();
        let spaced: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String = bytes
            .iter()
            .map(
                |&byte| {
                    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
                },
            )
            .collect();
        let _ = writeln!(text, "  {at:04x}  {:<47}  {letters:<16}  {region}", spaced.join(" "));
        last = shown;
    }
    text
}

fn region(of: &PageRecord, at: usize) -> String {
    let header = &of.header;
    if of.free_bytes.is_none() {
        return String::new();
    }
    let item = of.line_pointers.iter().find(|pointer| {
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

/// A line a page.
pub(crate) fn page_checksums_text(of: &PageChecksumsRecord) -> String {
    let mut text = format!("{:>10}  {:>8}  {:>8}\n", "block", "stored", "computed");
    for page in &of.pages {
        let computed = page.computed.map_or("-".to_owned(), |sum| sum.to_string());
        let verdict = if page.accepted { "" } else { "  REFUSED" };
        let _ = writeln!(text, "{:>10}  {:>8}  {computed:>8}{verdict}", page.block, page.stored);
    }
    if of.bytes_left > 0 {
        let _ = writeln!(text, "{} bytes behind the last whole page", of.bytes_left);
    }
    text
}

/// What differs, the most telling first.
pub(crate) fn page_difference_text(of: &PageDifferenceRecord) -> String {
    if of.bytes == 0 {
        return "The pages are the same.\n".to_owned();
    }
    let mut text = format!("{} bytes differ", of.bytes);
    text.push_str(if of.only_hints { ": only hint bits and the checksum.\n" } else { ".\n" });
    for field in &of.header {
        let [a, b] = field.values.each_ref().map(|value| printable(value));
        let _ = writeln!(text, "  {:<16} {a} | {b}", printable(&field.name));
    }
    let lists =
        [("line pointers", &of.line_pointers), ("items", &of.items), ("only hint bits", &of.hints)];
    for (name, numbers) in lists.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        text.push_str(&wrapped(&format!("  {name:<16} "), &numbers.join(", ")));
    }
    if of.special {
        text.push_str("  special area\n");
    }
    if of.elsewhere {
        text.push_str("  bytes outside of items (a map's content, or leavings)\n");
    }
    text
}
