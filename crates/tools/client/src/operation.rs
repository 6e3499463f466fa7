//! Operations on one document: what is sent for them and what their answers mean.
//!
//! An [`Operation`] borrows its key and shares its value, and can be encoded any number of times,
//! for instance for another vbucket or a collection's new id. Owns the check of key and value
//! lengths, which everything below relies on.

mod encoder;

use bytes::Bytes;
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras, ExpiryExtras, SetExtras};
use oribi_types::{Cas, CollectionId, Datatype};

pub(crate) use encoder::{Encoder, EncodingTerms};

use crate::error::ClientError;
use crate::subdocument::{self, Lookup, LookupInOptions, MutateInOptions, PathMutation};
use crate::version::{self, DocumentVersion};
use crate::write_options::{CounterOptions, WriteOptions};

/// Kind of operation, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Get,
    GetAndTouch {
        expiry: u32,
    },
    GetAndLock {
        seconds: u32,
    },
    Unlock,
    GetMeta,
    Store(Opcode),
    /// Append or prepend.
    Concatenate(Opcode),
    Delete,
    Touch {
        expiry: u32,
    },
    Counter(CounterOptions),
    Subdocument(subdocument::OperationHead),
    WithMeta(DocumentVersion),
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

    /// Reads a document and sets its expiry.
    pub fn get_and_touch(key: &'a [u8], expiry: u32) -> Operation<'a> {
        Operation::new(Kind::GetAndTouch { expiry }, key)
    }

    /// Reads a document and locks it for `seconds`, 0 for the server's default. The CAS of the
    /// reply is what writes or unlocks it concurrently.
    pub fn get_and_lock(key: &'a [u8], seconds: u32) -> Operation<'a> {
        Operation::new(Kind::GetAndLock { seconds }, key)
    }

    /// Unlocks a document; `cas` is that of [`Operation::get_and_lock`].
    pub fn unlock(key: &'a [u8], cas: Cas) -> Operation<'a> {
        let options = WriteOptions { cas, ..WriteOptions::default() };
        Operation { options, ..Operation::new(Kind::Unlock, key) }
    }

    /// Reads what is known about a document, deleted ones included, without its value.
    pub fn get_meta(key: &'a [u8]) -> Operation<'a> {
        Operation::new(Kind::GetMeta, key)
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

    /// Adds bytes at the end of a document that must exist. Of the options, CAS and durability
    /// count.
    pub fn append(key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation::concatenate(Opcode::Append, key, value, options)
    }

    /// Adds bytes at the start of a document that must exist. Of the options, CAS and durability
    /// count.
    pub fn prepend(key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation::concatenate(Opcode::Prepend, key, value, options)
    }

    /// Reads parts of a document. Fails when the list of paths is one that no server accepts.
    pub fn lookup_in(
        key: &'a [u8],
        paths: &[Lookup<'_>],
        options: &LookupInOptions,
    ) -> Result<Operation<'a>, ClientError> {
        let (head, value) = subdocument::encode_lookup(paths, options)?;
        Ok(Operation { value, ..Operation::new(Kind::Subdocument(head), key) })
    }

    /// Changes parts of a document, all or none. Fails when the list of paths is one that no server
    /// accepts.
    pub fn mutate_in(
        key: &'a [u8],
        paths: &[PathMutation<'_>],
        options: &MutateInOptions,
    ) -> Result<Operation<'a>, ClientError> {
        let (head, value) = subdocument::encode_mutation(paths, options)?;
        let options = options.write_options();
        Ok(Operation { value, options, ..Operation::new(Kind::Subdocument(head), key) })
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

    /// Stores a version that was made elsewhere, with its metadata; `value` is its attributes and
    /// body as [`DocumentVersion::datatype`] says, for a removal at most attributes.
    pub fn with_meta(key: &'a [u8], value: Bytes, version: &DocumentVersion) -> Operation<'a> {
        Operation { value, ..Operation::new(Kind::WithMeta(*version), key) }
    }

    fn new(kind: Kind, key: &'a [u8]) -> Operation<'a> {
        Operation { kind, key, value: Bytes::new(), options: WriteOptions::default() }
    }

    fn store(opcode: Opcode, key: &'a [u8], value: Bytes, options: &WriteOptions) -> Operation<'a> {
        Operation { value, options: *options, ..Operation::new(Kind::Store(opcode), key) }
    }

    fn concatenate(
        opcode: Opcode,
        key: &'a [u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Operation<'a> {
        Operation { value, options: *options, ..Operation::new(Kind::Concatenate(opcode), key) }
    }

    /// The same operation on another key.
    pub(crate) fn with_key<'b>(&self, key: &'b [u8]) -> Operation<'b> {
        Operation { kind: self.kind, key, value: self.value.clone(), options: self.options }
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
        let max = match self.kind {
            // Attributes have their own limit.
            Kind::WithMeta(_) => VALUE_BYTES_MAX + version::ATTRIBUTE_BYTES_MAX,
            _ => VALUE_BYTES_MAX,
        };
        if self.value.len() > max {
            return Err(ClientError::ValueTooLarge { len: self.value.len(), max });
        }
        Ok(())
    }

    /// True when carrying it out twice is the same as once, whatever happens in between: it changes
    /// nothing.
    pub fn is_read(&self) -> bool {
        match self.kind {
            Kind::Get | Kind::GetMeta => true,
            Kind::Subdocument(head) => head.is_read,
            _ => false,
        }
    }

    /// Type of the value as it is given.
    pub(crate) fn datatype(&self) -> Datatype {
        match self.kind {
            Kind::WithMeta(version) => version.datatype,
            _ => Datatype::RAW,
        }
    }

    /// True when its value is a document that may be sent compressed.
    fn has_document_value(&self) -> bool {
        matches!(self.kind, Kind::Store(_))
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Get => Opcode::Get,
            Kind::GetAndTouch { .. } => Opcode::Gat,
            Kind::GetAndLock { .. } => Opcode::GetLocked,
            Kind::Unlock => Opcode::UnlockKey,
            Kind::GetMeta => Opcode::GetMeta,
            Kind::Store(opcode) | Kind::Concatenate(opcode) => opcode,
            Kind::Subdocument(head) => head.opcode,
            Kind::Delete => Opcode::Delete,
            Kind::Touch { .. } => Opcode::Touch,
            Kind::Counter(CounterOptions { is_decrement: false, .. }) => Opcode::Increment,
            Kind::Counter(_) => Opcode::Decrement,
            Kind::WithMeta(version) => version.opcode(),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::Get
            | Kind::Unlock
            | Kind::GetMeta
            | Kind::Concatenate(_)
            | Kind::Delete
            | Kind::GetAndLock { seconds: 0 } => {}
            Kind::GetAndLock { seconds } => out.extend_from_slice(&seconds.to_be_bytes()),
            Kind::Subdocument(head) => out.extend_from_slice(head.extras()),
            Kind::Store(_) => {
                let WriteOptions { flags, expiry, .. } = self.options;
                out.extend_from_slice(&SetExtras { flags, expiry }.encode());
            }
            Kind::Touch { expiry } | Kind::GetAndTouch { expiry } => {
                out.extend_from_slice(&ExpiryExtras { expiry }.encode());
            }
            Kind::WithMeta(version) => version.write_extras(out),
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

#[cfg(test)]
mod tests;
