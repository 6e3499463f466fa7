//! Which seqnos of each vbucket a segment has, so that scans by seqno pass over segments and read
//! the others forwards.
//!
//! Owns: [`Spans`] of one segment. Invariant: a span covers every version of its vbucket that the
//! index points at in the segment; it may cover more. Commits and moves tell them. Opening finds
//! them in the segment's index file, or as it reads the segment. Of a segment whose index file is
//! of an earlier build nothing is known until a scan has read the vbucket's records in it, which
//! are then never joined by others.

use std::collections::BTreeMap;

use oribi_types::{Seqno, Vbid};

/// The seqnos of one vbucket in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) lowest: Seqno,
    pub(super) highest: Seqno,
    /// They lie in ascending order.
    pub(super) is_ascending: bool,
}

impl Span {
    pub(super) fn of(seqno: Seqno) -> Span {
        Span { lowest: seqno, highest: seqno, is_ascending: true }
    }

    /// With one more record after the others.
    pub(super) fn and(self, seqno: Seqno) -> Span {
        self.followed_by(Span::of(seqno))
    }

    /// With the records of another span after the others.
    pub(super) fn followed_by(self, later: Span) -> Span {
        debug_assert!(self.lowest <= self.highest, "a span has a seqno");
        debug_assert!(later.lowest <= later.highest, "a span has a seqno");
        Span {
            lowest: self.lowest.min(later.lowest),
            highest: self.highest.max(later.highest),
            is_ascending: self.is_ascending && later.is_ascending && self.highest < later.lowest,
        }
    }
}

/// A segment's facts about one vbucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentKnowledge {
    /// No more than that its records are there, if the index points at any.
    Nothing,
    /// It has no records.
    Absent,
    Span(Span),
}

/// The spans of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    by_vbucket: BTreeMap<Vbid, Span>,
    /// All writes to the segment are included.
    is_complete: bool,
}

impl Spans {
    /// Of a segment that has nothing yet.
    pub(super) fn complete() -> Spans {
        Spans { is_complete: true, ..Spans::default() }
    }

    /// Records were written after the others.
    pub(super) fn wrote(&mut self, vbid: Vbid, written: Span) {
        debug_assert!(written.lowest <= written.highest, "a span has a seqno");
        if self.is_complete {
            let span = self.by_vbucket.entry(vbid);
            span.and_modify(|span| *span = span.followed_by(written)).or_insert(written);
        }
    }

    /// True when a vbucket that it does not know has no records in the segment.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// All that are known.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Vbid, Span)> {
        self.by_vbucket.iter().map(|(vbid, span)| (*vbid, *span))
    }

    /// A scan has seen all that the index points at, in a segment that is written no more.
    pub(super) fn learn(&mut self, vbid: Vbid, span: Span) {
        debug_assert!(span.lowest <= span.highest, "a span has a seqno");
        self.by_vbucket.insert(vbid, span);
    }

    pub(super) fn of(&self, vbid: Vbid) -> SegmentKnowledge {
        match self.by_vbucket.get(&vbid) {
            Some(span) => SegmentKnowledge::Span(*span),
            None if self.is_complete => SegmentKnowledge::Absent,
            None => SegmentKnowledge::Nothing,
        }
    }
}
