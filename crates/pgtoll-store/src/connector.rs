//! Connections to stores. A certificate that is refused is refused the next time, too, and so mostly is a
//! connection to a server that never answered: the client, which tries again what fails before a request is
//! sent, is told so.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use rustls::CertificateError;

/// Makes clients.
#[derive(Debug, Default)]
pub(crate) struct StoreConnector(ReqwestConnector);

impl HttpConnector for StoreConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(StoreClient { client, tries_left: AtomicU32::new(FIRST_TRIES) }))
    }
}

#[derive(Debug)]
struct StoreClient {
    client: HttpClient,
    /// Until the server answers; then it is no longer counted.
    tries_left: AtomicU32,
}

/// How often a connection is tried while the server has never answered. One that has is waited for.
const FIRST_TRIES: u32 = 5;

impl HttpService for StoreClient {
    fn call<'own, 'answer>(
        &'own self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'answer>>
    where
        'own: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            let answer = self.client.execute(request).await;
            if answer.is_ok() {
                self.tries_left.store(u32::MAX, Ordering::Relaxed);
            }
            answer.map_err(|error| match certificate_error(&error) {
                Some(why) => HttpError::new(HttpErrorKind::Unknown, RefusedCertificate(why)),
                None if error.kind() == HttpErrorKind::Connect && self.is_last_try() => {
                    HttpError::new(HttpErrorKind::Unknown, error)
                }
                None => error,
            })
        })
    }
}

impl StoreClient {
    fn is_last_try(&self) -> bool {
        let less = |left: u32| (left < u32::MAX).then(|| left.saturating_sub(1));
        let before = self.tries_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.is_ok_and(|before| before <= 1)
    }
}

/// The faults of the server's certificate, if that is what failed.
fn certificate_error(error: &HttpError) -> Option<CertificateError> {
    let mut cause = error.source();
    while let Some(item) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = tls_error(item) {
            return Some(why.clone());
        }
        cause = item.source();
    }
    None
}

/// An error of TLS, also inside of errors of I/O, which are not the causes of what they hold.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(outer) => tls_error(outer.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// The last words of an error of the client.
#[derive(Debug)]
struct RefusedCertificate(CertificateError);

impl Error for RefusedCertificate {}

impl fmt::Display for RefusedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REFUSED)?;
        match &self.0 {
            CertificateError::UnknownIssuer => f.write_str(UNTRUSTED),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                f.write_str(EXPIRED)
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                f.write_str(NOT_VALID_YET)
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                f.write_str(OTHER_NAME)
            }
            other => write!(f, "{other}"),
        }
    }
}

/// The prefix of messages about a certificate.
pub(crate) const REFUSED: &str = "certificate refused: ";
const UNTRUSTED: &str = "it is not signed by a trusted root";
pub(crate) const EXPIRED: &str = "it has expired";
pub(crate) const NOT_VALID_YET: &str = "it is not valid yet";
pub(crate) const OTHER_NAME: &str = "it is for another name";
