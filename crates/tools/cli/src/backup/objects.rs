//! An archive in an object store: Amazon S3 and what speaks its protocol, Google Cloud Storage,
//! Azure.
//!
//! Invariants: an object is there as a whole or not at all, because a put or the completion of a
//! multipart upload is atomic in all of these. A put is on the condition that there is no such
//! object. That stands for the lock of a directory: of two programs that write one backup, the
//! second one fails. Every operation ends: requests have time limits and are repeated for a limited
//! time, first by the crate `object_store`, then as a whole.
//!
//! Credentials, region and endpoint come from the usual environment variables, and from nothing
//! else. The caller is synchronous, so the requests run on a runtime of this store.

mod http;

use std::env;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use oribi_backup::store::{ArchiveStore, FileEntry, too_long};
use tokio::runtime::{Builder, Runtime};

use self::http::Connector;

/// Files up to this size go in one request.
const PUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one part of a larger file. S3 wants at least 5 MiB, and no more than 10,000 parts.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// Parts in flight. Memory is that of the file, and of these.
const PARTS_IN_FLIGHT: usize = 4;

/// Times that the crate repeats a request at once.
const RETRIES: usize = 3;

/// Pauses between attempts at an operation; they double.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Longest time for one request unless the environment says another one.
const REQUEST_TIMEOUT: &str = "120s";

/// See the module text.
pub struct ObjectArchive {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Time after which an operation that fails is not tried again.
    patience: Duration,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl ObjectArchive {
    /// The place that a URL names: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or
    /// `az://CONTAINER/PREFIX`.
    pub fn open(url: &str, patience: Duration) -> anyhow::Result<ObjectArchive> {
        let (scheme, rest) = url.split_once("://").context("no URL")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            bail!("{scheme}:// needs the name of a bucket, as in {scheme}://backups/shop");
        }
        let prefix = Path::parse(prefix.trim_end_matches('/')).context("the prefix")?;
        let store: Arc<dyn ObjectStore> = match scheme {
            "s3" => Arc::new(amazon(bucket, patience)?),
            "gs" => Arc::new(google(bucket, patience)?),
            "az" => Arc::new(azure(bucket, patience)?),
            _ => bail!("an archive is a directory, s3://, gs:// or az://, not {scheme}://"),
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Some(runtime.context("starting the runtime")?);
        Ok(ObjectArchive { store, prefix, patience, runtime })
    }

    fn path(&self, name: &str) -> io::Result<Path> {
        let path = match self.prefix.as_ref() {
            "" => Path::parse(name),
            prefix => Path::parse(format!("{prefix}/{name}")),
        };
        path.map_err(io::Error::other)
    }

    /// Runs an operation to its end, again if that may help.
    fn run<T, F>(&self, operation: impl Fn(Arc<dyn ObjectStore>) -> F) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.run_once(operation(self.store.clone())) {
                Err(error) if is_passing(&error) && started.elapsed() < self.patience => {
                    std::thread::sleep(pause);
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                outcome => return outcome.map_err(|error| io_error(&error)),
            }
        }
    }

    fn run_once<T: Send + 'static>(
        &self,
        operation: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        let runtime = self.runtime.as_ref().expect("it is there until the store is dropped");
        let (sender, outcome) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            // Without a receiver the program is on its way out.
            let _ = sender.send(operation.await);
        });
        let ended = |error| Error::Generic { store: "object store", source: Box::new(error) };
        outcome.recv().map_err(ended)?
    }

    /// Writes a file in parts; an upload that fails is given up, so that it costs no space.
    fn put_parts(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let parts: Vec<Bytes> = bytes.chunks(PART_BYTES).map(Bytes::copy_from_slice).collect();
        self.run(move |store| {
            let (path, parts) = (path.clone(), parts.clone());
            async move {
                let mut upload = store.put_multipart(&path).await?;
                let uploads: Vec<_> =
                    parts.into_iter().map(|part| upload.put_part(part.into())).collect();
                let sent = futures_util::stream::iter(uploads).buffered(PARTS_IN_FLIGHT);
                let outcome = match sent.try_collect::<Vec<()>>().await {
                    Ok(_) => upload.complete().await.map(drop),
                    Err(error) => Err(error),
                };
                if outcome.is_err() {
                    // The first error is the one that says why.
                    let _ = upload.abort().await;
                }
                outcome
            }
        })
    }

    fn put_once(&self, path: &Path, bytes: Bytes, mode: PutMode) -> io::Result<()> {
        self.run(move |store| {
            let (path, mode) = (path.clone(), mode.clone());
            let payload = PutPayload::from(bytes.clone());
            async move { store.put_opts(&path, payload, mode.into()).await.map(drop) }
        })
    }
}

