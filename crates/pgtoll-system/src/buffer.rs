//! Memory that files are read into.

use std::ops::{Deref, DerefMut};

/// Bytes that begin where a page of memory does: direct I/O asks for it, and systems copy faster
/// into memory that does not begin inside a cache line.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// The pages of media and of memory are not larger.
    pub const ALIGNMENT: usize = 4096;

    /// This many zeros.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + Self::ALIGNMENT];
        // Unknown only in constant evaluation; then it is not aligned.
        let begin = memory.as_ptr().align_offset(Self::ALIGNMENT).min(Self::ALIGNMENT);
        Self { memory, begin, bytes }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.begin..][..self.bytes]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..][..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_with_a_page_wherever_it_goes() {
        for bytes in [0, 1, 4095, 4096, 8192, 1 << 18] {
            let mut buffer = AlignedBuffer::new(bytes);
            buffer.fill(7);
            let moved = Box::new(buffer);
            assert_eq!(**moved, *vec![7; bytes], "{bytes}");
            assert_eq!(moved.as_ptr().addr() % AlignedBuffer::ALIGNMENT, 0, "{bytes}");
        }
    }
}
