//! Exports all documents of collections from a running server by range scans: one collection after
//! the other, a few vbuckets at a time, each in key order.
//!
//! The export includes every write acknowledged before it began: a scan waits until the vbucket has
//! persisted that far. Each vbucket is shown at one moment. A scan may end early for a transient
//! reason: a lost node, a moved vbucket, the server's time limit. Another scan then continues after
//! the last key, so no document comes twice. The export fails only when there is no progress for as
//! long as an operation may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use oribi_client::{
    Client, ClientError, Collection, Connection, KvNode, Refused, ScanPage, ScanRange,
};
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Vbid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lines::{ExportArgs, Lines, Outcome, named, parts_of};
use crate::doc::row::attributes::attributes_of;
use crate::doc::row::write::Meta;

/// Concurrent vbucket scans, each on its own connection. A server has threads for more.
const SCANS: usize = 4;

/// Pages that wait for output, besides the one that each scan holds. A page has 128 KiB, or one
/// document.
const PAGES_MAX: usize = 2 * SCANS;

/// Pause before a scan restarts.
const PAUSE: Duration = Duration::from_millis(50);

/// A message from a scan.
enum Progress {
    Page(ScanPage),
    Vbucket,
}

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub async fn run(args: &ExportArgs) -> anyhow::Result<(Lines, Outcome)> {
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
    lines: Lines,
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
            let scanner = Scanner {
                client: Arc::clone(&self.client),
                collection: collection.clone(),
                with_attributes: self.args.meta,
                patience: Duration::from_secs_f64(self.args.target.timeout),
                connection: None,
                pages: sender.clone(),
            };
            scans.spawn(scanner.run(self.client.config().vbucket_count(), Arc::clone(&next)));
        }
        drop(sender);
        while let Some(message) = receiver.recv().await {
            match message? {
                Progress::Vbucket => self.progress.inc(1),
                Progress::Page(page) => self.page(&page, collection)?,
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
            let has_attributes = document.datatype.contains(Datatype::XATTR);
            let (attributes, body) = attributes_of(document.value, has_attributes)
                .with_context(|| named(document.key))?;
            let (flags, expiry) = (document.flags, document.expiry);
            let meta = Meta { cas: document.cas.0, flags, expiry, attributes, place };
            self.lines.add(document.key, body, self.args.meta.then_some(&meta))?;
        }
        self.progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
        Ok(())
    }
}

/// Scans one vbucket after the other.
struct Scanner {
    client: Arc<Client>,
    collection: Collection,
    with_attributes: bool,
    /// How long a scan may go without progress.
    patience: Duration,
    connection: Option<(KvNode, Connection)>,
    pages: mpsc::Sender<anyhow::Result<Progress>>,
}

/// Why a scan ended early.
enum Stopped {
    Failed(ClientError),
    Page(anyhow::Error),
    /// The receiver of pages is gone.
    Unwanted,
}

impl From<ClientError> for Stopped {
    fn from(error: ClientError) -> Stopped {
        Stopped::Failed(error)
    }
}

impl Scanner {
    /// Scans the vbuckets that no other scanner has taken.
    async fn run(mut self, vbuckets: u16, next: Arc<AtomicU16>) {
        loop {
            let vbid = Vbid(next.fetch_add(1, Ordering::Relaxed));
            if vbid.0 >= vbuckets {
                return;
            }
            let message = match self.vbucket(vbid).await {
                Ok(()) => Ok(Progress::Vbucket),
                Err(Stopped::Unwanted) => return,
                Err(Stopped::Page(error)) => Err(error),
                Err(Stopped::Failed(error)) => Err(explained(error, vbid)),
            };
            let is_over = message.is_err();
            if self.pages.send(message).await.is_err() || is_over {
                return;
            }
        }
    }

