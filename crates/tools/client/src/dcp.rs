//! Change streams: all changes of a bucket in the order of each vbucket, with tokens to resume at.
//!
//! [`DcpStream`] runs where the application polls it. It decides which vbucket is asked for on
//! which node ([`machine`]) and keeps a connection ([`connection`]) to each node that has some.
//! Connections are their own tasks that answer a server's questions while the application is busy.
//!
//! Flow: a task receives frames up to the window, the stream takes them one by one as the
//! application asks for events, and what was taken is acknowledged. So the position is always that
//! of the application, and memory is bounded by the window of each node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oribi_protocol::change_token::ChangeToken;
use oribi_protocol::frame::Frame;
use oribi_types::Vbid;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::client::{Client, fetch_manifest};
use crate::cluster::ClusterNodes;
use crate::collection::CollectionsManifest;
use crate::config::{ClusterMap, KvNode};
use crate::error::{ClientError, MalformedResponse, RejectionKind, Site};
use crate::retry::Backoff;

mod attributes;
mod blocks;
mod connection;
mod event;
mod handshake;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod ledger;
mod machine;
mod names;
mod options;

pub use attributes::Attribute;
pub use event::{
    BorrowedChange, BorrowedEvent, ChangeKind, CollectionNames, DcpChange, DcpEvent,
    DcpSystemEvent, DcpSystemEventKind, Disconnection, Rollback,
};
pub use options::DcpStreamOptions;

use blocks::{Frames, window_bytes};
use connection::{ConnectionEvent, DcpConnection};
use event::PlacedChange;
use handshake::ProducerOptions;
use machine::{CollectionFilter, DcpConnectionId, DcpStateMachine, FollowUp, FrameResult};
use names::CollectionNameCache;

/// Pause before a vbucket or a node is asked again, and the longest one.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// All changes of a bucket, or of some of its collections.
///
/// Made by [`Client::dcp_stream`]. It lives on when the client is dropped.
///
/// Changes of one vbucket come in the order in which they happened; those of different vbuckets in
/// any order. Each key belongs to one vbucket. A document that changed several times may come only
/// with its last version. Dropping the stream ends it.
pub struct DcpStream {
    cluster: Arc<ClusterNodes>,
    machine: DcpStateMachine,
    options: ProducerOptions,
    nodes: HashMap<KvNode, ClusterNode>,
    /// Number of the next connection.
    next_feed: DcpConnectionId,
    idle: Vec<IdleVbucket>,
    /// Pauses of vbuckets that did not get a stream yet.
    backoffs: Vec<Backoff>,
    received: UnboundedReceiver<ConnectionReport>,
    sender: UnboundedSender<ConnectionReport>,
    manifests: Manifests,
    /// Frames that were received and not taken.
    frames: Option<(DcpConnectionId, Frames)>,
    failed: Option<ClientError>,
}

type ConnectionReport = (DcpConnectionId, ConnectionEvent);

/// Item for the application.
enum NextEvent {
    /// In the block of the frames.
    Change(PlacedChange),
    Event(DcpEvent),
}

/// Items from the received frames.
enum Step {
    Nothing,
    /// A frame, which may have added events.
    Frame,
    /// A frame with a change, which comes before those events.
    Change(PlacedChange),
}

/// A node with vbuckets of the stream.
struct ClusterNode {
    feed: Option<DcpConnection>,
    backoff: Backoff,
    not_before: Option<Instant>,
}

/// A vbucket to ask for.
#[derive(Clone, Copy)]
struct IdleVbucket {
    vbid: Vbid,
    due: Option<Instant>,
}

/// Manifests that are fetched because a server did not know a collection of the filter.
struct Manifests {
    receiver: UnboundedReceiver<Result<CollectionsManifest, ClientError>>,
    sender: UnboundedSender<Result<CollectionsManifest, ClientError>>,
    is_fetching: bool,
}

impl Client {
    /// Streams the bucket's changes. Collections are looked up now; nodes are connected to when the
    /// first event is asked for.
    ///
    /// # Errors
    /// When a collection does not exist, or the options make no sense.
    pub async fn dcp_stream(&self, options: &DcpStreamOptions) -> Result<DcpStream, ClientError> {
        let mut names = CollectionNameCache::new();
        let wanted = self.wanted(options, &mut names).await?;
        let cluster = self.cluster().clone();
        let vbuckets = cluster.topology().config.vbucket_count();
        if options.from.positions().iter().any(|position| position.vbid.0 >= vbuckets) {
            return Err(ClientError::InvalidArgument("the token is of a larger bucket"));
        }
        if options.vbuckets.iter().any(|vbid| vbid.0 >= vbuckets) {
            return Err(ClientError::InvalidArgument("the bucket has fewer vbuckets"));
        }
        let mut machine =
            DcpStateMachine::new(vbuckets, &options.from, wanted, options.until_now, names);
        if !options.vbuckets.is_empty() {
            machine.show_only(&options.vbuckets);
        }
        Ok(DcpStream::new(cluster, machine, options, vbuckets))
    }

