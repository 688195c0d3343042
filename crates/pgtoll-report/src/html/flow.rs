//! Reads, writes and WAL over time.

use std::collections::BTreeSet;

use maud::{Markup, html};
use pgtoll_format::{ByteSize, PAGE_BYTES};
use pgtoll_record::{
    CounterReading, IoBytes, Operation, Run, RunResult, StepReading, Work, Workload,
};

use super::{Series, figures, series};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend};

/// A figure for each timed workload that reads or writes.
pub(crate) fn section(run: &Run, result: &RunResult) -> Markup {
    let words = html! {
        p {
            "What each arm’s server moved, in the order of time. Reads may come from the \
            system’s cache; those from a disk are shown apart. File writes are data and WAL \
            together, whether or not the system has brought them to a disk yet."
        }
        (legend(servers(run, result).iter().map(|server| (server.title.as_str(), server.look))))
    };
    let none = "No arm read or wrote anything in a round or repetition that ended.";
    figures(run, &words, none, |item, index| {
        of_workload(run, result, item, index).filter(|_| item.timed)
    })
}

/// The arms; of a crossover the one server that all of them are.
fn servers<'a>(run: &'a Run, result: &'a RunResult) -> Vec<Series<'a>> {
    let mut all = series(result);
    if !run.header.design.crossover {
        return all;
    }
    let arms = run.rounds.iter().flat_map(|round| &round.arms).map(|item| item.arm.as_str());
    let others: BTreeSet<&str> =
        arms.filter(|arm| all.iter().all(|series| series.arm != *arm)).collect();
    for arm in others {
        let title = format!("{arm} (all arms)");
        let look = Look::from_index(all.len());
        all.push(Series { arm, title, look, null: false });
    }
    all
}

/// The counters of a server between two points on the time axis, on which a round or a repetition is
/// one wide: bytes, or bytes a second of its own work; and cores that it used.
#[derive(Clone, Copy, Debug)]
struct Flow {
    from: f64,
    to: f64,
    /// In the order of [`KINDS`]; `None` where it is unknown.
    amounts: Amounts,
}

type Amounts = [Option<f64>; 5];

const KINDS: [&str; 5] = ["reads", "reads from disk", "file writes", "WAL", "server CPU, in cores"];
/// The last of them are no bytes, and known of steps that were followed.
const CPU: usize = 4;
/// The smallest share of the largest amount that is shown.
const SHOWN: f64 = 0.001;

type OfServer<'a> = (Series<'a>, Vec<Flow>);

/// How amounts are measured and shown.
#[derive(Clone, Copy)]
struct Form {
    noun: &'static str,
    /// Rates between readings, not sums of whole rounds.
    sampled: bool,
}

fn of_workload(run: &Run, result: &RunResult, workload: &Workload, index: usize) -> Option<Markup> {
    let is_operation = matches!(workload.work, Work::Operation { .. });
    let form = Form {
        noun: if is_operation { "repetition" } else { "round" },
        sampled: run.samples.iter().any(|sample| sample.workload == workload.name)
            || courses(run, workload).next().is_some(),
    };
    let mut servers = servers(run, result)
        .into_iter()
        .map(|series| {
            let flows = match (is_operation, form.sampled) {
                (true, true) => of_courses(run, workload, series.arm),
                (true, false) => of_operations(run, workload, series.arm),
                (false, true) => of_samples(run, workload, series.arm),
                (false, false) => of_rounds(run, workload, series.arm),
            };
            (series, flows)
        })
        .collect::<Vec<OfServer<'_>>>();
    servers.retain(|(_, flows)| !flows.is_empty());
    let most = (0..CPU).map(|kind| peak(&servers, kind)).fold(0.0, f64::max);
    let (mut moved, still): (Vec<usize>, Vec<usize>) =
        (0..CPU).partition(|kind| peak(&servers, *kind) > most * SHOWN);
    moved.extend(Some(CPU).filter(|_| peak(&servers, CPU) > 0.0));
    if moved.is_empty() {
        return None;
    }
    let nothing: Vec<&str> = still.iter().map(|kind| KINDS[*kind]).collect();
    let unit = if form.sampled { "bytes a second of an arm’s own work" } else { "bytes" };
    let words = Words {
        id: format!("flow-{index}"),
        title: &format!("Reads and writes over time: {}", workload.title),
        description: description(&servers, &moved, unit),
        caption: html! {
            h3 { (workload.title) }
            p { (unit) @if !form.sampled { " a " (form.noun) }
                @if !nothing.is_empty() { "; next to nothing in every arm: " (nothing.join(", ")) } }
        },
    };
    Some(figure(&words, |width| drawing(&servers, &moved, form, width)))
}

