//! Other activity on the machine.

use pgtoll_record::{FitnessCheck, Host};

use super::group::{Group, with};
use super::watch::Watch;

const QUIETER: &str = "stop it, or take more rounds: intervals get wider, not wrong";

pub(super) fn findings(
    group: Group,
    watch: &Watch,
    load_average: Option<f32>,
    host: &Host,
) -> Vec<FitnessCheck> {
    let share = |name: &str, share: Option<f64>, bounds, meaning: &str, advice: &str| {
        let Some(share) = share else { return group.not_told(name) };
        let reading = format!("{:.1} % {meaning}", share * 100.0);
        with(group.graded(name, share, bounds, reading, advice), "share", share)
    };
    let pressure = |name: &str, waited, bounds, advice: &str| {
        share(name, waited, bounds, "of the time some task waited", advice)
    };
    let waited = watch.pressure;
    vec![
        share(
            "others' CPU",
            Some(watch.machine.busy),
            [0.05, 0.25],
            "of all CPUs' time was used by other programs",
            QUIETER,
        ),
        share(
            "steal",
            Some(watch.machine.steal),
            [0.01, 0.05],
            "of all CPUs' time was taken by the hypervisor",
            "another host, or another hour: more rounds make up for some of it",
        ),
        pressure("CPU pressure", waited.cpu, [0.10, 0.50], QUIETER),
        pressure("disk pressure", waited.io, [0.10, 0.50], QUIETER),
        pressure(
            "memory pressure",
            waited.memory,
            [0.01, 0.10],
            "free some memory: refaults disturb the measurement",
        ),
        load(group, load_average, host),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "cores are few")]
fn load(group: Group, average: Option<f32>, host: &Host) -> FitnessCheck {
    const NAME: &str = "load average";
    let Some(load) = average.map(f64::from) else { return group.not_told(NAME) };
    let bounds = [host.cores as f64 * 0.5, host.cores as f64];
    let reading = format!("{load:.2} in the last minute");
    with(group.graded(NAME, load, bounds, reading, QUIETER), "load", load)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::super::unknown_host;
    use super::super::watch::Waited;
    use super::*;

    fn check(watch: &Watch, load_average: Option<f32>, name: &str, state: State, reading: &str) {
        let found = findings(Group("what else runs"), watch, load_average, &unknown_host());
        let found = found.iter().find(|finding| finding.name == name).unwrap();
        assert_eq!((found.state, found.reading.as_str()), (state, reading));
    }

    #[test]
    fn waiting_tasks_are_noise_and_unknown_pressure_is_not_guessed() {
        let idle = Watch::idle(Ok(Vec::new()));
        check(&idle, None, "disk pressure", State::NotTold, "not told");
        check(&idle, None, "load average", State::NotTold, "not told");
        let pressure = Waited { cpu: Some(0.6), ..Waited::default() };
        let busy = Watch { pressure, ..Watch::idle(Ok(Vec::new())) };
        check(&busy, None, "CPU pressure", State::Warn, "60.0 % of the time some task waited");
    }

    #[test]
    fn the_load_is_judged_by_the_number_of_cores() {
        let idle = Watch::idle(Ok(Vec::new()));
        // Of 4 cores.
        for (load, state) in [(2.0, State::Ok), (2.5, State::Note), (4.5, State::Warn)] {
            let reading = format!("{load:.2} in the last minute");
            check(&idle, Some(load), "load average", state, &reading);
        }
    }
}
