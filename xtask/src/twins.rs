//! How often printed intervals miss where nothing differs: the twins of many real runs.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{command, run, say};

const RUNS: u32 = 10;
/// Of intervals that claim 95 %.
const MAY_MISS: f64 = 0.10;
const SEED: u32 = 20_261_122;

/// Runs `pgtoll measure --quick` again and again, pools the comparisons of a twin with its
/// baseline, and fails when more than a tenth of them claim a difference. Rows that are counted
/// exactly are no comparisons.
pub(crate) fn twins(options: &[&str]) -> anyhow::Result<()> {
    let (mut runs, mut output) = (RUNS, None);
    for pair in options.chunks(2) {
        match pair {
            ["--runs", number] => runs = number.parse().context("read --runs")?,
            ["--output", path] => output = Some(*path),
            _ => bail!("bench twins takes --runs N and --output FILE"),
        }
    }
    run(command("cargo").args(["build", "--release", "--quiet", "--package", "pgtoll"]))?;
    let mut lines = Vec::new();
    for index in 0..runs {
        lines.extend(rows(&one_run(SEED + index)?)?);
    }
    if let Some(path) = output {
        let texts: Vec<String> = lines.iter().map(Value::to_string).collect();
        let text = texts.join("\n") + "\n";
        std::fs::write(crate::root().join(path), text).with_context(|| format!("write {path}"))?;
    }
    judge(&lines, runs)
}

/// The result of a run.
fn one_run(seed: u32) -> anyhow::Result<Value> {
    let directory = format!("target/bench/twin-{seed}");
    let _ = std::fs::remove_dir_all(crate::root().join(&directory));
    let seed = seed.to_string();
    // What earlier runs here showed neither counts nor is added to.
    run(command("target/release/pgtoll")
        .env("XDG_STATE_HOME", crate::root().join("target/bench/no-state"))
        .args(["--quiet", "measure", "--quick", "--repetitions", "0", "--seed", &seed])
        .args(["--output", &directory]))?;
    let path = crate::root().join(Path::new(&directory)).join("result.json");
    let text = std::fs::read_to_string(&path).context("read the result")?;
    serde_json::from_str(&text).context("read the result")
}

/// A line for each comparison of a twin.
fn rows(result: &Value) -> anyhow::Result<Vec<Value>> {
    let comparisons = result["comparisons"].as_array().context("the result has comparisons")?;
    let header = &result["header"];
    let nulls = comparisons.iter().filter(|of| of["null"] == true);
    let row = |of: &Value| {
        json!({
            "started": header["started"],
            "server": header["server"]["version"],
            "host": header["host"]["cpu"],
            "noise": result["noise"],
            "workload": of["workload"],
            "metric": of["metric"],
            "rounds": of["rounds"],
            "ratio": of["ratio"],
            "null_factor": of["null_factor"],
            "kappa": of["kappa"],
        })
    };
    Ok(nulls.map(row).collect())
}

fn judge(lines: &[Value], runs: u32) -> anyhow::Result<()> {
    let missed: Vec<&Value> = lines.iter().filter(|line| misses(line)).collect();
    let share = share(missed.len(), lines.len());
    for line in &missed {
        say(&format!("missed: {} {} {}", line["workload"], line["metric"], line["ratio"]));
    }
    say(&format!(
        "{} of {} comparisons of twins in {runs} runs claim a difference: {:.1} %",
        missed.len(),
        lines.len(),
        share * 100.0
    ));
    if share > MAY_MISS || lines.is_empty() {
        bail!("at most {:.0} % may", MAY_MISS * 100.0);
    }
    Ok(())
}

fn misses(line: &Value) -> bool {
    let ratio = |name: &str| line["ratio"][name].as_f64().unwrap_or(f64::NAN);
    let half_width = (ratio("upper") / ratio("lower")).ln() / 2.0;
    // As wide as it was before this very miss widened it.
    let factor = line["null_factor"].as_f64().unwrap_or(1.0);
    ratio("estimate").ln().abs() > half_width / factor
}

#[expect(clippy::cast_precision_loss, reason = "rows are few")]
fn share(part: usize, of: usize) -> f64 {
    part as f64 / of.max(1) as f64
}
