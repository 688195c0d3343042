//! The options of the benches that time programs.

use std::path::PathBuf;

use pgtoll_format::ByteSize;

/// Options that `bench enable`, `bench verify` and `bench wal` share. Each bench replaces the help
/// and the defaults that differ.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArguments {
    /// How much is made
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    pub size: ByteSize,
    /// How often everything is run
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    pub repetitions: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    pub seed: u64,
    /// The servers: directories or major versions
    #[arg(long, value_name = "WHICH", default_values = ["15", "18"])]
    pub postgres: Vec<String>,
    /// Where the clusters are made
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub work_dir: PathBuf,
    /// Another pgtoll, timed beside this one
    #[arg(long, value_name = "PROGRAM")]
    pub before: Option<PathBuf>,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

impl BenchArguments {
    /// The command that repeats the bench of this name. `servers` are its options `--postgres`.
    pub fn command(&self, name: &str, servers: &str) -> String {
        let Self { size, repetitions, seed, .. } = self;
        let before = if self.before.is_some() { " --before PROGRAM" } else { "" };
        format!(
            "cargo xtask bench {name} --size {size} --repetitions {repetitions} --seed {seed}\
             {servers}{before}"
        )
    }
}
