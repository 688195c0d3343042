//! The timed runs.

use std::hint::black_box;
use std::time::Instant;

use anyhow::bail;
use multiversion::multiversion;
use pgtoll_checksum::Kernel;
use pgtoll_format::ByteSize;
use pgtoll_record::trials::BenchPlace;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

pub(crate) const PAGE_BYTES: usize = 8192;

/// A way to read pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arm {
    Kernel(&'static Kernel),
    /// Adds words up, as fast as memory can be read.
    PlainSum,
}

/// One run of one arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) place: BenchPlace,
    pub(crate) arm: &'static str,
    pub(crate) nanoseconds_a_byte: f64,
}

/// Pages without a pattern.
#[derive(Debug)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    /// Where the first one begins: at the beginning of a page of memory, as buffers for reading do.
    begin: usize,
    /// What memory is read next: whatever was read last is far from it.
    next: usize,
    checksums: Vec<u16>,
}

/// Fits into the second cache of each core that has one, beside what else is there.
const CACHED_BYTES: usize = 256 * 1024;
/// How often that is read in a slice, so that the clock does not count.
const CACHED_PASSES: usize = 8;
const CACHED_SLICES: usize = 100;
const MEMORY_SLICE_BYTES: usize = 4 * 1024 * 1024;
const MEMORY_SLICES: usize = 32;
const ALIGNMENT: usize = 4096;

/// The time that stands for a run: others on the machine make slices longer and never shorter, so in
/// the cache it is the fastest slice. Parts of memory may by luck still be in a cache, so there it is
/// the slowest of the fastest tenth.
#[expect(clippy::cast_precision_loss, reason = "a slice is milliseconds and megabytes")]
pub(crate) fn nanoseconds_a_byte(slices_ns: &[u64], place: BenchPlace) -> f64 {
    let mut sorted = slices_ns.to_vec();
    sorted.sort_unstable();
    let (index, slice_bytes) = match place {
        BenchPlace::Cache => (0, CACHED_BYTES * CACHED_PASSES),
        BenchPlace::Memory => (sorted.len() / 10, MEMORY_SLICE_BYTES),
    };
    sorted[index] as f64 / slice_bytes as f64
}

impl Arm {
    /// All that this processor can run.
    pub(crate) fn all() -> Vec<Self> {
        let kernels = Kernel::all().iter().filter(|kernel| kernel.is_available());
        kernels.map(Self::Kernel).chain([Self::PlainSum]).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel(kernel) => kernel.name(),
            Self::PlainSum => "plain-sum",
        }
    }

    fn read(self, pages: &[u8], checksums: &mut [u16]) {
        match self {
            Self::Kernel(kernel) => {
                let checksums = &mut checksums[..pages.len() / PAGE_BYTES];
                kernel.checksums(black_box(pages), PAGE_BYTES, 0, checksums);
                black_box(checksums);
            }
            Self::PlainSum => {
                black_box(plain_sum(black_box(pages)));
            }
        }
    }
}

impl Pages {
    pub(crate) fn make(size: ByteSize, seed: u64) -> anyhow::Result<Self> {
        let length = usize::try_from(size.0)? / MEMORY_SLICE_BYTES * MEMORY_SLICE_BYTES;
        if length < 2 * MEMORY_SLICE_BYTES * MEMORY_SLICES {
            bail!("{size} is too little memory to walk through");
        }
        let mut bytes = vec![0; length + ALIGNMENT];
        Pcg64::seed_from_u64(seed).fill(&mut bytes[..]);
        let begin = bytes.as_ptr().align_offset(ALIGNMENT);
        let checksums = vec![0; MEMORY_SLICE_BYTES / PAGE_BYTES];
        Ok(Self { bytes, begin, next: 0, checksums })
    }

    /// Those that are read over and over.
    pub(crate) fn cached(&self) -> &[u8] {
        &self.bytes[self.begin..][..CACHED_BYTES]
    }

    /// How long each slice took, in nanoseconds.
    pub(crate) fn run(&mut self, arm: Arm, place: BenchPlace) -> Vec<u64> {
        match place {
            BenchPlace::Cache => (0..CACHED_SLICES).map(|_| self.cached_slice(arm)).collect(),
            BenchPlace::Memory => (0..MEMORY_SLICES).map(|_| self.memory_slice(arm)).collect(),
        }
    }

    fn cached_slice(&mut self, arm: Arm) -> u64 {
        let pages = &self.bytes[self.begin..][..CACHED_BYTES];
        // Into the cache.
        arm.read(pages, &mut self.checksums);
        let began = Instant::now();
        for _ in 0..CACHED_PASSES {
            arm.read(pages, &mut self.checksums);
        }
        nanoseconds(began)
    }

    fn memory_slice(&mut self, arm: Arm) -> u64 {
        let all = &self.bytes[self.begin..][..self.bytes.len() - ALIGNMENT];
        let pages = &all[self.next..][..MEMORY_SLICE_BYTES];
        self.next = (self.next + MEMORY_SLICE_BYTES) % all.len();
        let began = Instant::now();
        arm.read(pages, &mut self.checksums);
        nanoseconds(began)
    }
}

/// Many sums side by side, which the compiler puts into the widest registers that there are. It does
/// so for this form; with iterators it gathered single words.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn plain_sum(bytes: &[u8]) -> u64 {
    const LANES: usize = 64;
    let (words, _) = bytes.as_chunks::<8>();
    let mut sums = [0_u64; LANES];
    for row in words.chunks_exact(LANES) {
        for lane in 0..LANES {
            sums[lane] = sums[lane].wrapping_add(u64::from_le_bytes(row[lane]));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

fn nanoseconds(since: Instant) -> u64 {
    // Five hundred years.
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
