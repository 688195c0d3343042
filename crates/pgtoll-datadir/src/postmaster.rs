//! The contents of `postmaster.pid`.

use std::path::{Path, PathBuf};

/// Bytes that are read of a `postmaster.pid` at most; a server writes some 100.
pub const LOCK_BYTES_MAX: u64 = 1 << 14;

/// A server that runs on a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postmaster {
    /// Its process.
    pub pid: u32,
    /// When it was started, in seconds since 1970.
    pub started: i64,
    /// Its port.
    pub port: u16,
    /// The directory of its socket; `None`: it has none.
    pub socket: Option<PathBuf>,
}

impl Postmaster {
    /// Reads the file. `None`: it is not a postmaster's, or not whole.
    pub fn read(data: &Path) -> Option<Self> {
        let text = pgtoll_system::read(&data.join("postmaster.pid"), LOCK_BYTES_MAX).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Lines: process, data directory, start, port, socket's directory, address, shared memory,
    /// state. A server for one user has a negative number, and no port.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok()?;
        let started = lines.nth(1)?.parse().ok()?;
        let port = lines.next()?.parse().ok()?;
        let socket = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
        Some(Self { pid, started, port, socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postmasters_file_is_read() {
        let text = "77\n/data\n1763800000\n5433\n/run/postgresql\nlocalhost\n 1 2\nready   \n";
        let expected = Postmaster {
            pid: 77,
            started: 1_763_800_000,
            port: 5433,
            socket: Some("/run/postgresql".into()),
        };
        assert_eq!(Postmaster::parse(text), Some(expected));
        assert_eq!(Postmaster::parse("77\n/data\n1\n5433\n\n\n").unwrap().socket, None);
        for none in ["", "-77\n/data\n1763800000\n", "77\n/data\n1763800000\n", "x\n\n1\n2\n/a"] {
            assert_eq!(Postmaster::parse(none), None, "{none:?}");
        }
    }
}
