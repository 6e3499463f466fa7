//! The state of one connection: its user, its negotiated and selected options, and its waits.
//!
//! Each part owns its fields and transitions (`crate::connection`); this file owns the transitions
//! that concern several parts.
//!
//! Invariants:
//! - another user, or none, means another selection: the bucket is deselected;
//! - rights are computed when user or bucket change, or the users do;
//! - a memcached client whose collection does not exist uses no other one.
//!
//! The connection's record in the registry follows this state.

mod invariants;

use std::sync::Arc;

use oribi_auth::audit::Actor;
use oribi_auth::{Identity, UserStore};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Header;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::leb128::split_collection_key;
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::status::Status;
use oribi_types::{DocKey, Vbid};

use crate::buckets::{BucketHandle, MemcachedPlace};
use crate::connection::close_reason::CloseReason;
use crate::connection::deferred::DeferredRequests;
use crate::connection::features::Features;
use crate::connection::memory::ConnectionReservation;
use crate::connection::negotiation::ClientNegotiation;
use crate::connection::pending::Pending;
use crate::connection::registry::ConnectionRecord;
use crate::connection::rights::Rights;
use crate::connection::selection::BucketSelection;
use crate::connection::user::ConnectionUser;
use crate::dcp::DcpProducer;
use crate::dispatch::status;
use crate::server_context::ServerContext;

/// See the module text.
pub(crate) struct ConnectionState {
    /// Published state of this connection, for other threads.
    record: Arc<ConnectionRecord>,
    pub user: ConnectionUser,
    negotiation: ClientNegotiation,
    pub selection: BucketSelection,
    pub pending: Pending,
    pub deferred: DeferredRequests,
    /// Memory reserved for a large request, or for large answers and changes.
    pub reserved: ConnectionReservation,
    /// The DCP streams of a connection that was opened for them.
    pub producer: Option<Box<DcpProducer>>,
    /// Set once: the rest of the output is sent, then the connection ends.
    closing: Option<CloseReason>,
}

impl ConnectionState {
    /// Creates the state of a new connection, with nothing negotiated.
    pub fn new(record: Arc<ConnectionRecord>, now_ms: u64) -> ConnectionState {
        let selection = BucketSelection::new(None, record.worker);
        ConnectionState {
            record,
            user: ConnectionUser::unknown(now_ms),
            negotiation: ClientNegotiation::default(),
            selection,
            pending: Pending::default(),
            deferred: DeferredRequests::default(),
            reserved: ConnectionReservation::default(),
            producer: None,
            closing: None,
        }
    }

    pub fn record(&self) -> &ConnectionRecord {
        &self.record
    }

    #[inline]
    pub fn features(&self) -> Features {
        self.negotiation.features()
    }

    /// True when the client speaks the text protocol.
    #[inline]
    pub fn is_text(&self) -> bool {
        self.negotiation.is_text()
    }

    /// True when the client reads a histogram as one JSON document.
    pub fn reads_histograms(&self) -> bool {
        self.negotiation.reads_histograms()
    }

