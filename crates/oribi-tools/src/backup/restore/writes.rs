//! Versions on their way to a bucket, thousands in flight.
//!
//! A pipeline carries writes out in order, and repeats nothing. When one fails and may be repeated,
//! all that are in flight are settled, and everything from the failed one on is written once more,
//! one after the other: only so a newer version of a key is never followed by an older one. Writing
//! a version twice does no harm. Memory is that of the pipeline's window.

use std::collections::VecDeque;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use oribi_client::{
    Bytes, Client, ClientError, Collection, CollectionId, Operation, Pipeline, PipelineOptions,
    Refused, Reply, Resolution, Version, VersionKind,
};

use super::collections::Mapping;

/// A record of the archive that owns its bytes.
pub struct Stored {
    /// Collection's id in the backup.
    pub collection: CollectionId,
    /// Its metadata.
    pub version: Version,
    /// Its key.
    pub key: Box<[u8]>,
    /// Attributes and value.
    pub value: Bytes,
}

/// What was done.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Records that are documents.
    pub documents: u64,
    /// Records that are removals.
    pub removals: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Versions that the target took.
    pub written: u64,
    /// Versions that the target left out, because it had them or newer ones.
    pub skipped: u64,
}

impl Totals {
    /// Counts a record that is wanted.
    pub fn count(&mut self, stored: &Stored) {
        match stored.version.kind {
            VersionKind::Mutation => self.documents += 1,
            _ => self.removals += 1,
        }
        self.bytes += (stored.key.len() + stored.value.len()) as u64;
    }
}

/// See the module text.
pub struct Writes<'a> {
    client: &'a Client,
    mapping: &'a Mapping,
    pipeline: Pipeline<'a>,
    /// In flight, oldest first.
    window: VecDeque<Stored>,
    overwrite: bool,
    resolution: Resolution,
    bar: ProgressBar,
    /// What was done so far.
    pub totals: Totals,
}

/// Whether a version was taken.
enum Outcome {
    Written,
    Skipped,
}

impl<'a> Writes<'a> {
    /// Writes to the collections of a mapping.
    pub fn new(
        client: &'a Client,
        mapping: &'a Mapping,
        overwrite: bool,
        bar: ProgressBar,
    ) -> Writes<'a> {
        Writes {
            client,
            mapping,
            pipeline: client.pipeline(PipelineOptions::new()),
            window: VecDeque::new(),
            overwrite,
            resolution: Resolution::Revision,
            bar,
            totals: Totals::default(),
        }
    }

    /// Sends a version, once there is room.
    pub async fn take(&mut self, stored: Stored) -> anyhow::Result<()> {
        while self.pipeline.is_full() {
            self.settle_oldest().await?;
        }
        self.totals.count(&stored);
        let version = self.terms(&stored);
        let operation = Operation::with_meta(&stored.key, stored.value.clone(), &version);
        let queued = self.pipeline.queue(collection_of(self.mapping, &stored)?, &operation);
        queued.with_context(|| name_of(&stored))?;
        self.window.push_back(stored);
        Ok(())
    }

    /// Waits for everything in flight.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        while !self.window.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    fn terms(&self, stored: &Stored) -> Version {
        stored.version.overwrite(self.overwrite).resolution(self.resolution)
    }

    async fn settle_oldest(&mut self) -> anyhow::Result<()> {
        let completed = self.pipeline.next().await.context("nothing is in flight")?;
        match outcome_of(completed.result) {
            Ok(outcome) => {
                self.window.pop_front();
                self.count(&outcome);
                Ok(())
            }
            Err(_) => self.repeat().await,
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        self.bar.inc(1);
        match outcome {
            Outcome::Written => self.totals.written += 1,
            Outcome::Skipped => self.totals.skipped += 1,
        }
    }

    /// Writes everything in flight once more.
    async fn repeat(&mut self) -> anyhow::Result<()> {
        while self.pipeline.next().await.is_some() {}
        while let Some(stored) = self.window.pop_front() {
            let outcome = self.write(&stored).await.with_context(|| name_of(&stored))?;
            self.count(&outcome);
        }
        Ok(())
    }

    /// Writes one version, again for as long as that may help.
    async fn write(&mut self, stored: &Stored) -> anyhow::Result<Outcome> {
        let collection = collection_of(self.mapping, stored)?;
        let mut interruptions = 0;
        loop {
            let version = self.terms(stored);
            let operation = Operation::with_meta(&stored.key, stored.value.clone(), &version);
            match outcome_of(self.client.run(collection, &operation).await) {
                Ok(outcome) => return Ok(outcome),
                // Such a bucket demands that writers know it.
                Err(ClientError::Refused(Refused::Invalid))
                    if self.resolution == Resolution::Revision =>
                {
                    self.resolution = Resolution::Time;
                }
                Err(error) if error.was_interrupted() && interruptions < 10 => interruptions += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn outcome_of(result: Result<Reply, ClientError>) -> Result<Outcome, ClientError> {
    match result {
        Ok(_) => Ok(Outcome::Written),
        Err(ClientError::Refused(Refused::Exists)) => Ok(Outcome::Skipped),
        Err(error) => Err(error),
    }
}

fn collection_of<'a>(mapping: &'a Mapping, stored: &Stored) -> anyhow::Result<&'a Collection> {
    match mapping.get(stored.collection) {
        Some(collection) => Ok(collection),
        None => bail!("collection {:x} is not in the backup's list", stored.collection.0),
    }
}

fn name_of(stored: &Stored) -> String {
    format!("document {:?}", String::from_utf8_lossy(&stored.key))
}