    async fn vbucket(&mut self, vbid: Vbid) -> Result<(), Stopped> {
        let mut last_key = None;
        let mut deadline = Instant::now() + self.patience;
        loop {
            let before = last_key.clone();
            let error = match self.scan(vbid, &mut last_key).await {
                Err(Stopped::Failed(error)) if may_pass(&error) => error,
                outcome => return outcome,
            };
            if last_key != before {
                deadline = Instant::now() + self.patience;
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(error.into());
            }
            tokio::time::sleep(PAUSE).await;
            if error.refused() != Some(Refused::TemporaryFailure) {
                self.connection = None;
                // If no node answers, the next attempt reports it.
                let _ = self.client.refresh_config().await;
            }
        }
    }

    /// Scans from the last key on, and moves it.
    async fn scan(&mut self, vbid: Vbid, last_key: &mut Option<Vec<u8>>) -> Result<(), Stopped> {
        let last = self.client.last_mutation(vbid).await?;
        if last.seqno.0 == 0 {
            return Ok(());
        }
        let behind = last_key.take();
        // The answer must arrive before the connection stops waiting for it.
        let patience = self.patience * 3 / 4;
        let range = ScanRange::new(vbid, self.collection.id()).persisted(last, patience);
        let mut range = range.attributes(self.with_attributes);
        range.behind = behind.as_deref();
        let outcome = self.pages_of(&range, last_key).await;
        if last_key.is_none() {
            *last_key = behind;
        }
        outcome
    }

    async fn pages_of(
        &mut self,
        range: &ScanRange<'_>,
        last_key: &mut Option<Vec<u8>>,
    ) -> Result<(), Stopped> {
        let pages = self.pages.clone();
        let connection = self.connection_for(range.vbid).await?;
        let Some(mut scan) = connection.scan(range).await? else { return Ok(()) };
        while let Some(page) = scan.next_page().await? {
            let last = page.documents().last().transpose();
            let last = last.map_err(|error| Stopped::Page(error.into()))?;
            *last_key = last.map(|document| document.key.to_vec()).or(last_key.take());
            pages.send(Ok(Progress::Page(page))).await.map_err(|_| Stopped::Unwanted)?;
        }
        Ok(())
    }

    async fn connection_for(&mut self, vbid: Vbid) -> Result<&mut Connection, ClientError> {
        let config = self.client.config();
        let node = config.active_node(vbid).ok_or(Refused::NotMyVbucket)?;
        let connection = match self.connection.take() {
            Some((held, connection)) if held == *node => connection,
            _ => self.client.open_connection(node).await?,
        };
        Ok(&mut self.connection.insert((node.clone(), connection)).1)
    }
}

/// True when another scan may get further: the vbucket moved or got a new history, the server ended
/// the scan or has no capacity for one more, or the connection ended.
fn may_pass(error: &ClientError) -> bool {
    const CANCELLED: u16 = Status::RangeScanCancelled.code();
    const OTHER_HISTORY: u16 = Status::VbUuidNotEqual.code();
    match error.refused() {
        // The scan, or the history in the request, does not exist.
        Some(Refused::NotFound | Refused::Other(CANCELLED | OTHER_HISTORY)) => true,
        Some(refused) => refused.is_transient(),
        None => matches!(
            error,
            ClientError::Closed { .. }
                | ClientError::NotSent { .. }
                | ClientError::Timeout { .. }
                | ClientError::Connect { .. }
        ),
    }
}

fn explained(error: ClientError, vbid: Vbid) -> anyhow::Error {
    let hint = match error.refused() {
        Some(Refused::NotSupported) => {
            " (buckets in memory and some servers have no scans: name the documents with --keys)"
        }
        Some(Refused::AccessDenied) => {
            " (scans need range-scan, read and meta-read, and with --meta system-xattr-read)"
        }
        _ => "",
    };
    anyhow::Error::from(error).context(format!("scanning {vbid}{hint}"))
}

fn progress_bar(vbuckets: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} vbuckets  {msg}  {eta}");
    ProgressBar::new(vbuckets).with_style(style.expect("the template is valid"))
}
