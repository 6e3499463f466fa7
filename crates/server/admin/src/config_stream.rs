//! Bucket configurations over HTTP: once, or after each change.
//!
//! Owns: the stream's rhythm and end. Invariants: a stream holds no bucket open, but looks it up by
//! name each time. It ends when the bucket is dropped, the server stops, the client is gone or
//! [`STREAM_DURATION`] is over, after which clients reconnect. Caller: `routes`.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::body::ReplyBody;
use super::message::{HttpReply, bucket_not_found, busy, json_text};
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::cluster_config::ConfigDocumentVersion;

/// Interval between checks for a new revision; configurations change when an administrator acts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Longest duration of a stream.
const STREAM_DURATION: Duration = Duration::from_secs(600);
const _: () = assert!(LOOK_INTERVAL.as_millis() < STREAM_DURATION.as_millis());

/// Separator of configurations, which also keeps an idle stream alive.
const SEPARATOR: &str = "\n\n\n\n";

/// The configuration of a bucket.
pub(crate) fn terse(state: &AdminState, bucket: &str) -> HttpReply {
    match document(state, bucket) {
        Some((_, text)) => json_text(&text),
        None => bucket_not_found(),
    }
}

/// The configuration of a bucket now and after each change.
pub(crate) fn streaming(state: &Arc<AdminState>, bucket: &str, user: &UserContext) -> HttpReply {
    let Some((version, text)) = document(state, bucket) else {
        return bucket_not_found();
    };
    let Some(place) = user.begin_stream() else {
        return busy("this user has too many streams");
    };
    let (sender, receiver) = mpsc::channel(2);
    let (state, bucket) = (Arc::clone(state), bucket.to_owned());
    tokio::spawn(async move {
        follow(&state, &bucket, version, text, &sender).await;
        drop(place);
    });
    let mut reply = Response::new(ReplyBody::pieces(receiver));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

async fn follow(
    state: &AdminState,
    bucket: &str,
    first: ConfigDocumentVersion,
    first_text: String,
    sender: &mpsc::Sender<Bytes>,
) {
    let end = Instant::now() + STREAM_DURATION;
    let mut stopping = state.stopping.clone();
    let mut sent = first;
    let mut next = Some(first_text);
    loop {
        if let Some(text) = next.take()
            && !sends(sender, Bytes::from(text + SEPARATOR), end, stopping.clone()).await
        {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            () = sender.closed() => return,
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        match document(state, bucket) {
            Some((version, text)) if version > sent => {
                sent = version;
                next = Some(text);
            }
            Some(_) if Instant::now() < end => {}
            _ => return,
        }
    }
}

/// Sends a piece; false when the client is gone, or does not read until the stream's end.
async fn sends(
    sender: &mpsc::Sender<Bytes>,
    piece: Bytes,
    end: Instant,
    mut stopping: watch::Receiver<bool>,
) -> bool {
    tokio::select! {
        sent = sender.send(piece) => sent.is_ok(),
        () = tokio::time::sleep_until(end) => false,
        _ = stopping.wait_for(|stop| *stop) => false,
    }
}

fn document(state: &AdminState, bucket: &str) -> Option<(ConfigDocumentVersion, String)> {
    let handle = state.server.buckets.get(bucket)?;
    let document = state.server.cluster.bucket_document(&handle);
    Some((document.version, document.json.to_string()))
}
