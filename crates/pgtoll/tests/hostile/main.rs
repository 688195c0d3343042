//! pgtoll beside a hostile neighbour: planted programs and links, another PID namespace, servers
//! that lie, archives that are cut short or blow up, limits of threads, files and memory.
//!
//! Each test names the harm it rules out. Most of them need root: `ARCHITECTURE.md` lists which test
//! holds which invariant.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

mod archives;
mod files;
mod locks;
mod programs;
mod servers;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "shared with the other suite, which uses all of it")]
mod support;
mod words;
