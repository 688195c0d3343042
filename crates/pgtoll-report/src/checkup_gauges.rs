//! A checkup's figures for Prometheus.

use pgtoll_estimate::checkup_figures;
use pgtoll_record::CheckupRecord;

use crate::openmetrics::{Family, Gauge, families, float, one};

/// A gauge for each figure and each safety, labelled by the server.
pub(crate) fn checkup_openmetrics(checkup: &CheckupRecord) -> String {
    families(checkup, &("server", checkup.server.host.clone()), &FAMILIES)
}

const FAMILIES: [Family<CheckupRecord>; 3] = [
    Family {
        name: "pgtoll_checkup_safety",
        help: "1 for each safety of the server, with its state.",
        unit: None,
        gauges: safeties,
    },
    Family {
        name: "pgtoll_checkup_figure",
        help: "A figure's lower and upper bound, in the unit of its label.",
        unit: None,
        gauges: figures,
    },
    Family {
        name: "pgtoll_checkup_looks",
        help: "Looks that succeeded.",
        unit: None,
        gauges: |checkup| one(float(checkup.watch.looks)),
    },
];

fn safeties(checkup: &CheckupRecord) -> Vec<Gauge> {
    let gauge = |row: &pgtoll_record::SafetyRow| {
        let safety = ("safety", row.safety.title().to_owned());
        (vec![safety, ("state", row.state.word().to_owned())], 1.0)
    };
    checkup.rows.iter().map(gauge).collect()
}

fn figures(checkup: &CheckupRecord) -> Vec<Gauge> {
    let both = checkup_figures(checkup).into_iter().flat_map(|figure| {
        let labels = |bound: &str| {
            let [name, unit] = [figure.name, figure.unit].map(str::to_owned);
            vec![("figure", name), ("unit", unit), ("bound", bound.to_owned())]
        };
        [(labels("lower"), figure.lower), (labels("upper"), figure.upper)]
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_and_safeties_are_gauges() {
        insta::assert_snapshot!(super::checkup_openmetrics(&crate::checkup::tests::record()));
    }
}
