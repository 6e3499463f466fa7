//! The running server of a session, for a blocking program.
//!
//! Owns: the runtime, a client for each bucket, and the interruption by Ctrl-C. Invariant: every
//! wait here ends when the statement is interrupted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use oribi_client::{Client, Connection};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_types::CollectionId;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::backend::Backend;
use crate::target::Target;

/// Threads of the runtime: the thread that runs the statement is none of them.
const THREADS: usize = 2;

/// A server that does not answer is reported after this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// See the module text.
pub struct ServerLink {
    /// Dropped first, so that no task outlives what it uses.
    runtime: Runtime,
    target: Target,
    clients: Mutex<BTreeMap<String, Arc<Client>>>,
    interrupted: watch::Sender<bool>,
    documents: AtomicU64,
    bytes: AtomicU64,
}

impl ServerLink {
    /// Connects to the bucket of the command line.
    ///
    /// # Errors
    /// When it cannot be reached in five seconds.
    pub fn connect(target: &Target) -> Result<Arc<ServerLink>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()
            .context("starting the event loop")?;
        let link = ServerLink {
            runtime,
            target: target.clone(),
            clients: Mutex::default(),
            interrupted: watch::Sender::new(false),
            documents: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        link.client(&target.bucket)?;
        Ok(Arc::new(link))
    }

    /// How long an operation may take.
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.target.timeout)
    }

    /// Counts a document that a scan has returned.
    pub fn count(&self, bytes: usize) {
        self.documents.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits, unless the statement is interrupted.
    ///
    /// # Errors
    /// When it is.
    pub fn wait<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut interrupted = self.interrupted.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                _ = interrupted.wait_for(|interrupted| *interrupted) => bail!("interrupted"),
                output = future => Ok(output),
            }
        })
    }

    /// The bucket whose name may be left out.
    pub fn near(&self) -> &str {
        &self.target.bucket
    }

    /// The client of a bucket.
    pub fn client(&self, bucket: &str) -> Result<Arc<Client>> {
        if let Some(known) = self.clients.lock().get(bucket) {
            return Ok(Arc::clone(known));
        }
        let mut target = self.target.clone();
        target.bucket = bucket.to_owned();
        let options = target.options()?.unordered_execution(true);
        let options = options.connect_timeout(CONNECT_TIMEOUT.min(self.patience()));
        let connected =
            async { tokio::time::timeout(CONNECT_TIMEOUT, target.client(options)).await };
        let client = self.wait(connected)?.map_err(|_| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            anyhow::anyhow!("{}: no answer in {seconds} seconds", target.describe())
        })??;
        let client = Arc::new(client);
        self.clients.lock().insert(bucket.to_owned(), Arc::clone(&client));
        Ok(client)
    }

    /// The buckets that the user may read. For a server that does not list them, the named one.
    pub fn buckets(&self) -> Result<Vec<String>> {
        let options = self.target.options()?.connect_timeout(CONNECT_TIMEOUT);
        let listed = self.wait(async {
            let mut connection = Connection::open(&options).await?;
            connection.call(&RequestParts::new(Opcode::ListBuckets), &Bytes::new()).await
        })?;
        let response = listed.with_context(|| self.target.describe())?;
        if response.outcome().is_err() {
            return Ok(vec![self.target.bucket.clone()]);
        }
        let names = String::from_utf8_lossy(&response.value()).into_owned();
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// The collections of a bucket: paths and ids.
    pub fn collections(&self, client: &Client) -> Result<Vec<(String, CollectionId)>> {
        let manifest = self.wait(client.collections_manifest())?;
        let manifest = manifest.context("reading the bucket's collections")?;
        let of_scope = manifest.scopes.iter().flat_map(|scope| {
            scope
                .collections
                .iter()
                .map(move |one| (format!("{}.{}", scope.name, one.name), one.id))
        });
        Ok(of_scope.collect())
    }
}

impl Backend for ServerLink {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn interrupt(&self) {
        self.interrupted.send_replace(true);
    }

    fn is_interrupted(&self) -> bool {
        *self.interrupted.borrow()
    }

    fn begin_statement(&self) {
        self.interrupted.send_replace(false);
        self.documents.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    fn cost(&self) -> String {
        let (documents, bytes) = (self.documents.load(Relaxed), self.bytes.load(Relaxed));
        format!("{documents} documents, {bytes} bytes")
    }
}
