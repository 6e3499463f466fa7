//! Scans vbuckets of a running server, one after the other.
//!
//! Owns: what follows when a scan ends early for a transient reason: a lost node, a moved vbucket,
//! the server's time limit. Another scan then continues after the last key. Without an order of
//! keys it leaves out those that have come, which the scanner keeps for one vbucket. So no document
//! comes twice. Invariants: a scan includes every write acknowledged before it began; it fails only
//! when there is no progress for as long as an operation may take. `oribi doc export` and `oribi
//! sql` run some of them side by side.

use std::collections::HashSet;
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
    Page {
        vbid: Vbid,
        collection: CollectionId,
        page: ScanPage,
        /// Keys that have come before, for the receiver to leave out.
        known: Option<Arc<KnownKeys>>,
    },
    /// A vbucket is complete.
    Vbucket,
}

/// Keys of a vbucket that have come.
pub type KnownKeys = HashSet<Vec<u8>>;

/// How far the scans of a vbucket have come.
#[derive(Default)]
struct Passed {
    /// The last key, in the order of keys.
    last: Option<Vec<u8>>,
    /// All keys of the present scan one after the other, each behind its length, where there is no
    /// order.
    keys: Vec<u8>,
    /// Those of the scans before it.
    known: Option<Arc<KnownKeys>>,
    pages: u64,
    scans: u64,
}

impl Passed {
    /// A page has come.
    fn note(&mut self, page: &ScanPage, is_unordered: bool) -> Result<(), MalformedResponse> {
        self.pages += 1;
        if !is_unordered {
            let last = page.documents().last().transpose()?;
            self.last = last.map(|document| document.key.to_vec()).or(self.last.take());
            return Ok(());
        }
        for document in page.documents() {
            let key = document?.key;
            // A key has at most 250 bytes.
            self.keys.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
            self.keys.extend_from_slice(key);
        }
        Ok(())
    }

    fn begin(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let mut known = self.known.take().map_or_else(KnownKeys::new, |known| (*known).clone());
        let mut rest = &self.keys[..];
        while let Some((length, behind)) = rest.split_first() {
            let (key, behind) = behind.split_at(usize::from(*length).min(behind.len()));
            known.insert(key.to_vec());
            rest = behind;
        }
        self.keys.clear();
        self.known = Some(Arc::new(known));
    }
}

/// Scans one vbucket after the other.
pub struct VbucketScanner {
    client: Arc<Client>,
    collection: CollectionId,
    with_attributes: bool,
    only_keys: bool,
    unordered: bool,
    /// The least key and the greatest one.
    between: (Option<Vec<u8>>, Option<Vec<u8>>),
    /// How long a scan may go without progress.
    patience: Duration,
    connection: Option<(KvNode, Connection)>,
    /// The last mutation of the vbucket that was scanned last: what was acknowledged before the
    /// scanner was made is not behind it, in whichever collection.
    last: Option<MutationToken>,
    pages: mpsc::Sender<anyhow::Result<VbucketScanProgress>>,
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
            unordered: false,
            between: (None, None),
            patience,
            connection: None,
            last: None,
            pages,
        }
    }

    /// Only these keys, both ends included.
    pub fn between(mut self, from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> VbucketScanner {
        self.between = (from, to);
        self
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

    pub fn unordered(mut self) -> VbucketScanner {
        self.unordered = true;
        self
    }

    /// Continues with another collection.
    pub fn move_to(&mut self, collection: CollectionId) {
        self.collection = collection;
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

    /// Scans one vbucket and tells when it is complete. False when there is no continuing.
    pub async fn one(&mut self, vbid: Vbid) -> bool {
        let message = match self.vbucket(vbid).await {
            Ok(()) => Ok(VbucketScanProgress::Vbucket),
            Err(Stopped::Unwanted) => return false,
            Err(Stopped::Page(error)) => Err(error),
            Err(Stopped::Failed(error)) => Err(explained(error, vbid)),
        };
        let is_over = message.is_err();
        self.pages.send(message).await.is_ok() && !is_over
    }

    async fn vbucket(&mut self, vbid: Vbid) -> Result<(), Stopped> {
        let mut passed = Passed::default();
        let mut deadline = Instant::now() + self.patience;
        loop {
            let before = passed.pages;
            let error = match self.scan(vbid, &mut passed).await {
                Err(Stopped::Failed(error)) if may_pass(&error) => error,
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

    /// Scans what has not come.
    async fn scan(&mut self, vbid: Vbid, passed: &mut Passed) -> Result<(), Stopped> {
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
        passed.begin();
        let behind = passed.last.clone();
        // The answer must arrive before the connection stops waiting for it.
        let patience = self.patience * 3 / 4;
        let range = ScanRange::new(vbid, self.collection).persisted(last, patience);
        let (from, to) = self.between.clone();
        let range = range.between(from.as_deref(), to.as_deref());
        let mut range = range.attributes(self.with_attributes).only_keys(self.only_keys);
        range.behind = behind.as_deref();
        range.unordered = self.unordered;
        self.pages_of(&range, passed).await
    }

    async fn pages_of(
        &mut self,
        range: &ScanRange<'_>,
        passed: &mut Passed,
    ) -> Result<(), Stopped> {
        let pages = self.pages.clone();
        let connection = self.connection_for(range.vbid).await?;
        let Some(mut scan) = connection.scan(range).await? else { return Ok(()) };
        while let Some(page) = scan.next_page().await? {
            let noted = passed.note(&page, range.unordered);
            noted.map_err(|error| Stopped::Page(error.into()))?;
            let (vbid, collection) = (range.vbid, range.collection);
            let message =
                VbucketScanProgress::Page { vbid, collection, page, known: passed.known.clone() };
            pages.send(Ok(message)).await.map_err(|_| Stopped::Unwanted)?;
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
            " (some servers have no scans: name the documents with --keys, or in SQL with where id = '...')"
        }
        Some(RejectionKind::AccessDenied) => {
            " (scans need range-scan, read and meta-read, and with --meta system-xattr-read)"
        }
        _ => "",
    };
    anyhow::Error::from(error).context(format!("scanning {vbid}{hint}"))
}
