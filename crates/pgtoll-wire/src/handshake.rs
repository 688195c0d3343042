//! From a socket to a session: startup and authentication.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication;
use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};
use postgres_protocol::message::backend::{
    AuthenticationSaslBody, ERROR_RESPONSE_TAG, Message, NOTICE_RESPONSE_TAG,
};
use postgres_protocol::message::frontend;

use crate::cancel::{CancelAddress, CancelHandle};
use crate::connection::{decode_error, remember};
use crate::dial::dial_unix;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::{Config, Connection, Error, Interruption, Secret, UnixEndpoint};

impl Connection {
    /// Connects to a server, and waits until it is ready for the first question.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let deadline =
            config.connect_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let stream = dial_unix(&config.endpoint, deadline, None)?;
        Ok(Self::handshake(stream, deadline, config)?.reached_at(config.endpoint.clone()))
    }

    /// A session over a socket that is connected already: for the fuzzer's scripts.
    #[doc(hidden)]
    pub fn over(stream: UnixStream, config: &Config) -> Result<Self, Error> {
        Self::handshake(stream, None, config)
    }

    pub(crate) fn handshake(
        stream: impl Into<Stream>,
        deadline: Option<Instant>,
        config: &Config,
    ) -> Result<Self, Error> {
        let options = config.options.iter();
        let options = options.map(|(name, value)| (name.as_str(), value.as_str()));
        let startup = Startup {
            user: &config.user,
            database: Some(&config.database),
            application_name: &config.application_name,
            options: options.collect(),
            password: config.password.as_ref(),
            binding: Binding::Prefer,
            interruption: None,
        };
        Self::begin(stream.into(), deadline, &startup)
    }

    /// Startup and authentication on a connected stream.
    pub(crate) fn begin(
        stream: Stream,
        deadline: Option<Instant>,
        startup: &Startup<'_>,
    ) -> Result<Self, Error> {
        let mut transport = Transport::new(stream, deadline, startup.interruption.cloned());
        request_session(&mut transport, startup)?;
        authenticate(&mut transport, startup)?;
        let (backend_pid, secret, parameters) = await_session(&mut transport)?;
        transport.lift_deadline()?;
        // A Unix socket's own name is as its server gave it, relative to somewhere else perhaps.
        let server = transport.stream().tcp_peer().map(CancelAddress::Tcp);
        let cancel = server.map(|server| CancelHandle { server, backend_pid, secret });
        Ok(Self {
            transport,
            backend_pid,
            secret,
            parameters,
            given_up: false,
            in_transaction: false,
            cancel,
            warning: None,
        })
    }
}

impl Connection {
    /// The same session, whose server takes requests at this socket.
    pub(crate) fn reached_at(mut self, endpoint: UnixEndpoint) -> Self {
        self.cancel = Some(CancelHandle {
            server: CancelAddress::Unix(endpoint),
            backend_pid: self.backend_pid,
            secret: self.secret,
        });
        self
    }
}

/// The startup message. It must not be shown: options can hold secrets.
pub(crate) struct Startup<'a> {
    pub(crate) user: &'a str,
    /// None for a session of physical replication.
    pub(crate) database: Option<&'a str>,
    pub(crate) application_name: &'a str,
    pub(crate) options: Vec<(&'a str, &'a str)>,
    pub(crate) password: Option<&'a Secret>,
    pub(crate) binding: Binding,
    pub(crate) interruption: Option<&'a Interruption>,
}

/// `channel_binding`: whether a password's proof must be worthless on any other connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Disable,
    Prefer,
    Require,
}

fn request_session(transport: &mut Transport, startup: &Startup<'_>) -> Result<(), Error> {
    let parameters = [
        Some(("user", startup.user)),
        startup.database.map(|database| ("database", database)),
        Some(("application_name", startup.application_name)),
        // Rows are Rust strings.
        Some(("client_encoding", "UTF8")),
    ];
    let parameters = parameters.into_iter().flatten().chain(startup.options.iter().copied());
    frontend::startup_message(parameters, transport.outbox())
        .map_err(|source| Error::unsendable("startup parameters", source))?;
    transport.send()
}

fn authenticate(transport: &mut Transport, startup: &Startup<'_>) -> Result<(), Error> {
    let request = next_message(transport)?;
    // A server that asks for less than a bound proof may be one that only hands on what it gets.
    if startup.binding == Binding::Require && !matches!(request, Message::AuthenticationSasl(_)) {
        return Err(Error::ChannelBinding);
    }
    match request {
        Message::AuthenticationOk => return Ok(()),
        Message::AuthenticationCleartextPassword => {
            send_password(transport, password(startup)?.as_bytes())?;
        }
        Message::AuthenticationMd5Password(body) => {
            let user = startup.user.as_bytes();
            let password = password(startup)?.as_bytes();
            let hash = authentication::md5_hash(user, password, body.salt());
            send_password(transport, hash.as_bytes())?;
        }
        Message::AuthenticationSasl(body) => {
            let (mechanism, binding) = mechanism(&body, transport.stream(), startup.binding)?;
            prove_by_scram(transport, mechanism, binding, password(startup)?.as_bytes())?;
        }
        other => return Err(unsupported(&other)),
    }
    match next_message(transport)? {
        Message::AuthenticationOk => Ok(()),
        _ => Err(Error::protocol("authentication did not end")),
    }
}

