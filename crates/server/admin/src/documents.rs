//! Documents over HTTP: pages of a collection in key order, and reading, writing and deleting one.
//!
//! `GET .../docs` is a page, `GET`, `PUT` and `DELETE .../docs/KEY` are one document, where `...`
//! is `/pools/default/buckets/B` for the default collection or
//! `/pools/default/buckets/B/scopes/S/collections/C`. docs/console.md describes the parameters.
//!
//! Owns: which paths these are, and the rights that they need. The parts: [`parameters`] reads
//! queries, [`operations`] runs on the engine, [`view`] makes the JSON, [`transfer`] moves whole
//! values.
//!
//! Invariants:
//! - the rights are those of the same requests on the data port: a page needs `range-scan`, reading
//!   `read`, system attributes `system-xattr-read`, metadata `meta-read`, writing `upsert`
//!   (`insert` for a new document), deleting `delete`. A collection without any right looks like
//!   none;
//! - an answer has at most [`parameters::BYTES_SHOWN_MAX`] of a value and
//!   [`parameters::ROWS_MAX`] rows. Longer values go through [`transfer`];
//! - few of these requests run at a time (`document_gate`).
//!
//! Caller: `routes`. These requests are not counted as operations of clients.

mod operations;
mod parameters;
mod transfer;
mod view;

use std::sync::Arc;

use hyper::{Method, StatusCode};
use oribi_auth::{Privilege, PrivilegeSet};
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX};
use oribi_types::CollectionId;

use super::message::{
    HttpRejection, HttpReply, bucket_not_found, error, forbidden, no_memory, path_not_found,
};
use super::request::AdminRequest;
use super::state::AdminState;
use super::user_context::UserContext;
use operations::DocumentTarget;
use oribi_server::admin_api::memory::budget::Demand;
use oribi_server::admin_api::memory::ticket::Ticket;
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;
use parameters::{KeyName, PageParameters, ReadParameters, WriteParameters};

/// The path of a collection's documents, or of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address<'a> {
    bucket: &'a str,
    scope: &'a str,
    collection: &'a str,
    key: Option<&'a str>,
}

/// The address that a path names; `None` for other paths.
fn address<'a>(parts: &[&'a str]) -> Option<Address<'a>> {
    let ["pools", "default", "buckets", bucket, rest @ ..] = parts else { return None };
    let (scope, collection, rest) = match rest {
        ["scopes", scope, "collections", collection, rest @ ..] => (*scope, *collection, rest),
        rest => ("_default", "_default", rest),
    };
    let key = match rest {
        ["docs"] => None,
        ["docs", key] => Some(*key),
        _ => return None,
    };
    Some(Address { bucket, scope, collection, key })
}

/// The collection that an address names, and the user's rights in it.
struct ResolvedCollection {
    handle: Arc<BucketHandle>,
    collection: CollectionId,
    held: PrivilegeSet,
}

impl ResolvedCollection {
    fn demand(&self, needed: impl Into<PrivilegeSet>) -> Result<(), HttpRejection> {
        let missing = needed.into().without(self.held);
        match missing.is_empty() {
            true => Ok(()),
            false => Err(forbidden(&missing.to_words()).into()),
        }
    }
}

fn find(
    state: &AdminState,
    address: &Address<'_>,
    user: &UserContext,
) -> Result<ResolvedCollection, HttpRejection> {
    let handle = state.server.buckets.get(address.bucket).ok_or_else(bucket_not_found)?;
    let manifest = handle.bucket().manifest();
    let id = manifest.collection_id(address.scope, address.collection).ok();
    let mut rights = Rights::of(&user.identity, address.bucket);
    let found = id.map(|id| (id, rights.within(id, manifest)));
    let found = found.filter(|(_, held)| !held.is_empty());
    let (collection, held) = found.ok_or_else(|| {
        let path = format!("{}.{}", address.scope, address.collection);
        error(StatusCode::NOT_FOUND, &format!("Collection with name {path:?} is not found"))
    })?;
    Ok(ResolvedCollection { handle, collection, held })
}

