//! Flow control of one producer: how much may be sent before the consumer acknowledges.
//!
//! Owns: the bytes in flight. Whole frames count, those of all messages except noops. Invariant: a
//! message of any size may be sent while less than the window is in flight, so one larger than the
//! window does not get stuck.

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct FlowWindow {
    /// Size in bytes; 0 for no limit.
    size: u32,
    unacknowledged: u64,
    acknowledged: u64,
}

impl FlowWindow {
    /// Sets the size; messages in flight stay in flight.
    pub fn resize(&mut self, size: u32) {
        self.size = size;
    }

    /// Size in bytes; 0 for no limit.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// All bytes that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// True when another message may be sent.
    pub fn is_open(&self) -> bool {
        self.room() > 0
    }

    /// Bytes that may be sent; one message more may begin within them.
    pub fn room(&self) -> u64 {
        match self.size {
            0 => u64::MAX,
            size => u64::from(size).saturating_sub(self.unacknowledged),
        }
    }

    /// Records a message, or several.
    pub fn sent(&mut self, bytes: usize) {
        if self.size != 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// Takes an acknowledgement. More than is in flight counts as all of it.
    pub fn acknowledge(&mut self, bytes: u32) {
        self.unacknowledged = self.unacknowledged.saturating_sub(u64::from(bytes));
        self.acknowledged += u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::FlowWindow;

    #[test]
    fn an_oversized_message_is_sent_if_none_is_in_flight() {
        let mut window = FlowWindow::default();
        window.sent(1_000_000);
        assert!(window.is_open() && window.unacknowledged() == 0, "no window, no count");
        window.resize(100);
        assert!(window.is_open());
        window.sent(99);
        assert!(window.is_open());
        window.sent(20_000_000);
        assert!(!window.is_open());
        window.acknowledge(20_000_000);
        assert!(window.is_open());
        window.acknowledge(u32::MAX);
        assert_eq!(window.unacknowledged(), 0, "too much counts as all");
        window.sent(100);
        assert!(!window.is_open());
        window.resize(0);
        assert!(window.is_open());
    }
}
