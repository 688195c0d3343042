//! TLS: what a certificate must be for each `sslmode`, and bytes through `rustls`.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::certificate::{self, Trust, Verifier};
use crate::error::hung_up;
use crate::waiting::{time_left, wait_readable};
use crate::{Error, Interruption};

/// `sslmode`: whether to encrypt, and what the server must prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The TLS settings of a connection string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Roots,
    /// Files of the client's certificate and key. They need not exist unless they were named.
    pub(crate) identity: Option<ClientCertificate>,
    /// Tell the server which host is meant.
    pub(crate) sni: bool,
    /// No version older than TLS 1.3, or none newer than 1.2.
    pub(crate) only_13: bool,
    pub(crate) only_12: bool,
}

/// Whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those that the system trusts.
    System,
    /// Those of a file, which must exist if the mode verifies.
    File(PathBuf),
    /// There is no place where a file could be.
    Nowhere,
}

/// A client's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Somebody named the certificate, so that its absence is an error.
    pub(crate) named: bool,
}

impl TlsSettings {
    /// Returns the configuration of `rustls` for a connection to this host.
    pub(crate) fn prepare(&self, host: &str) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = self.verifier(host, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions())
            .map_err(|source| tls_error(host, source))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.identity.as_ref().filter(|identity| identity.exists()) {
            Some(identity) => builder
                .with_client_auth_cert(identity.certificates()?, identity.key()?)
                .map_err(|source| tls_error(host, source))?,
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = self.sni;
        Ok(Arc::new(config))
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match (self.only_13, self.only_12) {
            (true, _) => ONLY_13,
            (false, true) => ONLY_12,
            (false, false) => rustls::ALL_VERSIONS,
        }
    }

    /// As with libpq, a file of roots that exists is used in every mode, and only the modes that
    /// verify insist on one.
    fn verifier(&self, host: &str, provider: &CryptoProvider) -> Result<Verifier, Error> {
        let trust = match &self.roots {
            Roots::System => Some(system_roots()?),
            Roots::File(path) if path.exists() => Some(pem_certificates(path)?),
            Roots::File(path) if self.mode >= SslMode::VerifyCa => {
                return Err(Error::Certificate {
                    path: path.clone(),
                    finding: "root certificate file does not exist".into(),
                });
            }
            Roots::Nowhere if self.mode >= SslMode::VerifyCa => return Err(Error::NoRoots),
            Roots::File(_) | Roots::Nowhere => None,
        };
        let trust = match trust {
            Some(certificates) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates.iter().cloned());
                // A file may also hold the very certificate that the server shows.
                let itself = match &self.roots {
                    Roots::File(_) => certificates,
                    Roots::System | Roots::Nowhere => Vec::new(),
                };
                Trust::Roots { roots, itself, name: self.mode == SslMode::VerifyFull }
            }
            None => Trust::Anybody,
        };
        Ok(Verifier::new(trust, host, provider.signature_verification_algorithms))
    }
}

static ONLY_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
static ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl ClientCertificate {
    fn exists(&self) -> bool {
        self.named || self.certificate.exists()
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        pem_certificates(&self.certificate)
    }

    /// A key that others could read is refused, by libpq's rule: one's own with no access for
    /// group or others, or root's that the group may read.
    fn key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        let path = &self.key;
        let finding = |finding: String| Error::Certificate { path: path.clone(), finding };
        let facts = fs::metadata(path).map_err(|error| finding(format!("{error}")))?;
        let forbidden = if facts.uid() == 0 { 0o037 } else { 0o077 };
        if facts.mode() & forbidden != 0 {
            return Err(finding("private key can be read by group or others".to_owned()));
        }
        let bytes = fs::read(path).map_err(|error| finding(format!("{error}")))?;
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
            let encrypted = String::from_utf8_lossy(&bytes).contains("ENCRYPTED");
            let reason = if encrypted { "private key is encrypted" } else { "no private key" };
            finding(format!("{reason}, and an unencrypted one in PEM form is needed"))
        })
    }
}

fn pem_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unusable = |finding: String| Error::Certificate { path: path.to_owned(), finding };
    let bytes = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(format!("malformed certificate: {error}")))?;
    if certificates.is_empty() {
        return Err(unusable("no certificate in PEM form".to_owned()));
    }
    Ok(certificates)
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() { Err(Error::NoRoots) } else { Ok(found.certs) }
}

