//! Mutants: each test breaks one rule, and the oracle must name it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_protocol::dcp::item::MutationExtras;
use oribi_protocol::dcp::marker::MarkerFlags;
use oribi_protocol::dcp::{MessageHead, write_head, write_seqno_advanced};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_types::RevSeqno;

use super::*;

const VB: Vbid = Vbid(1);

/// An oracle, and the opaque of its open stream.
struct World {
    oracle: ConsumerOracle,
    head: StreamHead,
    written: BTreeMap<(Vbid, u64), Vec<WrittenVersion>>,
    newest: BTreeMap<(Vbid, CollectionId, Vec<u8>), u64>,
}

impl World {
    fn new(filter: StreamFilter) -> World {
        let mut world = World {
            oracle: ConsumerOracle::new(true),
            head: StreamHead { opaque: 0, vbid: VB, stream_id: None },
            written: BTreeMap::new(),
            newest: BTreeMap::new(),
        };
        let extras = StreamRequestExtras { end: Seqno(u64::MAX), ..StreamRequestExtras::default() };
        let wanted = Some(StreamRequestJson { filter, ..StreamRequestJson::all() });
        let request =
            Request { vbid: VB, extras, wanted, high_seqno: Seqno(0), collections: Vec::new() };
        world.head.opaque = world.oracle.expect_answer(ConsumerRequest::Stream(request));
        world.answer(Opcode::DcpStreamReq, world.head.opaque, &[0; 16]);
        world
    }

    fn answer(&mut self, opcode: Opcode, opaque: u32, value: &[u8]) {
        let mut out = Vec::new();
        let parts = ResponseParts::new(opcode as u8, Status::Success, opaque);
        write_response(&mut out, &ResponseParts { value, ..parts });
        self.oracle.hear(&out);
    }

    /// A document is written.
    fn write(&mut self, key: &str, value: &str, seqno: u64) {
        let (collection, key) = (CollectionId::DEFAULT, key.as_bytes().to_vec());
        let value = Some(value.as_bytes().to_vec());
        let written = WrittenVersion { collection, key: key.clone(), value, is_deletion: false };
        self.written.entry((VB, seqno)).or_default().push(written);
        self.newest.insert((VB, collection, key), seqno);
    }

    fn marker(&mut self, start: u64, end: u64, flags: MarkerFlags) {
        let mut out = Vec::new();
        let (start, end) = (Seqno(start), Seqno(end));
        SnapshotMarker { start, end, flags, ..SnapshotMarker::default() }
            .write(&mut out, self.head);
        self.oracle.hear(&out);
    }

    fn mutation(&mut self, key: &str, value: &str, seqno: u64) {
        let rev_seqno = RevSeqno(1);
        let extras = MutationExtras { by_seqno: Seqno(seqno), rev_seqno, flags: 0, expiry: 0 };
        let extras = extras.encode();
        let mut out = Vec::new();
        let head = MessageHead {
            extras: &extras,
            collection: Some(CollectionId::DEFAULT),
            key: key.as_bytes(),
            ..MessageHead::new(Opcode::DcpMutation, self.head)
        };
        write_head(&mut out, &head, value.len());
        out.extend_from_slice(value.as_bytes());
        self.oracle.hear(&out);
    }

    fn advanced(&mut self, seqno: u64) {
        let mut out = Vec::new();
        write_seqno_advanced(&mut out, self.head, Seqno(seqno));
        self.oracle.hear(&out);
    }

    fn end(&mut self, reason: EndReason) {
        let mut out = Vec::new();
        reason.write(&mut out, self.head);
        self.oracle.hear(&out);
    }

    fn choose(&mut self, name: &[u8], value: &[u8]) {
        let asked = ConsumerRequest::Control { name: name.to_vec(), value: value.to_vec() };
        let opaque = self.oracle.expect_answer(asked);
        self.answer(Opcode::DcpControl, opaque, &[]);
    }

    fn settle(&mut self) {
        self.oracle.compare(&self.written, false);
        self.oracle.look_for(&self.newest);
    }
}

/// A world with two written documents of which nothing was heard.
fn world() -> World {
    let mut world = World::new(StreamFilter::All);
    world.write("a", "1", 1);
    world.write("b", "2", 2);
    world
}

#[track_caller]
fn assert_named(text: &str, mut world: World, steps: impl FnOnce(&mut World)) {
    let Err(cause) = catch_unwind(AssertUnwindSafe(|| steps(&mut world))) else {
        panic!("not noticed: {text}")
    };
    let said = cause.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(said.contains(text), "{said:?} does not say {text:?}");
}

