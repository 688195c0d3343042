//! Fuzzing of the parsers: with libFuzzer, by any toolchain that has a C++ compiler beside it.

use std::path::PathBuf;
use std::thread::available_parallelism;

use anyhow::{Context as _, bail};

use crate::{command, output, root, run, say};

/// What `cargo fuzz` gives the compiler without a sanitizer: nothing that is fuzzed is `unsafe`.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What a target may take: none keeps much, whatever it is given.
const MEMORY_MB: u32 = 256;
/// One input may take this long.
const INPUT_SECONDS: u32 = 10;
const LENGTH_MAX: u32 = 65_536;

/// `cargo xtask fuzz [--seconds N] [TARGET…]`.
pub(crate) fn fuzz(arguments: &[&str]) -> anyhow::Result<()> {
    let (seconds, named) = match arguments {
        ["--seconds", seconds, named @ ..] => (seconds.parse().context("--seconds N")?, named),
        named => (60, named),
    };
    run_targets(seconds, named)
}

/// Builds the targets and runs each for so long; none named means all.
pub(crate) fn run_targets(seconds: u32, named: &[&str]) -> anyhow::Result<()> {
    let all = targets()?;
    if let Some(unknown) = named.iter().find(|name| !all.iter().any(|target| target == *name)) {
        bail!("no fuzz target is called {unknown}; there are {}", all.join(", "));
    }
    let host = host()?;
    run(command("cargo")
        .args(["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"])
        .args(["--target", &host, "--target-dir", "target/fuzz"])
        .env("RUSTFLAGS", FLAGS))?;
    let programs = root().join("target/fuzz").join(&host).join("release");
    let chosen: Vec<&String> =
        all.iter().filter(|target| named.is_empty() || named.contains(&target.as_str())).collect();
    let at_once = available_parallelism().map_or(1, usize::from);
    for group in chosen.chunks(at_once) {
        run_together(group, seconds, &programs)?;
    }
    Ok(())
}

/// The targets of `fuzz/Cargo.toml`, which are files.
fn targets() -> anyhow::Result<Vec<String>> {
    let directory = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory).context("list the fuzz targets")? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

fn host() -> anyhow::Result<String> {
    let version = output(command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(ToOwned::to_owned).context("rustc -vV names no host")
}

/// Runs targets beside each other, from the corpora that they keep.
fn run_together(names: &[&String], seconds: u32, programs: &std::path::Path) -> anyhow::Result<()> {
    let mut running = Vec::new();
    for name in names {
        let corpus = root().join("fuzz/corpus").join(name);
        let log: PathBuf = root().join("target/fuzz").join(format!("{name}.log"));
        std::fs::create_dir_all(&corpus).context("make the corpus's directory")?;
        let file = std::fs::File::create(&log).context("make the fuzzer's log")?;
        let mut fuzzer = command(&programs.join(name).to_string_lossy());
        fuzzer
            .arg(&corpus)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={LENGTH_MAX}"))
            .arg(format!("-rss_limit_mb={MEMORY_MB}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            .arg(format!("-artifact_prefix={}/", root().join("target/fuzz").display()))
            .arg("-print_final_stats=1")
            .stderr(file);
        running.push((name, log, fuzzer.spawn().with_context(|| format!("run {name}"))?));
    }
    for (name, log, mut fuzzer) in running {
        let status = fuzzer.wait().context("wait for the fuzzer")?;
        let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        if !status.success() {
            bail!("{name}: {status}\n{text}");
        }
        say(&format!("xtask: {name}: {}", finding_line(&text).context("read the fuzzer's log")?));
    }
    Ok(())
}

/// How often it ran, and how much memory it took.
fn finding_line(log: &str) -> Option<String> {
    let pick = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let executions = pick("stat::number_of_executed_units:")?;
    // None: the fuzzer did not come to the target.
    let executions = Some(executions).filter(|&count| count > 0)?;
    Some(format!("{executions} executions, {} MB", pick("stat::peak_rss_mb:")?))
}
