//! URLs of objects: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `file:///PATH`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The kind of a store, by the scheme of its URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreScheme {
    /// Amazon S3, and servers that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// Files of this machine.
    File,
}

impl StoreScheme {
    const ALL: [Self; 4] = [Self::S3, Self::Gcs, Self::Azure, Self::File];

    /// The scheme as URLs have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
            Self::File => "file",
        }
    }
}

/// The address of an object, or the prefix of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreUrl {
    scheme: StoreScheme,
    bucket: String,
    key: String,
}

/// A text is no URL of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// Another scheme, or none.
    #[error("{0:?} is not a URL of s3://, gs://, az:// or file://")]
    Scheme(String),
    /// The bucket is missing, or has characters that no bucket has.
    #[error("{0:?} names no bucket")]
    Bucket(String),
    /// A name or password in front of the bucket, or a query, which may be a signature. Neither is
    /// shown.
    #[error("the URL has credentials or a query in it")]
    Secret,
    /// `file://` with a host, or with a relative path.
    #[error("{0:?} names no absolute path: it is written file:///PATH")]
    Relative(String),
    /// An empty part, `.` or `..`, or a control character.
    #[error("{0:?} has an empty part, \".\", \"..\" or a control character in its path")]
    Key(String),
}

impl StoreUrlError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Scheme(_) | Self::Bucket(_) => "name it like s3://bucket/prefix/base.tar.gz",
            Self::Secret => "credentials are read from the environment, such as AWS_ACCESS_KEY_ID",
            Self::Relative(_) | Self::Key(_) => return None,
        };
        Some(hint.to_owned())
    }
}

impl StoreUrl {
    /// Whether a command's argument is meant as a URL, even as a wrong one, not as a path.
    pub fn is_url(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    }

    /// The URL of a local file or directory by its absolute path; `None` where the path is
    /// relative or not UTF-8.
    pub fn of_path(path: &Path) -> Option<Self> {
        format!("file://{}", path.to_str()?).parse().ok()
    }

    /// The kind of store.
    pub fn scheme(&self) -> StoreScheme {
        self.scheme
    }

    /// The bucket, or container; empty for files.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key, or prefix, without a slash at its begin or end. Of a file its path without the
    /// first slash.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The last part of the key; the bucket where the key is empty.
    pub fn name(&self) -> &str {
        let name = self.key.rsplit('/').next().unwrap_or_default();
        if name.is_empty() { &self.bucket } else { name }
    }

    /// The local path; `None` where it is no file.
    pub fn path(&self) -> Option<PathBuf> {
        (self.scheme == StoreScheme::File).then(|| Path::new("/").join(&self.key))
    }

    /// Whether both are in the same store: of the same scheme and bucket.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.scheme, &self.bucket) == (other.scheme, &other.bucket)
    }

    /// The object `name` below this prefix. The name may have slashes.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let name = name.trim_matches('/');
        let key = match (self.key.as_str(), name) {
            (key, "") => key.to_owned(),
            ("", name) => name.to_owned(),
            (key, name) => format!("{key}/{name}"),
        };
        self.with_key(key)
    }

    /// The prefix that this is in; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        if self.key.is_empty() {
            return None;
        }
        let parent = self.key.rsplit_once('/').map_or("", |(parent, _)| parent);
        Some(self.with_key(parent.to_owned()))
    }

    /// The key of `object` below this prefix; `None` where it is elsewhere.
    pub fn below<'a>(&self, object: &'a Self) -> Option<&'a str> {
        if !self.is_beside(object) {
            return None;
        }
        if self.key.is_empty() {
            return Some(&object.key);
        }
        object.key.strip_prefix(&self.key)?.strip_prefix('/')
    }

    /// The same store's object with this key.
    pub(crate) fn with_key(&self, key: String) -> Self {
        Self { scheme: self.scheme, bucket: self.bucket.clone(), key }
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong_scheme = || StoreUrlError::Scheme(without_secrets(text));
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong_scheme)?;
        let found = StoreScheme::ALL.into_iter().find(|item| item.name() == scheme);
        let scheme = found.ok_or_else(wrong_scheme)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains(['@', ':', '?']) || scheme != StoreScheme::File && key.contains('?') {
            return Err(StoreUrlError::Secret);
        }
        let is_file = scheme == StoreScheme::File;
        if is_file && (!bucket.is_empty() || !rest.starts_with('/')) {
            return Err(StoreUrlError::Relative(without_secrets(text)));
        }
        let is_of_bucket = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
        if !is_file && (bucket.is_empty() || !bucket.chars().all(is_of_bucket)) {
            return Err(StoreUrlError::Bucket(without_secrets(text)));
        }
        let key = key.strip_suffix('/').unwrap_or(key);
        let is_wrong = |part: &str| {
            part.is_empty() || part == "." || part == ".." || part.contains(char::is_control)
        };
        if !key.is_empty() && key.split('/').any(is_wrong) {
            return Err(StoreUrlError::Key(without_secrets(text)));
        }
        Ok(Self { scheme, bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme.name(), self.bucket, self.key)
    }
}