impl ArchiveStore for ObjectArchive {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name)?;
        let outcome = match bytes.len() > PUT_BYTES_MAX {
            // An upload in parts takes no condition, so two writers are distinguished up to here
            // only.
            true => match self.get(name, bytes.len())? {
                Some(_) => Err(ErrorKind::AlreadyExists.into()),
                None => self.put_parts(&path, bytes),
            },
            false => self.put_once(&path, Bytes::copy_from_slice(bytes), PutMode::Create),
        };
        match outcome {
            // The answer to our own request may have been lost.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match self.get(name, bytes.len()) {
                    Ok(Some(there)) if there == bytes => Ok(()),
                    _ => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    fn get_into(
        &self,
        name: &str,
        bytes_max: usize,
        _memory: Vec<u8>,
    ) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(name)?;
        let found = self.run(move |store| {
            let path = path.clone();
            async move {
                let found = match store.get(&path).await {
                    Err(Error::NotFound { .. }) => return Ok(None),
                    found => found?,
                };
                match found.meta.size > bytes_max as u64 {
                    true => Ok(Some(Err(found.meta.size))),
                    false => found.bytes().await.map(|bytes| Some(Ok(bytes))),
                }
            }
        })?;
        match found {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes.into())),
            Some(Err(bytes)) => Err(too_long(bytes, bytes_max)),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<FileEntry>> {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        let directory = match directory {
            "" => self.prefix.clone(),
            directory => self.path(directory)?,
        };
        let objects = self.run(move |store| {
            let directory = directory.clone();
            async move {
                let prefix = Some(&directory).filter(|path| !path.as_ref().is_empty());
                let objects = store.list(prefix);
                objects
                    .map_ok(|object| (object.location.to_string(), object.size))
                    .try_collect::<Vec<_>>()
                    .await
            }
        })?;
        let root = match self.prefix.as_ref() {
            "" => String::new(),
            root => format!("{root}/"),
        };
        let entry = |(location, bytes): (String, u64)| {
            let name = location.strip_prefix(&root)?;
            name.starts_with(prefix).then(|| FileEntry { name: name.to_owned(), bytes })
        };
        let mut entries: Vec<FileEntry> = objects.into_iter().filter_map(entry).collect();
        entries.sort();
        Ok(entries)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        self.run(move |store| {
            let path = path.clone();
            async move {
                match store.delete(&path).await {
                    Err(Error::NotFound { .. }) => Ok(()),
                    outcome => outcome,
                }
            }
        })
    }
}

impl Drop for ObjectArchive {
    fn drop(&mut self) {
        // A runtime that is dropped within another one would panic.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Worth another attempt: no answer of the store, but that it could not give one.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Generic { .. })
}

fn io_error(error: &Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

fn retries(patience: Duration) -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: patience }
}

/// The time limit, unless the environment has one.
fn timeout(variable: &str) -> Option<(ClientConfigKey, &'static str)> {
    env::var_os(variable).is_none().then_some((ClientConfigKey::Timeout, REQUEST_TIMEOUT))
}

fn amazon(bucket: &str, patience: Duration) -> anyhow::Result<impl ObjectStore> {
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let builder = timeout("AWS_TIMEOUT").into_iter().fold(builder, |builder, (key, value)| {
        builder.with_config(AmazonS3ConfigKey::Client(key), value)
    });
    let builder = builder.with_http_connector(Connector).with_retry(retries(patience));
    builder.build().context("S3 (see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION)")
}

fn google(bucket: &str, patience: Duration) -> anyhow::Result<impl ObjectStore> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    let builder = timeout("GOOGLE_TIMEOUT").into_iter().fold(builder, |builder, (key, value)| {
        builder.with_config(GoogleConfigKey::Client(key), value)
    });
    let builder = builder.with_http_connector(Connector).with_retry(retries(patience));
    builder.build().context("Google Cloud Storage (see GOOGLE_SERVICE_ACCOUNT)")
}

fn azure(container: &str, patience: Duration) -> anyhow::Result<impl ObjectStore> {
    let builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    let builder = timeout("AZURE_TIMEOUT").into_iter().fold(builder, |builder, (key, value)| {
        builder.with_config(AzureConfigKey::Client(key), value)
    });
    let builder = builder.with_http_connector(Connector).with_retry(retries(patience));
    builder.build().context("Azure (see AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY)")
}
