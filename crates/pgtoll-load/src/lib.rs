//! The load generator: one thread, one prepared connection a client, closed loop (the next
//! transaction begins when the last one ended).
//!
//! ```no_run
//! use std::time::Duration;
//! use pgtoll_load::{Client, Script};
//! use pgtoll_wire::{Config, Connection, UnixEndpoint};
//!
//! let endpoint = UnixEndpoint::new("/var/run/postgresql", 5432);
//! let connection = Connection::connect(&Config::new(endpoint, "postgres", "postgres"))?;
//! let mut client = Client::new(connection, Script::SelectOnly, 10)?;
//! client.reseed(42);
//! let tally = client.run_for(Duration::from_millis(50))?;
//! println!("{} transactions in {:?}", tally.transactions, tally.elapsed);
//! # Ok::<(), pgtoll_load::LoadError>(())
//! ```

use std::str::FromStr;
use std::time::{Duration, Instant};

use pgtoll_wire::{Connection, Parameter, Prepared};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// What a transaction does; the names are those of pgbench's built-in scripts (`pgbench -b`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// One account's balance by its primary key, all accounts equally often.
    SelectOnly,
}

impl Script {
    /// pgbench's name of the script.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelectOnly => "select-only",
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::SelectOnly => "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        }
    }
}

impl FromStr for Script {
    type Err = UnknownScript;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::SelectOnly]
            .into_iter()
            .find(|script| script.name() == name)
            .ok_or_else(|| UnknownScript(name.to_owned()))
    }
}

/// There is no script of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no script {0:?} (there is: select-only)")]
pub struct UnknownScript(String);

/// pgbench's accounts for each unit of scale.
const ACCOUNTS_PER_SCALE: i64 = 100_000;

/// A client with its connection.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    statement: Prepared,
    accounts: i64,
    random: Pcg64,
}

/// What was done in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Transactions that were completed.
    pub transactions: u64,
    /// From the first one's beginning to the last one's end.
    pub elapsed: Duration,
}

impl Client {
    /// Prepares `script` for pgbench's tables of this scale factor.
    pub fn new(mut connection: Connection, script: Script, scale: u32) -> Result<Self, LoadError> {
        let statement = connection.prepare(script.statement())?;
        let accounts = i64::from(scale.max(1)) * ACCOUNTS_PER_SCALE;
        Ok(Self { connection, statement, accounts, random: Pcg64::seed_from_u64(0) })
    }

    /// From now on the client asks for the accounts that belong to this seed.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Pcg64::seed_from_u64(seed);
    }

    /// Runs transactions until `length` is over; the one that is running then is finished and
    /// counted, and its time with it. At least one is run.
    pub fn run_for(&mut self, length: Duration) -> Result<Tally, LoadError> {
        let begin = Instant::now();
        let mut transactions = 0;
        loop {
            self.transaction()?;
            transactions += 1;
            let elapsed = begin.elapsed();
            if elapsed >= length {
                return Ok(Tally { transactions, elapsed });
            }
        }
    }

    /// The client's connection, for other statements between the load.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Ends the connection.
    pub fn close(self) {
        self.connection.close();
    }

    fn transaction(&mut self) -> Result<(), LoadError> {
        let account = self.random.random_range(1..=self.accounts);
        let rows =
            self.connection.execute_prepared(&self.statement, &[Parameter::Integer(account)])?;
        if rows == 1 { Ok(()) } else { Err(LoadError::WrongRows { account, rows }) }
    }
}

/// The load could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server failed.
    #[error("run a transaction")]
    Server(#[from] pgtoll_wire::Error),
    /// The data is not what it should be.
    #[error(
        "account {account} was found {rows} times: these are not pgbench's tables of this scale"
    )]
    WrongRows {
        /// Which account.
        account: i64,
        /// How often.
        rows: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_pgbenchs_names() {
        assert_eq!("select-only".parse(), Ok(Script::SelectOnly));
        assert!("tpcb".parse::<Script>().is_err());
    }
}
