//! What a connection has negotiated, and what it waits for.
//!
//! Invariants:
//! - rights belong to the pair of identity and bucket; they are computed when either changes or the
//!   users do, never per operation;
//! - during a wait, and while a STAT is being answered, no frame is served;
//! - a client that said HELLO or selected a bucket is never treated as a memcached client;
//! - a memcached client whose collection does not exist uses no other one.
//!
//! The connection's record in the registry follows this state.

mod invariants;

use std::sync::Arc;

use oribi_auth::audit::Actor;
use oribi_auth::{Identity, SaslServer, UserStore};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Header;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::leb128::split_collection_key;
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Vbid};

use crate::buckets::{BucketHandle, MemcachedPlace};
use crate::cluster_config::ConfigDocumentVersion;
use crate::connection::close_reason::CloseReason;
use crate::connection::features::Features;
use crate::connection::fetches::Fetches;
use crate::connection::memory::Reserved;
use crate::connection::parked::ParkedWrites;
use crate::connection::registry::ConnectionRecord;
use crate::connection::request_id::RequestId;
use crate::connection::rights::Rights;
use crate::dcp::DcpProducer;
use crate::diagnostics::counters::bucket::SelectedOperations;
use crate::dispatch::continued_scan::ContinuedScan;
use crate::dispatch::stat_cursor::StatCursor;
use crate::dispatch::status;
use crate::server_context::ServerContext;

/// Never the id of a collection: ids ascend, and none gets this far.
const NO_COLLECTION: CollectionId = CollectionId(u32::MAX);

/// What keeps a connection from serving its next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pending {
    #[default]
    Nothing,
    /// A job of the blocking thread; its answer goes to this request.
    Job(RequestId),
    /// Every parked write and request has to be answered first: the client did not allow
    /// reordering.
    Parked,
    /// The request at the head of the input is tried again after its fetch from the store.
    Fetch,
    /// The request at the head of the input continues once memory is reserved for it.
    Memory,
    /// The request at the head of the input needs memory, and asks for it once the output is sent.
    Drain,
    /// The request at the head of the input is tried again soon: a write when its bucket may have
    /// room, a stream request when its vbucket may be loaded.
    Room,
}

/// Kind of client: whether it can select a bucket and names the vbuckets of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    /// It has neither said HELLO nor used a document yet.
    #[default]
    Undecided,
    /// It used documents without either, so the server chose its bucket and routes its keys.
    Memcached,
    /// It said HELLO, or it selected a bucket.
    Couchbase,
}

/// The state of one connection.
pub(crate) struct ConnectionState {
    /// What other threads can see of this connection.
    pub record: Arc<ConnectionRecord>,
    pub features: Features,
    /// HELLO named one of Oribi's own tools, which reads a histogram as one JSON document.
    pub reads_histograms: bool,
    kind: Kind,
    /// The client speaks the text protocol.
    pub is_text: bool,
    /// The client never authenticated, in development mode.
    is_anonymous: bool,
    /// Rights of `identity` in `bucket`.
    pub rights: Rights,
    /// The proved identity, if any.
    pub identity: Option<Arc<Identity>>,
    pub bucket: Option<Arc<BucketHandle>>,
    /// Collection of keys that name none.
    collection: CollectionId,
    /// This worker's counters for the selected bucket.
    pub operations: Option<SelectedOperations>,
    /// The STAT that is being answered.
    pub stat: Option<Box<StatCursor>>,
    /// The range scan that a request continues.
    pub range_scan: Option<Box<ContinuedScan>>,
    /// Since when the connection has no user, in milliseconds on the worker's monotonic clock.
    pub anonymous_since_ms: u64,
    /// The SASL exchange in progress.
    pub sasl: Option<Box<SaslServer>>,
    /// Writes that wait for the store.
    pub parked: Option<Box<ParkedWrites>>,
    /// Requests that wait for a document from the store.
    pub fetches: Option<Box<Fetches>>,
    pub wait: Pending,
    /// Memory reserved for a large request, or for large answers and changes.
    pub reserved: Reserved,
    /// Start of the wait for memory. Once memory is reserved, the start of its use, moved on by
    /// bytes received or sent.
    pub memory_since_ms: u64,
    /// The wait for memory took too long: the request that needs it is refused.
    pub memory_refused: bool,
    /// Since when the request at the head of the input waits for room in its bucket or for a
    /// vbucket to be loaded; 0 when none does.
    pub room_since_ms: u64,
    /// The request being served was overtaken, so the connection may already wait for something
    /// else.
    pub serves_parked: bool,
    /// Set once: the rest of the output is sent, then the connection ends.
    pub closing: Option<CloseReason>,
    /// Version of the cluster configuration last sent to this connection on request.
    pub config_sent: ConfigDocumentVersion,
    /// Version last pushed to it.
    pub config_pushed: ConfigDocumentVersion,
    /// The change streams of a connection that was opened for them.
    pub producer: Option<Box<DcpProducer>>,
}