#[test]
fn a_sound_stream_breaks_no_rule() {
    let mut world = world();
    world.marker(0, 2, MarkerFlags::MEMORY);
    world.mutation("a", "1", 1);
    world.mutation("b", "2", 2);
    world.marker(3, 4, MarkerFlags::DISK);
    world.advanced(3);
    // The next scan continues where this one left the consumer behind.
    world.marker(3, 5, MarkerFlags::DISK);
    world.advanced(5);
    world.settle();
    assert_eq!(world.oracle.tally.compared, 2);
    world.end(EndReason::Ok);
}

#[test]
fn broken_order_is_named() {
    assert_named("outside of a snapshot", world(), |world| world.mutation("a", "1", 1));
    assert_named("outside of 1..1", world(), |world| {
        world.marker(1, 1, MarkerFlags::MEMORY);
        world.mutation("b", "2", 2);
    });
    assert_named("seqno 1 after 2", world(), |world| {
        world.marker(0, 3, MarkerFlags::MEMORY);
        world.mutation("b", "2", 2);
        world.mutation("a", "1", 1);
    });
    assert_named("twice in a snapshot", world(), |world| {
        world.marker(0, 3, MarkerFlags::MEMORY);
        world.mutation("a", "1", 1);
        world.mutation("a", "1", 2);
    });
    assert_named("in the middle of another", world(), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("a", "1", 1);
        world.marker(1, 3, MarkerFlags::MEMORY);
    });
    // From the beginning of the one that was cut short it may.
    let mut world_again = world();
    world_again.marker(0, 2, MarkerFlags::MEMORY);
    world_again.mutation("a", "1", 1);
    world_again.marker(0, 3, MarkerFlags::DISK);
    assert_named("has nothing new", world(), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("b", "2", 2);
        world.marker(1, 2, MarkerFlags::MEMORY);
    });
    assert_named("after the end", world(), |world| {
        world.end(EndReason::Ok);
        world.marker(0, 2, MarkerFlags::MEMORY);
    });
    assert_named("was not closed", world(), |world| world.end(EndReason::Closed));
    assert_named("in the middle of a snapshot", world(), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.end(EndReason::Ok);
    });
}

#[test]
fn wrong_streams_filters_and_contents_are_named() {
    assert_named("of no stream", world(), |world| {
        world.head.opaque += 1;
        world.marker(0, 2, MarkerFlags::MEMORY);
    });
    assert_named("SnapshotMarker", world(), |world| {
        world.head.vbid = Vbid(2);
        world.marker(0, 2, MarkerFlags::MEMORY);
    });
    let other = StreamFilter::Collections(vec![CollectionId(8)]);
    assert_named("leaks through", World::new(other), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("a", "1", 1);
    });
    assert_named("was never written", world(), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("a", "another value", 1);
        world.settle();
    });
    assert_named("is missing", world(), |world| {
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("b", "2", 2);
        world.settle();
    });
    assert_named("a value", world(), |world| {
        world.oracle.note_flags(OpenFlags::NO_VALUE);
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("a", "1", 1);
    });
}

#[test]
fn a_message_while_the_window_is_full_is_named() {
    assert_named("with a full window", world(), |world| {
        world.choose(control::CONNECTION_BUFFER_SIZE, b"40");
        world.marker(0, 2, MarkerFlags::MEMORY);
        world.mutation("a", "1", 1);
    });
    let mut world = world();
    world.choose(control::CONNECTION_BUFFER_SIZE, b"40");
    world.marker(0, 2, MarkerFlags::MEMORY);
    world.oracle.acknowledged(u32::MAX);
    world.mutation("a", "1", 1);
}

#[test]
fn a_rollback_that_leads_nowhere_is_named() {
    for (to, is_right) in [(4_u64, true), (5, false)] {
        let start = Seqno(5);
        let extras = StreamRequestExtras { start, ..StreamRequestExtras::default() };
        let (wanted, collections) = (Some(StreamRequestJson::all()), Vec::new());
        let request = Request { vbid: VB, extras, wanted, high_seqno: Seqno(4), collections };
        let mut oracle = ConsumerOracle::new(true);
        let opaque = oracle.expect_answer(ConsumerRequest::Stream(request));
        let mut out = Vec::new();
        let parts = ResponseParts::new(Opcode::DcpStreamReq as u8, Status::Rollback, opaque);
        write_response(&mut out, &ResponseParts { value: &to.to_be_bytes(), ..parts });
        let heard = catch_unwind(AssertUnwindSafe(|| oracle.hear(&out)));
        assert_eq!(heard.is_ok(), is_right, "back to {to}");
    }
}
