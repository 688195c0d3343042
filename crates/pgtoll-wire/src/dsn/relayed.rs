//! The server's end of a connection that is passed on.

use std::io;
use std::net::SocketAddr;

use super::{
    Dsn, Encrypt, Host, Place, SslMode, Target, is_tls, is_worth_another_host, offers_tls,
};
use crate::Error;
use crate::dial::{check_peer, dial_tcp, dial_unix};
use crate::relay::RelayEnd;
use crate::stream::Stream;
use crate::tls::TlsStream;

impl Dsn {
    /// Connects to the first host that can be reached, with TLS as `sslmode` has it, and says nothing
    /// there: what a client says is passed on. Role, database, password and settings of the connection
    /// string are not used, and neither is [`target_session_attrs`](Self::target_session_attrs).
    pub fn connect_relayed(&self) -> Result<RelayEnd, Error> {
        let mut attempts = Vec::new();
        for host in &self.hosts {
            match self.reach(host) {
                Ok(stream) => {
                    let failed = |source| Error::Io { action: "set an option of a socket", source };
                    return RelayEnd::over(stream).map_err(failed);
                }
                Err(error) if is_worth_another_host(&error) => {
                    attempts.push((host.shown(), Box::new(error)));
                }
                Err(error) => return Err(error),
            }
        }
        match <[_; 1]>::try_from(attempts) {
            Ok([(_, error)]) => Err(*error),
            Err(attempts) => Err(Error::Hosts { attempts }),
        }
    }

    /// Returns the requested kind of session: `any` by default.
    pub fn target_session_attrs(&self) -> &'static str {
        if self.target == Target::Any { "any" } else { self.target.name() }
    }

    fn reach(&self, host: &Host) -> Result<Stream, Error> {
        match self.place(host)? {
            Place::Unix(endpoint) => {
                let stream = dial_unix(&endpoint, self.deadline(), self.interruption.as_ref())?;
                if let Some(owner) = self.peer {
                    check_peer(&stream, &endpoint, owner)?;
                }
                Ok(stream.into())
            }
            Place::Tcp(addresses) => {
                let mut outcome = Err(Error::ConnectTimeout);
                for address in addresses {
                    outcome = self.reach_tcp(host, address);
                    if !outcome.as_ref().is_err_and(is_worth_another_host) {
                        break;
                    }
                }
                outcome
            }
        }
    }

    fn reach_tcp(&self, host: &Host, address: SocketAddr) -> Result<Stream, Error> {
        let attempt = |encrypt| self.reach_encrypted(host, address, encrypt);
        match self.tls.mode {
            SslMode::Disable | SslMode::Allow => attempt(Encrypt::No),
            SslMode::Prefer => match attempt(Encrypt::IfOffered) {
                Err(error) if is_tls(&error) => attempt(Encrypt::No),
                outcome => outcome,
            },
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => attempt(Encrypt::Yes),
        }
    }

    fn reach_encrypted(
        &self,
        host: &Host,
        address: SocketAddr,
        encrypt: Encrypt,
    ) -> Result<Stream, Error> {
        let deadline = self.deadline();
        let interruption = self.interruption.as_ref();
        let mut socket = dial_tcp(address, &self.keepalives, deadline, interruption)?;
        if encrypt != Encrypt::No {
            if offers_tls(&mut socket, deadline, interruption)? {
                let config = self.tls.prepare(host.name())?;
                let name = host.name();
                let ip = address.ip();
                let stream = TlsStream::begin(socket, config, name, ip, deadline, interruption)?;
                return Ok(Stream::Tls(Box::new(stream)));
            }
            if encrypt == Encrypt::Yes {
                return Err(Error::NoTls);
            }
        }
        let unset: fn(io::Error) -> Error = crate::waiting::time_out_unset;
        socket.set_write_timeout(None).map_err(unset)?;
        Ok(Stream::Tcp(socket))
    }
}
