//! A request under construction, in which every field can be wrong on purpose.

use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{
    CounterExtras, ExpiryExtras, RequestParts, SetExtras, encode_request,
};
use oribi_protocol::{frame_info, leb128};
use oribi_types::{Cas, CollectionId, DurabilityLevel, Vbid};

/// One request. Methods named after a field replace that field.
#[derive(Clone, Debug)]
pub struct Request {
    opcode: Opcode,
    vbid: Option<Vbid>,
    collection: Option<CollectionId>,
    cas: Cas,
    datatype: u8,
    framing: Vec<u8>,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Request {
    /// A request with an opcode only.
    pub fn new(opcode: Opcode) -> Request {
        Request {
            opcode,
            vbid: None,
            collection: None,
            cas: Cas(0),
            datatype: 0,
            framing: Vec::new(),
            extras: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// A request about a document of the default collection.
    pub fn about(opcode: Opcode, key: impl AsRef<[u8]>) -> Request {
        let mut request = Request::new(opcode).bare_key(key);
        request.collection = Some(CollectionId::DEFAULT);
        request
    }

    pub fn get(key: impl AsRef<[u8]>) -> Request {
        Request::about(Opcode::Get, key)
    }

    /// Writes a document without flags or expiry.
    pub fn set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Request {
        Request::store(Opcode::Set, key, value)
    }

    /// SET, ADD or REPLACE without flags or expiry.
    pub fn store(opcode: Opcode, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Request {
        Request::about(opcode, key).extras(&SetExtras::default().encode()).value(value)
    }

    pub fn delete(key: impl AsRef<[u8]>) -> Request {
        Request::about(Opcode::Delete, key)
    }

    /// INCREMENT or DECREMENT that creates the counter with `initial`.
    pub fn counter(opcode: Opcode, key: impl AsRef<[u8]>, delta: u64, initial: u64) -> Request {
        let extras = CounterExtras { delta, initial, expiry: 0 };
        Request::about(opcode, key).extras(&extras.encode())
    }

    pub fn touch(opcode: Opcode, key: impl AsRef<[u8]>, expiry: u32) -> Request {
        Request::about(opcode, key).extras(&ExpiryExtras { expiry }.encode())
    }

    /// Flags and expiry of a SET, ADD or REPLACE.
    pub fn flags_and_expiry(self, flags: u32, expiry: u32) -> Request {
        self.extras(&SetExtras { flags, expiry }.encode())
    }

    /// Requests a durability level.
    pub fn durable(mut self, level: DurabilityLevel) -> Request {
        frame_info::encode_durability(level, None, &mut self.framing);
        self
    }

    /// Collection of the key; sent only on connections that negotiated collections.
    pub fn collection(mut self, collection: CollectionId) -> Request {
        self.collection = Some(collection);
        self
    }

    /// A key field that is sent unchanged, without collection prefix.
    pub fn bare_key(mut self, key: impl AsRef<[u8]>) -> Request {
        self.collection = None;
        self.key = key.as_ref().to_vec();
        self
    }

    /// Vbucket, if it should not follow from the key.
    pub fn vbucket(mut self, vbid: Vbid) -> Request {
        self.vbid = Some(vbid);
        self
    }

    pub fn cas(mut self, cas: Cas) -> Request {
        self.cas = cas;
        self
    }

    pub fn datatype(mut self, datatype: u8) -> Request {
        self.datatype = datatype;
        self
    }

    pub fn framing(mut self, framing: &[u8]) -> Request {
        self.framing = framing.to_vec();
        self
    }

    pub fn extras(mut self, extras: &[u8]) -> Request {
        self.extras = extras.to_vec();
        self
    }

    pub fn value(mut self, value: impl AsRef<[u8]>) -> Request {
        self.value = value.as_ref().to_vec();
        self
    }

    /// The request's bytes for a bucket of `vbuckets` vbuckets.
    pub(super) fn encode(&self, opaque: u32, vbuckets: u16, collections: bool) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.key.len() + 5);
        if let (Some(collection), true) = (self.collection, collections) {
            let (prefix, length) = leb128::encode_u32(collection.0);
            key.extend_from_slice(&prefix[..length]);
        }
        key.extend_from_slice(&self.key);
        let routed = self.collection.map(|_| vbucket_of(&self.key, vbuckets));
        let parts = RequestParts {
            opcode: self.opcode,
            vbid: self.vbid.or(routed).unwrap_or_default(),
            opaque,
            cas: self.cas.0,
            datatype: self.datatype,
            framing: &self.framing,
            extras: &self.extras,
            key: &key,
            value: &self.value,
        };
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &parts);
        bytes
    }
}
