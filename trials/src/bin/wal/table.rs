//! What the bench prints.

use pgtoll_format::ByteSize;

use crate::make::{Kind, Wal};
use crate::record::Header;
use crate::runs::{Peak, Total};

/// What is going to be compared.
pub(crate) fn introduction(header: &Header) -> String {
    format!(
        "reading WAL beside pg_waldump of {}\n\
         {} cores of {}; {} repetitions in balanced orders, each run of WAL that is in\n\
         the page cache; ratios of the same repetition, with 95 % intervals\n",
        header.server, header.host.cores, header.host.cpu, header.repetitions
    )
}

/// The WAL.
#[expect(clippy::cast_precision_loss, reason = "it is told in per cent")]
pub(crate) fn wal(kind: Kind, wal: &Wal, total: &Total) -> String {
    let share = total.image_bytes as f64 / (total.record_bytes + total.image_bytes) as f64 * 100.0;
    format!(
        "\n{}: {} in {} segments, {} records, {share:.0} % images\n",
        kind.name(),
        ByteSize(wal.bytes).rounded(),
        wal.files.len(),
        total.records
    )
}

/// What the reading took, whatever there was to read.
pub(crate) fn memory(peak: Peak) -> String {
    let Peak { quarter_kb, whole_kb } = peak;
    format!("peak memory of two threads: {quarter_kb} kB for a quarter of it, {whole_kb} kB\n")
}