fn password<'a>(startup: &Startup<'a>) -> Result<&'a str, Error> {
    let password = startup.password.ok_or(Error::PasswordRequired)?;
    Ok(password.reveal())
}

fn send_password(transport: &mut Transport, password: &[u8]) -> Result<(), Error> {
    frontend::password_message(password, transport.outbox())
        .map_err(|source| Error::unsendable("password", source))?;
    transport.send()
}

/// Returns the SCRAM mechanism and its binding. Over TLS a server that can bind offers that; if it does not, it is
/// told that we would have, so that nobody in between can take the offer out.
fn mechanism(
    body: &AuthenticationSaslBody,
    stream: &Stream,
    binding: Binding,
) -> Result<(&'static str, ChannelBinding), Error> {
    let offered: Vec<&str> = body
        .mechanisms()
        .collect()
        .map_err(|source| Error::undecodable("malformed list of SASL mechanisms", source))?;
    let plus = offered.contains(&sasl::SCRAM_SHA_256_PLUS);
    if plus && !stream.is_tls() {
        return Err(Error::protocol("channel binding offered on a connection without TLS"));
    }
    let end_point = stream.end_point().filter(|_| binding != Binding::Disable);
    match end_point {
        Some(hash) if plus => {
            let bound = ChannelBinding::tls_server_end_point(hash.to_vec());
            return Ok((sasl::SCRAM_SHA_256_PLUS, bound));
        }
        _ if binding == Binding::Require => return Err(Error::ChannelBinding),
        _ => {}
    }
    if !offered.contains(&sasl::SCRAM_SHA_256) {
        return Err(Error::AuthenticationMethod { method: offered.join(" or ").into() });
    }
    let unbound = match end_point {
        Some(_) => ChannelBinding::unrequested(),
        None => ChannelBinding::unsupported(),
    };
    Ok((sasl::SCRAM_SHA_256, unbound))
}

/// Both sides prove that they know the password: a server that cannot is an error, too.
fn prove_by_scram(
    transport: &mut Transport,
    mechanism: &str,
    binding: ChannelBinding,
    password: &[u8],
) -> Result<(), Error> {
    let failed = |source| Error::undecodable("SCRAM authentication failed", source);
    let unsendable = |source| Error::unsendable("SCRAM message", source);

    let mut scram = ScramSha256::new(password, binding);
    let outbox = transport.outbox();
    frontend::sasl_initial_response(mechanism, scram.message(), outbox).map_err(unsendable)?;
    transport.send()?;

    let Message::AuthenticationSaslContinue(challenge) = next_message(transport)? else {
        return Err(Error::protocol("SCRAM authentication without a challenge"));
    };
    scram.update(challenge.data()).map_err(failed)?;
    frontend::sasl_response(scram.message(), transport.outbox()).map_err(unsendable)?;
    transport.send()?;

    let Message::AuthenticationSaslFinal(outcome) = next_message(transport)? else {
        return Err(Error::protocol("SCRAM authentication without an outcome"));
    };
    scram.finish(outcome.data()).map_err(failed)
}

fn unsupported(message: &Message) -> Error {
    let method = match message {
        Message::AuthenticationGss => "gss",
        Message::AuthenticationSspi => "sspi",
        Message::AuthenticationKerberosV5 => "Kerberos 5",
        Message::AuthenticationScmCredential => "SCM credential",
        _ => return Error::protocol("no authentication request"),
    };
    Error::AuthenticationMethod { method: method.into() }
}

/// Waits for the server's process and settings, until it is ready.
fn await_session(transport: &mut Transport) -> Result<(i32, i32, BTreeMap<String, String>), Error> {
    let mut key = None;
    let mut parameters = BTreeMap::new();
    loop {
        match next_message(transport)? {
            Message::BackendKeyData(body) => key = Some((body.process_id(), body.secret_key())),
            Message::ParameterStatus(body) => remember(&mut parameters, &body)?,
            Message::ReadyForQuery(_) => break,
            _ => return Err(Error::protocol("unexpected message before the first query")),
        }
    }
    match key {
        Some((backend_pid, secret)) => Ok((backend_pid, secret, parameters)),
        None => Err(Error::protocol("server did not name its process")),
    }
}

/// The next message that is not a notice. An error during the handshake is always the end of it.
fn next_message(transport: &mut Transport) -> Result<Message, Error> {
    loop {
        let reply = transport.receive()?;
        match reply.tag() {
            NOTICE_RESPONSE_TAG => {}
            ERROR_RESPONSE_TAG => return Err(Error::Server(decode_error(reply)?)),
            _ => return reply.decode(),
        }
    }
}
