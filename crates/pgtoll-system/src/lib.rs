//! Files, threads, signals and errors, as the whole program uses them.
//!
//! pgtoll runs as root beside data that belong to other users. The owner of a directory can put a
//! symbolic link, a FIFO or a device where a file is expected. So the whole program reads and
//! writes its own files through this crate:
//!
//! * [`read()`], [`read_to_string`] and [`open`] accept regular files only, never wait for a FIFO's
//!   writer, and read no more than the caller's limit;
//! * [`Draft`] writes a file under a random temporary name with mode 0600, and gives it its name
//!   when it is complete. Readers see the old file or the new one.
//!
//! [`AlignedBuffer`] is the memory that large files are read into.
//!
//! Directories on the way to a file may be symbolic links only if root or the caller made the link.
//!
//! ```
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("state.json");
//! pgtoll_system::write_private(&path, b"{}")?;
//! assert_eq!(pgtoll_system::read_to_string(&path, 100)?, "{}");
//! assert!(pgtoll_system::read(&path, 1).is_err(), "longer than the limit");
//! # Ok::<(), std::io::Error>(())
//! ```

mod buffer;
mod directory;
mod draft;
mod errors;
mod interrupt;
mod lock;
mod read;
pub mod threads;

pub use buffer::AlignedBuffer;
pub use draft::{
    Draft, append_private, create_private, open_append_private, write_output, write_private,
};
pub use errors::error_chain;
pub use interrupt::{Interrupt, Interrupted, Registered};
pub use lock::lock;
pub use read::{open, open_unlinked, read, read_to_string};
