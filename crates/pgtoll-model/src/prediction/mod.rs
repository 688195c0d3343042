//! Predictions for a watched server with other settings: rates in, CPU and WAL out, each with a
//! range. The sources of the constants are beside them; `docs/src/predict.md` has the derivations.
//! a range. The sources of the constants are beside them; `docs/src/predict.md` has the derivations.

mod bounded;
mod checkpoints;
mod cycle;
mod images;
mod page;
mod saving;
mod written;

pub use bounded::Bounded;
pub use checkpoints::CheckpointLoad;
pub use cycle::{PlacedCensus, cycle_images, mean_share};
pub use images::{CensusCounts, IMAGE_RECORD_BYTES, StatementCounts, gone_images, window_images};
pub use page::{
    ImageWork, PageWork, compressed_share, compression_cost_ns, cpu_cores, image_cost_ns,
    read_cost_ns, timed_image_cost_ns, timed_page_cost_ns, write_cost_ns,
};
pub use saving::{HintSaving, HintlessCycle, hint_saving};
pub use written::WrittenPages;
