//! Circumstances of the figures: design, noise, settings, machine, notes; and how to read them.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{Arm, ArmBuild, Prepared, Run, RunResult, Work, Workload};

use super::answer::day;
use crate::terminal::{legend, steadiness};

/// How it was measured, and what else went on.
pub(crate) fn section(run: &Run, result: &RunResult) -> Markup {
    html! {
        h3 { "Design" }
        (facts(design(run, result)))
        (workloads(result))
        (arms(result))
        h3 { "Noise" }
        (facts(noise(result)))
        h3 { "Settings of every arm" }
        // As the server shows them; records before that have what the experiment says.
        (settings(if result.settings.is_empty() { &result.header.server.settings } else { &result.settings }))
        h3 { "Machine and server" }
        (facts(machine(run, result)))
        @if let Some(prepared) = &run.prepared {
            (builds(prepared, &result.header.baseline))
            (plans(prepared, &result.header.baseline))
        }
    }
}

/// The builds of servers that are compared.
fn builds(prepared: &Prepared, baseline: &str) -> Markup {
    html! {
        @for build in &prepared.builds {
            h3 { "Build of " (build.arm) }
            (facts(build_facts(build)))
            @if !build.differing.is_empty() {
                p { "Settings as shipped that differ from those of " (baseline) ":" }
                (shipped(build))
            }
        }
    }
}

fn build_facts(build: &ArmBuild) -> Vec<Fact> {
    let mut facts = vec![("server", build.version_text.clone())];
    facts.extend(build.configure.clone().map(|text| ("configured with", text)));
    facts.extend(build.cflags.clone().map(|text| ("CFLAGS", text)));
    let bytes = ByteSize(build.postgres_bytes).rounded();
    facts.push(("postgres", format!("{bytes}, SHA-256 {}", build.postgres_sha256)));
    facts
}

/// The arm's value of each setting, and the baseline's; what a run gave it instead.
fn shipped(build: &ArmBuild) -> Markup {
    let value = |value: &Option<String>| match value {
        None => "unknown to it".to_owned(),
        Some(value) if value.is_empty() => "''".to_owned(),
        Some(value) => value.clone(),
    };
    html! {
        dl class="facts" {
            @for (name, values) in &build.differing {
                dt { code { (name) } }
                dd {
                    code { (value(&values.arm)) } " (not " code { (value(&values.baseline)) } ")"
                    @if let Some(pinned) = build.pinned.get(name) { ", here set to " code { (pinned) } }
                }
            }
        }
    }
}

/// Both plans of each statement for which they differ.
fn plans(prepared: &Prepared, baseline: &str) -> Markup {
    html! {
        @if !prepared.plans.is_empty() { h3 { "Plans that differ" } }
        @for difference in &prepared.plans {
            p { (difference.workload) ": " code { (difference.statement) } }
            pre { code {
                "on " (baseline) ":\n" (difference.plans.baseline.join("\n"))
                "\n\non " (difference.arm) ":\n" (difference.plans.arm.join("\n"))
            } }
        }
    }
}

