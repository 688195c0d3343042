//! Asks a server to end what a session of ours does.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use postgres_protocol::message::frontend;

use crate::dial::dial_unix;
use crate::stream::Stream;
use crate::{Error, UnixEndpoint};

/// The right to cancel a session's statement, as the server gave it out at the session's begin.
#[derive(Clone)]
pub struct CancelHandle {
    pub(crate) server: CancelAddress,
    pub(crate) backend_pid: i32,
    pub(crate) secret: i32,
}

/// The address for cancel requests.
#[derive(Clone, Debug)]
pub(crate) enum CancelAddress {
    Unix(UnixEndpoint),
    Tcp(SocketAddr),
}

/// A request takes one packet there and none back.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl CancelHandle {
    /// Asks the server to cancel the statement that the session executes, on a connection of its own, and
    /// waits, for at most two seconds, until the server has taken the request. That says nothing of
    /// whether there was a statement. Like libpq's `PQcancel` it is sent without TLS.
    pub fn cancel(&self) -> Result<(), Error> {
        let failed = |source| Error::Io { action: "send a cancel request", source };
        let mut stream = match &self.server {
            CancelAddress::Unix(endpoint) => {
                let deadline = Instant::now().checked_add(CANCEL_TIMEOUT);
                let stream = dial_unix(endpoint, deadline, None)?;
                stream.set_read_timeout(Some(CANCEL_TIMEOUT)).map_err(failed)?;
                Stream::Unix(stream)
            }
            CancelAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CANCEL_TIMEOUT);
                let stream = stream
                    .map_err(|source| Error::Connect { address: address.to_string(), source })?;
                stream.set_read_timeout(Some(CANCEL_TIMEOUT)).map_err(failed)?;
                Stream::Tcp(stream)
            }
        };
        stream.set_write_timeout(Some(CANCEL_TIMEOUT)).map_err(failed)?;
        let mut request = bytes::BytesMut::new();
        frontend::cancel_request(self.backend_pid, self.secret, &mut request);
        stream.write_all(&request).map_err(failed)?;
        // The server hangs up when it has passed the request on.
        let _ = stream.read(&mut [0; 1]);
        Ok(())
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CancelHandle")
            .field("server", &self.server)
            .field("backend_pid", &self.backend_pid)
            .finish_non_exhaustive()
    }
}
