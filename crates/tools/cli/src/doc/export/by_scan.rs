//! Exports all documents of collections from a running server by range scans: one collection after
//! the other, a few vbuckets at a time, each in key order.
//!
//! The export includes every write acknowledged before it began: a scan waits until the vbucket has
//! persisted that far. Each vbucket is shown at one moment. [`crate::vbucket_scan`] scans.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar};
use oribi_client::{Client, Collection, ScanPage};
use oribi_types::Datatype;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lines::{ExportArgs, ExportLines, ExportOutcome, parts_of};
use crate::backup::progress::with_rate_and_left;
use crate::doc::place::named;
use crate::doc::row::attributes::attributes_of;
use crate::doc::row::write::WriteMeta;
use crate::vbucket_scan::{VbucketScanProgress, VbucketScanner};

/// Concurrent vbucket scans, each on its own connection. A server has threads for more.
const SCANS: usize = 4;

/// Pages that wait for output, besides the one that each scan holds. A page has 128 KiB, or one
/// document.
const PAGES_MAX: usize = 2 * SCANS;

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub async fn run(args: &ExportArgs) -> anyhow::Result<(ExportLines, ExportOutcome)> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let options = args.target.options()?.unordered_execution(true);
    let client = Arc::new(args.target.client(options).await?);
    let collections = args.collections(&client).await?;
    let vbuckets = client.config().vbucket_count();
    let progress = progress_bar(u64::from(vbuckets) * collections.len() as u64);
    let mut export = Export { args, client, lines: args.lines()?, progress };
    let outcome = tokio::select! {
        outcome = export.collections(&collections) => outcome.map(|()| true),
        _ = interrupts.recv() => Ok(false),
    };
    export.progress.finish_and_clear();
    Ok((export.lines, outcome))
}

struct Export<'a> {
    args: &'a ExportArgs,
    client: Arc<Client>,
    lines: ExportLines,
    progress: ProgressBar,
}

impl Export<'_> {
    async fn collections(&mut self, collections: &[Collection]) -> anyhow::Result<()> {
        for collection in collections {
            let exported = self.collection(collection).await;
            exported.with_context(|| format!("collection {}", collection.path()))?;
        }
        Ok(())
    }

    /// The scans end when this is dropped.
    async fn collection(&mut self, collection: &Collection) -> anyhow::Result<()> {
        let (sender, mut receiver) = mpsc::channel(PAGES_MAX);
        let (mut scans, next) = (JoinSet::new(), Arc::new(AtomicU16::new(0)));
        for _ in 0..SCANS {
            let patience = Duration::from_secs_f64(self.args.target.timeout);
            let client = Arc::clone(&self.client);
            let scanner = VbucketScanner::new(client, collection.id(), patience, sender.clone())
                .with_attributes(self.args.meta)
                .with_only_keys(self.args.listing.is_some());
            scans.spawn(scanner.run(self.client.config().vbucket_count(), Arc::clone(&next)));
        }
        drop(sender);
        while let Some(message) = receiver.recv().await {
            match message? {
                VbucketScanProgress::Vbucket => self.progress.inc(1),
                VbucketScanProgress::Page(page) => self.page(&page, collection)?,
            }
            // Let the other tasks run even if pages are always ready.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn page(&mut self, page: &ScanPage, collection: &Collection) -> anyhow::Result<()> {
        let place = self.args.has_places().then(|| parts_of(collection.path()));
        for document in page.documents() {
            let document = document?;
            if let Some(listing) = &self.args.listing {
                let path = (collection.path(), self.args.has_places());
                self.lines.list(document.key, listing, path)?;
                continue;
            }
            let has_attributes = document.datatype.contains(Datatype::XATTR);
            let (attributes, body) = attributes_of(document.value, has_attributes)
                .with_context(|| named(document.key))?;
            let (flags, expiry) = (document.flags, document.expiry);
            let meta = WriteMeta { cas: document.cas.0, flags, expiry, attributes, place };
            self.lines.add(document.key, body, self.args.meta.then_some(&meta))?;
        }
        self.progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
        Ok(())
    }
}

fn progress_bar(vbuckets: u64) -> ProgressBar {
    let style = with_rate_and_left("{wide_bar} {pos}/{len} vbuckets  {msg}  {left}");
    ProgressBar::new(vbuckets).with_style(style)
}