/// Up to where a name, a password or a signature may begin.
fn without_secrets(text: &str) -> String {
    let end = text.find(['@', '?']).map_or(text, |at| &text[..at]);
    if end.len() == text.len() { text.to_owned() } else { "…".to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<(StoreScheme, &str, &str), &str>) {
        let found: Result<StoreUrl, _> = text.parse();
        let found = found.map_err(|error| error.to_string());
        let found = found.as_ref().map(|item| (item.scheme(), item.bucket(), item.key()));
        assert_eq!(found.map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn urls_are_a_scheme_a_bucket_and_a_key() {
        check("s3://b/p/base.tar", Ok((StoreScheme::S3, "b", "p/base.tar")));
        check("gs://b/", Ok((StoreScheme::Gcs, "b", "")));
        check("az://c", Ok((StoreScheme::Azure, "c", "")));
        check("file:///srv/backups/", Ok((StoreScheme::File, "", "srv/backups")));
        check("file:///", Ok((StoreScheme::File, "", "")));
        check("http://b/p", Err("\"http://b/p\" is not a URL of s3://, gs://, az:// or file://"));
        check("s3:///p", Err("\"s3:///p\" names no bucket"));
        check(
            "file://srv/p",
            Err("\"file://srv/p\" names no absolute path: it is written file:///PATH"),
        );
        let key = "has an empty part, \".\", \"..\" or a control character in its path";
        check("s3://b/p/../q", Err(&format!("\"s3://b/p/../q\" {key}")));
        check("s3://b/p//q", Err(&format!("\"s3://b/p//q\" {key}")));
        check("s3://KEY:SECRET@b/p", Err("the URL has credentials or a query in it"));
        check("az://c/p?sig=SECRET", Err("the URL has credentials or a query in it"));
    }

    #[test]
    fn a_key_is_joined_and_taken_apart() {
        let prefix: StoreUrl = "s3://b/p".parse().unwrap();
        let object = prefix.join("base/1/data.tar");
        assert_eq!(object.to_string(), "s3://b/p/base/1/data.tar");
        assert_eq!(prefix.below(&object), Some("base/1/data.tar"));
        assert_eq!(prefix.below(&"s3://b/pq".parse().unwrap()), None);
        assert_eq!(object.parent().unwrap().to_string(), "s3://b/p/base/1");
        assert_eq!(object.name(), "data.tar");
    }

    proptest! {
        #[test]
        fn what_is_a_url_is_read_again_from_what_is_shown(text in "(s3|gs|az|file)://[a-z.:@?/\u{1}é-]{0,20}") {
            if let Ok(url) = text.parse::<StoreUrl>() {
                prop_assert_eq!(url.to_string().parse(), Ok(url));
            }
        }

        #[test]
        fn no_text_panics_and_no_password_is_shown(before in ".{0,12}", after in ".{0,12}") {
            let planted = format!("{before}://u:PASSWORD@{after}");
            if let Err(error) = planted.parse::<StoreUrl>() {
                prop_assert!(!error.to_string().contains("PASSWORD"), "{}", error);
            }
        }
    }
}
