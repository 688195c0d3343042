//! The load generator: scripts in pgbench's language, one thread and one connection a client, in a
//! closed loop (the next transaction begins when the last one ended) or an open one (transactions
//! begin at random times, whether or not the last one ended).
//!
//! ```no_run
//! use std::time::Duration;
//! use pgtoll_workload::{Client, Mix, Script};
//! use pgtoll_wire::{Config, Connection, UnixEndpoint};
//!
//! let endpoint = UnixEndpoint::new("/var/run/postgresql", 5432);
//! let connection = Connection::connect(&Config::new(endpoint, "postgres", "postgres"))?;
//! let script = Script::parse(
//!     "orders.sql",
//!     "\\set customer random_zipfian(1, 1000 * :scale, 1.2)\n\
//!      SELECT count(*) AS orders FROM orders WHERE customer = :customer \\gset\n\
//!      \\if :orders < 10\n\
//!        INSERT INTO orders (customer) VALUES (:customer);\n\
//!      \\endif\n",
//! )?;
//! let mut client = Client::new(connection, &Mix::from(script), 10)?;
//! client.reseed(42);
//! let tally = client.run_for(Duration::from_millis(50))?;
//! println!("{} transactions in {:?}", tally.transactions, tally.elapsed);
//! println!("99 % took at most {:?}", client.take_latencies().quantile(0.99));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod built_in;
mod client;
mod crowd;
mod error;
mod expression;
mod mix;
mod program;
mod random;
mod script;
mod syntax;

pub use built_in::BUILT_IN;
pub use client::{Client, Tally, Until};
pub use crowd::Crowd;
pub use error::LoadError;
pub use expression::EvaluationError;
pub use mix::{Mix, MixError};
pub use script::{Script, ScriptError};
