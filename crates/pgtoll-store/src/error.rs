//! Errors of stores: one line each, and what to do about them.

use std::io;

use crate::connector::{EXPIRED, NOT_VALID_YET, OTHER_NAME, REFUSED};
use crate::url::{StoreScheme, StoreUrl, StoreUrlError};

/// A store cannot be used, or an object cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "`url` is what was asked for, `detail` the store's own words")]
pub enum StoreError {
    /// No URL.
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    /// No such object, prefix or bucket.
    #[error("{url}: not found")]
    NotFound { url: StoreUrl },
    /// The credentials do not permit it (status 403).
    #[error("{url}: access denied{}", in_words(detail))]
    Denied { url: StoreUrl, detail: String },
    /// There are no credentials, or they are wrong or have expired.
    #[error("{url}: credentials are missing, wrong or expired{}", in_words(detail))]
    Credentials { url: StoreUrl, detail: String },
    /// The server's certificate does not say that it is the one that is meant.
    #[error("{url}: the server's certificate is refused: {detail}")]
    Certificate { url: StoreUrl, detail: String },
    /// No certificate can be trusted.
    #[error("{url}: no root certificates were found on this system")]
    NoRoots { url: StoreUrl },
    /// The store asks to slow down (status 429 or 503), and did so until retries were used up.
    #[error("{url}: the store limits requests{}", in_words(detail))]
    Throttled { url: StoreUrl, detail: String },
    /// The object is another one than at the begin.
    #[error("{url}: replaced or changed while it was read")]
    Replaced { url: StoreUrl },
    /// Fewer or other bytes came than were asked for.
    #[error("{url}: {found} bytes came where {expected} were asked for")]
    Cut { url: StoreUrl, expected: u64, found: u64 },
    /// Longer than what is read at once.
    #[error("{url}: longer than {bytes_max} bytes")]
    TooLong { url: StoreUrl, bytes_max: u64 },
    /// A named profile, which is not read.
    #[error("{url}: AWS_PROFILE is set, and pgtoll reads no profiles")]
    Profile { url: StoreUrl },
    /// A file of this machine.
    #[error("{url}: {source}")]
    File { url: StoreUrl, source: io::Error },
    /// Interrupted by a signal.
    #[error("{url}: interrupted")]
    Interrupted { url: StoreUrl },
    /// The thread for I/O cannot be started, or has ended.
    #[error("no thread for reading from stores")]
    NoThread,
    /// Anything else, after retries.
    #[error("{url}: {detail}")]
    Other { url: StoreUrl, detail: String },
}

impl StoreError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Url(error) => return error.hint(),
            Self::NotFound { url } if url.scheme() == StoreScheme::S3 => {
                "check bucket, key and region (AWS_REGION); another server is named by \
                 AWS_ENDPOINT_URL"
            }
            Self::NotFound { .. } => "check bucket and key",
            Self::Denied { url, .. } if url.scheme() == StoreScheme::S3 => {
                "the credentials need s3:GetObject and s3:ListBucket, and s3:PutObject where \
                 results are written"
            }
            Self::Denied { .. } => "the credentials need the right to list and read",
            Self::Credentials { url, .. } => match url.scheme() {
                StoreScheme::S3 => {
                    "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN again, or run where a role is given to the machine or pod"
                }
                StoreScheme::Gcs => {
                    "set GOOGLE_APPLICATION_CREDENTIALS to a service account's file"
                }
                StoreScheme::Azure => {
                    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or a SAS token"
                }
                StoreScheme::File => return None,
            },
            Self::Certificate { detail, .. } => match detail.as_str() {
                EXPIRED | NOT_VALID_YET => {
                    "is this machine's clock right? Otherwise the server needs another certificate"
                }
                OTHER_NAME => "name the server as its certificate does, in AWS_ENDPOINT_URL",
                _ => {
                    "name a file with your CA's certificates (PEM) in SSL_CERT_FILE: it counts \
                     instead of the system's"
                }
            },
            Self::NoRoots { .. } => {
                "install your distribution's package ca-certificates, or name a file with your CA's \
                 certificates (PEM) in SSL_CERT_FILE"
            }
            Self::Throttled { .. } => "run fewer shards at the same time, or wait",
            Self::Replaced { .. } => "verify it again when nothing writes to it any more",
            Self::Profile { .. } => {
                "unset AWS_PROFILE, and: eval \"$(aws configure export-credentials --profile NAME \
                 --format env)\""
            }
            Self::Other { url, detail } if url.scheme() == StoreScheme::S3 => {
                if detail.contains("scheme is not allowed") || detail.contains("builder error") {
                    "for a server without TLS set AWS_ALLOW_HTTP=true"
                } else {
                    "is the server reachable, and are AWS_ENDPOINT_URL and AWS_REGION right?"
                }
            }
            Self::Cut { .. }
            | Self::TooLong { .. }
            | Self::File { .. }
            | Self::Interrupted { .. }
            | Self::NoThread
            | Self::Other { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// Makes the error from the client's error about this object.
    pub(crate) fn classify(url: &StoreUrl, error: &object_store::Error) -> Self {
        let url = url.clone();
        let text = detail_of(error);
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if let Some((_, why)) = text.split_once(REFUSED) {
            return Self::Certificate { url, detail: short(why) };
        }
        if has(NO_ROOTS) {
            return Self::NoRoots { url };
        }
        if has(WRONG_CREDENTIALS) {
            return Self::Credentials { url, detail: short(&text) };
        }
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound { url },
            object_store::Error::PermissionDenied { .. } => {
                Self::Denied { url, detail: short(&text) }
            }
            object_store::Error::Unauthenticated { .. } => {
                Self::Credentials { url, detail: short(&text) }
            }
            object_store::Error::Precondition { .. } => Self::Replaced { url },
            _ if has(DENIED) => Self::Denied { url, detail: short(&text) },
            _ if has(NO_BUCKET) => Self::NotFound { url },
            _ if has(THROTTLED) => Self::Throttled { url, detail: short(&text) },
            _ if has(NO_CREDENTIALS) => Self::Credentials { url, detail: short(&text) },
            _ => Self::Other { url, detail: short(&text) },
        }
    }
}

