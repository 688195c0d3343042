//! Reports of repmgr and of the promotion hook, by the clock of the machine that both share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgtoll_record::JudgedEvent;

/// Reports after the fault, in time order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steps {
    pub(super) events: Vec<JudgedEvent>,
}

impl Steps {
    /// Parses lines like `1795470502.724124288 node2 repmgrd_upstream_disconnect 1`. Others are passed
    /// over, as are those from before the fault.
    pub(super) fn parse(text: &str, fault: SystemTime) -> Self {
        let step = |line: &str| {
            let (time, label) = line.split_once(' ')?;
            let (seconds, nanos) = time.split_once('.')?;
            let time = Duration::new(seconds.parse().ok()?, nanos.parse().ok()?);
            let began = fault.duration_since(UNIX_EPOCH).ok()?;
            let at_s = time.checked_sub(began)?.as_secs_f64();
            Some(JudgedEvent { at_s, what: label.trim_end_matches(" 1").to_owned() })
        };
        let mut events: Vec<JudgedEvent> = text.lines().filter_map(step).collect();
        events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Self { events }
    }

    /// When this was reported first.
    pub(super) fn first(&self, label: &str) -> Option<f64> {
        self.events.iter().find(|event| event.what == label).map(|event| event.at_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_from_the_fault() {
        let text = "999.500000000 node1 repmgrd_start 1\n1001.250000000 hook promoted\nnonsense\n\
                    1000.500000000 node2 repmgrd_upstream_disconnect 1\n";
        let steps = Steps::parse(text, UNIX_EPOCH + Duration::from_secs(1000));
        assert_eq!(steps.events.len(), 2);
        assert_eq!(steps.first("node2 repmgrd_upstream_disconnect"), Some(0.5));
        assert_eq!(steps.first("hook promoted"), Some(1.25));
        assert_eq!(steps.first("hook routed"), None);
    }
}
