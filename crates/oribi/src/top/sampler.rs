//! Looks at the server again and again, on a thread of its own.
//!
//! Owns the connections: one without a bucket, which tells what buckets there are, and one for each
//! bucket. The first look has to succeed; after that a server that went away is tried again until
//! it is back. Whoever drops the receiver ends the thread with its next report.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use oribi_client::{ConnectOptions, Connection};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use tokio::time::MissedTickBehavior;

use super::sample::{BucketSample, CollectionReader, Sample, ServerSample};
use crate::target::Target;

/// Pause before a server that went away is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Reports that may wait for whoever shows them.
const REPORTS_MAX: usize = 4;

/// What the sampler has to say.
#[derive(Debug)]
pub enum Report {
    /// A look.
    Sample(Box<Sample>),
    /// The server cannot be asked at the moment; it is tried again.
    Lost(String),
    /// The server could not be asked at all.
    Failed(anyhow::Error),
}

/// Starts looking every `interval`.
pub fn start(target: Target, interval: Duration) -> anyhow::Result<Receiver<Report>> {
    let (sender, receiver) = sync_channel(REPORTS_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    thread::Builder::new()
        .name("top-sampler".to_owned())
        .spawn(move || runtime.block_on(run(&target, interval, &sender)))
        .context("starting a thread")?;
    Ok(receiver)
}

/// Returns when nobody wants to know any more, or after a failure.
async fn run(target: &Target, interval: Duration, reports: &SyncSender<Report>) {
    let mut has_succeeded = false;
    loop {
        let Err(error) = look(target, interval, reports, &mut has_succeeded).await else { return };
        let report = match has_succeeded {
            true => Report::Lost(format!("{error:#}")),
            false => Report::Failed(error),
        };
        if reports.send(report).is_err() || !has_succeeded {
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Connects and looks until an error, or until nobody wants to know.
async fn look(
    target: &Target,
    interval: Duration,
    reports: &SyncSender<Report>,
    has_succeeded: &mut bool,
) -> anyhow::Result<()> {
    let mut connections = Connections::open(target).await?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sample = connections.sample().await?;
        *has_succeeded = true;
        if reports.send(Report::Sample(Box::new(sample))).is_err() {
            return Ok(());
        }
    }
}

struct Connections {
    options: ConnectOptions,
    server: Connection,
    /// By name of the bucket.
    buckets: BTreeMap<String, Connection>,
}

impl Connections {
    async fn open(target: &Target) -> anyhow::Result<Connections> {
        let options = target.options()?;
        let bucketless = ConnectOptions { bucket: None, ..options.clone() };
        let server = Connection::open(&bucketless).await?;
        Ok(Connections { options, server, buckets: BTreeMap::new() })
    }

    async fn sample(&mut self) -> anyhow::Result<Sample> {
        let names = self.bucket_names().await?;
        self.buckets.retain(|name, _| names.contains(name));
        let mut sample =
            Sample { at: Instant::now(), server: ServerSample::default(), buckets: Vec::new() };
        for name in names {
            // A bucket can be deleted while it is looked at; it is gone from the next list.
            match self.sample_bucket(&name, &mut sample.server).await {
                Ok(bucket) => sample.buckets.push(bucket),
                Err(error) => {
                    self.buckets.remove(&name);
                    let remaining = self.bucket_names().await?;
                    if remaining.contains(&name) {
                        return Err(error.context(format!("bucket \"{name}\"")));
                    }
                }
            }
        }
        Ok(sample)
    }

    /// The buckets that the user may read. A server that does not tell has the one that was named.
    async fn bucket_names(&mut self) -> anyhow::Result<Vec<String>> {
        let parts = RequestParts::new(Opcode::ListBuckets);
        let response = self.server.call(&parts, &Bytes::new()).await?;
        if response.outcome().is_err() {
            return Ok(self.options.bucket.clone().into_iter().collect());
        }
        let names = String::from_utf8_lossy(&response.value()).into_owned();
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    async fn sample_bucket(
        &mut self,
        name: &str,
        server: &mut ServerSample,
    ) -> anyhow::Result<BucketSample> {
        let connection = match self.buckets.remove(name) {
            Some(connection) => connection,
            None => {
                let bucket = Some(name.to_owned());
                Connection::open(&ConnectOptions { bucket, ..self.options.clone() }).await?
            }
        };
        let connection = self.buckets.entry(name.to_owned()).or_insert(connection);
        let mut bucket = BucketSample::named(&crate::stats::clean(name.as_bytes()));
        crate::stats::for_each(connection, "", None, |stat| {
            server.take(stat);
            bucket.take(stat);
            Ok(())
        })
        .await?;
        let mut collections = CollectionReader::default();
        crate::stats::for_each(connection, "collections", None, |stat| {
            collections.take(stat);
            Ok(())
        })
        .await?;
        bucket.collections = collections.finish();
        Ok(bucket)
    }
}
