//! Bytes that were received and not yet looked at, in one piece.
//!
//! Invariant: the buffer grows only when what is unread fills it, so it holds at most twice the
//! longest answer and one receive. Its memory is kept.

/// Least space that a receive gets.
const RECEIVE_BYTES: usize = 64 * 1024;

/// See the module text.
#[derive(Debug, Default)]
pub struct AnswerBuffer {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl AnswerBuffer {
    /// Received bytes that are not consumed.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Consumes the first `count` unread bytes; there must be that many.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.begin += count;
        assert!(self.begin <= self.end, "only what is there is consumed");
    }

    /// Room for the next receive.
    pub fn spare(&mut self) -> &mut [u8] {
        let unread = self.end - self.begin;
        if self.bytes.len() - self.end < RECEIVE_BYTES {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, unread);
        }
        if self.bytes.len() - self.end < RECEIVE_BYTES {
            let bytes = (2 * self.bytes.len()).max(unread + RECEIVE_BYTES);
            self.bytes.resize(bytes, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Takes note of so many bytes in the space.
    pub fn commit(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "only as much is received as there is room for");
    }
}

#[cfg(test)]
mod tests {
    //! What is received is what is read, however it is torn, and memory does not grow with it.

    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_memory_is_bounded() {
        let mut buffer = AnswerBuffer::default();
        let (mut received, mut read) = (0u32, 0u32);
        for round in 1..2000usize {
            let room = buffer.spare();
            let count = room.len().min(round * 37 % 9000);
            for byte in &mut room[..count] {
                *byte = (received % 251) as u8;
                received += 1;
            }
            buffer.commit(count);
            // At most 9,000 bytes stay in the buffer.
            let count = buffer.unread().len() - round % buffer.unread().len().clamp(1, 9000);
            let expected = (read..).map(|number| (number % 251) as u8);
            assert!(buffer.unread()[..count].iter().copied().eq(expected.take(count)));
            buffer.consume(count);
            read += count as u32;
        }
        assert!(buffer.bytes.len() <= 4 * RECEIVE_BYTES, "{}", buffer.bytes.len());
    }

    #[test]
    fn an_answer_longer_than_the_buffer_fits() {
        let mut buffer = AnswerBuffer::default();
        for byte in 0..20u8 {
            let room = buffer.spare();
            assert!(room.len() >= RECEIVE_BYTES);
            room[..RECEIVE_BYTES].fill(byte);
            buffer.commit(RECEIVE_BYTES);
        }
        assert_eq!(buffer.unread().len(), 20 * RECEIVE_BYTES);
        for (byte, chunk) in buffer.unread().chunks(RECEIVE_BYTES).enumerate() {
            assert!(chunk.iter().all(|found| usize::from(*found) == byte));
        }
    }
}
