//! Removal of the effect that all parts of a run share.

use crate::quantiles::median;
use crate::twin::Trio;

/// Other shapes that a round must have, for what they share to be told from what each has of its own.
pub const OTHERS_MIN: usize = 4;

/// Slices without what the other shapes of the same run share.
///
/// A run of many statements is slower or faster than the next one as a whole, by its start, its place in
/// memory, its neighbours on the machine. That is most of what two runs of the same differ by, and all
/// shapes show it alike. `shapes` holds of each shape its rounds, and of each round its slices; a round
/// without slices is one in which the shape was not executed. Of each other shape of a round the log costs
/// of the three arms are taken about their mean, and each arm of this shape is divided by the exponential of
/// their median. A median, since some of the others may differ as well: fewer than half of them move it
/// little.
///
/// The result has the form of `shapes`. A round with fewer than [`OTHERS_MIN`] others, or where a sum is
/// not a positive number, has no slices.
pub fn beside_others(shapes: &[Vec<Vec<Trio>>]) -> Vec<Vec<Vec<Trio>>> {
    let rounds = shapes.iter().map(Vec::len).max().unwrap_or_default();
    let mut freed: Vec<Vec<Vec<Trio>>> =
        shapes.iter().map(|rounds| vec![Vec::new(); rounds.len()]).collect();
    for round in 0..rounds {
        let logs: Vec<Option<[f64; 3]>> = shapes
            .iter()
            .map(|rounds| rounds.get(round).and_then(|slices| log_costs(slices)))
            .collect();
        for (shape, freed) in freed.iter_mut().enumerate() {
            let others = logs.iter().enumerate().filter(|(other, _)| *other != shape);
            let others: Vec<[f64; 3]> = others.filter_map(|(_, logs)| *logs).collect();
            if logs[shape].is_some()
                && let Some(shared) = shared(&others)
            {
                let without = |trio: &Trio| Trio {
                    treatment: trio.treatment / shared[0],
                    baseline: trio.baseline / shared[1],
                    twin: trio.twin / shared[2],
                };
                freed[round] = shapes[shape][round].iter().map(without).collect();
            }
        }
    }
    freed
}

/// The log costs of treatment, baseline and twin in a round, about their mean.
fn log_costs(slices: &[Trio]) -> Option<[f64; 3]> {
    let sum = |part: fn(&Trio) -> f64| slices.iter().map(part).sum::<f64>().ln();
    let logs = [sum(|item| item.treatment), sum(|item| item.baseline), sum(|item| item.twin)];
    let mean = logs.iter().sum::<f64>() / 3.0;
    mean.is_finite().then(|| logs.map(|log| log - mean))
}

/// Returns the factor that the others share, for each arm.
fn shared(others: &[[f64; 3]]) -> Option<[f64; 3]> {
    if others.len() < OTHERS_MIN {
        return None;
    }
    let of_arm = |arm: usize| {
        let logs: Vec<f64> = others.iter().map(|logs| logs[arm]).collect();
        median(&logs).map(f64::exp)
    };
    Some([of_arm(0)?, of_arm(1)?, of_arm(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one slice.
    fn shape(rounds: &[[f64; 3]]) -> Vec<Vec<Trio>> {
        let slices = |[treatment, baseline, twin]: &[f64; 3]| {
            vec![Trio { treatment: *treatment, baseline: *baseline, twin: *twin }]
        };
        rounds.iter().map(slices).collect()
    }

    fn ratios(trio: &Trio) -> [f64; 2] {
        [trio.treatment / (trio.baseline * trio.twin).sqrt(), trio.twin / trio.baseline]
    }

    #[test]
    fn what_all_share_is_gone_and_what_one_has_stays() {
        let luck = [[1.0, 1.3, 0.8], [1.1, 0.9, 1.4]];
        let pick = |own: f64, cost: f64| {
            shape(&luck.map(|[treatment, baseline, twin]| {
                [cost * own * treatment, cost * baseline, cost * twin]
            }))
        };
        let shapes =
            [pick(1.2, 5.0), pick(1.0, 1.0), pick(1.0, 20.0), pick(1.0, 3.0), pick(1.0, 0.1)];
        let freed = beside_others(&shapes);
        assert_eq!(freed.len(), 5);
        for round in &freed[0] {
            let [treatment, twin] = ratios(&round[0]);
            assert!((treatment - 1.2).abs() < 1e-12 && (twin - 1.0).abs() < 1e-12, "{round:?}");
        }
        // One of four that differs does not make the rest faster.
        for shape in &freed[1..] {
            assert!(shape.iter().all(|round| (ratios(&round[0])[0] - 1.0).abs() < 1e-12));
        }
    }

    #[test]
    fn with_few_others_or_without_costs_nothing_is_left() {
        let few = vec![shape(&[[1.0, 1.0, 1.0]]); OTHERS_MIN];
        assert!(beside_others(&few).iter().all(|rounds| rounds == &vec![Vec::new()]));
        let mut shapes = vec![shape(&[[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]); OTHERS_MIN + 1];
        shapes[0][1] = Vec::new();
        shapes[1][0] = vec![Trio { treatment: 0.0, baseline: 1.0, twin: f64::NAN }];
        let counts: Vec<Vec<usize>> = beside_others(&shapes)
            .iter()
            .map(|rounds| rounds.iter().map(Vec::len).collect())
            .collect();
        assert!(counts.iter().all(|counts| counts.iter().all(|count| *count == 0)), "{counts:?}");
        assert!(beside_others(&[]).is_empty());
    }
}
