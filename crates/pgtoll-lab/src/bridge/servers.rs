//! The hub, two servers behind it, and Redis.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Installation, Redis, RunningRedis};
use pgtoll_system::Interrupt;

use super::error::BridgeError;
use super::log::RecordedSession;
use super::redis_tables::RedisPrograms;

/// The running servers of a bridge.
pub(super) struct BridgeServers {
    hub: Cluster,
    shop: Cluster,
    billing: Cluster,
    pub(super) redis: RunningRedis,
    pub(super) programs: RedisPrograms,
    /// Versions of the extensions, by name.
    pub(super) extensions: BTreeMap<String, String>,
}

/// The extensions that the hub needs.
const EXTENSIONS: [&str; 2] = ["postgres_fdw", "file_fdw"];
/// How long Redis may take to listen.
const REDIS_LIMIT: Duration = Duration::from_secs(30);

impl BridgeServers {
    /// Starts all of it. Refuses a server without the extensions, and a Redis whose client hides errors.
    pub(super) fn start(
        guard: &mut Guard,
        installation: &Installation,
        redis: &Redis,
        interrupt: &Interrupt,
    ) -> Result<Self, BridgeError> {
        if !redis.reports_errors(guard)? {
            return Err(BridgeError::OldRedis { version: redis.version(guard)? });
        }
        let running = redis.start(guard, "redis")?;
        let hub = Cluster::init(guard, installation, "hub", true)?;
        hub.configure(guard, &settings())?;
        let shop = hub.copy(guard, "shop")?;
        let billing = hub.copy(guard, "billing")?;
        hub.start(guard)?;
        let extensions = extensions(&hub, &installation.bin)?;
        shop.start(guard)?;
        billing.start(guard)?;
        wait_for_redis(guard, &running, interrupt)?;
        let programs = RedisPrograms::write(guard, redis, &running)?;
        Ok(Self { hub, shop, billing, redis: running, programs, extensions })
    }

    /// A session with `hub`, `shop` or `billing`; any other name is another session with the hub.
    pub(super) fn session(&self, name: &'static str) -> Result<RecordedSession, BridgeError> {
        RecordedSession::open(name, self.server(name))
    }

    /// The server of this name, else the hub.
    pub(super) fn server(&self, name: &str) -> &Cluster {
        match name {
            "shop" => &self.shop,
            "billing" => &self.billing,
            _ => &self.hub,
        }
    }
}

/// Returns the settings of all servers.
pub(super) fn settings() -> BTreeMap<String, String> {
    [
        // 0 would refuse every PREPARE TRANSACTION.
        ("max_prepared_transactions", "10"),
        ("max_connections", "50"),
        ("shared_buffers", "32MB"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The versions that the server would install.
fn extensions(hub: &Cluster, bin: &Path) -> Result<BTreeMap<String, String>, BridgeError> {
    let mut session = RecordedSession::open("hub", hub)?;
    let rows = session.query("SELECT name, default_version FROM pg_available_extensions")?;
    let mut available = BTreeMap::new();
    for row in rows {
        available.insert(row.text("name")?.to_owned(), row.text("default_version")?.to_owned());
    }
    let version = |extension: &'static str| {
        let missing = || BridgeError::NoExtension { extension, bin: bin.to_owned() };
        let (name, version) = available.remove_entry(extension).ok_or_else(missing)?;
        Ok((name, version))
    };
    EXTENSIONS.into_iter().map(version).collect()
}

fn wait_for_redis(
    guard: &mut Guard,
    redis: &RunningRedis,
    interrupt: &Interrupt,
) -> Result<(), BridgeError> {
    let until = Instant::now() + REDIS_LIMIT;
    while !redis.is_listening() {
        if let Some(ended) = redis.has_ended(guard)? {
            let output = ended.tail.trim_end().lines().next_back().unwrap_or_default().to_owned();
            return Err(BridgeError::RedisEnded { status: ended.status, output });
        }
        if Instant::now() > until {
            let seconds = REDIS_LIMIT.as_secs();
            return Err(BridgeError::NotReached { what: "a listening Redis", seconds });
        }
        interrupt.wait(Duration::from_millis(20))?;
    }
    Ok(())
}
