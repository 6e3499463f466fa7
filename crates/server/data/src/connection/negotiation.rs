//! Negotiated state of a connection: protocol, features, and the kind of client.
//!
//! Invariant: a client that said HELLO or selected a bucket is never treated as a memcached client.

use super::features::Features;

/// Kind of client: whether it can select a bucket and names the vbuckets of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClientKind {
    /// It has neither said HELLO nor used a document yet.
    #[default]
    Undecided,
    /// It used documents without either, so the server chose its bucket and routes its keys.
    Memcached,
    /// It said HELLO, or it selected a bucket.
    Couchbase,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct ClientNegotiation {
    features: Features,
    kind: ClientKind,
    is_text: bool,
    reads_histograms: bool,
}

impl ClientNegotiation {
    #[inline]
    pub fn features(&self) -> Features {
        self.features
    }

    /// True for a client whose bucket the server chose and whose keys it routes.
    #[inline]
    pub fn is_memcached(&self) -> bool {
        self.kind == ClientKind::Memcached
    }

    /// True for a client that said HELLO or selected a bucket.
    #[inline]
    pub fn is_couchbase(&self) -> bool {
        self.kind == ClientKind::Couchbase
    }

    /// True when the client speaks the text protocol.
    #[inline]
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// True when HELLO named one of Oribi's tools, which read a histogram as one JSON document.
    pub fn reads_histograms(&self) -> bool {
        self.reads_histograms
    }

    /// Takes over what HELLO negotiated.
    pub fn greet(&mut self, features: Features, reads_histograms: bool) {
        assert!(!self.is_text, "the text protocol has no HELLO");
        self.kind = ClientKind::Couchbase;
        (self.features, self.reads_histograms) = (features, reads_histograms);
    }

    /// The client has shown that it can select a bucket.
    pub fn note_selects(&mut self) {
        self.kind = ClientKind::Couchbase;
    }

    /// The client used a document without HELLO and without a selection.
    pub fn adopt_memcached(&mut self) {
        assert!(
            !self.is_couchbase() && !self.features.is_negotiated(),
            "a client that said HELLO or selected a bucket is no memcached client"
        );
        self.kind = ClientKind::Memcached;
    }

    /// Ends the adoption: another user may get another bucket.
    pub fn end_adoption(&mut self) {
        if self.is_memcached() {
            self.kind = ClientKind::Undecided;
        }
    }

    /// Decides by the first byte whether the client speaks the text protocol.
    pub fn decide_text(&mut self, is_text: bool) -> bool {
        assert!(!self.features.is_negotiated(), "the protocol is decided by the first byte");
        self.is_text = is_text;
        is_text
    }
}
