//! Settings that running servers show: whether arms differ in what the experiment says, and in nothing else.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_cluster::Cluster;
use pgtoll_wire::Connection;

use crate::{ArmSpec, BenchError, Experiment};

/// Every arm is what the experiment says: it differs from the baseline in that and nothing else.
pub(crate) fn check_arms<'a>(
    experiment: &Experiment,
    servers: impl Iterator<Item = (&'a Cluster, &'a mut Connection)>,
) -> Result<(), BenchError> {
    let mut shown = Vec::new();
    for (arm, (cluster, connection)) in experiment.arms.iter().zip(servers) {
        shown.push(Shown::by(arm, cluster, connection)?);
    }
    check_shown(experiment, &shown)
}

/// The same of arms that were asked one after the other, in the experiment's order.
pub(crate) fn check_shown(experiment: &Experiment, shown: &[Shown]) -> Result<(), BenchError> {
    let baseline = experiment.arms.iter().position(|arm| arm.name == experiment.baseline);
    let baseline = &shown[baseline.unwrap_or(0)];
    shown.iter().try_for_each(|arm| arm.check_against(baseline, experiment))
}

/// The settings that a running server shows.
#[derive(Debug)]
pub(crate) struct Shown {
    arm: String,
    settings: BTreeMap<String, String>,
}

/// Settings of places, which are not differences between arms.
const PLACES: [&str; 5] =
    ["config_file", "data_directory", "external_pid_file", "hba_file", "ident_file"];

impl Shown {
    pub(crate) fn by(
        arm: &ArmSpec,
        cluster: &Cluster,
        connection: &mut Connection,
    ) -> Result<Self, BenchError> {
        let rows = connection
            .query(
                // What the server works out itself from other settings is no setting of an arm.
                "SELECT name, setting FROM pg_settings \
                 WHERE name = 'data_checksums' \
                 OR context <> 'internal' AND source NOT IN ('override', 'dynamic default') \
                 UNION ALL SELECT 'system identifier', system_identifier::text \
                 FROM pg_control_system() \
                 UNION ALL SELECT 'control file: ' || key, value \
                 FROM jsonb_each_text(to_jsonb(pg_control_init())) \
                 WHERE key <> 'data_page_checksum_version'",
            )
            .map_err(|source| BenchError::query(cluster, source))?;
        let mut settings = BTreeMap::new();
        for row in rows {
            if let [Some(name), value] = row.values() {
                settings.insert(name.clone(), value.clone().unwrap_or_default());
            }
        }
        for place in PLACES {
            settings.remove(place);
        }
        Ok(Self { arm: arm.name.clone(), settings })
    }

    /// An error when the arm differs from the baseline in something that the experiment does not
    /// say, or does not differ in what it says.
    fn check_against(&self, baseline: &Self, experiment: &Experiment) -> Result<(), BenchError> {
        let output = self.said_to_differ(baseline, experiment);
        let arm = |name: &str| experiment.arms.iter().find(|arm| arm.name == name);
        let server = |name: &str| arm(name).and_then(|arm| arm.postgres.as_ref());
        // Another server has other settings and other defaults, which are noted once.
        let is_same_server = server(&self.arm) == server(&baseline.arm);
        let names: BTreeSet<&String> =
            self.settings.keys().chain(baseline.settings.keys()).collect();
        for name in names {
            let own = self.shown(name);
            let other = baseline.shown(name);
            let differs = own != other;
            let is_compared = is_same_server || name == "data_checksums";
            if is_compared && differs != output.contains(name.as_str()) {
                let expected = if differs { other.to_owned() } else { format!("not {other}") };
                return Err(BenchError::NotAsSaid {
                    arm: self.arm.clone(),
                    name: name.clone(),
                    found: own.to_owned(),
                    expected,
                });
            }
        }
        Ok(())
    }

    fn said_to_differ<'a>(&self, baseline: &Self, experiment: &'a Experiment) -> BTreeSet<&'a str> {
        let arm = |name: &str| experiment.arms.iter().find(|arm| arm.name == name);
        let (Some(own), Some(other)) = (arm(&self.arm), arm(&baseline.arm)) else {
            return BTreeSet::new();
        };
        let names = own.settings.keys().chain(other.settings.keys());
        let mut output: BTreeSet<&str> = names
            .filter(|name| own.settings.get(*name) != other.settings.get(*name))
            .map(String::as_str)
            .collect();
        if own.checksums != other.checksums {
            output.insert("data_checksums");
        }
        output
    }

    /// The server's settings, without the facts of its data directory.
    pub(crate) fn shipped(&self) -> BTreeMap<String, String> {
        let is_setting = |name: &str| !name.contains(' ') && name != "data_checksums";
        let settings = self.settings.iter().filter(|(name, _)| is_setting(name));
        settings.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn shown(&self, name: &str) -> &str {
        self.settings.get(name).map_or("nothing", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arm: &str, settings: &[(&str, &str)]) -> Shown {
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Shown { arm: arm.to_owned(), settings }
    }

    fn check(arm: &str, settings: &[(&str, &str)]) -> Result<(), String> {
        let experiment = Experiment::built_in("checksums").unwrap().unwrap();
        let off = [("data_checksums", "off"), ("wal_log_hints", "off"), ("work_mem", "4096")];
        shown(arm, settings)
            .check_against(&shown("off", &off), &experiment)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn arms_differ_in_what_they_say_and_in_nothing_else() {
        let as_off = [("data_checksums", "off"), ("wal_log_hints", "off"), ("work_mem", "4096")];
        let with_checksums =
            [("data_checksums", "on"), ("wal_log_hints", "off"), ("work_mem", "4096")];
        assert_eq!(check("twin", &as_off), Ok(()));
        assert_eq!(check("checksums", &with_checksums), Ok(()));
        assert!(check("twin", &with_checksums).unwrap_err().contains("data_checksums = on"));
        assert!(check("checksums", &as_off).unwrap_err().contains("the experiment says not off"));
        let other = [("data_checksums", "off"), ("wal_log_hints", "on"), ("work_mem", "8192")];
        assert!(check("hints", &other).unwrap_err().contains("work_mem = 8192"));
    }
}
