//! Objects behind HTTP.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _,
    PutMode, PutPayload, RetryConfig,
};
use pgtoll_system::Interrupt;

use crate::StoredObject;
use crate::budget::{RangeBudget, RangeBuffer};
use crate::connector::StoreConnector;
use crate::error::StoreError;
use crate::io_thread::{IoThread, NoAnswer, PendingAnswer};
use crate::url::{StoreScheme, StoreUrl};

/// A bucket, and the thread that asks for its objects.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    io: IoThread,
    pub(crate) interrupt: Interrupt,
    pub(crate) budget: Arc<RangeBudget>,
}

/// A range that was asked for.
pub(crate) type RangeAnswer = PendingAnswer<Result<RangeBuffer, StoreError>>;

impl Remote {
    /// The bucket of this URL, with credentials of the environment.
    pub(crate) fn open(
        url: &StoreUrl,
        interrupt: &Interrupt,
        budget: &Arc<RangeBudget>,
        variables: &[(&str, String)],
    ) -> Result<Self, StoreError> {
        // Installs the provider of cryptography, without which no client is made.
        let io = IoThread::running().ok_or(StoreError::NoThread)?;
        let store: Result<Arc<dyn ObjectStore>, Error> = match url.scheme() {
            StoreScheme::Gcs => {
                let builder = variables.iter().fold(
                    GoogleCloudStorageBuilder::from_env(),
                    |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                );
                let builder = builder.with_bucket_name(url.bucket()).with_retry(retries());
                let builder = builder.with_http_connector(StoreConnector::default());
                builder.build().map(|build| Arc::new(build) as _)
            }
            StoreScheme::Azure => {
                let builder = variables.iter().fold(
                    MicrosoftAzureBuilder::from_env(),
                    |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                );
                let builder = builder.with_container_name(url.bucket()).with_retry(retries());
                let builder = builder.with_http_connector(StoreConnector::default());
                builder.build().map(|build| Arc::new(build) as _)
            }
            StoreScheme::S3 | StoreScheme::File => {
                refuse_profile(url, variables)?;
                let builder =
                    variables.iter().fold(AmazonS3Builder::from_env(), |builder, (name, value)| {
                        match name.to_ascii_lowercase().parse() {
                            Ok(key) => builder.with_config(key, value),
                            Err(_) => builder,
                        }
                    });
                let builder = builder.with_bucket_name(url.bucket()).with_retry(retries());
                let builder = builder.with_http_connector(StoreConnector::default());
                builder.build().map(|build| Arc::new(build) as _)
            }
        };
        let store = store.map_err(|error| StoreError::classify(url, &error))?;
        Ok(Self { store, io, interrupt: interrupt.clone(), budget: Arc::clone(budget) })
    }

    pub(crate) fn list(&self, prefix: &StoreUrl) -> Result<Vec<StoredObject>, StoreError> {
        let store = Arc::clone(&self.store);
        let at = prefix.clone();
        let key = key_of(prefix)?;
        self.answer(prefix, async move {
            let prefix = (!at.key().is_empty()).then_some(&key);
            let listed = store.list(prefix);
            let objects = listed.map_ok(|meta| stored(&at, &meta)).try_collect::<Vec<_>>().await;
            objects.map_err(|error| StoreError::classify(&at, &error))
        })
    }

    pub(crate) fn head(&self, url: &StoreUrl) -> Result<StoredObject, StoreError> {
        let store = Arc::clone(&self.store);
        let at = url.clone();
        let key = key_of(url)?;
        self.answer(url, async move {
            let found = store.head(&key).await;
            found.map(|meta| stored(&at, &meta)).map_err(|error| StoreError::classify(&at, &error))
        })
    }

