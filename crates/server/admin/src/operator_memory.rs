//! Memory for the answers that operators need most when memory is short: figures of the server.
//!
//! Owns: [`OPERATOR_BYTES`] that no other answer, connection, scan or statement can take, and which
//! answers may have it. Invariants: an answer has it for `OPERATOR_READING_DEADLINE` at most, so
//! clients that do not read it give it back before most collectors ask again; an answer that does
//! not fit takes its turn in the connections' memory. A health answer has a few bytes, which need
//! no reservation. Callers: `routes`, which marks answers, and `message`.

use std::sync::Arc;

use hyper::Response;
use hyper::http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::ReplyBody;
use crate::limits::OPERATOR_BYTES;

/// The mark of an answer.
const _: () = assert!(OPERATOR_BYTES <= Semaphore::MAX_PERMITS, "a permit is a byte");
#[derive(Debug, Clone, Copy)]
struct ForOperators;

/// Marks an answer to a user who may see the figures of the whole server.
pub(crate) fn for_operators(mut reply: Response<ReplyBody>) -> Response<ReplyBody> {
    reply.extensions_mut().insert(ForOperators);
    reply
}

/// See the module text.
pub(crate) struct OperatorMemory {
    bytes: Arc<Semaphore>,
}

impl OperatorMemory {
    /// All of it is free.
    pub(crate) fn new() -> OperatorMemory {
        OperatorMemory { bytes: Arc::new(Semaphore::new(OPERATOR_BYTES)) }
    }

    /// Memory for an answer of so many bytes, if it is for operators and there is space.
    pub(crate) fn hold(
        &self,
        extensions: &Extensions,
        bytes: usize,
    ) -> Option<OwnedSemaphorePermit> {
        debug_assert!(self.bytes.available_permits() <= OPERATOR_BYTES, "bytes return once");
        extensions.get::<ForOperators>()?;
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.bytes).try_acquire_many_owned(bytes).ok()
    }

    /// Bytes that are free.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.bytes.available_permits()
    }
}
