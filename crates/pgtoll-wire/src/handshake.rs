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

use crate::connection::{decode_error, remember};
use crate::transport::{self, Transport};
use crate::{Config, Connection, Error};

impl Connection {
    /// Connects to a server, and waits until it is ready for the first question.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let deadline =
            config.connect_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let stream = transport::dial(&config.endpoint, deadline)?;
        Self::handshake(stream, deadline, config)
    }

    pub(crate) fn handshake(
        stream: UnixStream,
        deadline: Option<Instant>,
        config: &Config,
    ) -> Result<Self, Error> {
        let mut transport = Transport::new(stream, deadline);
        request_session(&mut transport, config)?;
        authenticate(&mut transport, config)?;
        let (backend_pid, parameters) = await_session(&mut transport)?;
        transport.lift_deadline()?;
        Ok(Self { transport, backend_pid, parameters, given_up: false, in_transaction: false })
    }
}

fn request_session(transport: &mut Transport, config: &Config) -> Result<(), Error> {
    let parameters = [
        ("user", config.user.as_str()),
        ("database", config.database.as_str()),
        ("application_name", config.application_name.as_str()),
        // Rows are Rust strings.
        ("client_encoding", "UTF8"),
    ];
    let options = config.options.iter();
    let options = options.map(|(name, value)| (name.as_str(), value.as_str()));
    frontend::startup_message(parameters.into_iter().chain(options), transport.outbox())
        .map_err(|source| Error::unsendable("startup parameters", source))?;
    transport.send()
}

fn authenticate(transport: &mut Transport, config: &Config) -> Result<(), Error> {
    match next_message(transport)? {
        Message::AuthenticationOk => return Ok(()),
        Message::AuthenticationCleartextPassword => {
            send_password(transport, password(config)?.as_bytes())?;
        }
        Message::AuthenticationMd5Password(body) => {
            let (user, password) = (config.user.as_bytes(), password(config)?.as_bytes());
            let hash = authentication::md5_hash(user, password, body.salt());
            send_password(transport, hash.as_bytes())?;
        }
        Message::AuthenticationSasl(body) => {
            require_scram(&body)?;
            prove_by_scram(transport, password(config)?.as_bytes())?;
        }
        other => return Err(unsupported(&other)),
    }
    match next_message(transport)? {
        Message::AuthenticationOk => Ok(()),
        _ => Err(Error::protocol("authentication did not end")),
    }
}

fn password(config: &Config) -> Result<&str, Error> {
    let password = config.password.as_ref().ok_or(Error::PasswordRequired)?;
    Ok(password.reveal())
}

fn send_password(transport: &mut Transport, password: &[u8]) -> Result<(), Error> {
    frontend::password_message(password, transport.outbox())
        .map_err(|source| Error::unsendable("password", source))?;
    transport.send()
}

fn require_scram(body: &AuthenticationSaslBody) -> Result<(), Error> {
    let mechanisms: Vec<&str> = body
        .mechanisms()
        .collect()
        .map_err(|source| Error::undecodable("malformed list of SASL mechanisms", source))?;
    if mechanisms.contains(&sasl::SCRAM_SHA_256) {
        return Ok(());
    }
    Err(Error::AuthenticationMethod { method: mechanisms.join(" or ").into() })
}

/// Both sides prove that they know the password: a server that cannot is an error, too.
fn prove_by_scram(transport: &mut Transport, password: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::undecodable("SCRAM authentication failed", source);
    let unsendable = |source| Error::unsendable("SCRAM message", source);

    let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
    let outbox = transport.outbox();
    frontend::sasl_initial_response(sasl::SCRAM_SHA_256, scram.message(), outbox)
        .map_err(unsendable)?;
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

/// What the server tells of itself before its first readiness: process and settings.
fn await_session(transport: &mut Transport) -> Result<(i32, BTreeMap<String, String>), Error> {
    let mut backend_pid = None;
    let mut parameters = BTreeMap::new();
    loop {
        match next_message(transport)? {
            Message::BackendKeyData(body) => backend_pid = Some(body.process_id()),
            Message::ParameterStatus(body) => remember(&mut parameters, &body)?,
            Message::ReadyForQuery(_) => break,
            _ => return Err(Error::protocol("unexpected message before the first query")),
        }
    }
    match backend_pid {
        Some(backend_pid) => Ok((backend_pid, parameters)),
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