    async fn wanted(
        &self,
        options: &DcpStreamOptions,
        names: &mut CollectionNameCache,
    ) -> Result<CollectionFilter, ClientError> {
        let manifest = match self.collections_manifest().await {
            Err(ClientError::NotOffered(_))
                if options.scope.is_none() && options.collections.is_empty() =>
            {
                return Ok(CollectionFilter::All);
            }
            manifest => manifest?,
        };
        names.learn(&manifest);
        if let Some(name) = &options.scope {
            if !options.collections.is_empty() {
                let reason = "a change stream shows a scope or collections, not both";
                return Err(ClientError::InvalidArgument(reason));
            }
            let scope = manifest.scopes.iter().find(|scope| scope.name == *name);
            return scope
                .map(|scope| CollectionFilter::Scope(scope.id))
                .ok_or(ClientError::Rejected(RejectionKind::UnknownScope));
        }
        if options.collections.is_empty() {
            return Ok(CollectionFilter::All);
        }
        let mut ids = Vec::new();
        for path in &options.collections {
            let id = manifest.id_of(path).ok_or(RejectionKind::UnknownCollection)?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(CollectionFilter::Collections(ids))
    }
}

impl DcpStream {
    fn new(
        cluster: Arc<ClusterNodes>,
        machine: DcpStateMachine,
        options: &DcpStreamOptions,
        vbuckets: u16,
    ) -> DcpStream {
        let (sender, received) = unbounded_channel();
        let (manifest_sender, manifest_receiver) = unbounded_channel();
        // Without randomness two streams of one name would end each other's connections.
        let unique = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
        let options = ProducerOptions {
            name: format!("{}:{unique:x}", options.name),
            values: options.values,
            attributes: options.attributes,
            window_bytes: options.window_bytes.max(1),
            noop_interval: options.noop_interval.max(Duration::from_secs(1)),
        };
        let vbids = (0..vbuckets).map(Vbid);
        DcpStream {
            cluster,
            machine,
            options,
            nodes: HashMap::new(),
            next_feed: 0,
            idle: vbids.clone().map(|vbid| IdleVbucket { vbid, due: None }).collect(),
            backoffs: vbids.map(|_| Backoff::new(PAUSE, PAUSE_MAX)).collect(),
            received,
            sender,
            manifests: Manifests {
                receiver: manifest_receiver,
                sender: manifest_sender,
                is_fetching: false,
            },
            frames: None,
            failed: None,
        }
    }

    /// The next event; `None` when a stream that ends has come to its end. It waits for as long as
    /// nothing happens, and connects again for as long as that takes.
    ///
    /// It may be cancelled, as in `select!`, without losing an event.
    ///
    /// # Errors
    /// When the stream cannot continue: the user may not read it, or the server has no change
    /// streams. Every later call gives the same error.
    pub async fn next(&mut self) -> Result<Option<DcpEvent>, ClientError> {
        Ok(self.give().await?.map(|given| match (given, &self.frames) {
            (NextEvent::Event(event), _) => event,
            (NextEvent::Change(change), Some((_, frames))) => {
                DcpEvent::Change(self.machine.share(change, &frames.block))
            }
            (NextEvent::Change(_), None) => unreachable!("the block of a change is there"),
        }))
    }

    /// The next event as by [`DcpStream::next`], with a change where it was received. This
    /// counts no references, and the memory is used again. The name of the change's collection is
    /// not looked up.
    ///
    /// # Errors
    /// As [`DcpStream::next`].
    pub async fn next_borrowed(&mut self) -> Result<Option<BorrowedEvent<'_>>, ClientError> {
        Ok(self.give().await?.map(|given| match (given, &self.frames) {
            (NextEvent::Event(event), _) => BorrowedEvent::Other(event),
            (NextEvent::Change(change), Some((_, frames))) => {
                BorrowedEvent::Change(change.borrow(&frames.block))
            }
            (NextEvent::Change(_), None) => unreachable!("the block of a change is there"),
        }))
    }

