//! Whether `pgtoll replay run` sends statements when they are due, with a thousand sessions, too, and how
//! fast it is beside pgbench, whose logged work it repeats.
//!
//! `cargo xtask bench replay-pace` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod replays;
mod score;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pgtoll_record::trials::{
    BENCH_REPLAY_PACE_SCHEMA, ReplayPaceCase, ReplayPaceHeader, ReplayPaceLine, ReplayPaceRun,
};
use pgtoll_trials::{Recorder, TrialSite, installation, print, say, server_name};

use crate::replays::{PaceSite, Work};

/// Are statements replayed when they are due, and how fast beside pgbench?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench replay-pace")]
struct Arguments {
    /// What is tried
    #[arg(long, value_name = "CASE", default_values = ["timed", "sessions", "full"], value_delimiter = ',', value_parser = ["timed", "sessions", "full"])]
    case: Vec<String>,
    /// How often each replay is made
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Seconds of logged work at a fixed rate
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Transactions a second of the logged work at a fixed rate
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Sessions of the case of that name
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    sessions: u32,
    /// The server: a directory or a major version
    #[arg(long, alias = "major", value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the clusters are made; 1 GB is needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench replay-pace", || bench(&Arguments::parse()))
}

/// Every case; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let trial_site = TrialSite::prepare(&arguments.work_dir)?;
    let server = installation(&arguments.postgres)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut guard = trial_site.begin_guard()?;
    say("making the data");
    let site = PaceSite::make(&mut guard, &server, arguments.sessions + CONNECTIONS_MORE)?;
    let header = header(arguments, &trial_site, server_name(&server))?;
    print(&score::introduction(&header));
    recorder.write(&ReplayPaceLine::Header(Box::new(header)))?;
    let mut runs: Vec<ReplayPaceRun> = Vec::new();
    for case in
        CASES.into_iter().filter(|case| arguments.case.iter().any(|item| item == name(*case)))
    {
        for work in work(arguments, case) {
            say(&format!("{}: pgbench -M {}", name(case), work.protocol));
            let captured = site.capture(&mut guard, &work)?;
            for repetition in 1..=arguments.repetitions {
                for speed in speeds(case) {
                    trial_site.interrupt.check()?;
                    let run = site.replay(&mut guard, &captured, case, *speed)?;
                    let run = ReplayPaceRun { repetition, ..run };
                    print(&score::line(&run));
                    recorder.write(&ReplayPaceLine::Replay(Box::new(run.clone())))?;
                    runs.push(run);
                }
            }
        }
    }
    guard.finish()?;
    let outcomes = score::outcomes(&runs);
    print(&score::table(&outcomes));
    Ok(outcomes.iter().all(score::PaceOutcome::is_reached))
}

const CASES: [ReplayPaceCase; 3] =
    [ReplayPaceCase::Timed, ReplayPaceCase::Sessions, ReplayPaceCase::Full];

/// Beside the sessions': the superuser's, the watchdog's, the bench's own.
const CONNECTIONS_MORE: u32 = 20;

fn name(case: ReplayPaceCase) -> &'static str {
    match case {
        ReplayPaceCase::Timed => "timed",
        ReplayPaceCase::Sessions => "sessions",
        ReplayPaceCase::Full => "full",
    }
}

fn speeds(case: ReplayPaceCase) -> &'static [Option<f64>] {
    match case {
        ReplayPaceCase::Timed => &[Some(1.0), Some(2.0), Some(0.5)],
        ReplayPaceCase::Sessions => &[Some(1.0)],
        ReplayPaceCase::Full => &[None],
    }
}

/// pgbench's options; at full speed for each protocol, as the less a server does for a statement, the more
/// its client weighs.
fn work(arguments: &Arguments, case: ReplayPaceCase) -> Vec<Work> {
    let seconds = arguments.seconds.to_string();
    let rate = arguments.rate.to_string();
    let at_a_rate = ["-R", &rate, "-T", &seconds];
    let sessions = arguments.sessions.to_string();
    let options: Vec<&str> = match case {
        ReplayPaceCase::Timed => [&["-c", "16"][..], &at_a_rate].concat(),
        ReplayPaceCase::Sessions => [&["-S", "-c", &sessions][..], &at_a_rate].concat(),
        ReplayPaceCase::Full => vec!["-S", "-c", "8", "-t", "40000"],
    };
    let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
    let protocols = match case {
        ReplayPaceCase::Timed | ReplayPaceCase::Sessions => &["prepared"][..],
        ReplayPaceCase::Full => &score::PROTOCOLS,
    };
    let work = |protocol: &&'static str| Work { protocol, options: options.clone() };
    protocols.iter().map(work).collect()
}

fn header(
    arguments: &Arguments,
    trial_site: &TrialSite,
    server: String,
) -> anyhow::Result<ReplayPaceHeader> {
    let Arguments { case, repetitions, seconds, rate, sessions, postgres, .. } = arguments;
    Ok(ReplayPaceHeader {
        schema: BENCH_REPLAY_PACE_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask bench replay-pace --case {} --repetitions {repetitions} --seconds {seconds} \
             --rate {rate} --sessions {sessions} --postgres {postgres}",
            case.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: trial_site.host()?,
        server,
    })
}
