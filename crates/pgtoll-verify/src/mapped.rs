//! Files as memory: the one place here with `unsafe`.
//!
//! A file that is cut while it is mapped, or a medium that fails, ends a process that reads there:
//! the system sends SIGBUS. So it is for files at rest, when the user asks for it, and never for
//! what a running server writes. Only a small window is mapped at a time, and its pages are fetched
//! by a call that returns what goes wrong as an error; what is left is a file that somebody cuts in
//! the moment between that call and the end of its window.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::{Advice, Mmap, MmapOptions};

/// A piece of a file, in memory.
#[derive(Debug)]
pub struct Window(Mmap);

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// At most this many bytes from this place on, all of which are there.
#[expect(unsafe_code, reason = "the system's files can change under a mapping")]
pub(super) fn window(file: &File, at: u64, bytes: u64) -> io::Result<Window> {
    let bytes = bytes.min(WINDOW_BYTES);
    let mut options = MmapOptions::new();
    options.offset(at).len(usize::try_from(bytes).unwrap_or_default());
    // SAFETY: no server runs on the files, and --mmap says that no other process writes
    // to them. The bytes are only ever read as bytes, and any of them are a page or damage.
    let map = unsafe { options.map(file) }?;
    // A file that ends before is zeros up to the end of a page of memory.
    if file.metadata()?.len() < at + bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // Since Linux 5.14; before, EINVAL.
    map.advise(Advice::PopulateRead)?;
    Ok(Window(map))
}

/// Mapped at once: enough that mapping is rare.
const WINDOW_BYTES: u64 = 2 << 20;
