//! Predicted cost over time, as a picture: a step for each window.

use maud::{Markup, html};
use pgtoll_record::{Interval, PredictedWindow, PredictionAnswer, PredictionRecord};

use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend};
use crate::prediction_numbers::{cores, rate};

/// A picture of each answer that has windows with figures.
pub(crate) fn pictures(prediction: &PredictionRecord) -> Vec<Markup> {
    let answers = prediction.answers.iter().enumerate();
    answers.filter_map(|(index, answer)| picture(answer, index)).collect()
}

/// A window's place on the time axis, in minutes of watching, and its figures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    from: f64,
    to: f64,
    today: f64,
    /// WAL with the setting.
    wal: Option<Interval>,
    cpu: Option<Interval>,
}

/// More windows are drawn together.
const STEPS: usize = 400;

const TODAY: &str = "WAL today";

fn picture(answer: &PredictionAnswer, index: usize) -> Option<Markup> {
    let steps = steps(&answer.windows);
    let has_wal = steps.iter().any(|step| step.wal.is_some_and(|wal| is_change(wal, step.today)));
    let has_cpu = steps.iter().any(|step| step.cpu.is_some_and(|cpu| is_change(cpu, 0.0)));
    if steps.len() < 2 || !(has_wal || has_cpu) {
        return None;
    }
    let question = format!("{} = {}", answer.setting, answer.value);
    let words = Words {
        id: format!("over-time-{index}"),
        title: &format!("WAL and CPU over time with {question}"),
        description: description(&steps),
        caption: html! {
            h3 { code { (question) } " over time" }
            p {
                "A step for each window, in minutes of watching; windows that were left out take no \
                time. Bands: the range of that window alone, wider than that of all together."
            }
        },
    };
    let with = format!("with {question}");
    Some(html! {
        (figure(&words, |width| drawing(&steps, has_wal, has_cpu, width)))
        (legend([(TODAY, Look::from_index(0)), (with.as_str(), Look::from_index(1))]))
    })
}

fn is_change(interval: Interval, today: f64) -> bool {
    interval.lower < today || interval.upper > today
}

/// In the order of time. Of very many windows neighbours are one step: the mean of what is known,
/// between the lowest and the highest bound.
fn steps(windows: &[PredictedWindow]) -> Vec<Step> {
    let mut minutes = 0.0;
    let every = windows.len().div_ceil(STEPS).max(1);
    windows
        .chunks(every)
        .map(|part| {
            let seconds: f64 = part.iter().map(|part| part.seconds.max(0.0)).sum();
            let from = minutes;
            minutes += seconds / 60.0;
            let mean = |value: &dyn Fn(&PredictedWindow) -> f64| {
                part.iter().map(|part| value(part) * part.seconds.max(0.0)).sum::<f64>()
                    / seconds.max(f64::MIN_POSITIVE)
            };
            let with = |window: &PredictedWindow| {
                let Interval { estimate, lower, upper } = window.extra_wal_bytes_per_second?;
                let today = window.wal_bytes_per_second;
                let lower = today + lower;
                let upper = today + upper;
                Some(Interval { estimate: today + estimate, lower, upper })
            };
            Step {
                from,
                to: minutes,
                today: mean(&|item| item.wal_bytes_per_second),
                wal: together(part, &with),
                cpu: together(part, &|item| item.cpu_cores),
            }
        })
        .collect()
}

fn together(
    part: &[PredictedWindow],
    value: &dyn Fn(&PredictedWindow) -> Option<Interval>,
) -> Option<Interval> {
    let known: Vec<(f64, Interval)> =
        part.iter().filter_map(|part| Some((part.seconds.max(0.001), value(part)?))).collect();
    let seconds: f64 = known.iter().map(|(seconds, _)| seconds).sum();
    (!known.is_empty()).then(|| Interval {
        estimate: known.iter().map(|(seconds, item)| item.estimate * seconds).sum::<f64>()
            / seconds,
        lower: known.iter().map(|(_, item)| item.lower).fold(f64::INFINITY, f64::min),
        upper: known.iter().map(|(_, item)| item.upper).fold(f64::NEG_INFINITY, f64::max),
    })
}

fn description(steps: &[Step]) -> String {
    let extent = |values: Vec<f64>, words: fn(f64) -> String| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.is_empty() {
            "not known".to_owned()
        } else {
            format!("{} to {}", words(low), words(high))
        }
    };
    format!(
        "WAL today: {}. With the setting: {}. CPU more, in cores: {}.",
        extent(steps.iter().map(|step| step.today).collect(), rate),
        extent(steps.iter().filter_map(|step| Some(step.wal?.estimate)).collect(), rate),
        extent(steps.iter().filter_map(|step| Some(step.cpu?.estimate)).collect(), cores),
    )
}

