//! Proof that a server's certificate gives.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Whose certificates are good.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Everybody's: the connection is encrypted, to whomever.
    Anybody,
    /// Those that a root has signed, or that stand among the roots themselves.
    Roots {
        roots: RootCertStore,
        itself: Vec<CertificateDer<'static>>,
        /// Whether the certificate must also name the host.
        name: bool,
    },
}

/// Judges a server by its certificate. The server must prove in any case that it has the
/// certificate's key, or what is bound to that certificate would be bound to nothing.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: Trust,
    host: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(crate) fn new(trust: Trust, host: &str, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { trust, host: host.to_owned(), algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trust::Roots { roots, itself, name } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = parse(end_entity)?;
        if itself.iter().any(|known| known == end_entity) {
            within_validity(&certificate, now)?;
        } else {
            // The common case of a server set up by PostgreSQL's manual and an older OpenSSL.
            if certificate.tbs_certificate().version() != Version::V3 {
                return Err(reason(Refusal::Version));
            }
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if *name {
            self.verify_name(end_entity, &certificate)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    /// By the bare key if `webpki` cannot read the certificate, which it cannot if that is of
    /// version 1.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if ParsedCertificate::try_from(certificate).is_ok() {
            return verify_tls13_signature(message, certificate, signed, &self.algorithms);
        }
        let key = parse(certificate)?.tbs_certificate().subject_public_key_info().to_der();
        let key = SubjectPublicKeyInfoDer::from(key.map_err(|_| CertificateError::BadEncoding)?);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// As libpq does it: an alternative name counts, and the common name only if there is none.
    fn verify_name(
        &self,
        end_entity: &CertificateDer<'_>,
        certificate: &CertificateInner<Raw>,
    ) -> Result<(), rustls::Error> {
        let wrong = || reason(Refusal::Name { host: self.host.clone() });
        if has_alternative_names(certificate) {
            let name = ServerName::try_from(self.host.as_str()).map_err(|_| wrong())?;
            let parsed = ParsedCertificate::try_from(end_entity)?;
            return verify_server_name(&parsed, &name).map_err(|_| wrong());
        }
        match certificate.tbs_certificate().subject().common_name() {
            Ok(Some(name)) if is_name_of(&name.value(), &self.host) => Ok(()),
            _ => Err(wrong()),
        }
    }
}

/// Hosts' names and addresses, as opposed to those of mail and other things.
fn has_alternative_names(certificate: &CertificateInner<Raw>) -> bool {
    match certificate.tbs_certificate().get_extension::<SubjectAltName>() {
        Ok(Some((_, names))) => names
            .0
            .iter()
            .any(|name| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_))),
        Ok(None) => false,
        // There are some, and what they say cannot be read.
        Err(_) => true,
    }
}

/// A star stands for one whole first label.
fn is_name_of(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(first, rest)| {
            !first.is_empty() && domain.contains('.') && rest.eq_ignore_ascii_case(domain)
        }),
        None => !name.is_empty() && name.eq_ignore_ascii_case(host),
    }
}

fn within_validity(
    certificate: &CertificateInner<Raw>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let validity = certificate.tbs_certificate().validity();
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

fn parse(certificate: &CertificateDer<'_>) -> Result<CertificateInner<Raw>, rustls::Error> {
    CertificateInner::from_der(certificate).map_err(|_| CertificateError::BadEncoding.into())
}

/// The `tls-server-end-point` of RFC 5929: a hash of the certificate, by the hash of its own
/// signature, but never by MD5 or SHA-1. `None` if that signature has no hash of its own.
pub(crate) fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = parse(certificate).ok()?.signature_algorithm().oid;
    let bits = HASHES.iter().find(|(oid, _)| *oid == algorithm)?.1;
    Some(match bits {
        384 => Sha384::digest(certificate).to_vec(),
        512 => Sha512::digest(certificate).to_vec(),
        _ => Sha256::digest(certificate).to_vec(),
    })
}

/// Signatures (RFC 8017 for RSA, RFC 3279 and 5758 for ECDSA) and the bits of the hash to take.
const HASHES: [(ObjectIdentifier, u16); 9] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4"), 256), // MD5, RSA
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"), 256), // SHA-1, RSA
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"), 256),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"), 384),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"), 512),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"), 256), // SHA-1, ECDSA
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), 256),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"), 384),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"), 512),
];

/// Why a certificate is refused, where `rustls` has no word for it.
#[derive(Debug, Clone, thiserror::Error)]
enum Refusal {
    #[error("certificate is of version 1, which cannot be verified")]
    Version,
    #[error("certificate is not for host {host:?}")]
    Name { host: String },
}

fn reason(refusal: Refusal) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(refusal))).into()
}

/// An error of TLS in a sentence.
pub(crate) fn explain(error: rustls::Error) -> TlsError {
    TlsError(error)
}

/// An error of TLS.
#[derive(Debug)]
pub(crate) struct TlsError(rustls::Error);

impl fmt::Display for TlsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
                write!(formatter, "{other}")
            }
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                formatter.write_str("certificate is not signed by a trusted root")
            }
            other => write!(formatter, "{other}"),
        }
    }
}

impl std::error::Error for TlsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_label() {
        let check = |name, host, expected| assert_eq!(is_name_of(name, host), expected, "{name}");
        check("db.example.com", "DB.example.com", true);
        check("db.example.com", "db.example.org", false);
        check("*.example.com", "db.example.com", true);
        check("*.example.com", "a.db.example.com", false);
        check("*.example.com", "example.com", false);
        check("*.com", "example.com", false);
        check("", "", false);
        check("*.", "db.", false);
    }
}
