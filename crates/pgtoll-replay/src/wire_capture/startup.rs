//! The client's startup packet and authentication, before the first message with a tag.

use std::collections::BTreeMap;

use pgtoll_wire::RelayPeer;

use crate::fields::{Fields, Malformed};

/// The first packet of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirstPacket {
    /// Asks for TLS or GSS encryption, which a capture does not offer to clients.
    Encryption,
    /// Asks to cancel another session's statement.
    Cancel,
    /// Begins a session.
    Session(SessionStart),
    /// A protocol that the capture does not read.
    Foreign,
}

/// Whose session begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionStart {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) application_name: String,
    /// A session of the replication protocol.
    pub(crate) is_replication: bool,
    /// Other settings than those that each client sends, and `options`.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Reads the first packet: with its length in bytes, or `None` while some of it is missing.
pub(crate) fn first_packet(bytes: &[u8]) -> Result<Option<(FirstPacket, usize)>, Malformed> {
    let Some((length, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(8..=PACKET_BYTES_MAX).contains(&length) {
        return Err(Malformed);
    }
    let Some(packet) = bytes.get(..length) else { return Ok(None) };
    let mut fields = Fields(&packet[4..]);
    let packet = match fields.int32()? {
        SSL_REQUEST | GSS_REQUEST => FirstPacket::Encryption,
        CANCEL_REQUEST => FirstPacket::Cancel,
        code if code >> 16 == 3 => FirstPacket::Session(session_start(fields)?),
        _ => FirstPacket::Foreign,
    };
    Ok(Some((packet, length)))
}

/// As the server has it.
const PACKET_BYTES_MAX: usize = 10_000;
const CANCEL_REQUEST: i32 = 80_877_102;
const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;

fn session_start(mut fields: Fields<'_>) -> Result<SessionStart, Malformed> {
    let mut start = SessionStart::default();
    loop {
        let name = fields.text()?;
        if name.is_empty() {
            break;
        }
        let value = String::from_utf8_lossy(fields.text()?).into_owned();
        match name {
            b"user" => start.user = value,
            b"database" => start.database = value,
            b"application_name" => start.application_name = value,
            b"replication" => {
                start.is_replication = !matches!(&*value, "false" | "off" | "no" | "0");
            }
            b"client_encoding" => {}
            name if name.starts_with(b"_pq_.") => {}
            name => {
                let name = String::from_utf8_lossy(name).into_owned();
                start.settings.insert(name, value);
            }
        }
    }
    if start.database.is_empty() {
        start.database.clone_from(&start.user);
    }
    Ok(start)
}

/// The next step after a server's authentication request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthenticationStep {
    /// The client is let in.
    Ok,
    /// The client has to prove who it is; to be passed on as it is.
    Proof,
    /// The same without channel binding, which cannot hold across two connections.
    Rewritten(Vec<u8>),
}

/// Reads the body of an authentication request.
pub(crate) fn authentication_step(body: &[u8]) -> Result<AuthenticationStep, Malformed> {
    let mut fields = Fields(body);
    Ok(match fields.int32()? {
        0 => AuthenticationStep::Ok,
        SASL => {
            let mut mechanisms = Vec::new();
            loop {
                match fields.text()? {
                    b"" => break,
                    name if name.ends_with(b"-PLUS") => {}
                    name => mechanisms.extend_from_slice(&[name, &[0]].concat()),
                }
            }
            mechanisms.push(0);
            let body = [&SASL.to_be_bytes()[..], &mechanisms].concat();
            AuthenticationStep::Rewritten(message(b'R', &body))
        }
        _ => AuthenticationStep::Proof,
    })
}

const SASL: i32 = 10;

/// Whether a client may enter where the server asks it for no password. The server sees the process that
/// captures: at a Unix socket `peer` would let every client in as that process's user.
pub(crate) fn may_enter_unasked(client: RelayPeer, server: RelayPeer, own_uid: u32) -> bool {
    match (client, server) {
        (RelayPeer::Unix { uid }, RelayPeer::Unix { uid: server }) => {
            uid == 0 || uid == own_uid || uid == server
        }
        (RelayPeer::Tcp { .. }, RelayPeer::Unix { .. }) => false,
        (RelayPeer::Unix { .. }, RelayPeer::Tcp { .. }) => true,
        (RelayPeer::Tcp { address }, RelayPeer::Tcp { .. }) => address.is_loopback(),
    }
}

/// A fatal error, as a server says it.
pub(crate) fn fatal(sqlstate: &str, text: &str) -> Vec<u8> {
    let body = format!("SFATAL\0VFATAL\0C{sqlstate}\0M{text}\0\0");
    message(b'E', body.as_bytes())
}

/// The client's farewell.
pub(crate) const TERMINATE: &[u8] = b"X\0\0\0\x04";

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: i32, rest: &[u8]) -> Vec<u8> {
        let length = u32::try_from(rest.len() + 8).unwrap().to_be_bytes();
        [&length[..], &code.to_be_bytes(), rest].concat()
    }

    #[test]
    fn first_packets() {
        let check = |bytes: &[u8], expected| {
            for length in 0..bytes.len() {
                assert_eq!(first_packet(&bytes[..length]), Ok(None));
            }
            let more = [bytes, b"more"].concat();
            assert_eq!(first_packet(&more), Ok(Some((expected, bytes.len()))));
        };
        check(&packet(80_877_103, b""), FirstPacket::Encryption);
        check(&packet(80_877_104, b""), FirstPacket::Encryption);
        check(&packet(80_877_102, b"12345678"), FirstPacket::Cancel);
        check(&packet(2 << 16, b"x"), FirstPacket::Foreign);
        let start = SessionStart {
            user: "alice".into(),
            database: "alice".into(),
            ..SessionStart::default()
        };
        check(&packet(3 << 16, b"user\0alice\0\0"), FirstPacket::Session(start.clone()));
        let with = SessionStart {
            database: "shop".into(),
            application_name: "till".into(),
            settings: [("TimeZone".to_owned(), "UTC".to_owned())].into(),
            ..start.clone()
        };
        let text = b"user\0alice\0database\0shop\0application_name\0till\0TimeZone\0UTC\0\0";
        check(&packet(0x0003_0002, text), FirstPacket::Session(with));
        let standby = SessionStart { is_replication: true, ..start };
        let text = b"user\0alice\0replication\0true\0\0";
        check(&packet(3 << 16, text), FirstPacket::Session(standby));
        for broken in [packet(3 << 16, b"user\0alice"), vec![0, 0, 0, 7, 0, 0], vec![22, 3, 1, 0]] {
            assert_eq!(first_packet(&broken), Err(Malformed));
        }
    }

    #[test]
    fn channel_binding_is_not_offered() {
        let offered =
            [&10_i32.to_be_bytes()[..], b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"].concat();
        let rest = [&10_i32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat();
        let rewritten = AuthenticationStep::Rewritten(message(b'R', &rest));
        assert_eq!(authentication_step(&offered), Ok(rewritten));
        assert_eq!(authentication_step(&[0; 4]), Ok(AuthenticationStep::Ok));
        let md5 = [&5_i32.to_be_bytes()[..], b"salt"].concat();
        assert_eq!(authentication_step(&md5), Ok(AuthenticationStep::Proof));
    }

    #[test]
    fn who_may_enter_without_a_password() {
        let unix = |uid| RelayPeer::Unix { uid };
        let tcp = |address: &str| RelayPeer::Tcp { address: address.parse().unwrap() };
        let check = |client, server, expected| {
            assert_eq!(may_enter_unasked(client, server, 1000), expected, "{client:?} {server:?}");
        };
        check(unix(1000), unix(26), true);
        check(unix(26), unix(26), true);
        check(unix(0), unix(26), true);
        check(unix(1001), unix(26), false);
        check(tcp("127.0.0.1"), unix(26), false);
        check(unix(1001), tcp("127.0.0.1"), true);
        check(tcp("127.0.0.1"), tcp("10.0.0.1"), true);
        check(tcp("10.0.0.2"), tcp("127.0.0.1"), false);
    }
}
