//! The words of a connection string, as of libpq 18, and what becomes of each here.

/// The use of a keyword's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It does what libpq's documentation says.
    Full,
    /// It has no effect on a connection of this client, and is passed over.
    None,
    /// These values ask for what this client does anyway; another one is refused.
    Only(&'static [&'static str]),
    /// It would change what a connection means, and this client cannot do it: refused.
    Refused,
}

/// A word of a connection string.
#[derive(Debug)]
pub(super) struct Keyword {
    pub(super) name: &'static str,
    /// The environment variable that stands for it.
    pub(super) variable: Option<&'static str>,
    pub(super) used: Use,
    /// Whether nobody may see the value.
    pub(super) secret: bool,
}

/// The keyword of this name.
pub(super) fn keyword(name: &str) -> Option<&'static Keyword> {
    KEYWORDS.iter().find(|keyword| keyword.name == name)
}

const fn word(name: &'static str, variable: &'static str, used: Use) -> Keyword {
    let variable = if variable.is_empty() { None } else { Some(variable) };
    Keyword { name, variable, used, secret: false }
}

const fn secret(name: &'static str, variable: &'static str, used: Use) -> Keyword {
    Keyword { secret: true, ..word(name, variable, used) }
}

/// In the order of libpq's documentation, "Parameter Key Words" and "Environment Variables".
/// `options` can set anything at the server, so nobody sees it either.
pub(super) const KEYWORDS: [Keyword; 54] = [
    word("host", "PGHOST", Use::Full),
    word("hostaddr", "PGHOSTADDR", Use::Full),
    word("port", "PGPORT", Use::Full),
    word("dbname", "PGDATABASE", Use::Full),
    word("user", "PGUSER", Use::Full),
    secret("password", "PGPASSWORD", Use::Full),
    word("passfile", "PGPASSFILE", Use::Full),
    word("require_auth", "PGREQUIREAUTH", Use::Refused),
    word("channel_binding", "PGCHANNELBINDING", Use::Full),
    word("connect_timeout", "PGCONNECT_TIMEOUT", Use::Full),
    // Rows are Rust strings, so the encoding is always UTF8.
    word("client_encoding", "PGCLIENTENCODING", Use::None),
    secret("options", "PGOPTIONS", Use::Full),
    word("application_name", "PGAPPNAME", Use::Full),
    word("fallback_application_name", "", Use::Full),
    word("keepalives", "", Use::Full),
    word("keepalives_idle", "", Use::Full),
    word("keepalives_interval", "", Use::Full),
    word("keepalives_count", "", Use::Full),
    word("tcp_user_timeout", "", Use::Full),
    word("replication", "", Use::Refused),
    word("gssencmode", "PGGSSENCMODE", Use::Only(&["disable", "prefer"])),
    word("sslmode", "PGSSLMODE", Use::Full),
    word("requiressl", "PGREQUIRESSL", Use::Only(&["0"])),
    word("sslnegotiation", "PGSSLNEGOTIATION", Use::Only(&["postgres"])),
    word("sslcompression", "PGSSLCOMPRESSION", Use::Only(&["0", "1"])),
    word("sslcert", "PGSSLCERT", Use::Full),
    word("sslkey", "PGSSLKEY", Use::Full),
    // Keys must not be encrypted, so there is nothing to open with it.
    secret("sslpassword", "", Use::None),
    word("sslcertmode", "PGSSLCERTMODE", Use::Full),
    word("sslrootcert", "PGSSLROOTCERT", Use::Full),
    word("sslcrl", "PGSSLCRL", Use::Refused),
    word("sslcrldir", "PGSSLCRLDIR", Use::Refused),
    word("sslsni", "PGSSLSNI", Use::Full),
    word("sslkeylogfile", "", Use::Refused),
    word("requirepeer", "PGREQUIREPEER", Use::Refused),
    word("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Use::Full),
    word("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", Use::Full),
    word("min_protocol_version", "PGMINPROTOCOLVERSION", Use::Only(&["3.0"])),
    word("max_protocol_version", "PGMAXPROTOCOLVERSION", Use::Only(&["3.0", "3.2", "latest"])),
    word("krbsrvname", "PGKRBSRVNAME", Use::None),
    word("gsslib", "PGGSSLIB", Use::None),
    word("gssdelegation", "PGGSSDELEGATION", Use::None),
    secret("scram_client_key", "", Use::Refused),
    secret("scram_server_key", "", Use::Refused),
    word("service", "PGSERVICE", Use::Full),
    word("servicefile", "PGSERVICEFILE", Use::Full),
    word("target_session_attrs", "PGTARGETSESSIONATTRS", Use::Full),
    word("load_balance_hosts", "PGLOADBALANCEHOSTS", Use::Only(&["disable"])),
    word("oauth_issuer", "", Use::Refused),
    word("oauth_client_id", "", Use::Refused),
    secret("oauth_client_secret", "", Use::Refused),
    word("oauth_scope", "", Use::Refused),
    word("authtype", "PGAUTHTYPE", Use::None),
    word("tty", "PGTTY", Use::None),
];
