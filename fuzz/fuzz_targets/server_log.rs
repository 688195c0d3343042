//! Any bytes as a server's log of each format, in pieces of any length: pieces make no difference, and
//! what is read is no more than there is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::log::{LinePrefix, LogFormat, LogReader, detect, parameters};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (format, piece, bytes) = input;
    let format = match format % 5 {
        0 => LogFormat::Csv,
        1 => LogFormat::Json,
        2 => LogFormat::Stderr(LinePrefix::parse("%m [%p] ").expect("a prefix")),
        3 => LogFormat::Stderr(LinePrefix::parse("%t:%r:%u@%d:[%p]:").expect("a prefix")),
        _ => LogFormat::Stderr(LinePrefix::parse("%m|%u|%d|%c|%i|%v|%x|%e|").expect("a prefix")),
    };
    let whole = read(format.clone(), bytes, bytes.len().max(1));
    let pieces = read(format, bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces, "pieces make a difference");
    let _ = detect(bytes, "", None);
    let _ = parameters(bytes);
});

/// What is read, as text; entries and errors.
fn read(format: LogFormat, bytes: &[u8], piece: usize) -> Vec<String> {
    let mut reader = LogReader::new(format);
    let mut found = Vec::new();
    let mut take = |reader: &mut LogReader| {
        while let Some(entry) = reader.next_entry() {
            if let Ok(entry) = &entry {
                assert!(entry.message.len() <= bytes.len());
                let _ = entry.kind();
            }
            found.push(format!("{entry:?}"));
        }
    };
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        take(&mut reader);
    }
    reader.finish();
    take(&mut reader);
    found
}
