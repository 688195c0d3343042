//! CPU for a page on this machine, by the kernel that servers of a version run.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use pgtoll_checksum::Kernel;
use pgtoll_format::MajorFacts;
use pgtoll_format::wal::Compression;
use pgtoll_model::prediction::{
    Bounded, compression_cost_ns, image_cost_ns, read_cost_ns, timed_image_cost_ns,
    timed_page_cost_ns, write_cost_ns,
};
use pgtoll_observe::own_thread_cpu_ns;
use pgtoll_record::PageCosts;

use crate::interval;

/// Larger than a core's own caches, as the pages are that a server reads from the system's cache.
const RING_PAGES: usize = 4096;
const PAGE_BYTES: usize = 8192;
/// As large as `wal_buffers` of most servers, and a segment.
const WAL_PAGES: usize = 2048;
/// Pages of WAL that a server writes at once.
const WRITE_PAGES: usize = 8;
/// Each way is timed in turns, so that what else runs on the machine hits all alike.
const TURNS: usize = 40;
const PAGES_A_TURN: u32 = 512;
const PATIENCE: Duration = Duration::from_secs(2);

/// The costs by the kernel of this version: timed here where the server runs here, else by the table.
pub fn page_costs(
    facts: &MajorFacts,
    is_local: bool,
    compression: Option<Compression>,
) -> PageCosts {
    let mut kernels = facts.summing.kernels.iter().filter_map(|name| Kernel::by_name(name));
    let kernel = kernels.find(|kernel| kernel.is_available());
    let kernel = kernel.filter(|_| is_local);
    let times = kernel.and_then(|kernel| PageTimes::take(kernel, facts.summing.copies));
    if let (Some(kernel), Some(times)) = (kernel, times) {
        let image = [timed_image_cost_ns(times.image), compression_cost_ns(compression)];
        return PageCosts {
            kernel: kernel.name().to_owned(),
            timed: true,
            read_ns: interval(timed_page_cost_ns(times.read)),
            write_ns: interval(timed_page_cost_ns(times.write)),
            image_ns: interval(Bounded::sum(&image)),
        };
    }
    // Of a processor that is not seen: from the fastest to the slowest that it may have.
    let of_all = |cost: fn(&str) -> Option<Bounded>| {
        let known: Vec<Bounded> =
            facts.summing.kernels.iter().filter_map(|name| cost(name)).collect();
        let lower = known.iter().map(|bounded| bounded.lower).fold(f64::INFINITY, f64::min);
        let upper = known.iter().map(|bounded| bounded.upper).fold(0.0, f64::max);
        let first = known.first().copied().unwrap_or_default();
        interval(Bounded::new(first.estimate, lower.min(upper), upper))
    };
    PageCosts {
        kernel: facts.summing.kernels.first().copied().unwrap_or_default().to_owned(),
        timed: false,
        read_ns: of_all(read_cost_ns),
        write_ns: of_all(write_cost_ns),
        image_ns: interval(image_cost_ns(compression)),
    }
}

/// ns of CPU for a page: medians over turns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PageTimes {
    /// To verify one that was just copied from the system's cache.
    read: f64,
    /// To sum one before it is copied there, the same.
    write: f64,
    /// For its CRC, to copy it to a buffer of WAL, and to write that to a file in memory.
    image: f64,
}

/// Works on a cold page, with two pages of its own.
type PageTurn<'a> = &'a mut dyn FnMut(&[u8], &mut [u8], &mut [u8]);

