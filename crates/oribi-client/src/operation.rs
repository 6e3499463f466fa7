//! Operations on one document: what is sent for them and what their answers mean.
//!
//! An [`Operation`] borrows its key and shares its value, and can be encoded any number of times, for
//! instance for another vbucket or a collection's new id. Owns the check of key and value lengths,
//! which everything below relies on.

use bytes::Bytes;
use oribi_protocol::frame_info::{encode_durability, encode_preserve_expiry};
use oribi_protocol::leb128;
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{
    COUNTER_DO_NOT_CREATE, CounterExtras, ExpiryExtras, RequestParts, SetExtras,
};
use oribi_protocol::response::MutationExtras;
use oribi_types::{Cas, CollectionId, Datatype, DurabilityLevel, Seqno, VbUuid, Vbid};

use crate::error::{ClientError, Malformed};
use crate::response::Response;

/// Flags that Couchbase SDKs expect of a JSON document: format 2 in the high byte ("common flags"),
/// and the legacy value that older ones look for.
pub const FLAGS_JSON: u32 = 0x0200_0006;

/// How a write is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// Write only if the document has this CAS; 0 for any.
    pub cas: Cas,
    /// Flags of the document, for example [`FLAGS_JSON`].
    pub flags: u32,
    /// Expiry: 0 for none, up to 30 days in seconds from now, larger as UNIX time.
    pub expiry: u32,
    /// When the server may answer.
    pub durability: DurabilityLevel,
    /// How long the server may take for the durability; its default if not given.
    pub durability_timeout_ms: Option<u16>,
    /// Keep the expiry that the document has.
    pub preserve_expiry: bool,
}

/// How a counter is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterOptions {
    /// What is added, or subtracted when `decrement` is set.
    pub delta: u64,
    /// Subtract instead of add; the value stops at zero.
    pub decrement: bool,
    /// Value of a counter that does not exist; `None` refuses to create one.
    pub initial: Option<u64>,
    /// Expiry of a counter that is created.
    pub expiry: u32,
    /// When the server may answer.
    pub durability: DurabilityLevel,
}

/// What kind of operation it is, with its own fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Get,
    Store(Opcode),
    Delete,
    Touch { expiry: u32 },
    Counter(CounterOptions),
}

/// One operation on one document, ready to be sent.
#[derive(Clone, Debug)]
pub struct Operation<'a> {
    kind: Kind,
    key: &'a [u8],
    value: Bytes,
    options: WriteOptions,
}