impl ConnectionState {
    /// Creates the state of a new connection, with nothing negotiated.
    pub fn new(record: Arc<ConnectionRecord>, now_ms: u64) -> ConnectionState {
        ConnectionState {
            record,
            features: Features::default(),
            reads_histograms: false,
            kind: Kind::Undecided,
            is_text: false,
            is_anonymous: false,
            rights: Rights::default(),
            identity: None,
            bucket: None,
            collection: CollectionId::DEFAULT,
            operations: None,
            stat: None,
            range_scan: None,
            anonymous_since_ms: now_ms,
            sasl: None,
            parked: None,
            fetches: None,
            wait: Pending::Nothing,
            reserved: Reserved::default(),
            memory_since_ms: 0,
            memory_refused: false,
            room_since_ms: 0,
            serves_parked: false,
            closing: None,
            config_sent: ConfigDocumentVersion::default(),
            config_pushed: ConfigDocumentVersion::default(),
            producer: None,
        }
    }

    /// Makes `identity` the user of the connection, and deselects the bucket.
    pub fn authenticate(&mut self, identity: Arc<Identity>) {
        self.identity = Some(identity);
        self.is_anonymous = false;
        self.end_adoption();
        self.select(None);
    }

    /// Takes over the features that HELLO negotiated. What the server chose for a memcached client
    /// no longer holds.
    pub fn greet(&mut self, features: Features, now_ms: u64) {
        if self.is_anonymous {
            self.deauthenticate(now_ms);
        } else if self.is_memcached() {
            self.select(None);
        }
        self.kind = Kind::Couchbase;
        self.features = features;
    }

    /// Selects the bucket that the client named, or none. The client has shown that it can select.
    pub fn select_named(&mut self, bucket: Option<Arc<BucketHandle>>) {
        self.kind = Kind::Couchbase;
        self.select(bucket);
    }

    /// True for a client whose bucket the server chose and whose keys it routes.
    #[inline]
    pub fn is_memcached(&self) -> bool {
        self.kind == Kind::Memcached
    }

    /// Another user may get another bucket.
    fn end_adoption(&mut self) {
        if self.is_memcached() {
            self.kind = Kind::Undecided;
        }
    }

    /// Forgets the user. A client that was logged in gets as much time to log in as a new
    /// connection has; any other client gets no extra time.
    pub fn deauthenticate(&mut self, now_ms: u64) {
        if self.identity.take().is_some() {
            self.anonymous_since_ms = now_ms;
        }
        self.is_anonymous = false;
        self.end_adoption();
        self.select(None);
    }

    /// The requester, for the audit log.
    pub fn actor(&self) -> Actor {
        let user = self.identity.as_ref().map_or("", |identity| &identity.name);
        Actor {
            user: user.to_owned(),
            connection: Some(self.record.number),
            peer: self.record.peer(),
        }
    }

    /// Takes over changes of the user's roles; false when the user no longer exists. A bucket in
    /// which no right is left is deselected, as it could not be selected now.
    pub fn refresh_user(&mut self, users: &UserStore) -> bool {
        let Some(identity) = &self.identity else { return true };
        let current = match self.is_anonymous {
            true => users.anonymous(),
            false => users.current(&identity.name),
        };
        let Some(current) = current else { return false };
        if current == *identity {
            return true;
        }
        self.record.agree(|agreement| agreement.user = Some(Arc::clone(&current)));
        self.rights = match &self.bucket {
            Some(bucket) => Rights::of(&current, bucket.name()),
            None => Rights::outside(&current),
        };
        self.identity = Some(current);
        if let Some(producer) = &mut self.producer {
            producer.rights_changed();
        }
        if self.bucket.is_some() && self.rights.somewhere().is_empty() {
            self.select(None);
        }
        true
    }

    /// Selects a bucket, or none, and computes the rights in it.
    pub fn select(&mut self, bucket: Option<Arc<BucketHandle>>) {
        self.rights = match (&self.identity, &bucket) {
            (Some(identity), Some(bucket)) => Rights::of(identity, bucket.name()),
            (Some(identity), None) => Rights::outside(identity),
            (None, _) => Rights::default(),
        };
        self.collection = CollectionId::DEFAULT;
        let worker = self.record.worker;
        let operations = bucket.as_ref().map(|bucket| bucket.operations().worker(worker));
        self.operations = operations.map(SelectedOperations::new);
        self.record.agree(|agreement| {
            agreement.user = self.identity.clone();
            agreement.bucket = bucket.as_ref().map(|bucket| bucket.name().into());
        });
        self.bucket = bucket;
        self.config_sent = ConfigDocumentVersion::default();
        self.config_pushed = ConfigDocumentVersion::default();
    }

