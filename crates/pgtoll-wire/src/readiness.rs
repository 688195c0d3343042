//! Whether a server accepts connections, for those who wait until it does.

use std::io::ErrorKind;

use crate::{Config, Connection, Error};

/// Whether a server accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It accepted one.
    Ready,
    /// It runs, but is starting up, recovering or shutting down.
    NotYet {
        /// Its message; `None` if it hung up.
        message: Option<String>,
    },
    /// No server listens at the endpoint.
    Absent,
}

/// Asks a server whether it accepts connections, by making one and closing it again.
///
/// Whatever waiting would not cure is an error: an unknown database, a wrong password, a time-out.
pub fn readiness(config: &Config) -> Result<Readiness, Error> {
    match Connection::connect(config) {
        Ok(connection) => {
            connection.close();
            Ok(Readiness::Ready)
        }
        Err(Error::Server(error)) if error.sqlstate == CANNOT_CONNECT_NOW => {
            Ok(Readiness::NotYet { message: Some(error.message) })
        }
        // A server that is killed or crashes closes the sockets that it has just accepted.
        Err(Error::Closed { .. }) => Ok(Readiness::NotYet { message: None }),
        Err(Error::Connect { source, .. }) if is_absence(source.kind()) => Ok(Readiness::Absent),
        Err(error) => Err(error),
    }
}

/// Without a server there is no socket file, or one that a killed server has left behind.
fn is_absence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// The SQLSTATE of a server that is starting up, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnixEndpoint;

    #[test]
    fn no_socket_file_is_absence() {
        let endpoint = UnixEndpoint::new("/nonexistent", 5432);
        let config = Config::new(endpoint, "postgres", "postgres");
        assert_eq!(readiness(&config).unwrap(), Readiness::Absent);
    }
}
