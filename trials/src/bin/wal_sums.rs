//! Sums over WAL, to be timed: `wal_sums [--threads N] [--plain] PATH…`.
//!
//! With `--plain` only records and bytes by type are summed, which is what `pg_waldump --stats`
//! does; else relations and the causes of images too.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_format::Lsn;
use pgtoll_format::wal::{Parts, Record};
use pgtoll_record::WalAmount;
use pgtoll_wal::{Collect, scan, scan_with, segments};

/// Records and their bytes, by resource manager and info.
struct Types(Vec<WalAmount>);

impl Default for Types {
    fn default() -> Self {
        Self(vec![WalAmount::default(); 256 * 16])
    }
}

impl Collect for Types {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let header = &record.header;
        let item = &mut self.0[usize::from(header.manager) * 16 + usize::from(header.info >> 4)];
        let image_bytes = parts.image_bytes();
        item.records += 1;
        item.record_bytes += u64::from(header.total_bytes) - image_bytes;
        item.image_bytes += image_bytes;
    }

    fn append(&mut self, later: Self) {
        for (own, later) in self.0.iter_mut().zip(later.0) {
            own.add(&later);
        }
    }
}

#[expect(clippy::print_stdout, reason = "a program to be timed says what it did")]
fn main() -> anyhow::Result<()> {
    let mut threads = 1;
    let mut plain = false;
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--threads" => {
                threads = arguments.next().context("--threads takes a number")?.parse()?;
            }
            "--plain" => plain = true,
            path => paths.push(PathBuf::from(path)),
        }
    }
    let files = segments(&paths)?;
    let watch: &mut dyn FnMut(usize) -> _ = &mut |_| ControlFlow::Continue(());
    let (total, end) = if plain {
        let (summary, end) = scan_with(&files, threads, Types::default, watch)?;
        let mut total = WalAmount::default();
        for collected in summary.collected.0 {
            total.add(&collected);
        }
        (total, end)
    } else {
        let (summary, end) = scan(&files, &(Lsn::INVALID..Lsn::MAX), threads, watch)?;
        (summary.collected.statistics.total(), end)
    };
    let WalAmount { records, record_bytes, image_bytes } = total;
    println!("records {records} record_bytes {record_bytes} image_bytes {image_bytes}");
    println!("peak_memory_kb {}", peak_memory_kb()?);
    println!("{end:?}");
    Ok(())
}

/// The most memory that this process had (`VmHWM`).
fn peak_memory_kb() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("look at this process")?;
    let words = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let number = words.split_whitespace().next().context("the kernel tells no VmHWM")?;
    Ok(number.parse()?)
}
