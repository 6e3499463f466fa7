//! Work of links that blocks: name resolution, key derivation, and what waits for the store.
//!
//! Owns: each kind of it as data, and how it runs. A worker hands it to the thread of
//! links, a test runs it in place.
//!
//! Invariant: work on a copy holds the copy's gate, unless it changes nothing of the copy.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use oribi_auth::{NodeLogin, NodeProof};
use oribi_engine::{FetchOutcome, FetchSink, ManifestEvent, ManifestEventKind};
use oribi_types::{CollectionId, DocKey, ManifestUid, ScopeId, Seqno};
use parking_lot::Mutex;

use super::failure::LinkFailure;
use super::followed_copy::FollowedCopy;

/// Longest wait for the store's answer to fetches; the changes wait on, and ask again.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A system event that does not borrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedEvent {
    pub(crate) seqno: Seqno,
    pub(crate) kind: ManifestEventKind,
    pub(crate) manifest_uid: ManifestUid,
    pub(crate) scope: ScopeId,
    pub(crate) collection: Option<CollectionId>,
    pub(crate) max_ttl_s: Option<u32>,
    pub(crate) name: String,
}

impl OwnedEvent {
    pub(crate) fn borrowed(&self) -> ManifestEvent<'_> {
        ManifestEvent {
            seqno: self.seqno,
            kind: self.kind,
            manifest_uid: self.manifest_uid,
            scope: self.scope,
            collection: self.collection,
            max_ttl_s: self.max_ttl_s,
            name: &self.name,
        }
    }
}

/// See the module text.
pub(crate) enum LinkWork {
    Resolve { host: String, port: u16 },
    LogIn { login: NodeLogin, secret: Arc<[u8]>, challenge: Vec<u8> },
    Copy { copy: Arc<FollowedCopy>, work: CopyWork },
}

/// What is done to a copy, or for it.
pub(crate) enum CopyWork {
    /// Forget everything: the copy begins from 0.
    Empty,
    /// Note that the copy has caught up in its epoch.
    Record,
    /// Bring collections into force.
    FollowEvents(Vec<OwnedEvent>),
    /// Bring these keys into memory.
    Fetch(Vec<(CollectionId, Vec<u8>)>),
}

/// What a piece of [`LinkWork`] has found out, or how it ended.
pub(crate) enum LinkWorkResult {
    Resolved(Result<Vec<SocketAddr>, LinkFailure>),
    LoggedIn(Result<NodeProof, LinkFailure>),
    Copy { copy: Arc<FollowedCopy>, result: Result<(), LinkFailure> },
}

impl LinkWork {
    /// Does the work. Blocks.
    pub(crate) fn run(self) -> LinkWorkResult {
        match self {
            LinkWork::Resolve { host, port } => LinkWorkResult::Resolved(look_up(&host, port)),
            LinkWork::LogIn { login, secret, challenge } => {
                let proof = login.answer(&secret, &challenge);
                let malformed = LinkFailure::Protocol("a malformed challenge");
                LinkWorkResult::LoggedIn(proof.map_err(|_| malformed))
            }
            LinkWork::Copy { copy, work } => {
                let result = run_on(&copy, work);
                LinkWorkResult::Copy { copy, result }
            }
        }
    }
}

/// The addresses of a name, as the operating system knows them. Blocks.
pub(super) fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, LinkFailure> {
    let found = (host, port).to_socket_addrs().map(Iterator::collect);
    found.map_err(|error| LinkFailure::Resolve(format!("{host}: {error}")))
}

fn run_on(copy: &FollowedCopy, work: CopyWork) -> Result<(), LinkFailure> {
    let bucket = copy.bucket.bucket();
    match work {
        CopyWork::Empty => {
            let Some(_gate) = copy.enter() else { return Ok(()) };
            bucket.empty_replica(copy.vbid).map_err(|error| LinkFailure::Store(error.to_string()))
        }
        CopyWork::Record => {
            let Some(_gate) = copy.enter() else { return Ok(()) };
            let recorded = bucket.record_epoch(copy.vbid, copy.source.epoch);
            recorded.map_err(|error| LinkFailure::Store(error.to_string()))
        }
        CopyWork::FollowEvents(events) => {
            let Some(_gate) = copy.enter() else { return Ok(()) };
            events.iter().try_for_each(|event| {
                let followed = bucket.follow_event(&event.borrowed());
                followed.map_err(|error| LinkFailure::Collections(error.to_string()))
            })
        }
        CopyWork::Fetch(keys) => {
            let (sender, outcomes) = channel();
            let sink: Arc<dyn FetchSink> = Arc::new(FetchAnswers(Mutex::new(sender)));
            for (collection, key) in &keys {
                let key = DocKey { collection: *collection, key };
                bucket.fetch(copy.vbid, key, &sink, 0);
            }
            drop(sink);
            for _ in &keys {
                // What a failed fetch leaves out is asked for again.
                if outcomes.recv_timeout(FETCH_TIMEOUT).is_err() {
                    break;
                }
            }
            Ok(())
        }
    }
}

/// Sends the outcomes of fetches to the thread that waits for them.
#[derive(Debug)]
struct FetchAnswers(Mutex<Sender<FetchOutcome>>);

impl FetchSink for FetchAnswers {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        // The thread may have given up.
        let _ = self.0.lock().send(outcome);
    }
}
