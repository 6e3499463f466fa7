//! Bytes that a link has to send: requests and acknowledgements.
//!
//! Owns: the bytes that the socket has not taken, and their bound. The other node reads them all
//! the time, so a link whose output passes the bound is broken. Sent bytes are dropped before they
//! outnumber the unsent ones, so the memory of a link that is never quite drained is bounded, too.

use crate::replication::failure::LinkFailure;

/// Most unsent bytes of a link: a request and several acknowledgements for each of 1024 vbuckets.
pub(super) const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// See the module text.
#[derive(Default)]
pub(super) struct LinkOutput {
    bytes: Vec<u8>,
    sent: usize,
}

impl LinkOutput {
    /// Where messages are appended.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The socket took so many of the unsent bytes.
    pub(super) fn advance(&mut self, taken: usize) {
        assert!(taken <= self.unsent().len(), "only written bytes are sent");
        self.sent += taken;
        if self.sent >= self.bytes.len() - self.sent {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        debug_assert!(self.sent <= self.unsent().len(), "most of the memory is unsent");
    }

    /// # Errors
    /// The other node does not read.
    pub(super) fn check(&self) -> Result<(), LinkFailure> {
        match self.unsent().len() <= OUTPUT_BYTES_MAX {
            true => Ok(()),
            false => Err(LinkFailure::Unread(OUTPUT_BYTES_MAX)),
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Nothing bounded what a link wrote to a node that did not read.
    #[test]
    fn output_that_is_not_read_ends_the_link() {
        let mut output = LinkOutput::default();
        while output.unsent().len() < OUTPUT_BYTES_MAX {
            assert_eq!(output.check(), Ok(()));
            output.tail().extend_from_slice(&[7; 1 << 10]);
        }
        assert_eq!(output.check(), Ok(()));
        output.tail().push(7);
        assert_eq!(output.check(), Err(LinkFailure::Unread(OUTPUT_BYTES_MAX)));
    }

    // Sent bytes stayed until all were sent, which under load is never.
    #[test]
    fn output_that_is_never_drained_stays_small() {
        let (mut output, mut expected) = (LinkOutput::default(), 0u8);
        output.tail().extend((0..100).map(|at| at as u8));
        let mut next = 100u8;
        for _ in 0..10_000 {
            for _ in 0..10 {
                output.tail().push(next);
                next = next.wrapping_add(1);
            }
            assert_eq!(output.unsent()[0], expected, "nothing is lost or sent twice");
            output.advance(10);
            expected = expected.wrapping_add(10);
            assert_eq!(output.unsent().len(), 100);
        }
        assert!(output.held_bytes() < 1000, "{}", output.held_bytes());
    }
}
