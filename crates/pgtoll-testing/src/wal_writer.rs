//! Writes WAL for tests: records of any content, as a server would lay them out.

/// Bytes of a page.
pub const PAGE: usize = 8192;
/// Bytes of a segment, as few as a segment may have.
pub const SEGMENT: usize = 1 << 20;

/// Writes one record after the other, beginning with a segment.
#[derive(Debug)]
pub struct Writer {
    magic: u16,
    begin: u64,
    bytes: Vec<u8>,
    previous: u64,
}

impl Writer {
    /// Beginning with the segment of this number.
    pub fn new(magic: u16, segment: u64) -> Self {
        Self { magic, begin: segment * SEGMENT as u64, bytes: Vec::new(), previous: 0 }
    }

    /// Adds a record with what follows its header; where it begins.
    pub fn record(&mut self, manager: u8, info: u8, body: &[u8]) -> u64 {
        self.page_header(0);
        let at = self.begin + self.bytes.len() as u64;
        let total = u32::try_from(24 + body.len()).unwrap();
        let mut record = Vec::new();
        record.extend(total.to_le_bytes());
        record.extend(7_u32.to_le_bytes());
        record.extend(self.previous.to_le_bytes());
        record.extend([info, manager, 0, 0]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(body), &record);
        record.extend(crc.to_le_bytes());
        record.extend(body);
        self.previous = at;
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            self.page_header(rest.len());
            let room = (PAGE - self.bytes.len() % PAGE).min(rest.len());
            self.bytes.extend(&rest[..room]);
            rest = &rest[room..];
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        at
    }

    /// The header of a page, where one begins.
    fn page_header(&mut self, remaining: usize) {
        let at = self.bytes.len();
        if !at.is_multiple_of(PAGE) {
            return;
        }
        let is_long = at.is_multiple_of(SEGMENT);
        let flags = u16::from(remaining > 0) | if is_long { 2 } else { 0 };
        self.bytes.extend(self.magic.to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend(1_u32.to_le_bytes());
        self.bytes.extend((self.begin + at as u64).to_le_bytes());
        self.bytes.extend(u32::try_from(remaining).unwrap().to_le_bytes());
        self.bytes.extend([0; 4]);
        if is_long {
            self.bytes.extend(42_u64.to_le_bytes());
            self.bytes.extend(u32::try_from(SEGMENT).unwrap().to_le_bytes());
            self.bytes.extend(u32::try_from(PAGE).unwrap().to_le_bytes());
        }
    }

    /// Whole segments, the last one filled up with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        self.page_header(0);
        self.bytes.resize(self.bytes.len().next_multiple_of(SEGMENT), 0);
        self.bytes
    }
}

/// The body of a record that is nothing but main data.
pub fn main_data(data: &[u8]) -> Vec<u8> {
    let mut body = if let Ok(length) = u8::try_from(data.len()) {
        vec![255, length]
    } else {
        let length = u32::try_from(data.len()).unwrap();
        [&[254][..], &length.to_le_bytes()].concat()
    };
    body.extend(data);
    body
}
