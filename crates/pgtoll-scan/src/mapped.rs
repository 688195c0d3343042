//! Files as memory.
//!
//! A file that is cut while it is mapped ends the process: the system sends SIGBUS to whoever reads
//! where the file was. So it is for files at rest, when the user asks for it, and never for what a
//! running server writes.

use std::fs::File;
use std::io;

use memmap2::{Mmap, MmapOptions};

/// Maps a file whole, its pages at once.
#[expect(unsafe_code, reason = "the system's files can change under a mapping")]
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    let mut options = MmapOptions::new();
    // SAFETY: the bytes are only ever read as bytes, and whatever they are, the decoder copes with
    // it. Who asked for mapping has said that nobody writes to the files or cuts them meanwhile.
    unsafe { options.populate().map(file) }
}
