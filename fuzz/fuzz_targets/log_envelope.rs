//! Any bytes as an export of a log, in pieces of any length: pieces make no difference, and no more is handed over than
//! there is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_format::log::{Envelope, EnvelopeCounts, EnvelopeReader, detect_envelope};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (envelope, piece, bytes) = input;
    let envelope = match envelope % 4 {
        0 => Envelope::Json,
        1 => Envelope::Container,
        2 => Envelope::TimedLines,
        _ => Envelope::Syslog,
    };
    for field in [None, Some("a.b".to_owned())] {
        let whole = read(envelope, field.clone(), bytes, bytes.len().max(1));
        let pieces = read(envelope, field, bytes, usize::from(piece).max(1));
        assert_eq!(whole, pieces, "pieces make a difference");
    }
    let _ = detect_envelope(bytes);
});

fn read(
    envelope: Envelope,
    field: Option<String>,
    bytes: &[u8],
    piece: usize,
) -> (Vec<u8>, EnvelopeCounts) {
    let mut reader = EnvelopeReader::new(envelope).of_field(field);
    let mut log = Vec::new();
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        reader.take(&mut log);
    }
    reader.finish();
    reader.take(&mut log);
    (log, reader.counts().clone())
}
