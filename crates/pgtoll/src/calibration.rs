//! The file of twins' comparisons, which is kept from run to run: later runs widen their intervals
//! by it.
//! intervals.

use std::fs;
use std::path::PathBuf;

use pgtoll_estimate::{Twins, twin_lines};
use pgtoll_record::{Host, RunResult};

/// The comparisons on this machine, as far as they can be read.
pub(crate) fn twins(host: &Host) -> Twins {
    let text = path().and_then(|path| pgtoll_system::read_to_string(&path, BYTES_MAX).ok());
    Twins::parse(&text.unwrap_or_default(), host)
}

/// Years of runs.
const BYTES_MAX: u64 = 64 << 20;

/// Adds the twins of a complete run. What cannot be written is left out: a result is no worse for
/// it.
pub(crate) fn remember(result: &RunResult) {
    let Some(path) = path().filter(|_| result.complete) else { return };
    let _ = path.parent().map(fs::create_dir_all);
    // One write, so that lines of two runs do not mix.
    let _ = pgtoll_system::append_private(&path, twin_lines(result).as_bytes());
}

/// Returns the file of comparisons; `None` without a home directory.
pub(crate) fn path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("pgtoll/twins.jsonl"))
}
