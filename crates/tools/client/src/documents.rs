//! The operations of [`Client`] on one document, each as a method with its own types.
//!
//! A miss of a read is `None`. Everything else that the server decides against is an error with its
//! [`RejectionKind`]. All run through [`Client::run`] with its retries.

use bytes::Bytes;
use oribi_protocol::opcode::Opcode;
use oribi_types::Cas;

use crate::client::Client;
use crate::collection::Collection;
use crate::error::{ClientError, RejectionKind, Site};
use crate::operation::Operation;
use crate::reply::{CounterReply, Document, DocumentMeta, Reply, WriteReply};
use crate::subdocument::{
    Lookup, LookupInOptions, LookupInReply, MutateInOptions, MutateInReply, PathMutation,
};
use crate::write_options::{CounterOptions, WriteOptions};

impl Client {
    /// Reads a document; `None` when there is none.
    pub async fn get(
        &self,
        collection: &Collection,
        key: &[u8],
    ) -> Result<Option<Document>, ClientError> {
        self.read(collection, &Operation::get(key)).await
    }

    /// Reads a document and sets its expiry; `None` when there is none.
    pub async fn get_and_touch(
        &self,
        collection: &Collection,
        key: &[u8],
        expiry: u32,
    ) -> Result<Option<Document>, ClientError> {
        self.read(collection, &Operation::get_and_touch(key, expiry)).await
    }

    /// Reads a document and locks it for `seconds`, 0 for the server's default; `None` when there
    /// is none. [`RejectionKind::Locked`] when another client has locked it.
    pub async fn get_and_lock(
        &self,
        collection: &Collection,
        key: &[u8],
        seconds: u32,
    ) -> Result<Option<Document>, ClientError> {
        self.read(collection, &Operation::get_and_lock(key, seconds)).await
    }

    /// Unlocks a document, else [`RejectionKind::NotLocked`]; `cas` is what
    /// [`Client::get_and_lock`] gave.
    pub async fn unlock(
        &self,
        collection: &Collection,
        key: &[u8],
        cas: Cas,
    ) -> Result<(), ClientError> {
        self.run(collection, &Operation::unlock(key, cas)).await.map(drop)
    }

    /// True when there is a document.
    pub async fn exists(&self, collection: &Collection, key: &[u8]) -> Result<bool, ClientError> {
        let meta = self.get_meta(collection, key).await?;
        Ok(meta.is_some_and(|meta| !meta.is_deleted))
    }

    /// Metadata of a document or a deleted one; `None` when there is none.
    pub async fn get_meta(
        &self,
        collection: &Collection,
        key: &[u8],
    ) -> Result<Option<DocumentMeta>, ClientError> {
        let reply = self.run(collection, &Operation::get_meta(key)).await;
        Ok(unless_missing(reply)?.and_then(|reply| reply.meta()))
    }

    /// Writes a document whether it exists or not.
    pub async fn upsert(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::upsert(key, value, options)).await
    }

    /// Writes a document that must not exist, else [`RejectionKind::Exists`].
    pub async fn add(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::add(key, value, options)).await
    }

    /// Writes a document that must exist, else [`RejectionKind::NotFound`].
    pub async fn replace(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::replace(key, value, options)).await
    }

    /// Adds bytes at the end of a document that must exist, else [`RejectionKind::NotStored`].
    pub async fn append(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::append(key, value, options)).await
    }

    /// Adds bytes at the start of a document that must exist, else [`RejectionKind::NotStored`].
    pub async fn prepend(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::prepend(key, value, options)).await
    }

    /// Removes a document, else [`RejectionKind::NotFound`].
    pub async fn delete(
        &self,
        collection: &Collection,
        key: &[u8],
        options: &WriteOptions,
    ) -> Result<WriteReply, ClientError> {
        self.mutate(collection, Operation::delete(key, options)).await
    }

    /// Sets a document's expiry, else [`RejectionKind::NotFound`].
    pub async fn touch(
        &self,
        collection: &Collection,
        key: &[u8],
        expiry: u32,
    ) -> Result<Cas, ClientError> {
        Ok(self.run(collection, &Operation::touch(key, expiry)).await?.cas)
    }

    /// Changes a counter.
    pub async fn counter(
        &self,
        collection: &Collection,
        key: &[u8],
        options: &CounterOptions,
    ) -> Result<CounterReply, ClientError> {
        let operation = Operation::counter(key, options);
        let reply = self.run(collection, &operation).await?;
        let WriteReply { cas, mutation } = reply.write_reply();
        let value = reply.counter_value().map_err(|error| error.at(self.site_of(&operation)))?;
        Ok(CounterReply { value, cas, mutation })
    }

    /// Reads parts of a document; `None` when there is none. A path that leads nowhere is an
    /// outcome of that path.
    pub async fn lookup_in(
        &self,
        collection: &Collection,
        key: &[u8],
        paths: &[Lookup<'_>],
        options: &LookupInOptions,
    ) -> Result<Option<LookupInReply>, ClientError> {
        let operation = Operation::lookup_in(key, paths, options)?;
        let Some(reply) = unless_missing(self.run(collection, &operation).await)? else {
            return Ok(None);
        };
        let reply = LookupInReply::decode(reply, paths.len());
        reply.map(Some).map_err(|error| error.at(self.site_of(&operation)))
    }

    /// Changes parts of a document, all or none: [`ClientError::Path`] says which one could not be
    /// changed.
    pub async fn mutate_in(
        &self,
        collection: &Collection,
        key: &[u8],
        paths: &[PathMutation<'_>],
        options: &MutateInOptions,
    ) -> Result<MutateInReply, ClientError> {
        let operation = Operation::mutate_in(key, paths, options)?;
        let reply = self.run(collection, &operation).await?;
        MutateInReply::decode(reply, paths.len())
            .map_err(|error| error.at(self.site_of(&operation)))
    }

    async fn read(
        &self,
        collection: &Collection,
        operation: &Operation<'_>,
    ) -> Result<Option<Document>, ClientError> {
        let reply = unless_missing(self.run(collection, operation).await)?;
        Ok(reply.map(Reply::into_document))
    }

    async fn mutate(
        &self,
        collection: &Collection,
        operation: Operation<'_>,
    ) -> Result<WriteReply, ClientError> {
        Ok(self.run(collection, &operation).await?.write_reply())
    }

    /// Where an answer came from, for one that turns out to be malformed only here.
    fn site_of(&self, operation: &Operation<'_>) -> Site {
        let opcode: Opcode = operation.opcode();
        let topology = self.cluster().topology();
        let node = topology.active_node(topology.config.vbucket_of(operation.key()));
        let peer = node.map(|node| node.address().to_string().into()).unwrap_or_default();
        Site { peer, operation: opcode.name() }
    }
}

/// A miss is no error for a read.
fn unless_missing(reply: Result<Reply, ClientError>) -> Result<Option<Reply>, ClientError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(ClientError::Rejected(RejectionKind::NotFound)) => Ok(None),
        Err(error) => Err(error),
    }
}