    #[inline]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.user.identity()
    }

    /// Rights of the user in the selected bucket.
    #[inline]
    pub fn rights(&self) -> &Rights {
        self.user.rights()
    }

    #[inline]
    pub fn bucket(&self) -> Option<&Arc<BucketHandle>> {
        self.selection.bucket()
    }

    /// Why the connection ends, once it does.
    #[inline]
    pub fn closing(&self) -> Option<CloseReason> {
        self.closing
    }

    /// Makes `identity` the user of the connection, and deselects the bucket.
    pub fn authenticate(&mut self, identity: Arc<Identity>) {
        assert!(self.producer.is_none(), "a producer keeps its user");
        self.user.prove(identity);
        self.negotiation.end_adoption();
        self.select(None);
    }

    /// Takes over what HELLO negotiated. What the server chose for a memcached client no longer
    /// holds.
    pub fn greet(&mut self, features: Features, reads_histograms: bool, now_ms: u64) {
        assert!(self.producer.is_none(), "a producer keeps its features");
        if self.user.is_guest() {
            self.deauthenticate(now_ms);
        } else if self.is_memcached() {
            self.select(None);
        }
        self.negotiation.greet(features, reads_histograms);
        assert!(
            !self.is_memcached() && !self.user.is_guest(),
            "a client that said HELLO is no guest"
        );
    }

    /// Decides by the first byte whether the client speaks the text protocol.
    pub fn decide_text(&mut self, is_text: bool) -> bool {
        self.negotiation.decide_text(is_text)
    }

    /// Selects the bucket that the client named, or none. The client has shown that it can select.
    pub fn select_named(&mut self, bucket: Option<Arc<BucketHandle>>) {
        assert!(self.producer.is_none(), "a producer keeps its bucket");
        self.negotiation.note_selects();
        self.select(bucket);
    }

    /// True for a client whose bucket the server chose and whose keys it routes.
    #[inline]
    pub fn is_memcached(&self) -> bool {
        self.negotiation.is_memcached()
    }

    /// Forgets the user and deselects the bucket.
    pub fn deauthenticate(&mut self, now_ms: u64) {
        self.user.forget(now_ms);
        self.negotiation.end_adoption();
        self.select(None);
        assert!(self.rights().somewhere().is_empty(), "rights end with their user");
    }

    /// The requester, for the audit log.
    pub fn actor(&self) -> Actor {
        Actor {
            user: self.user.name().to_owned(),
            connection: Some(self.record.number),
            peer: self.record.peer(),
        }
    }

    /// Takes over changes of the user's roles; false when the user no longer exists. A bucket in
    /// which no right is left is deselected, as it could not be selected now.
    pub fn refresh_user(&mut self, users: &UserStore) -> bool {
        let Some(identity) = self.user.identity() else { return true };
        let Some(current) = self.user.current(users) else { return false };
        if current == *identity {
            return true;
        }
        self.record.agree(|agreement| agreement.user = Some(Arc::clone(&current)));
        self.user.update(current);
        self.user.compute_rights(self.selection.bucket().map(|bucket| bucket.name()));
        debug_assert!(self.user.is_known(), "rights are those of a user");
        if let Some(producer) = &mut self.producer {
            producer.rights_changed();
        }
        if self.bucket().is_some() && self.rights().somewhere().is_empty() {
            self.select(None);
        }
        true
    }

    /// Selects a bucket, or none, and computes the rights in it.
    pub fn select(&mut self, bucket: Option<Arc<BucketHandle>>) {
        assert!(
            bucket.is_none() || self.user.is_known(),
            "a connection without a user selects no bucket"
        );
        self.selection = BucketSelection::new(bucket, self.record.worker);
        let bucket = self.selection.bucket().map(|bucket| bucket.name());
        self.user.compute_rights(bucket);
        self.record.agree(|agreement| {
            agreement.user = self.user.identity().cloned();
            agreement.bucket = bucket.map(Box::from);
        });
    }

    /// Treats a client that neither said HELLO nor selected a bucket as a memcached client, which
    /// can do neither. It gets its user's bucket. In development mode it gets the user of
    /// unauthenticated clients.
    pub fn adopt_memcached(&mut self, server: &ServerContext) {
        if self.negotiation.is_couchbase() {
            return;
        }
        if !self.user.is_known() {
            let Some(guest) = server.access.users.anonymous() else { return };
            if !server.connections.admit_user(guest.access.is_admin()) {
                return self.close(CloseReason::TooManyConnections);
            }
            self.user.admit_guest(guest);
        }
        let identity = self.user.identity();
        let bucket =
            identity.and_then(|user| server.buckets.of_memcached_client(user, &server.memcached));
        assert!(self.user.is_known(), "a memcached client is a user or a guest");
        self.negotiation.adopt_memcached();
        self.select(bucket);
        self.find_collection(&server.memcached);
    }

    /// Looks up the collection of a memcached client by name. Collections come and go, so this is
    /// repeated now and then.
    pub fn find_collection(&mut self, place: &MemcachedPlace) {
        if self.is_memcached() {
            let user = self.user.identity().map(|user| &**user);
            self.selection.find_collection(place, user);
        }
    }

    /// Collection and logical key in a request's key field; `None` when it is not valid.
    pub fn doc_key<'k>(&self, field: &'k [u8]) -> Option<DocKey<'k>> {
        if self.features().has(Feature::Collections) {
            return split_collection_key(field).ok();
        }
        let is_valid = (1..=KEY_BYTES_MAX).contains(&field.len());
        is_valid.then_some(DocKey { collection: self.selection.collection(), key: field })
    }

    /// Vbucket of a request, from its header field. A memcached client has no vbuckets and leaves
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
            status if self.features().has(Feature::XError) => status,
            Status::Eaccess if self.is_memcached() => Status::AuthError,
            Status::UnknownCollection | Status::UnknownScope
                if self.features().has(Feature::Collections) =>
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
            && self.negotiation.is_couchbase()
            && !self.features().has(Feature::XError);
        if closes {
            self.close(CloseReason::NoAccess);
        }
        closes
    }

    /// Ends the wait for deferred requests when none is left.
    pub fn release_deferred(&mut self) {
        if !self.deferred.is_any() {
            self.pending.end_deferred_wait();
        }
    }

    /// Vbucket and key of a request about one document; `None` when its key field is not valid.
    // For every request; see `document_of` of the driver.
    #[inline(always)]
    pub fn document<'k>(&self, header: &Header, field: &'k [u8]) -> Option<(Vbid, DocKey<'k>)> {
        let vbuckets = self.bucket()?.vbuckets();
        let key = self.doc_key(field)?;
        Some((self.vbid(header.vbucket_or_status, key, vbuckets), key))
    }

    /// Starts the end of the connection; the first reason stays.
    pub fn close(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        debug_assert!(self.closing.is_some(), "a connection keeps its first reason to close");
    }
}