impl<'a> Operation<'a> {
    /// Reads a document.
    pub fn get(key: &'a [u8]) -> Operation<'a> {
        Operation::new(Kind::Get, key)
    }

    /// Writes a document whether it exists or not.
    pub fn upsert(key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation::store(Opcode::Set, key, value, options)
    }

    /// Writes a document that must not exist.
    pub fn add(key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation::store(Opcode::Add, key, value, options)
    }

    /// Writes a document that must exist.
    pub fn replace(key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation::store(Opcode::Replace, key, value, options)
    }

    /// Removes a document. Of the options, CAS and durability count.
    pub fn delete(key: &'a [u8], options: &WriteOptions) -> Operation<'a> {
        Operation { options: *options, ..Operation::new(Kind::Delete, key) }
    }

    /// Sets a document's expiry.
    pub fn touch(key: &'a [u8], expiry: u32) -> Operation<'a> {
        Operation::new(Kind::Touch { expiry }, key)
    }

    /// Changes a counter.
    pub fn counter(key: &'a [u8], options: &CounterOptions) -> Operation<'a> {
        let write = WriteOptions { durability: options.durability, ..WriteOptions::default() };
        Operation { options: write, ..Operation::new(Kind::Counter(*options), key) }
    }

    fn new(kind: Kind, key: &'a [u8]) -> Operation<'a> {
        Operation { kind, key, value: Bytes::new(), options: WriteOptions::default() }
    }

    fn store(opcode: Opcode, key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation { value, options: *options, ..Operation::new(Kind::Store(opcode), key) }
    }

    /// The logical key.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value that is sent; empty for operations without one.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// Checks what the server would only answer after it has read everything.
    pub(crate) fn check(&self, collection: CollectionId) -> Result<(), ClientError> {
        let max = match collection {
            CollectionId::DEFAULT => KEY_BYTES_MAX,
            _ => COLLECTION_KEY_BYTES_MAX,
        };
        if self.key.is_empty() || self.key.len() > max {
            return Err(ClientError::InvalidKey { len: self.key.len(), max });
        }
        if self.value.len() > VALUE_BYTES_MAX {
            return Err(ClientError::ValueTooLarge { len: self.value.len(), max: VALUE_BYTES_MAX });
        }
        Ok(())
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Get => Opcode::Get,
            Kind::Store(opcode) => opcode,
            Kind::Delete => Opcode::Delete,
            Kind::Touch { .. } => Opcode::Touch,
            Kind::Counter(CounterOptions { decrement: false, .. }) => Opcode::Increment,
            Kind::Counter(_) => Opcode::Decrement,
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Get | Kind::Delete => {}
            Kind::Store(_) => {
                let WriteOptions { flags, expiry, .. } = self.options;
                out.extend_from_slice(&SetExtras { flags, expiry }.encode());
            }
            Kind::Touch { expiry } => out.extend_from_slice(&ExpiryExtras { expiry }.encode()),
            Kind::Counter(counter) => {
                let extras = CounterExtras {
                    delta: counter.delta,
                    initial: counter.initial.unwrap_or(0),
                    expiry: counter.initial.map_or(COUNTER_DO_NOT_CREATE, |_| counter.expiry),
                };
                out.extend_from_slice(&extras.encode());
            }
        }
    }
}

/// Buffers that operations are encoded with, reused from one to the next.
#[derive(Default)]
pub(crate) struct Encoder {
    framing: Vec<u8>,
    extras: Vec<u8>,
    key: Vec<u8>,
}

impl Encoder {
    /// The request for a checked operation, without its value. `prefix` is the collection's id when
    /// the connection negotiated collections.
    pub fn encode(
        &mut self,
        operation: &Operation<'_>,
        vbid: Vbid,
        prefix: Option<CollectionId>,
    ) -> RequestParts<'_> {
        self.framing.clear();
        let options = &operation.options;
        encode_durability(options.durability, options.durability_timeout_ms, &mut self.framing);
        if options.preserve_expiry {
            encode_preserve_expiry(&mut self.framing);
        }
        self.extras.clear();
        operation.write_extras(&mut self.extras);
        self.key.clear();
        if let Some(collection) = prefix {
            let (bytes, len) = leb128::encode_u32(collection.0);
            self.key.extend_from_slice(&bytes[..len]);
        }
        self.key.extend_from_slice(operation.key);
        RequestParts {
            vbid,
            cas: options.cas.0,
            framing: &self.framing,
            extras: &self.extras,
            key: &self.key,
            ..RequestParts::new(operation.opcode())
        }
    }
}

/// Where a mutation stands in its vbucket's history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MutationToken {
    /// History.
    pub vb_uuid: VbUuid,
    /// Sequence number.
    pub seqno: Seqno,
}

/// A document that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// Value.
    pub value: Bytes,
    /// CAS, for a conditional write.
    pub cas: Cas,
    /// Flags that the writer set.
    pub flags: u32,
    /// What the server says the value is.
    pub datatype: Datatype,
}

/// The answer to an operation that succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// CAS of the document.
    pub cas: Cas,
    /// Value of a read, or the eight bytes of a counter.
    pub value: Bytes,
    /// Flags of a document that was read.
    pub flags: u32,
    /// Datatype of a document that was read.
    pub datatype: Datatype,
    /// For mutations, when the server sends it.
    pub mutation: Option<MutationToken>,
}

impl Reply {
    pub(crate) fn from_response(response: &Response) -> Result<Reply, ClientError> {
        response.outcome()?;
        let extras = response.extras();
        let mutation = MutationExtras::decode(extras)
            .map(|extras| MutationToken { vb_uuid: extras.vb_uuid, seqno: extras.seqno });
        let flags = <[u8; 4]>::try_from(extras).map_or(0, u32::from_be_bytes);
        Ok(Reply {
            cas: Cas(response.header.cas),
            value: response.value(),
            flags,
            datatype: Datatype(response.header.datatype),
            mutation,
        })
    }

    /// The counter's new value.
    pub fn counter_value(&self) -> Result<u64, Malformed> {
        let bytes = self.value[..]
            .try_into()
            .map_err(|_| Malformed::new("a counter's answer has eight bytes"))?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// The document, for the answer to a read.
    pub fn into_document(self) -> Document {
        Document { value: self.value, cas: self.cas, flags: self.flags, datatype: self.datatype }
    }
}

#[cfg(test)]
mod tests;
