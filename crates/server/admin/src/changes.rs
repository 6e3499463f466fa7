//! Changes of a bucket as Server-Sent Events: `GET /pools/default/buckets/BUCKET/changes`.
//!
//! Owns: the permission for such a stream, and its response. The parts: [`parameters`] reads the
//! query, [`follower`] is the task that sends, [`wakeups`] connects it to the engine's threads, and
//! [`piece`] is the memory that waits for the client. [`oribi_server::admin_api::feed`] makes the
//! lines.
//!
//! Invariants:
//! - rights are those of change streams on the data port, checked at the beginning and again
//!   whenever the users change;
//! - a stream holds one piece at a time, reserved in the connections' memory, so a client that does
//!   not read costs a bounded and counted amount; the engine keeps nothing for it;
//! - every stream counts against its user's streams (`admission`).
//!
//! Caller: `routes`.

mod follower;
mod parameters;
pub(super) mod piece;
pub(super) mod wakeups;

use std::sync::Arc;
use std::time::Instant;

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use oribi_engine::dcp::StreamFilter;
use oribi_protocol::change_token::ChangeToken;
use oribi_system::clock::wall_clock;
use tokio::sync::mpsc;

use super::body::ReplyBody;
use super::message::{
    HttpRejection, HttpReply, bucket_not_found, busy, error, field_error, forbidden,
};
use super::state::AdminState;
use super::user_context::UserContext;
use crate::limits::ADMIN_CHANGES_VBUCKETS_MAX;
use follower::{Follower, FollowerEnd, FollowerParts, StreamUser};
use oribi_server::admin_api::dcp_registry::DcpProducerRecord;
use oribi_server::admin_api::feed::{DcpFeed, FeedEnd, FeedRequest};
use oribi_server::admin_api::rights::Rights;
use oribi_server::admin_api::{StreamRejection, may_stream};
use oribi_server::buckets::BucketHandle;
use parameters::{ChangesParameters, CollectionSelection};
use wakeups::Wakeups;

/// Prefix of these streams' names in statistics.
const NAME: &str = "http";

/// Where a client says that it lost its connection.
const LAST_EVENT_ID: &str = "last-event-id";
const _: () = assert!(ADMIN_CHANGES_VBUCKETS_MAX == 256, "a refusal names the limit");

/// Makes nginx and similar proxies forward events at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) fn stream(
    state: &Arc<AdminState>,
    bucket: &str,
    (query, headers): (&str, &HeaderMap),
    user: &UserContext,
) -> HttpReply {
    match begin(state, bucket, (query, headers), user) {
        Ok(reply) => reply,
        Err(refusal) => *refusal,
    }
}

