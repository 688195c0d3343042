//! Construction of findings.

use std::collections::BTreeMap;

use pgtoll_record::{FitnessCheck, State};

/// The group of findings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(pub(super) &'static str);

impl Group {
    fn finding(
        self,
        name: &str,
        state: State,
        reading: String,
        advice: Option<&str>,
    ) -> FitnessCheck {
        FitnessCheck {
            group: self.0.to_owned(),
            name: name.to_owned(),
            state,
            reading,
            figures: BTreeMap::new(),
            advice: advice.map(str::to_owned),
        }
    }

    pub(super) fn ok(self, name: &str, reading: impl Into<String>) -> FitnessCheck {
        self.finding(name, State::Ok, reading.into(), None)
    }

    pub(super) fn note(self, name: &str, reading: impl Into<String>, advice: &str) -> FitnessCheck {
        self.finding(name, State::Note, reading.into(), Some(advice))
    }

    pub(super) fn warn(self, name: &str, reading: impl Into<String>, advice: &str) -> FitnessCheck {
        self.finding(name, State::Warn, reading.into(), Some(advice))
    }

    /// The system does not report it.
    pub(super) fn not_told(self, name: &str) -> FitnessCheck {
        self.finding(name, State::NotTold, "not told".to_owned(), None)
    }

    /// `ok` up to the first bound, then `note`, beyond the second bound `warn`.
    pub(super) fn graded(
        self,
        name: &str,
        value: f64,
        bounds: [f64; 2],
        reading: String,
        advice: &str,
    ) -> FitnessCheck {
        match value {
            _ if value > bounds[1] => self.warn(name, reading, advice),
            _ if value > bounds[0] => self.note(name, reading, advice),
            _ => self.ok(name, reading),
        }
    }
}

/// The finding with one more number.
pub(super) fn with(mut finding: FitnessCheck, figure: &str, value: f64) -> FitnessCheck {
    finding.figures.insert(figure.to_owned(), value);
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_still_on_its_better_side() {
        let state = |value| Group("g").graded("n", value, [1.0, 2.0], String::new(), "a").state;
        assert_eq!([0.0, 1.0].map(state), [State::Ok; 2]);
        assert_eq!([1.1, 2.0].map(state), [State::Note; 2]);
        assert_eq!(state(2.1), State::Warn);
    }
}
