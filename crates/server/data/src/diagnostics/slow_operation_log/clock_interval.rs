//! The time of a few requests together, for connections that time none of them.
//!
//! Owns: the requests served since the clock was last read. The worker reads the clock when its
//! round begins, at the end of each turn, and within a turn after [`STRETCH_MAX`] requests. So the
//! requests between two readings are few and share one reading, and the slow one is among them. A
//! client that waits for each answer has one request in a turn, so its time is exact. Invariant: a
//! request costs two stores and no clock reading. One per worker.

/// Requests between two readings: few enough to name, and a sixteenth of a reading for each.
pub(crate) const STRETCH_MAX: usize = 16;
const _: () = assert!(STRETCH_MAX <= u8::MAX as usize, "a byte counts the opcodes");

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct ClockInterval {
    /// Start of the stretch, on the latency clock.
    begun_ns: u64,
    opcodes: [u8; STRETCH_MAX],
    count: u8,
}

impl ClockInterval {
    /// Starts a new stretch.
    pub fn begin(&mut self, now_ns: u64) {
        (self.begun_ns, self.count) = (now_ns, 0);
    }

    /// Notes a request that is about to be served. Requests beyond the capacity are not recorded.
    #[inline]
    pub fn push(&mut self, opcode: u8) {
        if let Some(place) = self.opcodes.get_mut(usize::from(self.count)) {
            *place = opcode;
            self.count += 1;
        }
    }

    /// True when the clock has to be read before the next request.
    #[inline]
    pub fn is_full(&self) -> bool {
        usize::from(self.count) >= STRETCH_MAX
    }

    /// Opcodes of the requests so far, in their order.
    pub fn opcodes(&self) -> &[u8] {
        &self.opcodes[..usize::from(self.count)]
    }

    /// Time since the start, in microseconds.
    pub fn elapsed_us(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.begun_ns) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_names_up_to_sixteen_requests() {
        let mut stretch = ClockInterval::default();
        stretch.begin(5_000);
        for opcode in 0..STRETCH_MAX as u8 {
            assert!(!stretch.is_full());
            stretch.push(opcode);
        }
        assert!(stretch.is_full());
        stretch.push(99);
        assert_eq!(stretch.opcodes(), (0..STRETCH_MAX as u8).collect::<Vec<_>>());
        assert_eq!(stretch.elapsed_us(2_505_999), 2_500);
        stretch.begin(9_000);
        assert!(stretch.opcodes().is_empty() && stretch.elapsed_us(8_000) == 0);
    }
}