    /// Treats a client that neither said HELLO nor selected a bucket as a memcached client, which
    /// can do neither. It gets its user's bucket. In development mode it gets the user of
    /// unauthenticated clients.
    pub fn adopt_memcached(&mut self, server: &ServerContext) {
        if self.kind == Kind::Couchbase {
            return;
        }
        let identity = match &self.identity {
            Some(identity) => Arc::clone(identity),
            None => {
                let Some(identity) = server.access.users.anonymous() else { return };
                if !server.connections.admit_user(identity.access.is_admin()) {
                    return self.close(CloseReason::TooManyConnections);
                }
                self.is_anonymous = true;
                identity
            }
        };
        let bucket = server.buckets.of_memcached_client(&identity, &server.memcached);
        self.identity = Some(identity);
        self.kind = Kind::Memcached;
        self.select(bucket);
        self.find_collection(&server.memcached);
    }

    /// Looks the collection of a memcached client up by its name. Collections come and go, so this
    /// is repeated now and then.
    pub fn find_collection(&mut self, place: &MemcachedPlace) {
        if !self.is_memcached() {
            return;
        }
        let path = self.identity.as_ref().and_then(|identity| place.collection_of(identity));
        self.collection = match (path, &self.bucket) {
            (Some(path), Some(bucket)) => {
                let manifest = bucket.bucket().manifest();
                manifest.collection_id(&path.scope, &path.collection).unwrap_or(NO_COLLECTION)
            }
            _ => CollectionId::DEFAULT,
        };
    }

    /// Collection and logical key in a request's key field; `None` when it is not valid.
    pub fn doc_key<'k>(&self, field: &'k [u8]) -> Option<DocKey<'k>> {
        if self.features.has(Feature::Collections) {
            return split_collection_key(field).ok();
        }
        let is_valid = (1..=KEY_BYTES_MAX).contains(&field.len());
        is_valid.then_some(DocKey { collection: self.collection, key: field })
    }

    /// Vbucket of a request, from its header field. A memcached client knows no vbuckets and leaves
    /// the field 0, so the server routes its requests.
    pub fn vbid(&self, field: u16, key: DocKey<'_>, vbuckets: u16) -> Vbid {
        match self.is_memcached() && field == 0 {
            true => vbucket_of(key.key, vbuckets),
            false => Vbid(field),
        }
    }

    /// Translates the status into one that this client understands.
    pub fn wire_status(&self, status: Status) -> Status {
        match status {
            status if self.features.has(Feature::XError) => status,
            Status::Eaccess if self.is_memcached() => Status::AuthError,
            Status::UnknownCollection | Status::UnknownScope
                if self.features.has(Feature::Collections) =>
            {
                status
            }
            status => status::for_legacy(status),
        }
    }

    /// True when the connection ends instead of an answer with this status: Couchbase clients
    /// without XError know neither "no access" nor "no bucket".
    pub fn closes_instead(&mut self, status: Status) -> bool {
        let closes = matches!(status, Status::Eaccess | Status::NoBucket)
            && self.kind == Kind::Couchbase
            && !self.features.has(Feature::XError);
        if closes {
            self.close(CloseReason::NoAccess);
        }
        closes
    }

    /// True while some write waits for the store, or some overtaken request waits for a fetch.
    pub fn has_parked(&self) -> bool {
        self.has_parked_writes() || self.fetches.as_ref().is_some_and(|all| all.has_parked())
    }

    /// True while some write waits for the store.
    pub fn has_parked_writes(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| !parked.is_empty())
    }

    /// True while a long answer is being sent in pieces.
    pub fn is_streaming(&self) -> bool {
        self.stat.is_some() || self.range_scan.is_some()
    }

    /// True when a parked request is to be tried again.
    pub fn has_ready(&self) -> bool {
        self.fetches.as_ref().is_some_and(|all| all.has_ready())
    }

    /// Ends the wait for parked writes and requests when none is left.
    pub fn release_parked(&mut self) {
        if self.wait == Pending::Parked && !self.has_parked() {
            self.wait = Pending::Nothing;
        }
    }

    /// Vbucket and key of a request about one document; `None` when its key field is not valid.
    // For every request; see `document_of` of the driver.
    #[inline(always)]
    pub fn document<'k>(&self, header: &Header, field: &'k [u8]) -> Option<(Vbid, DocKey<'k>)> {
        let vbuckets = self.bucket.as_ref()?.vbuckets();
        let key = self.doc_key(field)?;
        Some((self.vbid(header.vbucket_or_status, key, vbuckets), key))
    }

    /// Starts the end of the connection; the first reason stays.
    pub fn close(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
    }
}