pub(crate) type Fact = (&'static str, String);

pub(crate) fn facts(facts: Vec<Fact>) -> Markup {
    html! {
        dl class="facts" { @for (name, value) in facts { dt { (name) } dd { (value) } } }
    }
}

fn design(run: &Run, result: &RunResult) -> Vec<Fact> {
    let design = &result.header.design;
    let clusters = if design.crossover {
        "one, whose settings change between slices"
    } else {
        "one for each arm; in each round all of them run, and take turns"
    };
    let mut facts = vec![
        ("rounds planned", format!("{} of each timed workload", design.rounds)),
        ("repetitions of operations", format!("{}, each twice", design.repetitions)),
        ("clusters", clusters.to_owned()),
        ("scale of pgbench’s data", design.scale.to_string()),
        ("seed", result.header.seed.to_string()),
        ("slices that count", run.slices.len().to_string()),
        ("operations", run.operations.len().to_string()),
    ];
    if let Some(end) = &run.end {
        facts.push(("duration", format!("{:.0} min", end.seconds / 60.0)));
    }
    facts
}

fn workloads(result: &RunResult) -> Markup {
    html! {
        div class="scroll" role="region" aria-label="Workloads" tabindex="0" {
            table class="words" {
                thead { tr {
                    th scope="col" { "workload" }
                    th scope="col" { "slice" }
                    th scope="col" { "blocks a round" }
                    th scope="col" { "rounds" }
                    th scope="col" { "memory a server" }
                    th scope="col" { "settings" }
                } }
                tbody { @for item in &result.header.workloads { (workload(result, item)) } }
            }
        }
        details {
            summary { "What each workload does" }
            dl class="facts" {
                @for workload in &result.header.workloads {
                    dt { (workload.name) }
                    dd { (workload.title) ": " (work(&workload.work)) }
                }
            }
        }
    }
}

fn workload(result: &RunResult, workload: &Workload) -> Markup {
    let slicing = workload.slicing.as_ref().filter(|_| workload.timed);
    let slice = slicing.map(|slicing| TimeSpan(Duration::from_nanos(slicing.slice_ns)).to_string());
    let blocks = slicing.map(|slicing| slicing.blocks_per_round.to_string());
    let rounds = result.rounds.get(&workload.name).map(u32::to_string);
    let limit = workload.memory_limit_bytes.map(|bytes| ByteSize(bytes).to_string());
    let settings: Vec<String> =
        workload.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    html! {
        tr {
            th scope="row" { (workload.name) @if !workload.timed { " (counted only)" } }
            @for cell in [slice, blocks, rounds, limit] {
                td { (cell.unwrap_or_else(|| "-".to_owned())) }
            }
            td { (settings.join(", ")) }
        }
    }
}

fn work(work: &Work) -> Markup {
    html! {
        @match work {
            Work::Operation { action, .. } => code { (action) },
            Work::Command { command } => code { (command) },
            Work::Script { scripts, rate, clients, .. } => {
                @for (index, script) in scripts.iter().enumerate() {
                    @if index > 0 { ", " }
                    "script " code { (script.name) } " (weight " (script.weight) ")"
                }
                @if *clients > 1 { ", " (clients) " clients" }
                @if let Some(rate) = rate { ", " (rate) " transactions a second" }
                @for text in scripts.iter().filter_map(|script| script.text.as_deref()) {
                    pre { code { (text) } }
                }
            },
        }
    }
}

fn arms(result: &RunResult) -> Markup {
    html! {
        div class="scroll" role="region" aria-label="Arms" tabindex="0" {
            table class="words" {
                thead { tr {
                    th scope="col" { "arm" }
                    th scope="col" { "data checksums" }
                    th scope="col" { "settings of its own" }
                } }
                tbody { @for arm in &result.header.arms { tr {
                    th scope="row" { (arm.name) (role(result, arm)) }
                    td { @if arm.checksums { "on" } @else { "off" } }
                    td { (own(arm)) }
                } } }
            }
        }
    }
}

/// Returns an arm's own settings, and its values of `${name}` in steps.
fn own(arm: &Arm) -> String {
    // The scale is the same for all.
    let values = arm.values.iter().filter(|(name, _)| *name != "scale");
    let values = values.map(|(name, value)| format!("${{{name}}} = {value}"));
    let settings = arm.settings.iter().map(|(name, value)| format!("{name} = {value}"));
    let all: Vec<String> = settings.chain(values).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn role(result: &RunResult, arm: &Arm) -> String {
    match &arm.twin_of {
        Some(twin_of) => format!(" (null: a copy of {twin_of})"),
        None if arm.name == result.header.baseline => " (baseline)".to_owned(),
        None => String::new(),
    }
}

fn noise(result: &RunResult) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(noise) = result.noise {
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        facts.push(("stolen by the hypervisor", format!("{} of CPU time", share(noise.steal))));
        facts.push(("used by other programs", format!("{} of CPU time", share(noise.others))));
        let pressure = noise.cpu_pressure.map_or("unknown".to_owned(), share);
        facts.push(("some task waited for a CPU", format!("{pressure} of the time")));
    }
    if let Some(steadiness) = steadiness(result) {
        facts.push(("steadiness", steadiness.trim_start_matches("steadiness, ").to_owned()));
    }
    if facts.is_empty() {
        facts.push(("noise", "unknown: no round ended".to_owned()));
    }
    facts
}

fn settings(settings: &BTreeMap<String, String>) -> Markup {
    if settings.is_empty() {
        return html! { p { "The defaults." } };
    }
    html! {
        dl class="facts" {
            @for (name, value) in settings { dt { code { (name) } } dd { code { (value) } } }
        }
    }
}

fn machine(run: &Run, result: &RunResult) -> Vec<Fact> {
    let host = &result.header.host;
    let server = &result.header.server;
    let unknown = || "unknown".to_owned();
    let version = run.prepared.as_ref().map_or_else(
        || format!("PostgreSQL {}", server.version),
        |prepared| prepared.version_text.clone(),
    );
    let data = run.prepared.as_ref();
    let data = data.map_or_else(unknown, |data| ByteSize(data.data_bytes).rounded());
    let split = if host.cpu_split.is_empty() { unknown() } else { host.cpu_split.clone() };
    vec![
        ("server", version),
        ("where it came from", format!("{}, run as {}", server.origin, server.user)),
        ("data directory of an arm", data),
        ("CPU", format!("{}, {} CPUs", host.cpu, host.cores)),
        ("virtual", if host.hypervisor { "yes, under a hypervisor" } else { "no" }.to_owned()),
        ("memory", ByteSize(host.memory_bytes).rounded()),
        ("kernel", host.kernel.clone()),
        ("file system", host.file_system.clone()),
        ("CPU frequency governor", host.governor.clone().unwrap_or_else(unknown)),
        ("huge pages", host.transparent_huge_pages.clone().unwrap_or_else(unknown)),
        ("user and system time", split),
        ("measured", day(&result.header.started)),
    ]
}

/// Notes for the reader.
pub(crate) fn notes(result: &RunResult) -> Markup {
    html! {
        @if result.notes.is_empty() {
            p { "There is nothing that a reader has to know besides." }
        } @else {
            ul { @for note in &result.notes { li { (note) } } }
        }
    }
}

/// For who opens such a page for the first time.
pub(crate) fn reading(result: &RunResult) -> Markup {
    let baseline = &result.header.baseline;
    html! {
        dl class="facts" {
            dt { "interval" }
            dd { "+5 % [+3, +7]: the best guess is 5 % more than " (baseline) ", and the data agree \
                with anything from 3 % to 7 %. Of a hundred such intervals about five miss the \
                truth." }
            dt { "~" }
            dd { "The interval covers zero: there may be a difference either way, as large as \
                the interval’s ends. The answer says “no difference seen, at most” its \
                end, or “too noisy to decide” where that is more than 25 %; and how much longer to measure." }
            dt { "null, twin" }
            dd { "A copy of " (baseline) " without any difference, measured like every other arm. \
                Whatever it shows is chance; a grey band in the pictures. If it stands beside \
                zero, all intervals of its group are as many times as wide as it takes." }
            dt { "block, round" }
            dd { "In a block each arm has one short turn, in random order; only turns of one block \
                are compared. A round is many blocks, and begins with a restart of all servers." }
            dt { "per cent" }
            dd { "+100 % is twice as much, -50 % is half. For transactions/s, less is worse." }
            dt { "in short" }
            dd { (legend(result)) }
        }
    }
}
