//! The machine, as the record has it.

use std::path::Path;

use pgtoll_observe as observe;
use pgtoll_record::Host;

use crate::BenchError;

/// Facts of this machine; `work_base` is where the clusters are made.
pub fn host(work_base: &Path) -> Result<Host, BenchError> {
    Ok(Host {
        kernel: observe::kernel()?,
        cpu: observe::cpu_model(),
        cores: observe::cores(),
        memory_bytes: observe::memory()?.total_bytes,
        file_system: observe::file_system(work_base)?,
        hypervisor: observe::hypervisor(),
        transparent_huge_pages: observe::transparent_huge_pages(),
        governor: observe::governor(),
        cpu_split: match observe::cpu_split() {
            observe::CpuSplit::Exact => "exact",
            observe::CpuSplit::Sampled { .. } => "sampled",
        }
        .to_owned(),
    })
}