impl PageTimes {
    /// `None` where the system has no clock of a thread's CPU, or no files in memory.
    fn take(kernel: &Kernel, copies: bool) -> Option<Self> {
        let ring: Vec<u8> =
            (0..RING_PAGES * PAGE_BYTES).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let mut page = vec![0; PAGE_BYTES];
        let mut other = vec![0; PAGE_BYTES];
        let mut wal = WalInMemory::new()?;
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        let mut images = Vec::new();
        let began = Instant::now();
        let mut next = 0;
        for _ in 0..TURNS {
            let mut turn = |work: PageTurn<'_>| {
                let started = cpu_ns()?;
                for _ in 0..PAGES_A_TURN {
                    next = (next + 1) % RING_PAGES;
                    let cold = &ring[next * PAGE_BYTES..(next + 1) * PAGE_BYTES];
                    work(cold, &mut page, &mut other);
                }
                Some((cpu_ns()? - started) / f64::from(PAGES_A_TURN))
            };
            let sum = |bytes: &[u8]| {
                let mut checksum = [0];
                kernel.checksums(bytes, PAGE_BYTES, 7, &mut checksum);
                black_box(checksum);
            };
            let plain = turn(&mut |cold, page, _| black_box(page).copy_from_slice(cold))?;
            let verified = turn(&mut |cold, page, _| {
                black_box(&mut *page).copy_from_slice(cold);
                sum(page);
            })?;
            // Alone, a copy continues while the next one waits for memory, so that a sum in between would
            // seem to cost what is waited then.
            let twice = turn(&mut |cold, page, _| {
                black_box(&mut *page).copy_from_slice(cold);
                sum(page);
                sum(page);
            })?;
            let summed = turn(&mut |cold, page, other| {
                if copies {
                    other.copy_from_slice(cold);
                    sum(other);
                    black_box(page).copy_from_slice(other);
                } else {
                    sum(cold);
                    black_box(page).copy_from_slice(cold);
                }
            })?;
            reads.push((twice - verified).max(0.0));
            writes.push((summed - plain).max(0.0));
            images.push(turn(&mut |cold, _, _| wal.log(cold))?);
            if began.elapsed() > PATIENCE {
                break;
            }
        }
        let median = |values: &[f64]| pgtoll_stats::median(values);
        Some(Self { read: median(&reads)?, write: median(&writes)?, image: median(&images)? })
    }
}

/// CPU time of this thread, so that it does not count when it has to wait for a CPU.
fn cpu_ns() -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "ns of a program are far below 2^53")]
    own_thread_cpu_ns().ok().map(|ns| ns as f64)
}

/// WAL that goes to a file in memory: nothing is written to a disk of the server.
struct WalInMemory {
    buffers: Vec<u8>,
    /// The page that comes next.
    at: usize,
    file: File,
}

impl WalInMemory {
    fn new() -> Option<Self> {
        let file = File::from(memfd_create("WAL", MFdFlags::MFD_CLOEXEC).ok()?);
        let buffers = vec![0; WAL_PAGES * PAGE_BYTES];
        // As a segment that is used again is there.
        file.write_all_at(&buffers, 0).ok()?;
        Some(Self { buffers, at: 0, file })
    }

    /// As a server logs an image, and writes the last ones when there are enough.
    fn log(&mut self, page: &[u8]) {
        black_box(crc32c::crc32c(page));
        let end = (self.at + 1) * PAGE_BYTES;
        self.buffers[end - PAGE_BYTES..end].copy_from_slice(page);
        self.at += 1;
        if self.at.is_multiple_of(WRITE_PAGES) {
            let begin = end - WRITE_PAGES * PAGE_BYTES;
            // All of the file is there: a write does not need more memory.
            let _ = self.file.write_all_at(&self.buffers[begin..end], begin as u64);
        }
        self.at %= WAL_PAGES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_takes_time_of_this_thread() {
        let kernel = Kernel::by_name("server-sse2").or_else(|| Kernel::by_name("server-neon"));
        let Some(kernel) = kernel.filter(|kernel| kernel.is_available()) else {
            panic!("no kernel of servers runs here");
        };
        let times = PageTimes::take(kernel, true).unwrap();
        assert!(times.read > 0.0 && times.write > 0.0, "{times:?}");
        assert!(times.image > 0.0, "{times:?}");
    }

    #[test]
    fn wal_in_memory_begins_again_at_its_end() {
        let mut wal = WalInMemory::new().unwrap();
        for number in 0..WAL_PAGES + WRITE_PAGES {
            wal.log(&vec![u8::try_from(number % 251).unwrap(); PAGE_BYTES]);
        }
        assert_eq!(wal.at, WRITE_PAGES);
        assert_eq!(wal.file.metadata().unwrap().len(), (WAL_PAGES * PAGE_BYTES) as u64);
        let mut first = [0];
        wal.file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(usize::from(first[0]), WAL_PAGES % 251);
    }
}