fn drawing(steps: &[Step], has_wal: bool, has_cpu: bool, width: Width) -> Drawing {
    let margin = if width.is_narrow() { 0.0 } else { 14.0 };
    let left = margin + 74.0;
    let right = width.units() - 8.0;
    let high = if width.is_narrow() { 130.0 } else { 170.0 };
    let minutes = || {
        Scale::linear(steps.iter().flat_map(|step| [step.from, step.to]), Unit::Plain)
            .between(left, right)
    };
    let ticks = if width.is_narrow() { 4 } else { 8 };
    let frame = |title, top: f64, values: Vec<f64>, unit| Frame {
        x: minutes(),
        y: Scale::linear(values.into_iter().chain([0.0]), unit).between(top + high, top),
        title,
        margin,
        x_title: "minutes",
        x_ticks: ticks,
        y_ticks: 4,
    };
    let ends = |interval: &Interval| [interval.lower, interval.estimate, interval.upper];
    let cpu_top = if has_wal { 30.0 + high + 72.0 } else { 30.0 };
    let values = steps
        .iter()
        .flat_map(|step| step.wal.iter().flat_map(ends).chain([step.today]).collect::<Vec<_>>());
    let wal = frame("WAL", 30.0, values.collect(), Unit::BytesPerSecond);
    let values = steps.iter().flat_map(|step| step.cpu.iter().flat_map(ends).collect::<Vec<_>>());
    let cpu = frame("CPU more, in cores", cpu_top, values.collect(), Unit::Plain);
    let today: Vec<_> = steps.iter().map(|step| (step.from, step.to, step.today)).collect();
    let marks = html! {
        @if has_wal {
            (wal.axes())
            (predicted(&wal, steps, &|step| step.wal, "WAL with the setting"))
            (wal.steps(Look::from_index(0), 2.0, &today, TODAY))
        }
        @if has_cpu {
            (cpu.axes())
            (predicted(&cpu, steps, &|step| step.cpu, "CPU more"))
        }
    };
    let bottom = if has_cpu { cpu_top + high } else { 30.0 + high };
    Drawing { height: bottom + 44.0, marks }
}

/// The band and the estimate.
fn predicted(
    frame: &Frame<'_>,
    steps: &[Step],
    value: &dyn Fn(&Step) -> Option<Interval>,
    tooltip: &str,
) -> Markup {
    let known: Vec<(&Step, Interval)> =
        steps.iter().filter_map(|step| Some((step, value(step)?))).collect();
    let band: Vec<_> =
        known.iter().map(|(step, item)| (step.from, step.to, item.lower, item.upper)).collect();
    let line: Vec<_> =
        known.iter().map(|(step, item)| (step.from, step.to, item.estimate)).collect();
    html! {
        (frame.band(Look::from_index(1), &band, "its range"))
        (frame.steps(Look::from_index(1), 2.0, &line, tooltip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seconds: f64, wal: f64, extra: Option<(f64, f64, f64)>) -> PredictedWindow {
        let interval = |(estimate, lower, upper)| Interval { estimate, lower, upper };
        PredictedWindow {
            began: String::new(),
            seconds,
            wal_bytes_per_second: wal,
            extra_wal_bytes_per_second: extra.map(interval),
            cpu_cores: None,
        }
    }

    #[test]
    fn windows_follow_each_other_and_today_comes_on_top() {
        let windows = [window(60.0, 100.0, Some((10.0, 5.0, 30.0))), window(120.0, 200.0, None)];
        let steps = steps(&windows);
        let first = Step {
            from: 0.0,
            to: 1.0,
            today: 100.0,
            wal: Some(Interval { estimate: 110.0, lower: 105.0, upper: 130.0 }),
            cpu: None,
        };
        assert_eq!(steps[0], first);
        assert_eq!((steps[1].from, steps[1].to, steps[1].wal), (1.0, 3.0, None));
    }

    #[test]
    fn very_many_windows_are_drawn_together() {
        let windows: Vec<PredictedWindow> = (0..10_000_u32)
            .map(|at| window(60.0, f64::from(at % 2), Some((1.0, 0.0, 2.0))))
            .collect();
        let steps = steps(&windows);
        assert!(steps.len() <= STEPS, "{}", steps.len());
        assert!((steps[0].today - 0.48).abs() < 0.03, "{:?}", steps[0]);
        let wal = steps[0].wal.unwrap();
        assert!(wal.lower.abs() < 1e-9 && (wal.upper - 3.0).abs() < 1e-9, "{wal:?}");
    }
}
