//! Settings of a user's own server, for servers of ours that work like it.

use std::collections::BTreeMap;

use pgtoll_format::{ByteSize, MajorFacts, ServerVersion, conf};
use pgtoll_wire::{Connection, Dsn, Error, Row};

use crate::Experiment;

/// The settings of a server that differ from its defaults.
#[derive(Clone, Debug)]
pub struct SettingsOfServer {
    /// The connection, without secrets.
    pub server: String,
    /// Its version, as it says.
    pub version: String,
    settings: Vec<(String, String)>,
}

/// The settings that were taken from another server, and those that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LikeSettings {
    /// The settings that servers of ours get.
    pub taken: BTreeMap<String, String>,
    /// Changed and omitted settings with their reasons, a line each.
    pub notes: Vec<String>,
}

/// Settings that shape what a measurement shows, and that do no harm on a server of our own.
const TAKEN: &[&str] = &[
    // Memory and reading.
    "shared_buffers",
    "work_mem",
    "maintenance_work_mem",
    "temp_buffers",
    "effective_io_concurrency",
    "maintenance_io_concurrency",
    "io_combine_limit",
    "io_max_concurrency",
    "io_method",
    "io_workers",
    // WAL and commits.
    "wal_level",
    "max_wal_senders",
    "wal_buffers",
    "wal_compression",
    "wal_init_zero",
    "wal_log_hints",
    "wal_recycle",
    "wal_skip_threshold",
    "wal_sync_method",
    "wal_writer_delay",
    "wal_writer_flush_after",
    "full_page_writes",
    "fsync",
    "synchronous_commit",
    "commit_delay",
    "commit_siblings",
    // Checkpoints and what else writes.
    "checkpoint_completion_target",
    "checkpoint_flush_after",
    "checkpoint_timeout",
    "max_wal_size",
    "min_wal_size",
    "backend_flush_after",
    "bgwriter_delay",
    "bgwriter_flush_after",
    "bgwriter_lru_maxpages",
    "bgwriter_lru_multiplier",
    // Vacuum.
    "autovacuum",
    "autovacuum_analyze_scale_factor",
    "autovacuum_analyze_threshold",
    "autovacuum_max_workers",
    "autovacuum_naptime",
    "autovacuum_vacuum_cost_delay",
    "autovacuum_vacuum_cost_limit",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_scale_factor",
    "autovacuum_vacuum_threshold",
    "vacuum_cost_delay",
    "vacuum_cost_limit",
    "vacuum_cost_page_dirty",
    "vacuum_cost_page_hit",
    "vacuum_cost_page_miss",
    // Plans.
    "cpu_index_tuple_cost",
    "cpu_operator_cost",
    "cpu_tuple_cost",
    "default_statistics_target",
    "effective_cache_size",
    "hash_mem_multiplier",
    "jit",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "max_worker_processes",
    "plan_cache_mode",
    "random_page_cost",
    "seq_page_cost",
    // What is done besides.
    "default_toast_compression",
    "track_io_timing",
    "track_wal_io_timing",
];

/// Why settings whose names begin so are left out; of all others: they shape nothing that is
/// measured.
const LEFT_OUT: [(&str, &[&str]); 4] = [
    (
        "what they name is not here",
        &["shared_preload_libraries", "session_preload_libraries", "local_preload_libraries"],
    ),
    (
        "of standbys and archives",
        &["archive_", "primary_", "recovery_", "restore_command", "synchronous_standby_names"],
    ),
    ("pages of memory are this machine’s own", &["huge_page"]),
    ("counters need it", &["track_activities", "track_counts"]),
];

impl SettingsOfServer {
    /// Asks the server. Nothing is changed there.
    pub fn from_dsn(dsn: &Dsn) -> Result<Self, Error> {
        let mut connection = dsn.connect()?;
        let found = Self::read(&mut connection, dsn.redacted())?;
        connection.close();
        Ok(found)
    }

    fn read(connection: &mut Connection, server: String) -> Result<Self, Error> {
        let rows = connection.query(
            // In the units in which SHOW has them.
            "SELECT name, current_setting(name) AS value FROM pg_catalog.pg_settings \
             WHERE setting IS DISTINCT FROM boot_val AND context <> 'internal' \
             AND source NOT IN ('default', 'dynamic default', 'override', 'client', 'session') \
             ORDER BY name",
        )?;
        let setting = |row: &Row| Ok((row.text("name")?.to_owned(), row.text("value")?.to_owned()));
        let settings = rows.iter().map(setting).collect::<Result<_, Error>>()?;
        let version = connection.parameter("server_version").unwrap_or_default().to_owned();
        Ok(Self { server, version, settings })
    }

    /// Returns the part of it that the experiment's arms get on a server of these versions' facts, on a machine with
    /// so much memory. What an arm sets stays the arm's.
    pub fn for_experiment(
        &self,
        experiment: &Experiment,
        facts: &MajorFacts,
        memory_bytes: u64,
    ) -> LikeSettings {
        let mut like = LikeSettings::default();
        let mut left_out: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.settings {
            match judge(name, value, experiment, facts) {
                Ok(value) => {
                    like.taken.insert(name.clone(), value);
                }
                Err(reason) => left_out.entry(reason).or_default().push(name),
            }
        }
        like.notes.extend(clamp(&mut like.taken, memory_bytes));
        let own = experiment.settings.iter().filter(|(name, _)| like.taken.contains_key(*name));
        let own: Vec<String> = own.map(|(name, value)| format!("{name} = {value}")).collect();
        if !own.is_empty() {
            like.notes.push(format!("in place of the experiment’s {}", own.join(", ")));
        }
        let lines = left_out.iter();
        like.notes
            .extend(lines.map(|(why, names)| format!("left out: {} ({why})", names.join(", "))));
        like
    }
}