    /// The next event, whose block stays until the next call.
    async fn give(&mut self) -> Result<Option<NextEvent>, ClientError> {
        loop {
            if let Some(event) = self.machine.next_event() {
                return Ok(Some(NextEvent::Event(event)));
            }
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            match self.take_frame() {
                Step::Change(change) => return Ok(Some(NextEvent::Change(change))),
                Step::Frame => continue,
                Step::Nothing => {}
            }
            let due = self.attend();
            if self.machine.is_finished() {
                return Ok(None);
            }
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                Some((feed, event)) = self.received.recv() => self.receive(feed, event),
                Some(manifest) = self.manifests.receiver.recv() => self.take_manifest(manifest),
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    /// Where the stream is behind the events that it gave. A stream that resumes there omits
    /// nothing and repeats nothing.
    pub fn token(&self) -> ChangeToken {
        self.machine.token()
    }

    /// Bytes that were received and not taken yet.
    pub fn waiting_bytes(&self) -> u64 {
        let feeds = self.nodes.values().filter_map(|node| node.feed.as_ref());
        feeds.map(|feed| feed.ledger.waiting()).sum()
    }

    /// Takes one received frame.
    fn take_frame(&mut self) -> Step {
        let Some((id, frames)) = &mut self.frames else { return Step::Nothing };
        let id = *id;
        // What a connection had sent before it was given up retries over the next one.
        let Some((_, feed)) = feed_of(&mut self.nodes, id) else {
            self.frames = None;
            return Step::Frame;
        };
        let place = frames.next();
        let Some(frame) = place.and_then(|place| Frame::whole(&frames.block[place])) else {
            if let Some((_, frames)) = self.frames.take() {
                feed.pool.give_back(frames);
            }
            return Step::Nothing;
        };
        let mut out = Vec::new();
        let has_collections = feed.has_collections.unwrap_or_default();
        let taken = self.machine.take(id, &frame, &frames.block, has_collections, &mut out);
        feed.ledger.take(window_bytes(&frame.header));
        if !out.is_empty() {
            feed.send(out);
        }
        match taken {
            Ok(FrameResult { then, change }) => {
                self.follow(id, then);
                change.map_or(Step::Frame, Step::Change)
            }
            Err(malformed) => {
                self.give_up(id, malformed);
                Step::Frame
            }
        }
    }

    /// Does what a frame asks for.
    fn follow(&mut self, feed: DcpConnectionId, then: FollowUp) {
        match then {
            FollowUp::GoOn => {}
            FollowUp::Streaming(vbid) => {
                self.backoffs[usize::from(vbid.0)].reset();
                if let Some((node, _)) = node_of(&mut self.nodes, feed) {
                    node.backoff.reset();
                }
            }
            FollowUp::Later(vbid) => self.retry(vbid),
            FollowUp::Moved(vbid, map) => {
                if let Some((_, address)) = node_of(&mut self.nodes, feed) {
                    self.learn(&map, &address);
                }
                self.cluster.refresh_soon();
                self.retry(vbid);
            }
            FollowUp::CheckFilter(vbid) => {
                self.retry(vbid);
                self.fetch_manifest();
            }
            FollowUp::Fail(refused) => self.failed = Some(refused.into()),
        }
    }

    fn learn(&self, map: &[u8], source: &KvNode) {
        let is_tls = self.cluster.options().tls.is_some();
        if let Ok(config) = ClusterMap::parse_for(map, &source.host, is_tls) {
            self.cluster.learn(config, source);
        }
    }

    fn retry(&mut self, vbid: Vbid) {
        let pause = self.backoffs[usize::from(vbid.0)].pause();
        self.idle.push(IdleVbucket { vbid, due: Some(Instant::now() + pause) });
    }

    fn fetch_manifest(&mut self) {
        if std::mem::replace(&mut self.manifests.is_fetching, true) {
            return;
        }
        let (cluster, sender) = (self.cluster.clone(), self.manifests.sender.clone());
        self.cluster.runtime().spawn(async move {
            // Without a receiver the stream is gone.
            let _ = sender.send(fetch_manifest(&cluster).await);
        });
    }

    fn take_manifest(&mut self, manifest: Result<CollectionsManifest, ClientError>) {
        self.manifests.is_fetching = false;
        match manifest {
            Ok(manifest) => self.machine.check_filter(&manifest),
            Err(error) => tracing::debug!(%error, "the collections manifest cannot be fetched"),
        }
    }

    /// Asks for the vbuckets that are due; returns when the next one is.
    fn attend(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        let mut requests: HashMap<DcpConnectionId, Vec<u8>> = HashMap::new();
        for idle in std::mem::take(&mut self.idle) {
            if self.machine.has_finished(idle.vbid) {
                continue;
            }
            let due = match idle.due.filter(|due| *due > now) {
                Some(due) => Some(due),
                None => self.begin(idle.vbid, now, &mut requests),
            };
            if let Some(due) = due {
                self.idle.push(IdleVbucket { vbid: idle.vbid, due: Some(due) });
                next = Some(next.map_or(due, |next: Instant| next.min(due)));
            }
        }
        for (id, requests) in requests {
            if let Some((_, feed)) = feed_of(&mut self.nodes, id) {
                feed.send(requests);
            }
        }
        // A node that the last vbucket has left; one that waits may come back to its own.
        if self.idle.is_empty() {
            self.nodes
                .retain(|_, node| node.feed.as_ref().is_none_or(|feed| self.machine.uses(feed.id)));
        }
        next
    }

    /// Asks for a vbucket; returns when to try again if that is not possible now.
    fn begin(
        &mut self,
        vbid: Vbid,
        now: Instant,
        requests: &mut HashMap<DcpConnectionId, Vec<u8>>,
    ) -> Option<Instant> {
        let topology = self.cluster.topology();
        let Some(address) = topology.active_node(vbid).map(|node| node.address().clone()) else {
            self.cluster.refresh_soon();
            return Some(now + self.backoffs[usize::from(vbid.0)].pause());
        };
        let node = self.nodes.entry(address.clone()).or_insert_with(|| ClusterNode {
            feed: None,
            backoff: Backoff::new(PAUSE, PAUSE_MAX),
            not_before: None,
        });
        if let Some(not_before) = node.not_before.filter(|not_before| *not_before > now) {
            return Some(not_before);
        }
        let feed = node.feed.get_or_insert_with(|| {
            self.next_feed += 1;
            let connect = self.cluster.options().clone().node(&address);
            let connect = connect.map_announcements(false).unordered_execution(false);
            let (options, sender) = (self.options.clone(), self.sender.clone());
            DcpConnection::start(self.next_feed, connect, options, sender, self.cluster.runtime())
        });
        match feed.has_collections {
            Some(has_collections) => {
                let out = requests.entry(feed.id).or_default();
                self.machine.begin(feed.id, vbid, has_collections, out);
                None
            }
            // It is asked for as soon as the connection is open.
            None => Some(now + PAUSE_MAX),
        }
    }

    fn receive(&mut self, id: DcpConnectionId, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Opened { has_collections } => {
                if let Some((_, feed)) = feed_of(&mut self.nodes, id) {
                    feed.has_collections = Some(has_collections);
                }
                self.idle.iter_mut().for_each(|idle| idle.due = None);
            }
            ConnectionEvent::Frames(frames) => self.frames = Some((id, frames)),
            ConnectionEvent::Closed(error) => self.close(id, &error),
        }
    }

    /// A server breaks the protocol.
    fn give_up(&mut self, id: DcpConnectionId, malformed: MalformedResponse) {
        let peer = node_of(&mut self.nodes, id).map(|(_, address)| address.to_string());
        let site = Site { peer: peer.unwrap_or_default().into(), operation: "changes" };
        self.close(id, &malformed.at(site));
    }

    fn close(&mut self, id: DcpConnectionId, error: &ClientError) {
        let Some((node, address)) = node_of(&mut self.nodes, id) else { return };
        node.feed = None;
        node.not_before = Some(Instant::now() + node.backoff.pause());
        self.frames = None;
        for vbid in self.machine.lose(id) {
            self.idle.push(IdleVbucket { vbid, due: None });
        }
        self.idle.iter_mut().for_each(|idle| idle.due = None);
        if error.is_final() || matches!(error, ClientError::NotOffered(_)) {
            self.failed = Some(error.clone());
            return;
        }
        self.cluster.refresh_soon();
        let (peer, reason) = (address.to_string().into(), error.to_string().into());
        self.machine.tell(DcpEvent::Disconnected(Disconnection { peer, reason }));
    }
}

fn node_of(
    nodes: &mut HashMap<KvNode, ClusterNode>,
    id: DcpConnectionId,
) -> Option<(&mut ClusterNode, KvNode)> {
    let found =
        nodes.iter_mut().find(|(_, node)| node.feed.as_ref().is_some_and(|feed| feed.id == id));
    found.map(|(address, node)| (node, address.clone()))
}

fn feed_of(
    nodes: &mut HashMap<KvNode, ClusterNode>,
    id: DcpConnectionId,
) -> Option<(&KvNode, &mut DcpConnection)> {
    nodes.iter_mut().find_map(|(address, node)| {
        let feed = node.feed.as_mut().filter(|feed| feed.id == id)?;
        Some((address, feed))
    })
}
