//! The bench's output.

use pgtoll_format::ByteSize;
use pgtoll_record::trials::{BenchHeader, BenchPeak, BenchWalKind, BenchWalTotal};

use crate::make::{Wal, name};

/// The comparison that follows.
pub(crate) fn introduction(header: &BenchHeader, server: &str) -> String {
    format!(
        "reading WAL beside pg_waldump of {}\n\
         {} cores of {}; {} repetitions in balanced orders, each run of WAL that is in\n\
         the page cache; ratios of the same repetition, with 95 % intervals\n",
        server, header.host.cores, header.host.cpu, header.repetitions
    )
}

/// The WAL.
#[expect(clippy::cast_precision_loss, reason = "a percentage is shown")]
pub(crate) fn wal(kind: BenchWalKind, wal: &Wal, total: &BenchWalTotal) -> String {
    let share = total.image_bytes as f64 / (total.record_bytes + total.image_bytes) as f64 * 100.0;
    format!(
        "\n{}: {} in {} segments, {} records, {share:.0} % images\n",
        name(kind),
        ByteSize(wal.bytes).rounded(),
        wal.files.len(),
        total.records
    )
}

/// Memory that reading took, of a quarter and of all of it.
pub(crate) fn memory(peak: BenchPeak) -> String {
    let BenchPeak { quarter_kb, whole_kb } = peak;
    format!("peak memory of two threads: {quarter_kb} kB for a quarter of it, {whole_kb} kB\n")
}
