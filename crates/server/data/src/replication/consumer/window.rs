//! The receive window of a link: bytes of messages that wait to be applied, and those to be
//! acknowledged.

/// Bytes that the node may send without an acknowledgement. A network of 1 Gbit/s and a round trip
/// of 10 ms fill it; a few links stay within the unreserved memory of connections.
const WINDOW_BYTES: u32 = 1 << 20;

/// See the module text.
#[derive(Default)]
pub(super) struct ReceiveWindow {
    pending: usize,
    applied: usize,
}

impl ReceiveWindow {
    pub(super) fn size(&self) -> u32 {
        WINDOW_BYTES
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Counts a message. `None` when the node does not heed the window. It sends one more message
    /// while the window is open; twice the window is generous.
    pub(super) fn receive(&mut self, bytes: usize) -> Option<()> {
        if self.pending + self.applied > 2 * WINDOW_BYTES as usize {
            return None;
        }
        self.pending += bytes;
        Some(())
    }

    /// Counts messages that are applied, or of no use.
    pub(super) fn apply(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.pending, "a message is received before it is applied");
        self.pending = self.pending.saturating_sub(bytes);
        self.applied += bytes;
    }

    /// True when so much waits that snapshots are applied in parts.
    pub(super) fn is_pressed(&self) -> bool {
        self.pending >= WINDOW_BYTES as usize / 2
    }

    /// The bytes to acknowledge, once they are worth a frame.
    pub(super) fn acknowledge(&mut self) -> Option<u32> {
        if self.applied < WINDOW_BYTES as usize / 4 {
            return None;
        }
        let bytes = u32::try_from(self.applied).unwrap_or(u32::MAX);
        self.applied -= bytes as usize;
        Some(bytes)
    }
}
