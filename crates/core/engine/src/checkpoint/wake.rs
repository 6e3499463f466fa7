//! How a stream learns that there is something to read.
//!
//! Owns: the trait of a stream's owner, and the pair by which a queue knows it. The queue collects
//! wakers under its lock; the caller wakes them after it.

use std::sync::Arc;

/// Receives the news that a stream can continue. Called from any thread; must not block.
pub trait StreamSink: Send + Sync {
    /// The stream that was opened with `token` has something to say.
    fn ready(&self, token: u64);
}

/// A stream's owner, and its name for the stream.
#[derive(Clone)]
pub struct StreamWaker {
    sink: Arc<dyn StreamSink>,
    token: u64,
}

/// Identity of an owner while one of its wakers is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StreamOwner(usize);

impl StreamWaker {
    /// Wakes by calling `sink` with `token`.
    pub fn new(sink: Arc<dyn StreamSink>, token: u64) -> StreamWaker {
        StreamWaker { sink, token }
    }

    /// Which owner it is.
    pub(crate) fn owner(&self) -> StreamOwner {
        StreamOwner(Arc::as_ptr(&self.sink).addr())
    }

    /// The owner's name for the stream.
    pub fn token(&self) -> u64 {
        self.token
    }

    pub fn wake(&self) {
        self.sink.ready(self.token);
    }
}