/// The value for a server of ours, or why it gets none.
fn judge(
    name: &str,
    value: &str,
    experiment: &Experiment,
    facts: &MajorFacts,
) -> Result<String, String> {
    if !TAKEN.contains(&name) {
        let known =
            LEFT_OUT.iter().find(|(_, begins)| begins.iter().any(|begin| name.starts_with(begin)));
        return Err(known.map_or("no effect on what is measured", |(why, _)| why).to_owned());
    }
    if let Some(arm) = experiment.arms.iter().find(|arm| arm.settings.contains_key(name)) {
        return Err(format!("arm {} sets it", arm.name));
    }
    if !facts.has_setting(name) {
        return Err(format!("PostgreSQL {} does not have it", facts.major));
    }
    if name == "wal_compression" && facts.wal.image_compressions.lz4 == 0 {
        return match value {
            "off" | "on" => Ok(value.to_owned()),
            "pglz" => Ok("on".to_owned()),
            other => Err(format!("PostgreSQL {} does not have {other}", facts.major)),
        };
    }
    Ok(value.to_owned())
}

/// Shared buffers that this machine can hold.
fn clamp(taken: &mut BTreeMap<String, String>, memory_bytes: u64) -> Option<String> {
    const NAME: &str = "shared_buffers";
    const MB: u64 = 1 << 20;
    let requested = taken.get(NAME)?.clone();
    let most = (memory_bytes / 2 / MB).max(1) * MB;
    let bytes = conf::size(NAME, &requested).ok()?.0;
    if bytes <= most {
        return None;
    }
    let value = format!("{}MB", most / MB);
    let note = format!(
        "shared_buffers = {requested} there, {value} here: half of this machine’s memory of {}",
        ByteSize(memory_bytes).rounded()
    );
    taken.insert(NAME.to_owned(), value);
    Some(note)
}

impl LikeSettings {
    /// Gives them to all arms. A workload's own settings stay, since they belong to its work.
    pub fn apply(&self, experiment: &mut Experiment) {
        for (name, value) in &self.taken {
            experiment.settings.insert(name.clone(), value.clone());
        }
    }

    /// Returns the taken and the omitted settings, a line each.
    pub fn lines(&self, server: &SettingsOfServer) -> Vec<String> {
        let taken: Vec<String> =
            self.taken.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let taken = if taken.is_empty() { "nothing".to_owned() } else { taken.join(", ") };
        let major = server.version.parse::<ServerVersion>();
        let version = major.map_or_else(|_| server.version.clone(), |version| version.to_string());
        let first = format!("like {} (PostgreSQL {version}): {taken}", server.server);
        [vec![first], self.notes.clone()].concat()
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_format::facts_of_major;

    use super::*;

    fn like(settings: &[(&str, &str)], major: u32) -> LikeSettings {
        let server = SettingsOfServer {
            server: "host=db1".into(),
            version: "18.6".into(),
            settings: settings.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        };
        let experiment = Experiment::built_in("checksums").unwrap().unwrap();
        server.for_experiment(&experiment, facts_of_major(major).unwrap(), 8 << 30)
    }

    #[test]
    fn what_shapes_the_answer_is_taken() {
        let found = like(
            &[
                ("archive_command", "cp %p /srv"),
                ("checkpoint_timeout", "15min"),
                ("io_method", "io_uring"),
                ("log_line_prefix", "%m"),
                ("shared_buffers", "6GB"),
                ("wal_compression", "lz4"),
                ("wal_log_hints", "on"),
            ],
            15,
        );
        let taken: Vec<(&str, &str)> =
            found.taken.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            taken,
            [
                ("checkpoint_timeout", "15min"),
                ("shared_buffers", "4096MB"),
                ("wal_compression", "lz4")
            ]
        );
        assert_eq!(
            found.notes,
            [
                "shared_buffers = 6GB there, 4096MB here: half of this machine’s memory of 8.00 GB",
                "in place of the experiment’s checkpoint_timeout = 1d",
                "left out: io_method (PostgreSQL 15 does not have it)",
                "left out: wal_log_hints (arm hints sets it)",
                "left out: log_line_prefix (no effect on what is measured)",
                "left out: archive_command (of standbys and archives)",
            ]
        );
    }

    #[test]
    fn older_servers_get_what_they_have() {
        let found = like(&[("io_method", "sync"), ("wal_compression", "zstd")], 18);
        assert_eq!(found.taken.len(), 2);
        let found = like(&[("wal_compression", "zstd")], 14);
        assert_eq!(found.notes, ["left out: wal_compression (PostgreSQL 14 does not have zstd)"]);
        assert_eq!(like(&[("wal_compression", "pglz")], 14).taken["wal_compression"], "on");
    }

    #[test]
    fn names_are_ones_that_some_server_has() {
        let some_has =
            |name: &str| pgtoll_format::MAJORS.iter().any(|major| major.has_setting(name));
        assert!(TAKEN.iter().all(|name| some_has(name)));
    }
}
