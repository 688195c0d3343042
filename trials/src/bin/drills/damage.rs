//! Damage to a block.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_format::SplitMix64;
use serde::Serialize;

use crate::site::{PAGE, Relation, Site};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Bit,
    TornHalf,
    RandomPage,
    Zeros,
    SwappedBlocks,
    OlderCopy,
    LastBlockZero,
}

const KINDS: [Kind; 7] = [
    Kind::Bit,
    Kind::TornHalf,
    Kind::RandomPage,
    Kind::Zeros,
    Kind::SwappedBlocks,
    Kind::OlderCopy,
    Kind::LastBlockZero,
];

/// A block that is damaged, and how.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) relation: Relation,
    pub(crate) block: u64,
    pub(crate) kind: Kind,
    pub(crate) before: Vec<u8>,
    after: Vec<u8>,
}

impl Damage {
    /// A random damage that changes a page in use.
    pub(crate) fn random(site: &Site, random: &mut SplitMix64) -> anyhow::Result<Self> {
        for _ in 0..ATTEMPTS {
            let kind = KINDS[pick(random, KINDS.len())];
            let relation = &site.relations[pick(random, site.relations.len())];
            let path = site.truth.data().join(&relation.file);
            let blocks = fs::metadata(&path)?.len() / PAGE as u64;
            let block = match kind {
                Kind::LastBlockZero => blocks.saturating_sub(1),
                _ => random.below(blocks.max(1)),
            };
            let before = read(&path, block)?;
            let older = read(&site.backup.join(&relation.file), block).ok();
            let Some(after) = damaged(kind, &before, older, &path, blocks, random)? else {
                continue;
            };
            let has_changed = after != before;
            if has_changed && before.iter().any(|byte| *byte != 0) {
                return Ok(Self { relation: relation.clone(), block, kind, before, after });
            }
        }
        anyhow::bail!("no page to damage")
    }

    pub(crate) fn apply(&self, data: &Path) -> anyhow::Result<()> {
        write(&data.join(&self.relation.file), self.block, &self.after)
    }

    pub(crate) fn revert(&self, data: &Path) -> anyhow::Result<()> {
        write(&data.join(&self.relation.file), self.block, &self.before)
    }

    /// The page that is there now.
    pub(crate) fn now(&self, data: &Path) -> anyhow::Result<Vec<u8>> {
        read(&data.join(&self.relation.file), self.block)
    }
}

/// The damaged page; `None`: this page cannot be damaged so.
fn damaged(
    kind: Kind,
    before: &[u8],
    older: Option<Vec<u8>>,
    path: &Path,
    blocks: u64,
    random: &mut SplitMix64,
) -> anyhow::Result<Option<Vec<u8>>> {
    let mut page = before.to_vec();
    match kind {
        Kind::Bit => page[pick(random, PAGE)] ^= 1 << random.below(8),
        Kind::TornHalf => match older {
            Some(older) if older.len() == PAGE => {
                page[PAGE / 2..].copy_from_slice(&older[PAGE / 2..]);
            }
            _ => page[PAGE / 2..].fill(0),
        },
        Kind::RandomPage => page.fill_with(|| random.draw().to_le_bytes()[0]),
        Kind::Zeros | Kind::LastBlockZero => page.fill(0),
        Kind::SwappedBlocks => return Ok(Some(read(path, random.below(blocks))?)),
        // Without another LSN it is the same page but for hints.
        Kind::OlderCopy => {
            let is_older = |older: &Vec<u8>| older[..8] != before[..8] && older[..8] != [0; 8];
            return Ok(older.filter(is_older));
        }
    }
    Ok(Some(page))
}

fn pick(random: &mut SplitMix64, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).unwrap_or(0)
}

pub(crate) fn read(path: &Path, block: u64) -> anyhow::Result<Vec<u8>> {
    let mut page = vec![0; PAGE];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut page, block * PAGE as u64));
    read.with_context(|| format!("read block {block} of {}", path.display()))?;
    Ok(page)
}

fn write(path: &Path, block: u64, page: &[u8]) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path);
    let written = file.and_then(|file| file.write_all_at(page, block * PAGE as u64));
    written.with_context(|| format!("write block {block} of {}", path.display()))
}

const ATTEMPTS: u32 = 1000;
