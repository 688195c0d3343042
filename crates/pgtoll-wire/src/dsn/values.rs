//! Keywords with their values, and what several of them say together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use super::environment::Environment;
use super::error::DsnError;
use super::keywords::{KEYWORDS, Use, keyword};
use super::{files, text};
use crate::dial::Keepalives;
use crate::tls::{ClientCertificate, Roots, SslMode, TlsSettings};

/// Keywords with their values, from wherever they came.
#[derive(Default)]
pub(super) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Collects values from the text, then the service, then the environment.
    pub(super) fn collect(text: &str, environment: &Environment) -> Result<Self, DsnError> {
        let mut values = Self::default();
        for (name, value) in text::read(text)? {
            let keyword = known(&name, &value)?;
            values.0.insert(keyword, value);
        }
        let variable = |name| environment.variable(name).filter(|value| !value.is_empty());
        let service = values.given("service").or(variable("PGSERVICE")).map(str::to_owned);
        if let Some(service) = service {
            let file = values.given("servicefile").or(variable("PGSERVICEFILE"));
            for (name, value) in files::service(&service, file, environment)? {
                let keyword = known(&name, &value)?;
                values.0.entry(keyword).or_insert(value);
            }
            values.0.entry("service").or_insert(service);
        }
        for keyword in &KEYWORDS {
            let value = keyword.variable.and_then(|name| environment.variable(name));
            if let Some(value) = value.filter(|_| !values.0.contains_key(keyword.name)) {
                known(keyword.name, value)?;
                values.0.insert(keyword.name, value.to_owned());
            }
        }
        Ok(values)
    }

    /// A value that is not empty; an empty one stands for the default.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, DsnError> {
        let Some(text) = self.given(name) else { return Ok(None) };
        match text.trim_matches(|c: char| c.is_ascii_whitespace()).parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(value_error(name, "a number")),
        }
    }

    /// A number of which zero, or less, stands for the system's default.
    pub(super) fn positive(&self, name: &'static str) -> Result<Option<u32>, DsnError> {
        let number = self.number::<i32>(name)?;
        Ok(number.and_then(|number| u32::try_from(number).ok()).filter(|&number| number > 0))
    }

    pub(super) fn one_of<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, DsnError> {
        let Some(text) = self.given(name) else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == text) {
            return Ok(Some(*value));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(value_error(name, &names.join(", ")))
    }
}

/// The keyword of this name, if this client can do what the value asks for.
fn known(name: &str, value: &str) -> Result<&'static str, DsnError> {
    let Some(keyword) = keyword(name) else {
        let shown = if text::is_word(name) { name } else { "***" };
        return Err(DsnError::UnknownKeyword { keyword: shown.to_owned() });
    };
    let fits = match keyword.used {
        Use::Full | Use::None => true,
        Use::Only(values) => value.is_empty() || values.contains(&value),
        Use::Refused => value.is_empty(),
    };
    match keyword.used {
        _ if fits => Ok(keyword.name),
        Use::Only(values) => Err(value_error(keyword.name, &values.join(", "))),
        _ => Err(DsnError::Unsupported { keyword: keyword.name }),
    }
}

pub(super) fn value_error(keyword: &'static str, expected: &str) -> DsnError {
    DsnError::Value { keyword, expected: expected.to_owned() }
}

pub(super) fn keepalives(values: &Values) -> Result<Keepalives, DsnError> {
    Ok(Keepalives {
        on: values.number::<i32>("keepalives")? != Some(0),
        idle_s: values.positive("keepalives_idle")?,
        interval_s: values.positive("keepalives_interval")?,
        count: values.positive("keepalives_count")?,
        user_timeout_ms: values.positive("tcp_user_timeout")?,
    })
}

pub(super) fn tls(values: &Values, environment: &Environment) -> Result<TlsSettings, DsnError> {
    let in_home =
        |name: &str| environment.home.as_ref().map(|home| home.join(".postgresql").join(name));
    let file =
        |keyword: &str, name: &str| values.given(keyword).map(PathBuf::from).or(in_home(name));
    let mode = values.one_of("sslmode", &SSL_MODES)?;
    let (mode, roots) = match values.given("sslrootcert") {
        // Everybody can have a certificate that the system trusts, so only the name tells.
        Some("system") => match mode {
            None | Some(SslMode::VerifyFull) => (SslMode::VerifyFull, Roots::System),
            Some(_) => return Err(DsnError::WeakMode),
        },
        _ => (
            mode.unwrap_or(SslMode::Prefer),
            file("sslrootcert", "root.crt").map_or(Roots::Nowhere, Roots::File),
        ),
    };
    let without = values.one_of("sslcertmode", &[("disable", true), ("allow", false)])?;
    let files = file("sslcert", "postgresql.crt").zip(file("sslkey", "postgresql.key"));
    let identity = files.filter(|_| without != Some(true)).map(|(certificate, key)| {
        ClientCertificate { certificate, key, named: values.given("sslcert").is_some() }
    });
    let least = values.one_of("ssl_min_protocol_version", &TLS_VERSIONS)?.unwrap_or(12);
    let most = values.one_of("ssl_max_protocol_version", &TLS_VERSIONS)?.unwrap_or(13);
    if most < 12 || least > most {
        return Err(value_error(
            "ssl_max_protocol_version",
            "TLSv1.2 or TLSv1.3, not below the minimum",
        ));
    }
    Ok(TlsSettings {
        mode,
        roots,
        identity,
        sni: values.given("sslsni") != Some("0"),
        only_13: least == 13,
        only_12: most == 12,
    })
}

const TLS_VERSIONS: [(&str, u8); 4] =
    [("TLSv1", 10), ("TLSv1.1", 11), ("TLSv1.2", 12), ("TLSv1.3", 13)];

const SSL_MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];