fn begin(
    state: &Arc<AdminState>,
    bucket: &str,
    (query, headers): (&str, &HeaderMap),
    user: &UserContext,
) -> Result<HttpReply, HttpRejection> {
    let handle = state.server.buckets.get(bucket).ok_or_else(bucket_not_found)?;
    let mut parameters = ChangesParameters::parse(query)?;
    if let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        parameters.from = token_of(id)?;
    }
    let users_generation = state.server.access.users.generation();
    let mut rights = Rights::of(&user.identity, bucket);
    let filter = filter_of(&handle, &mut rights, &parameters.shown)?;
    check_rights(&handle, &mut rights, &filter)?;
    let sparse_ids = parameters.sparse_ids;
    let request = feed_request(&handle, parameters, filter.clone())?;
    let Some(place) = user.begin_stream() else {
        return Err(busy("this user has too many streams").into());
    };
    let wakeups = Wakeups::new();
    let feed = DcpFeed::open(Arc::clone(&handle), request, wakeups.clone(), Instant::now())
        .map_err(not_opened)?;
    let viewer = StreamUser { user: user.identity.name.clone(), filter, users_generation };
    let record = entered(state, &handle, &viewer.user, &wakeups);
    let (sender, pieces) = mpsc::channel(1);
    let bucket = handle;
    let state = Arc::clone(state);
    let open = state.open_stream();
    let parts = FollowerParts { state, bucket, feed, viewer, record, wakeups, sparse_ids };
    let follower = Follower::new(parts);
    let taken_bytes = follower.taken_bytes();
    tokio::spawn(async move {
        if follower.run(sender).await == FollowerEnd::Stalled {
            tracing::info!("closed a stream of changes over HTTP: the client does not read");
            place.connection().close();
        }
    });
    let mut reply = Response::new(ReplyBody::counted_pieces(pieces, taken_bytes, Some(open)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(reply)
}

fn token_of(id: &HeaderValue) -> Result<ChangeToken, HttpRejection> {
    let token = id.to_str().ok().and_then(|text| text.parse().ok());
    token.ok_or_else(|| field_error("Last-Event-ID", "This is no change token").into())
}

/// The collections by their names, as the user sees them.
fn filter_of(
    handle: &BucketHandle,
    rights: &mut Rights,
    shown: &CollectionSelection,
) -> Result<StreamFilter, HttpRejection> {
    let manifest = rights.visible(handle.bucket().manifest());
    match shown {
        CollectionSelection::All => Ok(StreamFilter::All),
        CollectionSelection::Scope(name) => {
            manifest.scope_id(name).map(StreamFilter::Scope).map_err(|_| unknown("Scope", name))
        }
        CollectionSelection::Collections(paths) => {
            let mut ids = Vec::new();
            for path in paths {
                let (scope, name) = path.split_once('.').unwrap_or(("_default", path));
                let id = manifest.collection_id(scope, name);
                let id = id.map_err(|_| unknown("Collection", path))?;
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            Ok(StreamFilter::Collections(ids))
        }
    }
}

fn unknown(kind: &str, name: &str) -> HttpRejection {
    error(StatusCode::NOT_FOUND, &format!("{kind} with name {name:?} is not found")).into()
}

fn check_rights(
    handle: &BucketHandle,
    rights: &mut Rights,
    filter: &StreamFilter,
) -> Result<(), HttpRejection> {
    may_stream(rights, handle, filter).map_err(|may_not| {
        let refused = match may_not {
            StreamRejection::SeeIt => error(StatusCode::NOT_FOUND, "Collection is not found"),
            StreamRejection::Read(_) => {
                forbidden(&format!("cluster.bucket[{}].data.dcpstream!read", handle.name()))
            }
        };
        refused.into()
    })
}

fn feed_request(
    handle: &BucketHandle,
    parameters: ChangesParameters,
    filter: StreamFilter,
) -> Result<FeedRequest, HttpRejection> {
    let refuse = |field, message: &str| Err(field_error(field, message).into());
    let vbuckets = parameters.vbuckets.unwrap_or(0..handle.vbuckets());
    if vbuckets.end > handle.vbuckets() {
        return refuse("vbuckets", "The bucket has fewer vbuckets");
    }
    if vbuckets.len() > usize::from(ADMIN_CHANGES_VBUCKETS_MAX) {
        return refuse(
            "vbuckets",
            "A stream follows at most 256 vbuckets; use several, with vbuckets=0-255 and so on",
        );
    }
    if parameters.from.positions().iter().any(|known| known.vbid.0 >= handle.vbuckets()) {
        return refuse("from", "The token is of a larger bucket");
    }
    Ok(FeedRequest {
        filter,
        vbuckets,
        from: parameters.from,
        until_now: parameters.until_now,
        values: parameters.values,
        xattrs: parameters.xattrs,
        snapshots: parameters.snapshots,
    })
}

fn not_opened(end: FeedEnd) -> HttpRejection {
    match end {
        FeedEnd::NotMyVbucket => {
            busy("this node does not serve all of these vbuckets; `oribi watch` finds their nodes")
        }
        _ => field_error("from", "The bucket is not as far as the token says"),
    }
    .into()
}

/// Shows the stream in statistics, and lets the bucket's end wake it.
fn entered(
    state: &AdminState,
    handle: &BucketHandle,
    user: &str,
    wakeups: &Arc<Wakeups>,
) -> Arc<DcpProducerRecord> {
    let number = state.next_stream();
    let name = format!("{NAME}:{number}");
    let sink = Arc::clone(wakeups) as _;
    let record = DcpProducerRecord::new(
        name.as_bytes(),
        number,
        (user.to_owned(), None),
        wall_clock(),
        sink,
    );
    let record = Arc::new(record);
    handle.producers().enter(&record);
    record
}
