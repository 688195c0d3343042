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
    /// An account is updated and read, and history written.
    SimpleUpdate,
    /// As `simple-update`, and the account's teller and branch are updated.
    TpcbLike,
}

/// What stands for `$1`, `$2`, … of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Account,
    Branch,
    Teller,
    Delta,
}

type Statement = (&'static str, &'static [Variable]);

const BEGIN: Statement = ("BEGIN", &[]);
const END: Statement = ("END", &[]);
const UPDATE_ACCOUNT: Statement = (
    "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    &[Variable::Delta, Variable::Account],
);
const READ_ACCOUNT: Statement =
    ("SELECT abalance FROM pgbench_accounts WHERE aid = $1", &[Variable::Account]);
const UPDATE_TELLER: Statement = (
    "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
    &[Variable::Delta, Variable::Teller],
);
const UPDATE_BRANCH: Statement = (
    "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
    &[Variable::Delta, Variable::Branch],
);
const WRITE_HISTORY: Statement = (
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
     VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
    &[Variable::Teller, Variable::Branch, Variable::Account, Variable::Delta],
);

impl Script {
    /// All scripts.
    pub const ALL: [Self; 3] = [Self::SelectOnly, Self::SimpleUpdate, Self::TpcbLike];

    /// It changes the data.
    pub fn writes(self) -> bool {
        self != Self::SelectOnly
    }

    /// pgbench's name of the script.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelectOnly => "select-only",
            Self::SimpleUpdate => "simple-update",
            Self::TpcbLike => "tpcb-like",
        }
    }

    fn statements(self) -> &'static [Statement] {
        match self {
            Self::SelectOnly => &[READ_ACCOUNT],
            Self::SimpleUpdate => &[BEGIN, UPDATE_ACCOUNT, READ_ACCOUNT, WRITE_HISTORY, END],
            Self::TpcbLike => &[
                BEGIN,
                UPDATE_ACCOUNT,
                READ_ACCOUNT,
                UPDATE_TELLER,
                UPDATE_BRANCH,
                WRITE_HISTORY,
                END,
            ],
        }
    }
}

impl FromStr for Script {
    type Err = UnknownScript;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|script| script.name() == name)
            .ok_or_else(|| UnknownScript(name.to_owned()))
    }
}

/// There is no script of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no script {0:?} (there are: select-only, simple-update, tpcb-like)")]
pub struct UnknownScript(String);

/// pgbench's accounts and tellers for each unit of scale; there is one branch.
const ACCOUNTS_PER_SCALE: i64 = 100_000;
const TELLERS_PER_SCALE: i64 = 10;
/// The largest amount that pgbench moves.
const DELTA: i64 = 5000;

/// A client with its connection.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    statements: Vec<(Prepared, &'static [Variable])>,
    scale: i64,
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
        let mut statements = Vec::new();
        for (sql, variables) in script.statements() {
            statements.push((connection.prepare(sql)?, *variables));
        }
        let scale = i64::from(scale.max(1));
        Ok(Self { connection, statements, scale, random: Pcg64::seed_from_u64(0) })
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

    /// Runs this many transactions.
    pub fn run_count(&mut self, count: u64) -> Result<Tally, LoadError> {
        let begin = Instant::now();
        for _ in 0..count {
            self.transaction()?;
        }
        Ok(Tally { transactions: count, elapsed: begin.elapsed() })
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
        let Self { connection, statements, scale, random } = self;
        let account = random.random_range(1..=*scale * ACCOUNTS_PER_SCALE);
        let branch = random.random_range(1..=*scale);
        let teller = random.random_range(1..=*scale * TELLERS_PER_SCALE);
        let delta = random.random_range(-DELTA..=DELTA);
        let value = |variable: &Variable| match variable {
            Variable::Account => Parameter::Integer(account),
            Variable::Branch => Parameter::Integer(branch),
            Variable::Teller => Parameter::Integer(teller),
            Variable::Delta => Parameter::Integer(delta),
        };
        for (statement, variables) in statements {
            let mut parameters = [Parameter::Null; 4];
            for (parameter, variable) in parameters.iter_mut().zip(*variables) {
                *parameter = value(variable);
            }
            let parameters = &parameters[..variables.len()];
            let rows = connection.execute_prepared(statement, parameters)?;
            if rows != 1 && !variables.is_empty() {
                return Err(LoadError::WrongRows { statement: statement.sql().to_owned(), rows });
            }
        }
        Ok(())
    }
}

/// The load could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server failed.
    #[error("run a transaction")]
    Server(#[from] pgtoll_wire::Error),
    /// The data is not what it should be.
    #[error("{rows} rows of \"{statement}\": these are not pgbench's tables of this scale")]
    WrongRows {
        /// Which statement.
        statement: String,
        /// How many rows it returned or changed, where it should be one.
        rows: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_pgbenchs_names() {
        for script in Script::ALL {
            assert_eq!(script.name().parse(), Ok(script));
            assert!(UnknownScript(String::new()).to_string().contains(script.name()));
        }
        assert!("tpcb".parse::<Script>().is_err());
    }
}
