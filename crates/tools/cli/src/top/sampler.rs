//! Samples the server repeatedly, on a dedicated thread.
//!
//! It owns the connections: one without a bucket, which lists the buckets, and one for each bucket.
//! The first sample must succeed; later it retries a lost server until it is back. Dropping the
//! receiver ends the thread at its next report.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use oribi_client::{ClientError, ConnectOptions, Connection};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use tokio::time::MissedTickBehavior;

use super::sample::{BucketSample, CollectionReader, ServerSample, TopSample};
use crate::target::Target;

/// Pause before it retries a lost server.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Reports that may wait for the screen.
const REPORTS_MAX: usize = 4;

/// A message from the sampler.
#[derive(Debug)]
pub enum SampleReport {
    Sample(Box<TopSample>),
    /// The server does not answer at the moment; the sampler retries.
    Lost(String),
    /// The first sample failed.
    Failed(anyhow::Error),
}

/// Starts to sample every `interval`.
pub fn start(target: Target, interval: Duration) -> anyhow::Result<Receiver<SampleReport>> {
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

/// Returns when the receiver is gone, or after a failure.
async fn run(target: &Target, interval: Duration, reports: &SyncSender<SampleReport>) {
    let mut has_succeeded = false;
    loop {
        let Err(error) = look(target, interval, reports, &mut has_succeeded).await else { return };
        let report = match has_succeeded {
            true => SampleReport::Lost(format!("{error:#}")),
            false => SampleReport::Failed(error),
        };
        if reports.send(report).is_err() || !has_succeeded {
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Connects and samples until an error, or until the receiver is gone.
async fn look(
    target: &Target,
    interval: Duration,
    reports: &SyncSender<SampleReport>,
    has_succeeded: &mut bool,
) -> anyhow::Result<()> {
    let mut connections = Connections::open(target).await?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sample = connections.sample().await?;
        *has_succeeded = true;
        if reports.send(SampleReport::Sample(Box::new(sample))).is_err() {
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
        let server = target.connection(&options.clone().bucket(None)).await?;
        Ok(Connections { options, server, buckets: BTreeMap::new() })
    }

    async fn sample(&mut self) -> anyhow::Result<TopSample> {
        let names = self.bucket_names().await?;
        self.buckets.retain(|name, _| names.contains(name));
        let mut sample =
            TopSample { at: Instant::now(), server: ServerSample::default(), buckets: Vec::new() };
        for name in names {
            // A bucket may be deleted concurrently; the next list lacks it.
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

    /// The buckets that the user may read. For a server that does not list them, the named one.
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
            None => Connection::open(&self.options.clone().bucket(Some(name))).await?,
        };
        let connection = self.buckets.entry(name.to_owned()).or_insert(connection);
        let mut bucket = BucketSample::named(&crate::stats::clean(name.as_bytes()));
        crate::stats::for_each(connection, "", None, |stat| {
            server.take(stat);
            bucket.take(stat);
            Ok(())
        })
        .await?;
        let streams = crate::stats::for_each(connection, "dcpagg :", None, |stat| {
            bucket.take_stream(stat);
            Ok(())
        });
        // A server without change streams says so.
        match streams.await {
            Err(error) if !is_refusal(&error) => return Err(error),
            _ => {}
        }
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

fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ClientError>().is_some_and(|error| error.rejection().is_some())
}
