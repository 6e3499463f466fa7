//! Scans vbuckets of a running server, one after the other.
//!
//! Owns: what follows when a scan ends early for a transient reason: a lost node, a moved vbucket,
//! the server's time limit. Another scan then continues after the last key, so no document comes
//! twice. Invariants: a scan includes every write acknowledged before it began; it fails only when
//! there is no progress for as long as an operation may take. `oribi doc export` runs some of them
//! side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use oribi_client::{
    Client, ClientError, Connection, KvNode, MalformedResponse, MutationToken, RejectionKind,
    ScanPage, ScanRange,
};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Vbid};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pause before a scan restarts.
const PAUSE: Duration = Duration::from_millis(50);

/// A message from a scan.
pub enum VbucketScanProgress {
    /// Documents of a vbucket.
    Page(ScanPage),
    /// A vbucket is complete.
    Vbucket,
}

/// How far the scans of a vbucket have come.
#[derive(Default)]
struct ReadSeqnos {
    /// The last key that has come; the next scan begins after it.
    last: Option<Vec<u8>>,
    pages: u64,
    scans: u64,
}

impl ReadSeqnos {
    /// A page has come.
    fn note(&mut self, page: &ScanPage) -> Result<(), MalformedResponse> {
        self.pages += 1;
        let last = page.documents().last().transpose()?;
        self.last = last.map(|document| document.key.to_vec()).or(self.last.take());
        Ok(())
    }
}

/// Scans one vbucket after the other.
pub struct VbucketScanner {
    client: Arc<Client>,
    collection: CollectionId,
    with_attributes: bool,
    only_keys: bool,
    /// How long a scan may go without progress.
    patience: Duration,
    connection: Option<(KvNode, Connection)>,
    /// The last mutation of the vbucket that was scanned last: what was acknowledged before the
    /// scanner was made is not behind it, in whichever collection.
    last: Option<MutationToken>,
    pages: mpsc::Sender<anyhow::Result<VbucketScanProgress>>,
}

/// Why a scan ended early.
enum ScanStop {
    Failed(ClientError),
    Page(anyhow::Error),
    /// The receiver of pages is gone.
    Unwanted,
}

impl From<ClientError> for ScanStop {
    fn from(error: ClientError) -> ScanStop {
        ScanStop::Failed(error)
    }
}

impl VbucketScanner {
    /// A scanner of all documents. `patience` is how long it may go without progress.
    pub fn new(
        client: Arc<Client>,
        collection: CollectionId,
        patience: Duration,
        pages: mpsc::Sender<anyhow::Result<VbucketScanProgress>>,
    ) -> VbucketScanner {
        VbucketScanner {
            client,
            collection,
            with_attributes: false,
            only_keys: false,
            patience,
            connection: None,
            last: None,
            pages,
        }
    }

    /// With attributes before the values.
    pub fn with_attributes(mut self, with_attributes: bool) -> VbucketScanner {
        self.with_attributes = with_attributes;
        self
    }

    pub fn with_only_keys(mut self, only_keys: bool) -> VbucketScanner {
        self.only_keys = only_keys;
        self
    }

    /// Scans the vbuckets that no other scanner has taken.
    pub async fn run(mut self, vbuckets: u16, next: Arc<AtomicU16>) {
        loop {
            let vbid = Vbid(next.fetch_add(1, Ordering::Relaxed));
            if vbid.0 >= vbuckets {
                return;
            }
            if !self.one(vbid).await {
                return;
            }
        }
    }

    /// Scans one vbucket and reports when it is complete. False when the scan cannot continue.
    async fn one(&mut self, vbid: Vbid) -> bool {
        let message = match self.vbucket(vbid).await {
            Ok(()) => Ok(VbucketScanProgress::Vbucket),
            Err(ScanStop::Unwanted) => return false,
            Err(ScanStop::Page(error)) => Err(error),
            Err(ScanStop::Failed(error)) => Err(explained(error, vbid)),
        };
        let is_over = message.is_err();
        self.pages.send(message).await.is_ok() && !is_over
    }

    async fn vbucket(&mut self, vbid: Vbid) -> Result<(), ScanStop> {
        let mut passed = ReadSeqnos::default();
        let mut deadline = Instant::now() + self.patience;
        loop {
            let before = passed.pages;
            let error = match self.scan(vbid, &mut passed).await {
                Err(ScanStop::Failed(error)) if may_pass(&error) => error,
                outcome => return outcome,
            };
            if passed.pages != before {
                deadline = Instant::now() + self.patience;
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(error.into());
            }
            tokio::time::sleep(PAUSE).await;
            if error.rejection() != Some(RejectionKind::TemporaryFailure) {
                self.connection = None;
                // If no node answers, the next attempt reports it.
                let _ = self.client.refresh_config().await;
            }
        }
    }

    /// Scans the remaining documents.
    async fn scan(&mut self, vbid: Vbid, passed: &mut ReadSeqnos) -> Result<(), ScanStop> {
        // A scan that is repeated may have met another history.
        let known = self.last.take().filter(|last| last.vbid == vbid && passed.scans == 0);
        passed.scans += 1;
        let last = match known {
            Some(last) => last,
            None => self.client.last_mutation(vbid).await?,
        };
        self.last = Some(last);
        if last.seqno.0 == 0 {
            return Ok(());
        }
        let behind = passed.last.clone();
        // The answer must arrive before the connection stops waiting for it.
        let patience = self.patience * 3 / 4;
        let range = ScanRange::new(vbid, self.collection).persisted(last, patience);
        let mut range = range.attributes(self.with_attributes).only_keys(self.only_keys);
        range.behind = behind.as_deref();
        self.pages_of(&range, passed).await
    }

    async fn pages_of(
        &mut self,
        range: &ScanRange<'_>,
        passed: &mut ReadSeqnos,
    ) -> Result<(), ScanStop> {
        let pages = self.pages.clone();
        let connection = self.connection_for(range.vbid).await?;
        let Some(mut scan) = connection.scan(range).await? else { return Ok(()) };
        while let Some(page) = scan.next_page().await? {
            let noted = passed.note(&page);
            noted.map_err(|error| ScanStop::Page(error.into()))?;
            let message = VbucketScanProgress::Page(page);
            pages.send(Ok(message)).await.map_err(|_| ScanStop::Unwanted)?;
        }
        Ok(())
    }

    async fn connection_for(&mut self, vbid: Vbid) -> Result<&mut Connection, ClientError> {
        let config = self.client.config();
        let node = config.active_node(vbid).ok_or(RejectionKind::NotMyVbucket)?;
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
    match error.rejection() {
        // The scan, or the history in the request, does not exist.
        Some(RejectionKind::NotFound | RejectionKind::Other(CANCELLED | OTHER_HISTORY)) => true,
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
    let hint = match error.rejection() {
        Some(RejectionKind::NotSupported) => {
            " (some servers have no scans: name the documents with --keys)"
        }
        Some(RejectionKind::AccessDenied) => {
            " (scans need range-scan, read and meta-read, and with --meta system-xattr-read)"
        }
        _ => "",
    };
    anyhow::Error::from(error).context(format!("scanning {vbid}{hint}"))
}
