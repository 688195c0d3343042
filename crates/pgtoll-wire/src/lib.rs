//! Connections to `PostgreSQL` servers: protocol 3, blocking, over Unix sockets, TCP and TLS.
//!
//! A server of somebody else is told by a connection string, which means what it means to libpq:
//!
//! ```no_run
//! use pgtoll_wire::Dsn;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dsn = Dsn::parse("postgresql://alice@db.example.com/shop?sslmode=verify-full")?;
//! let mut connection = dsn.connect()?;
//! let row = connection.query_one("SELECT pg_is_in_recovery() AS standby")?;
//! eprintln!("{dsn}: standby: {}", row.text("standby")?);
//! # Ok(())
//! # }
//! ```
//!
//! A server of our own is told by its [`Config`]:
//!
//! ```no_run
//! use pgtoll_wire::{Config, Connection, Parameter, UnixEndpoint};
//!
//! # fn main() -> Result<(), pgtoll_wire::Error> {
//! let endpoint = UnixEndpoint::new("/var/run/postgresql", 5432);
//! let mut connection = Connection::connect(&Config::new(endpoint, "postgres", "postgres"))?;
//!
//! let row = connection.query_one("SELECT count(*) AS tables FROM pg_class")?;
//! let tables: i64 = row.parse("tables")?;
//!
//! let lookup = connection.prepare("SELECT relname FROM pg_class WHERE oid = $1")?;
//! for oid in 0..tables {
//!     connection.execute_prepared(&lookup, &[Parameter::Integer(oid)])?;
//! }
//! connection.close();
//! # Ok(())
//! # }
//! ```
//!
//! The latter is the inner loop of a benchmark's driver, and what the driver spends is lost to the
//! server on the same machine. So executing a prepared statement is one write, one wait
//! and usually one read, from and into buffers that live as long as the connection: once they have grown to the
//! size of the statement's messages, nothing is allocated.
//!
//! Whatever the server sends, the answer is a value or an [`Error`]: bytes that break the protocol
//! never panic, and a length that a message claims allocates nothing before its bytes arrive.

mod cancel;
mod certificate;
mod config;
mod connection;
#[cfg(test)]
mod conversations;
mod dial;
mod dsn;
mod error;
mod handshake;
mod listen;
mod masked;
mod prepared;
mod readiness;
mod relay;
mod replication;
mod row;
mod stream;
mod tls;
mod transport;
mod waiting;

pub use cancel::CancelHandle;
pub use config::{Config, Secret, UnixEndpoint};
pub use connection::{Completion, Connection};
pub use dsn::{Dsn, DsnError, Environment};
pub use error::{Error, ErrorResponse};
pub use listen::{ClientListener, ListenAddress};
pub use masked::masked;
pub use prepared::{ExtendedExecution, Parameter, PreparedStatement};
pub use readiness::{Readiness, readiness};
pub use relay::{RelayEnd, RelayPeer, RelayTraffic, await_traffic};
pub use replication::{
    Keepalive, ReplicationConnection, ReplicationStream, StreamEnd, SystemIdentity,
    TimelineHistory, WalData, WalMessage,
};
pub use row::Row;
pub use waiting::Interruption;
