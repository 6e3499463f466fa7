//! Whole values: the body of a `PUT`, and the answer to a `GET` with `raw=1`.
//!
//! Owns: their bounds in size and time. Invariant: a long value is reserved in the connections'
//! memory before it is received or sent until it was stored or sent. So HTTP clients hold no more
//! than that allows, none longer than its deadline, and none that lags while others wait. A browser
//! that is led to a raw answer stores a file and shows nothing.
//!
//! Caller: `documents`.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use oribi_engine::ItemRef;
use oribi_types::Datatype;

use super::super::body::{READING_DEADLINE, ReplyBody};
use super::super::message::{HttpRejection, HttpReply, error, no_memory};
use oribi_server::admin_api::memory::budget::Demand;
use oribi_server::admin_api::memory::lag::Lag;
use oribi_server::admin_api::memory::ticket::Ticket;
use oribi_server::admin_api::memory::{ConnectionMemory, Reservation};

/// Bytes of a body for which no memory is reserved.
const SHORT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a body that does not name its length.
const UNANNOUNCED_BYTES_MAX: usize = 1 << 20;

/// Time for a body of up to [`UNANNOUNCED_BYTES_MAX`] to arrive.
const SHORT_DEADLINE: Duration = Duration::from_secs(20);

/// Interval between two looks whether others wait for the memory of a value.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for a longer value to arrive.
const LONG_DEADLINE: Duration = Duration::from_secs(120);
const _: () = assert!(SHORT_DEADLINE.as_millis() < LONG_DEADLINE.as_millis());
const _: () = assert!(SHORT_BYTES_MAX < UNANNOUNCED_BYTES_MAX);

/// A document that was received.
pub(super) struct ValueBody {
    bytes: Vec<u8>,
    _memory: Option<Reservation>,
}

impl Deref for ValueBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) async fn receive(
    body: Incoming,
    value_bytes_max: usize,
    memory: &Arc<ConnectionMemory>,
) -> Result<ValueBody, HttpRejection> {
    let length = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let bytes_max = length.unwrap_or(UNANNOUNCED_BYTES_MAX);
    if bytes_max > value_bytes_max {
        tokio::spawn(discard(body));
        return Err(too_long(value_bytes_max));
    }
    let held = match bytes_max > SHORT_BYTES_MAX {
        true => Ticket::wait(memory, Demand::of_bytes(bytes_max)).await.map(Some),
        false => Some(None),
    };
    let Some(held) = held else {
        tokio::spawn(discard(body));
        return Err(no_memory(memory).into());
    };
    let deadline = if bytes_max > UNANNOUNCED_BYTES_MAX { LONG_DEADLINE } else { SHORT_DEADLINE };
    let has_waiters = || held.is_some() && memory.has_waiters();
    let bytes = collect(body, bytes_max, deadline, has_waiters).await?;
    debug_assert!(bytes.len() <= bytes_max, "a body is within its reservation");
    Ok(ValueBody { bytes, _memory: held })
}

/// The whole body, in memory that is filled once when its length is known. It ends at the deadline,
/// or when the client lags while others wait.
async fn collect(
    mut body: Incoming,
    bytes_max: usize,
    deadline: Duration,
    has_waiters: impl Fn() -> bool,
) -> Result<Vec<u8>, HttpRejection> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(announced.min(bytes_max));
    let deadline = Instant::now() + deadline;
    let mut lag = Lag::begin();
    loop {
        match tokio::time::timeout(LOOK_INTERVAL, body.frame()).await {
            Ok(None) => return Ok(bytes),
            Ok(Some(frame)) => {
                let frame =
                    frame.map_err(|_| error(StatusCode::BAD_REQUEST, "the body broke off"))?;
                let Ok(part) = frame.into_data() else { continue };
                assert!(bytes.len() <= bytes_max, "a body that is too long was refused");
                if part.len() > bytes_max - bytes.len() {
                    return Err(too_long(bytes_max));
                }
                bytes.extend_from_slice(&part);
                lag.earn(part.len());
            }
            Err(_) => {}
        }
        if Instant::now() >= deadline || lag.is_too_long() && has_waiters() {
            return Err(error(StatusCode::REQUEST_TIMEOUT, "body too slow").into());
        }
    }
}

/// Receives a refused body after its answer and keeps nothing of it: a browser in the middle of an
/// upload would report the closed connection instead of the answer. Stops after [`SHORT_DEADLINE`];
/// the connection then closes.
async fn discard(mut body: Incoming) {
    let receive = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(SHORT_DEADLINE, receive).await;
}

fn too_long(bytes_max: usize) -> HttpRejection {
    let message = match bytes_max {
        UNANNOUNCED_BYTES_MAX => {
            format!("A body of more than {UNANNOUNCED_BYTES_MAX} bytes names its length")
        }
        _ => format!("A document has at most {bytes_max} bytes"),
    };
    error(StatusCode::PAYLOAD_TOO_LARGE, &message).into()
}

/// Bytes that the answer with a document holds. The document may leave its bucket before it is
/// sent, and a compressed one is inflated as a whole.
pub(super) fn held_bytes(item: &ItemRef) -> Result<usize, HttpRejection> {
    let Ok(length) = item.plain_body_bytes() else { return Err(damaged()) };
    Ok(item.value_bytes() + if item.is_compressed() { length } else { 0 })
}

/// Sends the value of a document, without its attributes.
pub(super) fn send(
    item: ItemRef,
    held: Reservation,
    memory: &Arc<ConnectionMemory>,
) -> Result<HttpReply, HttpRejection> {
    let Ok(length) = item.plain_body_bytes() else { return Err(damaged()) };
    let is_compressed = item.is_compressed();
    let content_type = match item.datatype().contains(Datatype::JSON) {
        true => "application/json",
        false => "application/octet-stream",
    };
    let mut inflated = Vec::new();
    let body = match item.plain_body(&mut inflated) {
        Err(_) => return Err(damaged()),
        Ok(_) if is_compressed => {
            ReplyBody::paced(inflated, held, READING_DEADLINE, Some(Arc::clone(memory)))
        }
        Ok(_) => {
            ReplyBody::paced(StoredValue(item), held, READING_DEADLINE, Some(Arc::clone(memory)))
        }
    };
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// A value as it is stored, plain.
struct StoredValue(ItemRef);

impl AsRef<[u8]> for StoredValue {
    fn as_ref(&self) -> &[u8] {
        self.0.body()
    }
}

fn damaged() -> HttpRejection {
    error(StatusCode::INTERNAL_SERVER_ERROR, "The stored value is damaged").into()
}
