//! Bucket configurations over HTTP: once, or whenever they change.
//!
//! Owns: the stream's rhythm and end. Invariants: a stream holds no bucket open, it looks it up by
//! name each time; it ends when the bucket is dropped, the server stops, the client is gone or
//! [`STREAM_DURATION`] is over, after which clients reconnect. Caller: `routes`.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AdminState;
use super::body::ReplyBody;
use super::message::{Reply, bucket_not_found, json_text};
use crate::cluster_config::ConfigVersion;

/// How often a stream looks for a new revision; configurations change when an administrator acts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a stream lives at most.
const STREAM_DURATION: Duration = Duration::from_secs(600);

/// What separates configurations, and what keeps a silent stream alive.
const SEPARATOR: &str = "\n\n\n\n";

/// The configuration of a bucket.
pub(crate) fn terse(state: &AdminState, bucket: &str) -> Reply {
    match document(state, bucket) {
        Some((_, text)) => json_text(&text),
        None => bucket_not_found(),
    }
}

/// The configuration of a bucket now and after each change.
pub(crate) fn streaming(state: &Arc<AdminState>, bucket: &str) -> Reply {
    let Some((version, text)) = document(state, bucket) else {
        return bucket_not_found();
    };
    let (sender, receiver) = mpsc::channel(2);
    let (state, bucket) = (Arc::clone(state), bucket.to_owned());
    tokio::spawn(async move {
        follow(&state, &bucket, version, text, &sender).await;
    });
    let mut reply = Response::new(ReplyBody::Stream(receiver));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

async fn follow(
    state: &AdminState,
    bucket: &str,
    first: ConfigVersion,
    first_text: String,
    sender: &mpsc::Sender<Bytes>,
) {
    let end = Instant::now() + STREAM_DURATION;
    let mut stopping = state.stopping.clone();
    let mut sent = first;
    let mut next = Some(first_text);
    loop {
        if let Some(text) = next.take()
            && sender.send(Bytes::from(text + SEPARATOR)).await.is_err()
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

fn document(state: &AdminState, bucket: &str) -> Option<(ConfigVersion, String)> {
    let handle = state.server.buckets.get(bucket)?;
    let document = state.server.bucket_document(&handle);
    Some((document.version, document.json.to_string()))
}