    pub(crate) fn put(&self, url: &StoreUrl, bytes: &[u8], new: bool) -> Result<bool, StoreError> {
        let store = Arc::clone(&self.store);
        let at = url.clone();
        let key = key_of(url)?;
        let payload = PutPayload::from(bytes.to_vec());
        self.answer(url, async move {
            let mode = if new { PutMode::Create } else { PutMode::Overwrite };
            match store.put_opts(&key, payload, mode.into()).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) if new => Ok(false),
                Err(error) => Err(StoreError::classify(&at, &error)),
            }
        })
    }

    /// Asks for a range of an object, only if it is still the one that was listed.
    pub(crate) fn range(
        &self,
        object: &StoredObject,
        range: Range<u64>,
        mut buffer: RangeBuffer,
    ) -> Result<RangeAnswer, StoreError> {
        let (store, object, key) = (Arc::clone(&self.store), object.clone(), key_of(&object.url)?);
        Ok(self.io.begin(async move {
            fetch(&*store, &key, &object, range, &mut buffer.bytes).await?;
            Ok(buffer)
        }))
    }

    /// Whole objects, several at the same time.
    pub(crate) fn read_each(&self, objects: &[&StoredObject]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut rest = objects.iter();
        let mut ahead = VecDeque::new();
        let mut read = Vec::with_capacity(objects.len());
        loop {
            while ahead.len() < AT_ONCE
                && let Some(object) = rest.next()
            {
                ahead.push_back((&object.url, self.whole(object)?));
            }
            let Some((url, answer)) = ahead.pop_front() else { return Ok(read) };
            read.push(self.wait(url, &answer)?);
        }
    }

    fn whole(
        &self,
        object: &StoredObject,
    ) -> Result<PendingAnswer<Result<Vec<u8>, StoreError>>, StoreError> {
        let (store, object, key) = (Arc::clone(&self.store), object.clone(), key_of(&object.url)?);
        Ok(self.io.begin(async move {
            let mut bytes = Vec::new();
            fetch(&*store, &key, &object, 0..object.bytes, &mut bytes).await?;
            Ok(bytes)
        }))
    }

    fn answer<T: Send + 'static>(
        &self,
        url: &StoreUrl,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.wait(url, &self.io.begin(work))
    }

    pub(crate) fn wait<T>(
        &self,
        url: &StoreUrl,
        answer: &PendingAnswer<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match answer.wait(&self.interrupt) {
            Ok(answer) => answer,
            Err(NoAnswer::Interrupted) => Err(StoreError::Interrupted { url: url.clone() }),
            Err(NoAnswer::Ended) => Err(StoreError::NoThread),
        }
    }
}

/// Adds a range of an object, if that is still the one that was listed.
async fn fetch(
    store: &dyn ObjectStore,
    key: &Key,
    object: &StoredObject,
    range: Range<u64>,
    bytes: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let url = || object.url.clone();
    let failed = |error| StoreError::classify(&object.url, &error);
    let is_whole = range == (0..object.bytes);
    let options = GetOptions {
        range: (!is_whole).then(|| GetRange::Bounded(range.clone())),
        if_match: object.etag.clone(),
        ..GetOptions::default()
    };
    let got = store.get_opts(key, options).await.map_err(failed)?;
    // A server may pass over the condition.
    if !stored(&object.url, &got.meta).is_same(object) {
        return Err(StoreError::Replaced { url: url() });
    }
    let expected = range.end - range.start;
    let mut found = 0;
    bytes.reserve_exact(usize::try_from(expected).unwrap_or_default());
    let mut stream = got.into_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(failed)?;
        found += piece.len() as u64;
        if found > expected {
            break;
        }
        // Not kept: the connection reads into the same memory again.
        bytes.extend_from_slice(&piece);
    }
    if found != expected {
        return Err(StoreError::Cut { url: url(), expected, found });
    }
    Ok(())
}

/// Small objects that are asked for at the same time.
const AT_ONCE: usize = 16;

/// Named profiles are the AWS command line's, and are read by nobody else here: without a word, other
/// credentials would be taken.
fn refuse_profile(url: &StoreUrl, variables: &[(&str, String)]) -> Result<(), StoreError> {
    let is_set = |name: &str| {
        variables.iter().any(|(variable, _)| *variable == name)
            || std::env::var_os(name).is_some_and(|value| !value.is_empty())
    };
    let others =
        ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    if is_set("AWS_PROFILE") && !others.into_iter().any(is_set) {
        return Err(StoreError::Profile { url: url.clone() });
    }
    Ok(())
}

fn key_of(url: &StoreUrl) -> Result<Key, StoreError> {
    Key::parse(url.key())
        .map_err(|error| StoreError::Other { url: url.clone(), detail: error.to_string() })
}

fn stored(beside: &StoreUrl, meta: &ObjectMeta) -> StoredObject {
    StoredObject {
        url: beside.with_key(meta.location.as_ref().to_owned()),
        bytes: meta.size,
        etag: meta.e_tag.as_deref().map(quoted),
        modified: u64::try_from(meta.last_modified.timestamp()).unwrap_or_default(),
    }
}

/// As answers have it: listings of Azure, and of some servers of S3, leave the quotes away.
fn quoted(etag: &str) -> String {
    if etag.ends_with('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

/// Requests that fail by the server's or the network's fault are made again for three minutes, at the end some
/// seconds apart. The time ends them, not their number.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            // A pause is of any length up to three times the one before: by two, they would not grow.
            base: 3.0,
        },
        max_retries: 1000,
        retry_timeout: Duration::from_secs(180),
    }
}
