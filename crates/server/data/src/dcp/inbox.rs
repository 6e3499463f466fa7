//! Wake-ups of one producer by other threads.
//!
//! Owns: the streams that became ready since the producer last polled. Invariant: the worker's
//! mailbox holds at most one message for a producer, however many of its streams wake. The engine's
//! threads and other workers push; the producer's worker takes.

use std::sync::Arc;

use oribi_engine::dcp::StreamSink;
use parking_lot::Mutex;

use crate::connection::waker::{ConnectionId, ConnectionWaker};

/// See the module text.
pub(crate) struct Inbox {
    waker: Arc<dyn ConnectionWaker>,
    connection: ConnectionId,
    waiting: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    tokens: Vec<u32>,
    /// The worker has a message that it has not acted on.
    is_announced: bool,
}

impl Inbox {
    /// The inbox of the producer on this connection.
    pub fn new(waker: Arc<dyn ConnectionWaker>, connection: ConnectionId) -> Arc<Inbox> {
        Arc::new(Inbox { waker, connection, waiting: Mutex::default() })
    }

    /// Moves the tokens of streams that woke to `into`, which must be empty.
    pub fn take(&self, into: &mut Vec<u32>) {
        assert!(into.is_empty(), "tokens taken before were all handled");
        let mut waiting = self.waiting.lock();
        waiting.is_announced = false;
        std::mem::swap(&mut waiting.tokens, into);
    }

    /// Gives the producer a turn.
    pub fn give_turn(&self) {
        self.put(None);
    }

    fn put(&self, token: Option<u32>) {
        let mut waiting = self.waiting.lock();
        waiting.tokens.extend(token);
        if !std::mem::replace(&mut waiting.is_announced, true) {
            drop(waiting);
            self.waker.dcp_ready(self.connection);
        }
    }
}

impl StreamSink for Inbox {
    fn ready(&self, token: u64) {
        // Tokens are positions in the producer's table of streams; any other is just a turn.
        self.put(u32::try_from(token).ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::waker::WakerLog;

    #[test]
    fn one_message_for_many_streams() {
        let log = Arc::new(WakerLog::default());
        let waker = Arc::clone(&log) as Arc<dyn ConnectionWaker>;
        let inbox = Inbox::new(waker, ConnectionId { slot: 1, generation: 2 });
        for token in 0..64 {
            inbox.ready(token);
        }
        assert_eq!(log.dcp.lock().len(), 1);
        let mut tokens = Vec::new();
        inbox.take(&mut tokens);
        assert_eq!(tokens, (0..64).collect::<Vec<u32>>());
        // A wake-up after the take is announced again.
        inbox.ready(3);
        inbox.ready(u64::MAX);
        assert_eq!(log.dcp.lock().len(), 2);
    }
}