/// Answers a request that reads.
pub(crate) async fn read(request: &AdminRequest) -> HttpReply {
    let (state, query) = (&request.state, request.query());
    let answered = async {
        let path = request.segments();
        let address = address(&path).ok_or_else(path_not_found)?;
        let found = find(state, &address, request.user())?;
        let _place = state.documents.enter()?;
        match address.key {
            None => page(state, &found, query).await,
            Some(key) => {
                found.demand(Privilege::Read)?;
                let parameters = ReadParameters::parse(query)?;
                let target = target(state, &found, key, &parameters.key)?;
                let item = operations::get(&target).await?;
                if parameters.is_raw {
                    let memory = &state.server.connections.memory;
                    let bytes = transfer::held_bytes(&item.item)?;
                    if let Some(held) = memory.hold(bytes) {
                        return transfer::send(item.item, held, memory);
                    }
                    // It may be replaced during the wait, and would stay in memory then.
                    drop(item);
                    let held = Ticket::wait(memory, Demand::of_bytes(bytes)).await;
                    let item = operations::get(&target).await?.item;
                    let is_enough = transfer::held_bytes(&item)? <= bytes;
                    let held = held.filter(|_| is_enough).ok_or_else(|| no_memory(memory))?;
                    return transfer::send(item, held, memory);
                }
                let scope = view::ViewScope::of(found.held, parameters.bytes_max);
                Ok(view::document(&target, &item, scope))
            }
        }
    };
    answered.await.unwrap_or_else(|refusal: HttpRejection| *refusal)
}

async fn page(
    state: &Arc<AdminState>,
    found: &ResolvedCollection,
    query: &str,
) -> Result<HttpReply, HttpRejection> {
    found.demand(Privilege::RangeScan)?;
    let parameters = PageParameters::parse(query)?;
    let _place = state.documents.enter_page()?;
    let rows_max = parameters.rows_max;
    let bucket = Arc::clone(found.handle.bucket());
    let page = operations::page(bucket, found.collection, parameters).await?;
    let scope = view::ViewScope::of(found.held, view::PREVIEW_BYTES);
    Ok(view::page(page, rows_max, scope))
}

/// Answers a request that changes a document.
pub(crate) async fn change(request: &mut AdminRequest) -> HttpReply {
    let (body, value_bytes_max) = request.take_body();
    let (state, user) = (&request.state, request.user());
    let answered = async {
        let path = request.segments();
        let address = address(&path).ok_or_else(path_not_found)?;
        if !user.identity.access.reaches(address.bucket) {
            let needed = format!("cluster.bucket[{}].data.docs!upsert", address.bucket);
            return Err(forbidden(&needed).into());
        }
        let found = find(state, &address, user)?;
        let Some(key) = address.key else {
            return Err(error(StatusCode::METHOD_NOT_ALLOWED, "The path names no document").into());
        };
        let _place = state.documents.enter()?;
        let parameters = WriteParameters::parse(request.query())?;
        let target = target(state, &found, key, &parameters.key)?;
        match *request.method() {
            Method::PUT => {
                found.demand(parameters.needed())?;
                let memory = &state.server.connections.memory;
                let value = transfer::receive(body, value_bytes_max, memory).await?;
                operations::put(&target, &parameters, &value).await
            }
            Method::DELETE => {
                found.demand(Privilege::Delete)?;
                operations::delete(&target, parameters.cas).await
            }
            _ => Err(error(StatusCode::METHOD_NOT_ALLOWED, "Use GET, PUT or DELETE").into()),
        }
    };
    answered.await.unwrap_or_else(|refusal: HttpRejection| *refusal)
}

fn target(
    state: &Arc<AdminState>,
    found: &ResolvedCollection,
    key: &str,
    name: &KeyName,
) -> Result<DocumentTarget, HttpRejection> {
    let bytes_max = match found.collection {
        CollectionId::DEFAULT => KEY_BYTES_MAX,
        _ => COLLECTION_KEY_BYTES_MAX,
    };
    let key = name.decode(key, bytes_max)?;
    Ok(DocumentTarget::new(
        Arc::clone(&state.server),
        Arc::clone(&found.handle),
        found.collection,
        key,
    ))
}
