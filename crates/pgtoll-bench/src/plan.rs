//! What exactly will run: settings resolved, disk and time told before anything starts.

use std::path::Path;
use std::time::Duration;

use pgtoll_format::ByteSize;
use pgtoll_record::Design;

use crate::{BenchError, Experiment};

/// What a user may choose; `None` leaves it to the experiment or to pgtoll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// pgbench's scale factor.
    pub scale: Option<u32>,
    /// Rounds.
    pub rounds: Option<u32>,
    /// A round's length without restarts.
    pub round_time: Option<Duration>,
    /// A slice's length.
    pub slice: Option<Duration>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// What exactly will run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// pgbench's scale factor.
    pub scale: u32,
    /// How the slices lie.
    pub design: Design,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Long enough for many transactions, short against a neighbour's job.
const SLICE: Duration = Duration::from_millis(50);
/// Caches that another arm's slice has filled are warm again after a few milliseconds.
const LEAD_IN: Duration = Duration::from_millis(5);
/// Beyond about this length the spread between rounds rules, and another round helps more.
const ROUND: Duration = Duration::from_secs(20);
/// Fewer rounds know too little of the spread between rounds.
const ROUNDS: u32 = 6;
const WARM_UP: Duration = Duration::from_secs(2);

/// pgbench's tables and index take 15 MB for each unit of scale (100,000 accounts of 128 bytes
/// and an index entry of 21).
const BYTES_PER_SCALE: u64 = 15_500_000;
/// An empty cluster with its WAL segments after a load.
const BYTES_PER_CLUSTER: u64 = 120_000_000;

impl Plan {
    /// Resolves what the user left open.
    pub fn new(experiment: Experiment, choices: &Choices) -> Self {
        let slice = choices.slice.unwrap_or(SLICE);
        let round = choices.round_time.unwrap_or(ROUND);
        let arms = u32::try_from(experiment.arms.len()).unwrap_or(u32::MAX);
        let block = (slice + LEAD_IN) * arms;
        Self {
            scale: choices.scale.unwrap_or(experiment.workload().scale),
            design: Design {
                rounds: choices.rounds.unwrap_or(ROUNDS),
                blocks_per_round: times(round, block).max(1),
                slice_ns: nanoseconds(slice),
                lead_in_ns: nanoseconds(LEAD_IN),
                warm_up_blocks: times(WARM_UP.min(round / 4), block).max(1),
            },
            seed: choices.seed,
            experiment,
        }
    }

    /// Bytes of disk that all clusters together need, roughly.
    pub fn disk_bytes(&self) -> u64 {
        // When the last copy is made, the origin is still there.
        (self.data_bytes() + BYTES_PER_CLUSTER) * (self.arms() + 1)
    }

    /// What a reader of the results has to know before there are any.
    pub fn warnings(&self) -> Vec<String> {
        let experiment = &self.experiment;
        let shared_buffers = [&experiment.workload().settings, &experiment.settings]
            .iter()
            .find_map(|settings| settings.get("shared_buffers"))
            .and_then(|size| size.parse::<ByteSize>().ok());
        let fits = shared_buffers.filter(|size| size.0 >= self.data_bytes() / 4);
        let warning = fits.map(|size| {
            format!(
                "shared_buffers of {size} hold much of the data of {}: few pages are read from \
                 outside",
                ByteSize(self.data_bytes()).rounded()
            )
        });
        warning.into_iter().collect()
    }

    /// How long it takes, roughly: slices, restarts and what it takes to make the data at 50 MB/s.
    pub fn duration(&self) -> Duration {
        let arms = self.experiment.arms.len();
        let blocks = self.design.blocks_per_round + self.design.warm_up_blocks;
        let slices = u64::from(self.design.rounds * blocks) * self.arms();
        let slice = Duration::from_nanos(self.design.slice_ns + self.design.lead_in_ns);
        let sliced = slice.mul_f64(f64::from(u32::try_from(slices).unwrap_or(u32::MAX)));
        let restarts = Duration::from_millis(300)
            * self.design.rounds
            * u32::try_from(arms).unwrap_or(u32::MAX);
        let made = Duration::from_secs(2 + self.disk_bytes() / 100_000_000);
        sliced + restarts + made
    }

    /// Refuses what cannot work: a disk that would fill, arms that push each other out of memory.
    pub fn check_room(&self, work_base: &Path) -> Result<(), BenchError> {
        let free_bytes = pgtoll_observe::free_bytes(work_base)?;
        let needed_bytes = self.disk_bytes();
        // A tenth stays free, for the WAL and for others.
        if free_bytes / 10 * 9 < needed_bytes {
            let path = work_base.to_owned();
            return Err(BenchError::DiskTooSmall { path, free_bytes, needed_bytes });
        }
        let available_bytes = pgtoll_observe::memory()?.available_bytes;
        let needed_bytes = self.data_bytes() * self.arms();
        if available_bytes / 10 * 7 < needed_bytes {
            return Err(BenchError::MemoryTooSmall { available_bytes, needed_bytes });
        }
        Ok(())
    }

    /// The plan in sentences, a line each.
    pub fn lines(&self) -> Vec<String> {
        let names: Vec<&str> = self.experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
        let design = &self.design;
        let blocks = Duration::from_nanos(design.slice_ns + design.lead_in_ns)
            * design.blocks_per_round
            * u32::try_from(names.len()).unwrap_or(u32::MAX);
        vec![
            format!("experiment {}: {}", self.experiment.name, self.experiment.question),
            format!("arms: {} (baseline {})", names.join(", "), self.experiment.baseline),
            format!(
                "workload: {}, scale {}, 1 client",
                self.experiment.workload().title,
                self.scale
            ),
            format!(
                "design: {} x {:.1} s with restarts between, slices of {} ms in balanced random \
                 order, seed {}",
                design.rounds,
                blocks.as_secs_f64(),
                design.slice_ns / 1_000_000,
                self.seed
            ),
            format!(
                "needs about {} of disk and {} of time",
                ByteSize(self.disk_bytes()).rounded(),
                pgtoll_format::TimeSpan(self.duration()).rounded()
            ),
        ]
    }

    fn arms(&self) -> u64 {
        self.experiment.arms.len() as u64
    }

    /// Of one arm.
    fn data_bytes(&self) -> u64 {
        u64::from(self.scale) * BYTES_PER_SCALE
    }
}

/// How often `part` fits into `whole`.
fn times(whole: Duration, part: Duration) -> u32 {
    u32::try_from(whole.as_nanos() / part.as_nanos().max(1)).unwrap_or(u32::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