/// Codes of answers to requests with credentials that were valid once, or never.
const WRONG_CREDENTIALS: &[&str] = &[
    "ExpiredToken",
    "TokenRefreshRequired",
    "RequestExpired",
    "InvalidToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
];
/// The client takes these of Azure for any failure.
const DENIED: &[&str] = &["AuthorizationFailure", "AuthorizationPermissionMismatch"];
/// The errors of the client's TLS without root certificates.
const NO_ROOTS: &[&str] = &["No CA certificates were loaded"];
/// The client knows no such answer.
const NO_BUCKET: &[&str] = &["NoSuchBucket", "ContainerNotFound"];
const THROTTLED: &[&str] =
    &["SlowDown", "503 Service Unavailable", "429 Too Many", "RequestLimitExceeded"];
/// Errors of the client when it finds no credentials.
const NO_CREDENTIALS: &[&str] =
    &["169.254.169.254", "metadata.google", "InstanceCredential", "MissingAccount"];

fn in_words(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

/// The whole chain of causes, without what an earlier cause repeats.
fn detail_of(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(item) = cause {
        let more = item.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = item.source();
    }
    text
}

/// One line for people: the store's code and message where there are some; no query of a URL, which
/// may have a signature in it.
fn short(text: &str) -> String {
    let between = |from: &str, to: &str| {
        let (_, rest) = text.split_once(from)?;
        Some(rest.split_once(to)?.0.trim().to_owned()).filter(|item| !item.is_empty())
    };
    let code = between("<Code>", "</Code>");
    // Azure has a request's number in further lines.
    let message = between("<Message>", "</Message>");
    let message = message.as_deref().and_then(|text| text.lines().next());
    let words = match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code,
        _ => without_request(text).to_owned(),
    };
    let retries = between(", after ", " retries,").map(|count| format!(", after {count} retries"));
    let words: Vec<String> = (words + &retries.unwrap_or_default())
        .split_whitespace()
        .map(|word| match word.split_once('?') {
            Some((before, _)) if before.contains("://") => format!("{before}?…"),
            _ => word.to_owned(),
        })
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Without what was asked for, and how often and long: that begins the client's words.
fn without_request(text: &str) -> &str {
    let cause = text.split_once(" - ").filter(|(request, _)| request.contains("Error performing "));
    let cause = cause.map_or(text, |(_, cause)| cause);
    let cause = cause.trim_start_matches("HTTP error: ");
    let cause = cause.trim_start_matches("Server returned non-2xx status code: ");
    cause.trim_end().trim_end_matches(':')
}

const SHOWN_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stores_answer_is_one_line_without_signatures() {
        let answer = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n\
            <Error><Code>AccessDenied</Code>\n<Message>Access Denied</Message></Error>";
        assert_eq!(short(answer), "AccessDenied: Access Denied");
        let signed = "error sending request for url (https://a.blob/c/x?sig=SECRET)";
        assert_eq!(short(signed), "error sending request for url (https://a.blob/c/x?…");
        let azure = "<Code>AuthorizationFailure</Code><Message>Not permitted.\nRequestId:1\nTime:2</Message>";
        assert_eq!(short(azure), "AuthorizationFailure: Not permitted.");
        let requested = "Generic S3 error: Error performing HEAD http://127.0.0.1/b/x.tar in 7.1s, after 10 \
            retries, max_retries: 99, retry_timeout: 180s  - ";
        let unavailable =
            format!("{requested}Server returned non-2xx status code: 503 Service Unavailable: ");
        assert_eq!(short(&unavailable), "503 Service Unavailable, after 10 retries");
        let slow = format!("{requested}{}", "<Code>SlowDown</Code><Message>Slower.</Message>");
        assert_eq!(short(&slow), "SlowDown: Slower., after 10 retries");
        assert!(short(&"long ".repeat(1000)).chars().count() <= SHOWN_MAX + 1);
    }
}
