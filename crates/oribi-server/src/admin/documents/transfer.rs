//! Whole values: the body of a `PUT`, and the answer to a `GET` with `raw=1`.
//!
//! Owns: their bounds in size and time. Invariants:
//! - a body above [`SHORT_BYTES_MAX`] names its length and needs a place of
//!   [`DocumentGate::enter_transfer`], as every raw answer does. So few long values are in memory
//!   at a time, and none longer than its deadline;
//! - a raw answer that ends early is shorter than its `Content-Length`, so no client takes a part
//!   for the whole. A browser that is led to it stores a file and shows nothing.
//!
//! Caller: `documents`.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use oribi_engine::ItemRef;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_types::Datatype;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::super::body::ReplyBody;
use super::super::document_gate::DocumentGate;
use super::super::message::{Refusal, Reply, error};

/// Bytes of a body that may come without a place, and without a length.
const SHORT_BYTES_MAX: usize = 1 << 20;

/// Time for a short body to arrive.
const SHORT_DEADLINE: Duration = Duration::from_secs(20);

/// Time for a long value, in either direction.
const LONG_DEADLINE: Duration = Duration::from_secs(120);

/// Bytes of a raw answer at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Receives a document.
pub(super) async fn receive(body: Incoming, gate: &DocumentGate) -> Result<Bytes, Refusal> {
    let length = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    match length {
        Some(bytes) if bytes > VALUE_BYTES_MAX => {
            tokio::spawn(discard(body));
            Err(too_long(VALUE_BYTES_MAX))
        }
        Some(bytes) if bytes > SHORT_BYTES_MAX => match gate.enter_transfer() {
            Ok(_place) => collect(body, VALUE_BYTES_MAX, LONG_DEADLINE).await,
            Err(refusal) => {
                tokio::spawn(discard(body));
                Err(refusal)
            }
        },
        _ => collect(body, SHORT_BYTES_MAX, SHORT_DEADLINE).await,
    }
}

async fn collect(body: Incoming, bytes_max: usize, deadline: Duration) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(deadline, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(too_long(bytes_max)),
        Err(_) => Err(error(StatusCode::REQUEST_TIMEOUT, "body too slow").into()),
    }
}

/// Receives a refused body behind its answer and keeps nothing of it: a browser in the middle of an
/// upload would report the closed connection instead of the answer. Gives up after
/// [`SHORT_DEADLINE`]; the connection then closes.
async fn discard(mut body: Incoming) {
    let receive = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(SHORT_DEADLINE, receive).await;
}

fn too_long(bytes_max: usize) -> Refusal {
    let message = match bytes_max {
        SHORT_BYTES_MAX => format!("A body of more than {SHORT_BYTES_MAX} bytes names its length"),
        _ => format!("A document has at most {bytes_max} bytes"),
    };
    error(StatusCode::PAYLOAD_TOO_LARGE, &message).into()
}

/// Sends the value of a document, without its attributes.
pub(super) fn send(item: ItemRef, place: OwnedSemaphorePermit) -> Result<Reply, Refusal> {
    let Ok(length) = item.plain_body_bytes() else {
        let message = "The stored value is damaged";
        return Err(error(StatusCode::INTERNAL_SERVER_ERROR, message).into());
    };
    let content_type = match item.datatype().contains(Datatype::JSON) {
        true => "application/json",
        false => "application/octet-stream",
    };
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        // A client that is gone or too slow gets less than the length says.
        let _ = tokio::time::timeout(LONG_DEADLINE, send_pieces(&item, &sender)).await;
        drop(place);
    });
    let mut reply = Response::new(ReplyBody::Stream { pieces, _open: None });
    let headers = reply.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

async fn send_pieces(item: &ItemRef, sender: &mpsc::Sender<Bytes>) {
    let mut scratch = Vec::new();
    let Ok(body) = item.plain_body(&mut scratch) else { return };
    for piece in body.chunks(PIECE_BYTES) {
        if sender.send(Bytes::copy_from_slice(piece)).await.is_err() {
            return;
        }
    }
}
