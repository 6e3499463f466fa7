//! What a connection has agreed on and what it waits for.
//!
//! Invariants: rights belong to the pair of identity and bucket, and are computed anew whenever either
//! changes or the users do, never per operation; while something is waited for or a STAT is being answered, no frame is
//! served. The connection's record in the registry follows what was agreed on.

use std::sync::Arc;

use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Header;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::leb128::split_collection_key;
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Vbid};

use crate::audit::Actor;
use crate::auth::{Identity, SaslServer, UserStore};
use crate::buckets::BucketHandle;
use crate::cluster_config::ConfigVersion;
use crate::connection::close_reason::CloseReason;
use crate::connection::features::Features;
use crate::connection::fetches::Fetches;
use crate::connection::parked::ParkedWrites;
use crate::connection::rights::Rights;
use crate::connection_registry::ConnectionRecord;
use crate::counters::bucket::SelectedOperations;
use crate::dispatch::{ContinuedScan, StatCursor};
use crate::server_context::ServerContext;
use crate::status;

/// What keeps a connection from serving its next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// A job of the blocking thread; the answer goes to this request.
    Job {
        /// Opcode of the request.
        opcode: u8,
        /// Opaque of the request.
        opaque: u32,
    },
    /// Every parked write and request has to be answered first: the client wants order.
    Parked,
    /// The request at the head of the input is tried again when the store was read for it.
    Fetch,
}

/// See the module text.
pub(crate) struct ConnectionState {
    /// What others can know of this connection.
    pub record: Arc<ConnectionRecord>,
    /// Negotiated features.
    pub features: Features,
    /// HELLO was received: this is not a memcached client.
    pub said_hello: bool,
    /// HELLO named a tool that reads histograms in the old form, one line per range.
    pub wants_range_lines: bool,
    /// A memcached client that never authenticated, in development mode.
    pub is_legacy: bool,
    /// Rights of `identity` in `bucket`.
    pub rights: Rights,
    /// Who it is, once that is proved.
    pub identity: Option<Arc<Identity>>,
    /// Selected bucket.
    pub bucket: Option<Arc<BucketHandle>>,
    /// Counters of this worker for that bucket.
    pub operations: Option<SelectedOperations>,
    /// STAT that is being answered.
    pub stat: Option<Box<StatCursor>>,
    /// Range scan that a request reads on.
    pub range_scan: Option<Box<ContinuedScan>>,
    /// Since when it has no user, in milliseconds on the worker's monotonic clock.
    pub anonymous_since_ms: u64,
    /// SASL exchange that is under way.
    pub sasl: Option<Box<SaslServer>>,
    /// Writes that wait for the store.
    pub parked: Option<Box<ParkedWrites>>,
    /// Requests that wait for a document from the store.
    pub fetches: Option<Box<Fetches>>,
    /// What is waited for.
    pub wait: Wait,
    /// Set once: the rest of the output is sent, then the connection ends.
    pub closing: Option<CloseReason>,
    /// Version of the cluster configuration that this connection was last sent because it asked.
    pub config_sent: ConfigVersion,
    /// Version that it was last told of without asking.
    pub config_pushed: ConfigVersion,
}

impl ConnectionState {
    /// Nothing is agreed on yet.
    pub fn new(record: Arc<ConnectionRecord>, now_ms: u64) -> ConnectionState {
        ConnectionState {
            record,
            features: Features::default(),
            said_hello: false,
            wants_range_lines: false,
            is_legacy: false,
            rights: Rights::default(),
            identity: None,
            bucket: None,
            operations: None,
            stat: None,
            range_scan: None,
            anonymous_since_ms: now_ms,
            sasl: None,
            parked: None,
            fetches: None,
            wait: Wait::Nothing,
            closing: None,
            config_sent: ConfigVersion::default(),
            config_pushed: ConfigVersion::default(),
        }
    }

    /// Makes `identity` the user of the connection; nothing is selected after that.
    pub fn authenticate(&mut self, identity: Arc<Identity>) {
        self.identity = Some(identity);
        self.is_legacy = false;
        self.select(None);
    }