pub(crate) fn tls_error(host: &str, source: rustls::Error) -> Error {
    Error::Tls { host: host.to_owned(), source: certificate::explain(source).into() }
}

/// TLS over a TCP socket. Reading takes from the socket at most once, so that nobody waits here
/// who has not polled.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: ClientConnection,
    has_decrypted: bool,
    end_point: Option<Vec<u8>>,
}

impl TlsStream {
    /// Agrees with the server on keys, and verifies who it is.
    pub(crate) fn begin(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        host: &str,
        address: IpAddr,
        deadline: Option<Instant>,
        interruption: Option<&Interruption>,
    ) -> Result<Self, Error> {
        // A host that cannot be a name in a certificate goes by its address.
        let name = ServerName::try_from(host.to_owned()).unwrap_or(ServerName::from(address));
        let session =
            ClientConnection::new(config, name).map_err(|source| tls_error(host, source))?;
        let mut stream = Self { socket, session, has_decrypted: false, end_point: None };
        stream.shake_hands(deadline, interruption).map_err(|error| match error {
            Shake::Tls(source) => tls_error(host, source),
            Shake::Other(error) => error,
        })?;
        let certificates = stream.session.peer_certificates();
        stream.end_point = certificates.and_then(<[_]>::first).and_then(certificate::end_point);
        Ok(stream)
    }

    fn shake_hands(
        &mut self,
        deadline: Option<Instant>,
        interruption: Option<&Interruption>,
    ) -> Result<(), Shake> {
        let io = |source: io::Error| match source.kind() {
            ErrorKind::WouldBlock => Shake::Other(Error::ConnectTimeout),
            _ if hung_up(&source) => Shake::Other(Error::Closed { source: Some(source) }),
            _ => Shake::Other(Error::Io { action: "agree on TLS with the server", source }),
        };
        while self.session.is_handshaking() {
            while self.session.wants_write() {
                self.session.write_tls(&mut self.socket).map_err(io)?;
            }
            let patience = time_left(deadline).map_err(Shake::Other)?;
            let socket = self.socket.as_fd();
            if !wait_readable(socket, patience, interruption).map_err(Shake::Other)? {
                continue;
            }
            if self.session.read_tls(&mut self.socket).map_err(io)? == 0 {
                return Err(Shake::Other(Error::Closed { source: None }));
            }
            if let Err(error) = self.session.process_new_packets() {
                // The server is told why, if it still listens.
                let _ = self.session.write_tls(&mut self.socket);
                return Err(Shake::Tls(error));
            }
        }
        self.flush().map_err(io)
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn has_decrypted(&self) -> bool {
        self.has_decrypted
    }

    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// Reads from a socket that does not wait. Unlike [`Read`], a socket that takes nothing now does not
    /// hide what was read.
    pub(crate) fn receive_now(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.has_decrypted {
            self.session.read_tls(&mut self.socket)?;
            let broken =
                |error| io::Error::new(ErrorKind::InvalidData, certificate::explain(error));
            self.session.process_new_packets().map_err(broken)?;
        }
        let length = self.session.reader().read(into);
        self.has_decrypted = matches!(length, Ok(length) if length > 0);
        length
    }

    /// Takes bytes for a socket that does not wait: as many as there is room for. What it has not sent yet
    /// goes with [`flush`](Write::flush), or the next bytes.
    pub(crate) fn send_now(&mut self, from: &[u8]) -> io::Result<usize> {
        let flushed = self.flush();
        let length = self.session.writer().write(from)?;
        match flushed.and_then(|()| self.flush()) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(length),
        }
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Says that nothing more comes, as TLS has it, and as TCP has it.
    pub(crate) fn end_sending(&mut self) {
        self.session.send_close_notify();
        // The peer may be gone.
        let _ = self.flush();
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

enum Shake {
    Tls(rustls::Error),
    Other(Error),
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.has_decrypted {
            // The end of the socket is judged by the session: without a farewell it is an error.
            self.session.read_tls(&mut self.socket)?;
            let broken =
                |error| io::Error::new(ErrorKind::InvalidData, certificate::explain(error));
            self.session.process_new_packets().map_err(broken)?;
            // TLS answers by itself, for example when keys change.
            self.flush()?;
        }
        let length = self.session.reader().read(into);
        // What did not fit, or came with it, is found by another look.
        self.has_decrypted = matches!(length, Ok(length) if length > 0);
        length
    }
}

impl Write for TlsStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let length = self.session.writer().write(from)?;
        self.flush()?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}
