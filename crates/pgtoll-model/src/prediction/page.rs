//! CPU for a page that is read, written or logged.

use pgtoll_format::wal::Compression;

use super::Bounded;

/// Pages a second, by what is done with them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageWork {
    /// Read from outside shared buffers: verified. In ns each.
    pub read: (f64, Bounded),
    /// Written: summed. In ns each.
    pub write: (f64, Bounded),
}

/// Images a second, and ns each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageWork {
    /// Images a second; negative: saved.
    pub images: Bounded,
    /// CPU each, in ns.
    pub cost_ns: Bounded,
}

/// Cores that verifying, summing and logging these pages takes.
pub fn cpu_cores(pages: &PageWork, images: &ImageWork) -> Bounded {
    let cores = |(rate, cost): (f64, Bounded)| cost.scaled(rate / 1e9);
    // Images that are saved are negative: their product has its bounds the other way round.
    let sign = if images.images.estimate < 0.0 { -1.0 } else { 1.0 };
    let of_images = images.images.scaled(sign).times(images.cost_ns).scaled(sign * 1e-9);
    Bounded::sum(&[cores(pages.read), cores(pages.write), of_images])
}

/// CPU to verify a page that was read, in ns, of the kernels that servers run: measured in
/// sequential scans of PostgreSQL 15, 18 and 19rc1 on x86-64. `None`: another kernel.
pub fn read_cost_ns(kernel: &str) -> Option<Bounded> {
    match kernel {
        "server-sse2" => Some(Bounded { estimate: 668.0, lower: 530.0, upper: 850.0 }),
        "server-avx2" => Some(Bounded { estimate: 280.0, lower: 105.0, upper: 340.0 }),
        _ => None,
    }
}

/// CPU to sum a page that is written, in ns: until 18 with its copy, since 19 in place.
pub fn write_cost_ns(kernel: &str) -> Option<Bounded> {
    match kernel {
        "server-sse2" => Some(Bounded { estimate: 1000.0, lower: 760.0, upper: 1260.0 }),
        "server-avx2" => Some(Bounded { estimate: 460.0, lower: 350.0, upper: 580.0 }),
        _ => None,
    }
}

/// The same for a read or a write where the kernel was timed alone: `timed_ns`. Servers do other things
/// between two sums. In a profile of sequential scans they took 1.02 to 1.13 times as long, in the
/// prediction trial 1.1 (18), 1.2 (17) and 1.5 times (15).
pub fn timed_page_cost_ns(timed_ns: f64) -> Bounded {
    Bounded { estimate: 1.2, lower: 1.0, upper: 1.5 }.scaled(timed_ns)
}

/// CPU to log an image on a processor that is not seen, in ns: its CRC, copies and the write of the
/// WAL, and what compresses it. 10 to 11 µs in first scans on a busy Xeon; on an EPYC 3 to 4 µs there, and
/// 5 to 6 µs in the prediction trial of eight clients.
pub fn image_cost_ns(compression: Option<Compression>) -> Bounded {
    let plain = Bounded { estimate: 7_000.0, lower: 3_000.0, upper: 18_000.0 };
    Bounded::sum(&[plain, compression_cost_ns(compression)])
}

/// The same without compression where its CRC, its copy to the buffers of WAL and the write to a
/// file in memory were timed: `timed_ns`. A server does more: it locks, looks up and synchronises. In
/// first scans of one session that took 1.6 times as long as what was timed, with segments that are used
/// again (2.3 times with new ones, which are filled with zeros first); in the prediction trial, with
/// eight sessions, 2.6 to 4.5 times, and 6 times where `VACUUM` reads a table that is larger than shared
/// buffers.
pub fn timed_image_cost_ns(timed_ns: f64) -> Bounded {
    Bounded { estimate: 3.0, lower: 1.5, upper: 6.0 }.scaled(timed_ns)
}

/// CPU to compress an image, in ns.
pub fn compression_cost_ns(compression: Option<Compression>) -> Bounded {
    match compression {
        None => Bounded::ZERO,
        Some(Compression::Lz4) => Bounded { estimate: 2_000.0, lower: 1_000.0, upper: 3_000.0 },
        Some(Compression::Zstd) => Bounded { estimate: 26_500.0, lower: 20_000.0, upper: 33_000.0 },
        Some(Compression::Pglz) => {
            Bounded { estimate: 117_500.0, lower: 90_000.0, upper: 145_000.0 }
        }
    }
}

/// Returns the compressed share of an image. The estimate is that of pgbench's tables; other data may compress
/// better, or not at all.
pub fn compressed_share(compression: Option<Compression>) -> Bounded {
    match compression {
        None => Bounded::exact(1.0),
        Some(Compression::Lz4) => Bounded { estimate: 0.49, lower: 0.1, upper: 1.0 },
        Some(Compression::Pglz) => Bounded { estimate: 0.485, lower: 0.1, upper: 1.0 },
        Some(Compression::Zstd) => Bounded { estimate: 0.285, lower: 0.05, upper: 1.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_pages_a_second_are_two_thirds_of_a_per_cent_of_a_core() {
        let cost = read_cost_ns("server-sse2").unwrap();
        let pages = PageWork { read: (10_000.0, cost), ..PageWork::default() };
        let cores = cpu_cores(&pages, &ImageWork::default());
        assert!((cores.estimate - 0.00668).abs() < 1e-9, "{cores:?}");
    }

    #[test]
    fn a_thousand_images_a_second_are_less_than_a_per_cent_of_a_core() {
        let images = ImageWork { images: Bounded::exact(1000.0), cost_ns: image_cost_ns(None) };
        let cores = cpu_cores(&PageWork::default(), &images);
        assert!((cores.estimate - 0.007).abs() < 1e-9, "{cores:?}");
        let saved = ImageWork { images: images.images.negated(), ..images };
        assert_eq!(cpu_cores(&PageWork::default(), &saved), cores.negated());
        let more = |kind| image_cost_ns(Some(kind)).estimate - image_cost_ns(None).estimate;
        assert!(more(Compression::Pglz) > 10.0 * more(Compression::Lz4));
    }
}
