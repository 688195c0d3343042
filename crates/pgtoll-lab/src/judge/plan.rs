//! The plan of the judge.

use std::path::PathBuf;
use std::time::Duration;

use pgtoll_record::JudgeDesign;
use pgtoll_wire::Dsn;

/// The plan of the judge.
#[derive(Clone, Debug)]
pub struct JudgePlan {
    /// The connection for writes: a primary, or a route to the present one.
    pub dsn: Dsn,
    /// The sides from which clients come in, which take them in turn; empty: all by `dsn`. What is there in
    /// the end is read by `dsn`.
    pub sides: Vec<JudgeSide>,
    /// The connection of readers; `None`: that of the writers.
    pub read_dsn: Option<Dsn>,
    /// Clients that write, a connection and a thread each.
    pub clients: u32,
    /// Clients that read, a connection and a thread each.
    pub readers: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// They come in bursts: four fifths of them within a quarter of the time.
    pub bursts: bool,
    /// How long transactions fall due.
    pub duration: Duration,
    /// How long each client may take to be served again afterwards, how long a fault may outlast
    /// the load, and how long reading the final set may be tried.
    pub heal_limit: Duration,
    /// How long connecting may take for each host, where the connection string does not say it.
    pub connect_timeout: Duration,
    /// How long a client waits for a reply; `None`: as long as the run lasts.
    pub reply_timeout: Option<Duration>,
    /// A transaction that takes longer than this from its due time has waited.
    pub wait_limit: Duration,
    /// A directory to be made for the journals, which stays; `None`: one that goes.
    pub journal: Option<PathBuf>,
    /// A new file for all that the clients did, as a history of Jepsen's.
    pub history: Option<PathBuf>,
}

/// A side from which clients come in.
#[derive(Clone, Debug)]
pub struct JudgeSide {
    /// Its name in reports.
    pub name: String,
    /// The connection of its writers.
    pub dsn: Dsn,
}

impl JudgePlan {
    /// Returns the connection for a client's writes.
    pub(crate) fn dsn_of(&self, client: u32) -> &Dsn {
        let number = (client as usize).checked_rem(self.sides.len());
        number.and_then(|number| self.sides.get(number)).map_or(&self.dsn, |side| &side.dsn)
    }

    /// Eight clients, a hundred transactions a second, for a minute.
    pub fn new(dsn: Dsn) -> Self {
        Self {
            dsn,
            sides: Vec::new(),
            read_dsn: None,
            clients: 8,
            readers: 2,
            rate_per_second: 100.0,
            bursts: false,
            duration: Duration::from_secs(60),
            heal_limit: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            reply_timeout: None,
            wait_limit: Duration::from_millis(250),
            journal: None,
            history: None,
        }
    }

    pub(crate) fn design(&self, schema_name: &str) -> JudgeDesign {
        JudgeDesign {
            clients: self.clients,
            rate_per_second: self.rate_per_second,
            bursts: self.bursts,
            seconds: self.duration.as_secs_f64(),
            heal_limit_s: self.heal_limit.as_secs_f64(),
            connect_timeout_s: self.connect_timeout.as_secs_f64(),
            reply_timeout_s: self.reply_timeout.map(|time| time.as_secs_f64()),
            wait_limit_s: self.wait_limit.as_secs_f64(),
            readers: self.readers,
            sides: self.sides.iter().map(|side| side.name.clone()).collect(),
            schema_name: schema_name.to_owned(),
        }
    }
}
