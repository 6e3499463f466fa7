//! One vbucket's place in a change stream: what may come next, and where to continue after it.
//!
//! Within a snapshot, the position names the end of the last complete one as the snapshot's start,
//! whatever later start was announced. A server that has lost the snapshot's end answers with a
//! rollback to its start, and only from the earlier place does it send everything again: a version
//! before the announced start may have been left out for a later one that is lost.
//!
//! Invariants: seqnos rise, and each lies within the snapshot that was announced last; the position
//! is always one that a stream request may name. A message that breaks them is refused, and the
//! position stays what it was. The client and the admin HTTP make their tokens with it.

use std::fmt;

use oribi_types::{Seqno, VbUuid, Vbid};

use crate::change_token::Position;

/// A message that does not fit the place of the reader; the text says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfOrder(pub &'static str);

impl fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for OutOfOrder {}

/// See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeCursor {
    position: Position,
    /// The snapshot that was announced last; its first message moves the position into it.
    announced: Option<(Seqno, Seqno)>,
}

impl ChangeCursor {
    /// A reader at a position.
    pub fn new(position: Position) -> ChangeCursor {
        ChangeCursor { position, announced: None }
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        self.position
    }

    fn vbid(&self) -> Vbid {
        self.position.vbid
    }

    /// A producer accepted the position; `vb_uuid` is its present history, which shares everything
    /// up to there.
    pub fn accept(&mut self, vb_uuid: VbUuid) {
        self.position.vb_uuid = vb_uuid;
        self.announced = None;
    }

    /// A producer knows the position's history only up to `to`. A request from there names the same
    /// history, which the producer has so far.
    ///
    /// # Errors
    /// When `to` is not below the position.
    pub fn roll_back(&mut self, to: Seqno) -> Result<Position, OutOfOrder> {
        if to >= self.position.seqno {
            return Err(OutOfOrder("a rollback that leads forward"));
        }
        self.announced = None;
        self.position = match to {
            Seqno(0) => Position::beginning(self.vbid()),
            to => Position::at(self.vbid(), self.position.vb_uuid, to),
        };
        Ok(self.position)
    }

    /// A snapshot begins.
    ///
    /// # Errors
    /// When it ends before the position.
    pub fn announce(&mut self, start: Seqno, end: Seqno) -> Result<(), OutOfOrder> {
        if start > end || end < self.position.seqno {
            return Err(OutOfOrder("a snapshot that leads back"));
        }
        self.announced = Some((start, end));
        Ok(())
    }

    /// A message with its own seqno; returns the position after it.
    ///
    /// # Errors
    /// When the seqno does not rise, or lies outside of the snapshot.
    pub fn advance(&mut self, seqno: Seqno) -> Result<Position, OutOfOrder> {
        if seqno <= self.position.seqno {
            return Err(OutOfOrder("a seqno that does not rise"));
        }
        self.move_to(seqno)
    }

    /// A message that only says how far the stream is, which may be where it was.
    ///
    /// # Errors
    /// When the seqno falls, or lies outside of the snapshot.
    pub fn advance_to(&mut self, seqno: Seqno) -> Result<Position, OutOfOrder> {
        if seqno < self.position.seqno {
            return Err(OutOfOrder("a seqno that does not rise"));
        }
        self.move_to(seqno)
    }

    fn move_to(&mut self, seqno: Seqno) -> Result<Position, OutOfOrder> {
        let Some((start, end)) = self.announced else {
            return Err(OutOfOrder("a change outside of any snapshot"));
        };
        if seqno < start || seqno > end {
            return Err(OutOfOrder("a change outside of its snapshot"));
        }
        self.position = match seqno == end {
            true => Position::at(self.vbid(), self.position.vb_uuid, seqno),
            false => {
                // At the end of a snapshot this is where it ended.
                let complete = self.position.snapshot.0;
                Position { seqno, snapshot: (complete.min(start), end), ..self.position }
            }
        };
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    //! What moves a cursor, and what must not.

    use proptest::prelude::*;

    use super::*;

    fn cursor_at(seqno: u64) -> ChangeCursor {
        ChangeCursor::new(Position::at(Vbid(3), VbUuid(7), Seqno(seqno)))
    }

    #[test]
    fn a_snapshot_counts_from_its_first_message() {
        let mut cursor = cursor_at(10);
        cursor.announce(Seqno(11), Seqno(20)).unwrap();
        assert_eq!(cursor.position().to_string(), "3:7:10", "nothing of it has come");
        assert_eq!(cursor.advance(Seqno(12)).unwrap().to_string(), "3:7:12:10:20");
        assert_eq!(cursor.advance(Seqno(20)).unwrap().to_string(), "3:7:20");
    }

    #[test]
    fn backward_changes_are_rejected_without_effect() {
        let mut cursor = cursor_at(10);
        cursor.advance(Seqno(11)).expect_err("no snapshot was announced");
        cursor.announce(Seqno(1), Seqno(9)).expect_err("it ends before the position");
        cursor.announce(Seqno(15), Seqno(12)).expect_err("it ends before it starts");
        cursor.announce(Seqno(12), Seqno(14)).unwrap();
        for seqno in [10, 9, 11, 15] {
            cursor.advance(Seqno(seqno)).expect_err("outside");
        }
        cursor.roll_back(Seqno(10)).expect_err("it would be repeated for ever");
        assert_eq!(cursor.position(), cursor_at(10).position());
    }

    #[test]
    fn a_rollback_keeps_the_history_that_is_shared() {
        let mut cursor = cursor_at(10);
        assert_eq!(cursor.roll_back(Seqno(4)).unwrap().to_string(), "3:7:4");
        assert_eq!(cursor.roll_back(Seqno(0)).unwrap(), Position::beginning(Vbid(3)));
        cursor.accept(VbUuid(9));
        assert_eq!(cursor.position().to_string(), "3:9:0");
    }

    proptest! {
        /// Whatever a server sends, the position is one that a request may name, and leads forward.
        #[test]
        fn positions_are_always_valid(
            steps in proptest::collection::vec((0..4_u8, 0..30_u64, 0..30_u64), 0..60),
        ) {
            let mut cursor = cursor_at(5);
            for (step, a, b) in steps {
                let before = cursor;
                let outcome = match step {
                    0 => cursor.announce(Seqno(a), Seqno(b)),
                    1 => cursor.advance(Seqno(a)).map(drop),
                    2 => cursor.advance_to(Seqno(a)).map(drop),
                    _ => cursor.roll_back(Seqno(a)).map(drop),
                };
                let Position { seqno, snapshot: (start, end), .. } = cursor.position();
                prop_assert!(start <= seqno && seqno <= end);
                match (outcome, step) {
                    (Err(_), _) => prop_assert_eq!(cursor, before),
                    (Ok(()), 3) => prop_assert!(seqno < before.position().seqno),
                    (Ok(()), _) => prop_assert!(seqno >= before.position().seqno),
                }
            }
        }
    }
}
