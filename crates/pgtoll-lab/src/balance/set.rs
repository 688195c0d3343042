//! A primary and two standbys behind Pgpool-II, running.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Installation, Pgpool, PgpoolNode, RunningPgpool};
pub(super) use pgtoll_record::BALANCE_PRIMARY as PRIMARY;
use pgtoll_system::Interrupt;
use pgtoll_wire::Connection;

use super::error::BalanceError;

pub(super) const STANDBYS: [&str; 2] = ["standby1", "standby2"];
/// Each server's share of the reads relative to the others'.
pub(super) const WEIGHTS: [(&str, u32); 3] = [(PRIMARY, 0), (STANDBYS[0], 1), (STANDBYS[1], 1)];
/// The server that answers.
pub(super) const NODE: &str = "SELECT current_setting('cluster_name')";
/// How long whatever is waited for may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Clients that the balancer takes at a time: all that read, and some that look.
pub(super) fn room(clients: u32) -> u32 {
    clients.max(8) + 8
}

/// Rows to read, and what statements of each kind need.
const TABLES: [&str; 6] = [
    "CREATE TABLE readings (id int PRIMARY KEY, value text)",
    "INSERT INTO readings SELECT i, md5(i::text) FROM generate_series(1, 10000) i",
    "CREATE TABLE written (id bigserial PRIMARY KEY, note text)",
    "CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS id; CREATE SEQUENCE numbers",
    "CREATE FUNCTION writes_a_row() RETURNS text LANGUAGE sql VOLATILE AS \
     $$ INSERT INTO written (note) VALUES ('function'); SELECT current_setting('cluster_name') $$",
    "CREATE PROCEDURE writes_a_row_too(INOUT node text) LANGUAGE plpgsql AS \
     $$ BEGIN INSERT INTO written (note) VALUES ('procedure'); \
        node := current_setting('cluster_name'); END $$",
];

/// A primary and its standbys, and what clients connect to.
pub(super) struct BalancedSet {
    pub(super) primary: Cluster,
    pub(super) standbys: [Cluster; 2],
    pub(super) pool: RunningPgpool,
}

impl BalancedSet {
    /// Starts all of it, and waits until the balancer calls every server up.
    pub(super) fn start(
        guard: &mut Guard,
        installation: &Installation,
        pgpool: &Pgpool,
        room: u32,
        interrupt: &Interrupt,
    ) -> Result<Self, BalanceError> {
        let primary = Cluster::init(guard, installation, PRIMARY, true)?;
        primary.configure(guard, &settings_of(PRIMARY))?;
        primary.start(guard)?;
        let mut connection = primary.connect("postgres")?;
        TABLES.iter().try_for_each(|sql| connection.execute(sql))?;
        let mut standby = |name: &str| {
            let standby = primary.standby(guard, name, primary.directory())?;
            standby.configure(guard, &settings_of(name))?;
            standby.start(guard)?;
            Ok::<_, BalanceError>(standby)
        };
        let standbys = [standby(STANDBYS[0])?, standby(STANDBYS[1])?];
        let servers = [&primary, &standbys[0], &standbys[1]];
        let nodes: Vec<PgpoolNode<'_>> = servers
            .into_iter()
            .zip(WEIGHTS)
            .map(|(server, (_, weight))| PgpoolNode { server, weight })
            .collect();
        let pool = pgpool.start(guard, "pool", &nodes, room)?;
        let set = Self { primary, standbys, pool };
        set.wait_for_balancer(guard, interrupt)?;
        Ok(set)
    }

    fn wait_for_balancer(
        &self,
        guard: &mut Guard,
        interrupt: &Interrupt,
    ) -> Result<(), BalanceError> {
        until(interrupt, "a balancer that calls three servers up", || {
            if let Some(ended) = self.pool.has_ended(guard)? {
                let output = ended.tail.trim_end().lines().next_back().unwrap_or_default().into();
                return Err(BalanceError::BalancerEnded { status: ended.status, output });
            }
            let states = match self.states() {
                Ok(states) => states,
                // It does not listen yet, or not lead to servers.
                Err(error) => return Ok(Err(pgtoll_system::error_chain(&error))),
            };
            let expected = ["up primary", "up standby", "up standby"];
            Ok(if states == expected { Ok(()) } else { Err(states.join(", ")) })
        })
    }

    /// A session through the balancer.
    pub(super) fn connect(&self) -> Result<Connection, pgtoll_wire::Error> {
        self.pool.connect(LIMIT)
    }

    /// The server that answers a new session's read.
    pub(super) fn node_of_a_session(&self) -> Result<String, pgtoll_wire::Error> {
        let mut connection = self.connect()?;
        let node = first_value(&mut connection, NODE)?;
        connection.close();
        Ok(node)
    }

    /// Returns the balancer's state of each server, such as `up standby`.
    pub(super) fn states(&self) -> Result<Vec<String>, pgtoll_wire::Error> {
        let mut connection = self.connect()?;
        let rows = connection.query("SHOW POOL_NODES")?;
        connection.close();
        let words =
            rows.iter().map(|row| Ok(format!("{} {}", row.text("status")?, row.text("role")?)));
        words.collect()
    }
}

/// The last row's first value.
pub(super) fn first_value(
    connection: &mut Connection,
    sql: &str,
) -> Result<String, pgtoll_wire::Error> {
    let rows = connection.query(sql)?;
    let value = rows.last().and_then(|row| row.values().first().cloned().flatten());
    Ok(value.unwrap_or_default())
}

/// Looks again and again until it is as it should be. `look` says how it is instead.
pub(super) fn until(
    interrupt: &Interrupt,
    label: &'static str,
    mut look: impl FnMut() -> Result<Result<(), String>, BalanceError>,
) -> Result<(), BalanceError> {
    let began = Instant::now();
    while let Err(state) = look()? {
        if began.elapsed() > LIMIT {
            return Err(BalanceError::NotReached { what: label, seconds: LIMIT.as_secs(), state });
        }
        interrupt.wait(INTERVAL)?;
    }
    Ok(())
}

/// Returns the settings of all servers.
pub(super) fn settings() -> BTreeMap<String, String> {
    [
        ("max_connections", "100"),
        ("max_wal_size", "4GB"),
        ("shared_buffers", "128MB"),
        ("wal_keep_size", "1GB"),
        ("wal_retrieve_retry_interval", "100ms"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn settings_of(name: &str) -> BTreeMap<String, String> {
    let mut settings = settings();
    settings.insert("cluster_name".to_owned(), name.to_owned());
    settings
}
