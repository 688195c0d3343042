//! The bench's output.

use pgtoll_format::ByteSize;
use pgtoll_record::trials::BenchHeader;

/// What is going to be compared.
pub(crate) fn introduction(header: &BenchHeader, servers: &[String]) -> String {
    format!(
        "verifying beside pg_checksums --check of {}\n\
         {} cores of {}; {} repetitions in balanced orders, of files that are in the\n\
         page cache, or cold: not at all; ratios of the same repetition, with 95 %\n\
         intervals\n",
        servers.join(" and "),
        header.host.cores,
        header.host.cpu,
        header.repetitions
    )
}

/// The cluster.
pub(crate) fn cluster(major: u32, bytes: u64, files: usize) -> String {
    format!("\nPostgreSQL {major}: {} in {files} files\n", ByteSize(bytes).rounded())
}
