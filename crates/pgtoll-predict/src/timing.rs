//! CPU for a page on this machine, by the kernel that servers of a version run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pgtoll_checksum::Kernel;
use pgtoll_format::MajorFacts;
use pgtoll_format::wal::Compression;
use pgtoll_model::prediction::{Bounded, image_cost_ns, read_cost_ns, write_cost_ns};
use pgtoll_record::PageCosts;

use crate::interval;

/// Larger than a core's own caches, as the pages are that a server reads from the system's cache.
const RING_PAGES: usize = 4096;
const PAGE_BYTES: usize = 8192;
/// Each way is timed in turns, so that what else runs on the machine hits all alike.
const TURNS: usize = 40;
const PAGES_A_TURN: u32 = 512;
const PATIENCE: Duration = Duration::from_secs(2);

/// What was measured in real servers differed from such a timing by this much (−20 to +20 %): a
/// server does other things between two sums.
const TIMING_ERROR: f64 = 0.2;

/// The costs by the kernel of this version: timed here where the server runs here, else by the table.
pub fn page_costs(
    facts: &MajorFacts,
    is_local: bool,
    compression: Option<Compression>,
) -> PageCosts {
    let mut kernels = facts.summing.kernels.iter().filter_map(|name| Kernel::by_name(name));
    let kernel = kernels.find(|kernel| kernel.is_available());
    let image_ns = interval(image_cost_ns(compression));
    if let (true, Some(kernel)) = (is_local, kernel) {
        let (read, write) = timed(kernel, facts.summing.copies);
        let around = |ns: f64| {
            let error = Bounded::new(1.0, 1.0 - TIMING_ERROR, 1.0 + TIMING_ERROR);
            interval(error.scaled(ns))
        };
        let name = kernel.name().to_owned();
        return PageCosts {
            kernel: name,
            timed: true,
            read_ns: around(read),
            write_ns: around(write),
            image_ns,
        };
    }
    // Of a processor that is not seen: from the fastest to the slowest that it may have.
    let of_all = |cost: fn(&str) -> Option<Bounded>| {
        let known: Vec<Bounded> =
            facts.summing.kernels.iter().filter_map(|name| cost(name)).collect();
        let lower = known.iter().map(|of| of.lower).fold(f64::INFINITY, f64::min);
        let upper = known.iter().map(|of| of.upper).fold(0.0, f64::max);
        let first = known.first().copied().unwrap_or_default();
        interval(Bounded::new(first.estimate, lower.min(upper), upper))
    };
    PageCosts {
        kernel: facts.summing.kernels.first().copied().unwrap_or_default().to_owned(),
        timed: false,
        read_ns: of_all(read_cost_ns),
        write_ns: of_all(write_cost_ns),
        image_ns,
    }
}

/// Works on a cold page, with two pages of its own.
type PageTurn<'a> = &'a mut dyn FnMut(&[u8], &mut [u8], &mut [u8]);

/// ns to verify a page that was just copied from the system's cache, and to sum one before it is
/// copied there: the medians over turns of the differences to the copies alone.
fn timed(kernel: &Kernel, copies: bool) -> (f64, f64) {
    let ring: Vec<u8> = (0..RING_PAGES * PAGE_BYTES).map(|at| (at / 7).to_le_bytes()[0]).collect();
    let (mut page, mut other) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut next = 0;
    for _ in 0..TURNS {
        let mut turn = |work: PageTurn<'_>| {
            let started = Instant::now();
            for _ in 0..PAGES_A_TURN {
                next = (next + 1) % RING_PAGES;
                let cold = &ring[next * PAGE_BYTES..(next + 1) * PAGE_BYTES];
                work(cold, &mut page, &mut other);
            }
            started.elapsed().as_secs_f64() * 1e9 / f64::from(PAGES_A_TURN)
        };
        let sum = |of: &[u8]| {
            let mut checksum = [0];
            kernel.checksums(of, PAGE_BYTES, 7, &mut checksum);
            black_box(checksum);
        };
        let plain = turn(&mut |cold, page, _| black_box(page).copy_from_slice(cold));
        let verified = turn(&mut |cold, page, _| {
            black_box(&mut *page).copy_from_slice(cold);
            sum(page);
        });
        let summed = turn(&mut |cold, page, other| {
            if copies {
                other.copy_from_slice(cold);
                sum(other);
                black_box(page).copy_from_slice(other);
            } else {
                sum(cold);
                black_box(page).copy_from_slice(cold);
            }
        });
        reads.push((verified - plain).max(0.0));
        writes.push((summed - plain).max(0.0));
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    (pgtoll_stats::median(&reads).unwrap_or(0.0), pgtoll_stats::median(&writes).unwrap_or(0.0))
}