    /// Forgets the user. From then on there is as much time to log in as a new connection has; who had not
    /// logged in gets no more of it.
    pub fn deauthenticate(&mut self, now_ms: u64) {
        if self.identity.take().is_some() {
            self.anonymous_since_ms = now_ms;
        }
        self.is_legacy = false;
        self.select(None);
    }

    /// Who asks, for the audit log.
    pub fn actor(&self) -> Actor {
        let user = self.identity.as_ref().map_or("", |identity| &identity.name);
        Actor {
            user: user.to_owned(),
            connection: Some(self.record.number),
            peer: self.record.peer,
        }
    }

    /// Takes over what became of the user's roles; false when there is no such user any more. A bucket in which
    /// nothing may be done any more is not selected any more, as it could not be selected now.
    pub fn refresh_user(&mut self, users: &UserStore) -> bool {
        let Some(identity) = &self.identity else { return true };
        let current = match self.is_legacy {
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
        let worker = self.record.worker;
        let operations = bucket.as_ref().map(|bucket| bucket.operations().worker(worker));
        self.operations = operations.map(SelectedOperations::new);
        self.record.agree(|agreement| {
            agreement.user = self.identity.clone();
            agreement.bucket = bucket.as_ref().map(|bucket| bucket.name().into());
        });
        self.bucket = bucket;
        self.config_sent = ConfigVersion::default();
        self.config_pushed = ConfigVersion::default();
    }

    /// Takes a client that neither said HELLO nor authenticated for a memcached client, where those
    /// are welcome: development mode, bucket `default`.
    pub fn adopt_legacy(&mut self, server: &ServerContext) {
        if self.said_hello || self.identity.is_some() {
            return;
        }
        let Some(identity) = server.users.anonymous() else { return };
        if !server.admit_user(identity.access.is_admin()) {
            return self.close(CloseReason::TooManyConnections);
        }
        self.identity = Some(identity);
        self.is_legacy = true;
        self.select(server.buckets.get(LEGACY_BUCKET));
    }

    /// Collection and logical key in a request's key field; `None` when it is not valid.
    pub fn doc_key<'k>(&self, field: &'k [u8]) -> Option<DocKey<'k>> {
        if self.features.has(Feature::Collections) {
            return split_collection_key(field).ok();
        }
        let is_valid = (1..=KEY_BYTES_MAX).contains(&field.len());
        is_valid.then_some(DocKey { collection: CollectionId::DEFAULT, key: field })
    }

    /// Vbucket of a request, from its header field. A memcached client knows no vbuckets and leaves the
    /// field 0: its requests are routed here.
    pub fn vbid(&self, field: u16, key: DocKey<'_>, vbuckets: u16) -> Vbid {
        match self.is_legacy && field == 0 {
            true => vbucket_of(key.key, vbuckets),
            false => Vbid(field),
        }
    }

    /// The status as this client understands it.
    pub fn wire_status(&self, status: Status) -> Status {
        if self.features.has(Feature::XError) { status } else { status::for_legacy(status) }
    }

    /// True while some write waits for the store, or some request was overtaken while it waits for a fetch.
    pub fn has_parked(&self) -> bool {
        self.has_parked_writes() || self.fetches.as_ref().is_some_and(|all| all.has_parked())
    }

    /// True while some write waits for the store.
    pub fn has_parked_writes(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| !parked.is_empty())
    }

    /// True while a long answer is being sent, piece by piece.
    pub fn is_streaming(&self) -> bool {
        self.stat.is_some() || self.range_scan.is_some()
    }

    /// True when a parked request is to be tried again.
    pub fn has_ready(&self) -> bool {
        self.fetches.as_ref().is_some_and(|all| all.has_ready())
    }

    /// Ends the wait for everything that is parked, if nothing is any more.
    pub fn release_parked(&mut self) {
        if self.wait == Wait::Parked && !self.has_parked() {
            self.wait = Wait::Nothing;
        }
    }

    /// Vbucket and key of a request about one document; `None` when its key field is not valid.
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

/// Where clients without SELECT_BUCKET land.
const LEGACY_BUCKET: &str = "default";
