//! A log's own bytes, as a stream.

use std::io::{self, Read};

use super::EnvelopeReader;

/// Reads a log's own bytes, out of the envelope that they are in, if they are in one.
#[derive(Debug)]
pub struct LogContent<R> {
    content: R,
    envelope: Option<EnvelopeReader>,
    /// Bytes that were taken and not yet read.
    ready: Vec<u8>,
    start: usize,
    piece: Vec<u8>,
}

const PIECE_BYTES: usize = 256 << 10;

impl<R: Read> LogContent<R> {
    /// Opens a log. `reader` gets its first bytes, and gives a reader if they are of an envelope.
    pub fn open(
        mut content: R,
        reader: impl FnOnce(&[u8]) -> Option<EnvelopeReader>,
    ) -> io::Result<Self> {
        let mut sample = Vec::new();
        content.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut sample)?;
        let mut envelope = reader(&sample);
        if let Some(reader) = &mut envelope {
            reader.push(&sample);
            sample.clear();
        }
        Ok(Self { content, envelope, ready: sample, start: 0, piece: vec![0; PIECE_BYTES] })
    }

    /// The reader of its envelope, with the counts so far.
    pub fn envelope(&self) -> Option<&EnvelopeReader> {
        self.envelope.as_ref()
    }
}

impl<R: Read> Read for LogContent<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.start == self.ready.len() {
            let Some(envelope) = &mut self.envelope else { return self.content.read(bytes) };
            self.ready.clear();
            self.start = 0;
            envelope.take(&mut self.ready);
            if !self.ready.is_empty() {
                break;
            }
            if envelope.is_finished() {
                return Ok(0);
            }
            match self.content.read(&mut self.piece)? {
                0 => envelope.finish(),
                length => envelope.push(&self.piece[..length]),
            }
        }
        let length = bytes.len().min(self.ready.len() - self.start);
        bytes[..length].copy_from_slice(&self.ready[self.start..self.start + length]);
        self.start += length;
        Ok(length)
    }
}