fn peak(servers: &[OfServer<'_>], kind: usize) -> f64 {
    let flows = servers.iter().flat_map(|(_, flows)| flows);
    flows.filter_map(|flow| flow.amounts[kind]).fold(0.0, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of rounds")]
fn description(servers: &[OfServer<'_>], moved: &[usize], unit: &str) -> String {
    let means = moved.iter().flat_map(|kind| {
        servers.iter().map(|(series, flows)| {
            let sum: f64 = flows.iter().filter_map(|flow| flow.amounts[*kind]).sum();
            let mean = sum / flows.len() as f64;
            let mean = if *kind == CPU { format!("{mean:.2}") } else { size(mean) };
            format!("{}, {}: {mean}", KINDS[*kind], series.title)
        })
    });
    format!("Means, {unit}. {}", means.collect::<Vec<_>>().join(". "))
}

/// Reads as the system calls tell them; in older records what came into shared buffers.
#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn amounts(io: Option<IoBytes>, blocks_read: Option<u64>, wal: u64) -> Amounts {
    let reads = io.and_then(|io| io.read_calls);
    let reads =
        reads.or_else(|| blocks_read.map(|blocks| blocks.saturating_mul(PAGE_BYTES as u64)));
    [
        reads.map(|bytes| bytes as f64),
        io.map(|io| io.read as f64),
        io.map(|io| io.written as f64),
        Some(wal as f64),
        None,
    ]
}

fn of_rounds(run: &Run, workload: &Workload, arm: &str) -> Vec<Flow> {
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let own = rounds.flat_map(|round| round.arms.iter().map(|arm| (round.round, arm)));
    let flows = own.filter(|(_, item)| item.arm == arm).map(|(round, item)| Flow {
        from: f64::from(round.saturating_sub(1)),
        to: f64::from(round),
        amounts: amounts(item.io, item.blocks_read, item.wal_to.0.saturating_sub(item.wal_from.0)),
    });
    flows.collect()
}

/// The first of a repetition's halves: the other is the same work again.
fn of_operations(run: &Run, workload: &Workload, arm: &str) -> Vec<Flow> {
    let own = run.operations.iter();
    let own =
        own.filter(|item| item.workload == workload.name && item.arm == arm && item.half == 1);
    let flows = own.map(|item| Flow {
        from: f64::from(item.repetition.saturating_sub(1)),
        to: f64::from(item.repetition),
        amounts: amounts(item.counters.io, item.counters.blocks_read, item.counters.wal_bytes),
    });
    flows.collect()
}

/// Operations that were followed; of the second half as little as of others.
fn courses<'a>(run: &'a Run, workload: &'a Workload) -> impl Iterator<Item = &'a Operation> {
    let own = run.operations.iter();
    own.filter(|operation| {
        operation.workload == workload.name && operation.half == 1 && !operation.course.is_empty()
    })
}

/// Each arm's repetition begins at the same place, although arms have their turns one after the
/// other.
#[expect(clippy::cast_precision_loss, reason = "a step's bytes and nanoseconds are far below 2^53")]
fn of_courses(run: &Run, workload: &Workload, arm: &str) -> Vec<Flow> {
    let end = |operation: &Operation| operation.course.last().map_or(0, |last| last.after_ns);
    let longest = courses(run, workload).map(end).max().unwrap_or(0).max(1) as f64;
    let known = |reading: &StepReading| {
        let mut known = amounts(reading.io, None, reading.wal_bytes);
        known[CPU] = Some(reading.server_cpu_ns as f64 / 1e9);
        known
    };
    let own = courses(run, workload).filter(|course| course.arm == arm);
    let flows = own.flat_map(|course| {
        let begin = f64::from(course.repetition.saturating_sub(1));
        let mut before = (0, [Some(0.0); KINDS.len()]);
        course.course.iter().filter_map(move |moment| {
            let (from, earlier) = std::mem::replace(&mut before, (moment.after_ns, known(moment)));
            let seconds = moment.after_ns.saturating_sub(from) as f64 / 1e9;
            let mut amounts = before.1;
            for (amount, earlier) in amounts.iter_mut().zip(earlier) {
                *amount = amount.zip(earlier).map(|(now, then)| (now - then).max(0.0) / seconds);
            }
            let from = from as f64 / longest;
            let to = moment.after_ns as f64 / longest;
            (seconds > 0.0).then_some(Flow { from: begin + from, to: begin + to, amounts })
        })
    });
    flows.collect()
}

/// At most this many steps an arm; what is left out between two readings is in the next one.
const STEPS: usize = 120;

/// Readings grow from zero at the beginning of each round.
fn of_samples(run: &Run, workload: &Workload, arm: &str) -> Vec<Flow> {
    let of_workload = || run.samples.iter().filter(|sample| sample.workload == workload.name);
    let own: Vec<&CounterReading> = of_workload().filter(|workload| workload.arm == arm).collect();
    let every = own.len().div_ceil(STEPS).max(1);
    let mut flows = Vec::new();
    for of_round in own.chunk_by(|one, other| one.round == other.round) {
        let round = of_round[0].round;
        let times =
            of_workload().filter(|workload| workload.round == round).map(|workload| workload.at_ns);
        let (first, last) =
            times.fold((u64::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
        // The round began about as long before its first reading as readings are apart.
        let readings = u64::try_from(of_round.len()).unwrap_or(1);
        let apart = last.saturating_sub(first) / readings.saturating_sub(1).max(1);
        let began = first.saturating_sub(apart);
        let mut before: Option<&CounterReading> = None;
        for sample in of_round.iter().skip((of_round.len() - 1) % every).step_by(every) {
            flows.extend(between(before, sample, began, last));
            before = Some(sample);
        }
    }
    flows
}

#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn between(
    before: Option<&CounterReading>,
    after: &CounterReading,
    began: u64,
    last: u64,
) -> Option<Flow> {
    let share = |at: u64| {
        let whole = last.saturating_sub(began).max(1);
        f64::from(after.round.saturating_sub(1)) + at.saturating_sub(began) as f64 / whole as f64
    };
    let pick = |sample: &CounterReading| amounts(sample.io, None, sample.wal_bytes);
    let worked = after.worked_ns.saturating_sub(before.map_or(0, |before| before.worked_ns));
    let seconds = worked as f64 / 1e9;
    let earlier = before.map_or([Some(0.0); KINDS.len()], pick);
    let mut rates = pick(after);
    for (rate, earlier) in rates.iter_mut().zip(earlier) {
        *rate = rate.zip(earlier).map(|(now, then)| (now - then).max(0.0) / seconds);
    }
    let from = before.map_or(began, |before| before.at_ns);
    (worked > 0).then(|| Flow { from: share(from), to: share(after.at_ns), amounts: rates })
}

/// Between two rows of panels.
const GAP: f64 = 58.0;
const HEIGHT: f64 = 110.0;

fn drawing(servers: &[OfServer<'_>], moved: &[usize], form: Form, width: Width) -> Drawing {
    let columns: u32 = if width.is_narrow() || moved.len() == 1 { 1 } else { 2 };
    let cell = width.units() / f64::from(columns);
    let rounds = servers.iter().flat_map(|(_, flows)| flows).map(|flow| flow.to.ceil());
    let rounds = rounds.fold(1.0, f64::max);
    let mut top = 28.0;
    let mut marks = Vec::new();
    for kinds in moved.chunks(columns as usize) {
        for (column, kind) in (0..columns).zip(kinds) {
            let left = cell * f64::from(column);
            let x = Scale::linear([0.0, rounds], Unit::Plain);
            let unit = match form.sampled {
                _ if *kind == CPU => Unit::Plain,
                true => Unit::BytesPerSecond,
                false => Unit::Bytes,
            };
            let frame = Frame {
                x: x.between(left + 74.0, left + cell - 12.0),
                y: Scale::linear([0.0, peak(servers, *kind) * 1.08], unit)
                    .between(top + HEIGHT, top),
                title: KINDS[*kind],
                margin: left,
                x_title: form.noun,
                x_ticks: 0,
                y_ticks: 4,
            };
            marks.push(panel(servers, *kind, &frame, rounds, form));
        }
        top += HEIGHT + GAP + 10.0;
    }
    Drawing { height: top - 28.0, marks: html! { @for mark in &marks { (mark) } } }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of rounds")]
fn panel(
    servers: &[OfServer<'_>],
    kind: usize,
    frame: &Frame<'_>,
    rounds: f64,
    form: Form,
) -> Markup {
    html! {
        (frame.axes())
        (frame.columns(rounds as u32))
        (frame.boundaries(rounds as u32))
        @for (place, (series, flows)) in (0_u32..).zip(servers) {
            @if form.sampled {
                (steps(series, flows, kind, place, frame))
            } @else {
                (dots(series, flows, kind, f64::from(place), servers.len(), frame))
            }
        }
    }
}

/// Those of the first are wider, and stay visible below others that are the same.
fn steps(
    series: &Series<'_>,
    flows: &[Flow],
    kind: usize,
    place: u32,
    frame: &Frame<'_>,
) -> Markup {
    let steps: Vec<(f64, f64, f64)> =
        flows.iter().filter_map(|flow| Some((flow.from, flow.to, flow.amounts[kind]?))).collect();
    let stroke = (3.5 - f64::from(place) * 0.6).max(1.2);
    frame.steps(series.look, stroke, &steps, &series.title)
}

/// Side by side in their round, so that none hides another that has the same value.
#[expect(clippy::cast_precision_loss, reason = "arms are few")]
fn dots(
    series: &Series<'_>,
    flows: &[Flow],
    kind: usize,
    place: f64,
    count: usize,
    frame: &Frame<'_>,
) -> Markup {
    html! {
        @for flow in flows {
            @if let Some(amount) = flow.amounts[kind] {
                @let at = flow.from + (place + 1.0) / (count as f64 + 1.0) * (flow.to - flow.from);
                (series.look.marker(frame.x.at(at), frame.y.at(amount),
                    &format!("{}, {}: {}", series.title, KINDS[kind], size(amount))))
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn size(bytes: f64) -> String {
    ByteSize(bytes.round().clamp(0.0, 1e18) as u64).rounded()
}
