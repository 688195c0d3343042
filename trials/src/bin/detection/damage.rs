//! Kinds of damage to a page.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::site::{BLOCK_BYTES, Site};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One that `pgtoll corrupt` does.
    Corrupt(&'static str),
    /// Every bit of the page is set.
    AllOnes,
    /// The header says that the page was never used, and the rest is as it was.
    UnusedHeader,
}

/// A kind of damage, done to a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) relation: &'static str,
    pub(crate) kind: Kind,
}

const KINDS: [Kind; 12] = [
    Kind::Corrupt("bit"),
    Kind::Corrupt("garbage"),
    Kind::AllOnes,
    Kind::UnusedHeader,
    Kind::Corrupt("torn"),
    Kind::Corrupt("transposed"),
    Kind::Corrupt("zero-half"),
    Kind::Corrupt("zero"),
    Kind::Corrupt("stale"),
    Kind::Corrupt("cut"),
    Kind::Corrupt("cut-at-block"),
    Kind::Corrupt("missing-segment"),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Corrupt(name) => name,
            Self::AllOnes => "all-ones",
            Self::UnusedHeader => "unused-header",
        }
    }
}

impl Case {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let relations = ["table", "index"].into_iter();
        relations.flat_map(|relation| KINDS.map(|kind| Self { relation, kind }))
    }

    pub(crate) fn name(self) -> String {
        format!("{} {}", self.relation, self.kind.name())
    }

    /// Damages the stopped cluster in this directory.
    pub(crate) fn apply(self, site: &Site, data: &Path) -> anyhow::Result<()> {
        let (file, block) = site.target(self.relation);
        match self.kind {
            Kind::AllOnes => overwrite(&data.join(file), block, 0, &[0xFF; BLOCK_BYTES]),
            // pd_upper
            Kind::UnusedHeader => overwrite(&data.join(file), block, 14, &[0; 2]),
            Kind::Corrupt(kind) => {
                let undo = site.new_file("undo");
                let mut pgtoll = program(&site.pgtoll);
                pgtoll
                    .args(["--quiet", "corrupt", "--yes", "--seed", "1", "--kind", kind])
                    .args(["--block", &block.to_string(), "--file", file])
                    .arg("--undo-file")
                    .arg(&undo)
                    .arg(data);
                match kind {
                    "transposed" => _ = pgtoll.args(["--with", &(block + 2).to_string()]),
                    "torn" | "stale" => {
                        _ = pgtoll.arg("--older").arg(site.older(self.relation));
                    }
                    _ => {}
                }
                let output = pgtoll.output().context("run pgtoll corrupt")?;
                if !output.status.success() {
                    bail!("pgtoll corrupt: {}", String::from_utf8_lossy(&output.stderr));
                }
                Ok(())
            }
        }
    }
}

fn overwrite(file: &Path, block: u64, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
    let opened = File::options().write(true).open(file);
    let opened = opened.with_context(|| format!("open {}", file.display()))?;
    opened.write_all_at(bytes, block * BLOCK_BYTES as u64 + at).context("write")
}

#[expect(clippy::disallowed_methods, reason = "a trial starts what a developer would start")]
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env("LC_ALL", "C").env("XDG_STATE_HOME", "/dev/null/none");
    command
}
