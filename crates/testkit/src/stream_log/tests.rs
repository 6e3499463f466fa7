//! Canaries: each way to break a stream is planted once, and the oracle must name it.

use std::collections::BTreeMap;

use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use super::StreamLog;
use crate::ack_log::{AckLog, Acknowledgement, RunEnd, VbucketReport};

const VB: Vbid = Vbid(7);
const FIRST: u64 = 0xa;
const SECOND: u64 = 0xb;

/// A server, its writers and a consumer that hears everything.
struct World {
    acks: AckLog,
    stream: StreamLog,
    table: Vec<(VbUuid, Seqno)>,
}

impl World {
    /// An empty vbucket of history `FIRST`, and its stream.
    fn new() -> World {
        let table = vec![(VbUuid(FIRST), Seqno(0))];
        let mut world = World { acks: AckLog::new(), stream: StreamLog::new(), table };
        world.restarted(RunEnd::CleanStop { killed_starts: 0 }, 0);
        world.stream.opened(VB, &world.table);
        world
    }

    fn restarted(&mut self, ending: RunEnd, high: u64) {
        let found = VbucketReport { high_seqno: Seqno(high), histories: self.table.clone() };
        let recovered = BTreeMap::from([(VB, found)]);
        self.acks.restarted(ending, &recovered);
        self.stream.restarted(&recovered);
    }

    /// The server is killed and comes back up to `high`.
    fn crash(&mut self, high: u64) {
        self.stream.disconnected();
        self.stream.judge(&self.acks);
        self.table.insert(0, (VbUuid(SECOND), Seqno(high)));
        self.restarted(RunEnd::Crash { starts: 1 }, high);
    }

    fn write(&mut self, key: &str, value: &str, seqno: u64) {
        let attempt = self.acks.attempt(VB, key.as_bytes(), Some(value.as_bytes()));
        let (cas, seqno, vb_uuid) = (Cas(seqno * 100), Seqno(seqno), self.table[0].0);
        let ack = Acknowledgement { cas, seqno, vb_uuid, persisted: false };
        self.acks.acknowledged(&attempt, ack);
    }

    fn marker(&mut self, start: u64, end: u64) {
        self.stream.marker(VB, Seqno(start), Seqno(end));
    }

    fn hear(&mut self, key: &str, value: &str, seqno: u64) {
        let (key, value) = (key.as_bytes(), Some(value.as_bytes()));
        self.stream.change(VB, key, value, Seqno(seqno), Cas(seqno * 100));
    }

    /// Writes and hears documents `a`, `b` and so on, in one snapshot.
    fn both(&mut self, seqnos: std::ops::RangeInclusive<u64>) {
        self.marker(*seqnos.start(), *seqnos.end());
        for seqno in seqnos {
            let key = char::from(b'a' + seqno as u8).to_string();
            self.write(&key, "value", seqno);
            self.hear(&key, "value", seqno);
        }
    }

    fn violations(&mut self) -> String {
        self.stream.judge(&self.acks);
        assert_eq!(self.acks.take_violations(), [], "the history itself is sound");
        let all = self.stream.take_violations();
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[track_caller]
    fn assert_names(&mut self, text: &str) {
        let found = self.violations();
        assert!(found.contains(text), "{found:?} does not say {text:?}");
    }

    #[track_caller]
    fn assert_sound(&mut self) {
        assert_eq!(self.violations(), "");
    }
}

#[test]
fn a_sound_stream_over_a_crash_has_no_violation() {
    let mut world = World::new();
    world.both(1..=3);
    world.both(4..=6);
    world.crash(4);
    world.stream.rolled_back(VB, Seqno(4));
    world.stream.opened(VB, &world.table.clone());
    world.both(5..=9);
    world.assert_sound();
    assert!(world.stream.tally().compared > 0);
}

#[test]
fn behaviour_the_protocol_leaves_open_is_sound() {
    let mut world = World::new();
    // Versions that were replaced, an event at the start, and what is not for this stream.
    world.write("a", "old", 2);
    world.write("a", "new", 4);
    world.marker(0, 5);
    world.stream.advanced(VB, Seqno(1));
    world.hear("a", "new", 4);
    world.stream.advanced(VB, Seqno(5));
    world.assert_sound();
}

#[test]
fn seqnos_that_do_not_ascend_are_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.write("b", "1", 2);
    world.marker(1, 2);
    world.hear("b", "1", 2);
    world.hear("a", "1", 1);
    world.assert_names("seqno 1 after 2");
}

#[test]
fn a_seqno_outside_of_its_snapshot_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.write("b", "1", 2);
    world.marker(1, 1);
    world.hear("a", "1", 1);
    world.hear("b", "1", 2);
    world.assert_names("seqno 2 outside of its snapshot");
}

#[test]
fn a_change_without_a_snapshot_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.hear("a", "1", 1);
    world.assert_names("outside of a snapshot");
}

#[test]
fn a_document_twice_in_a_snapshot_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.write("a", "2", 2);
    world.marker(1, 2);
    world.hear("a", "1", 1);
    world.hear("a", "2", 2);
    world.assert_names("a twice in a snapshot");
}

#[test]
fn a_snapshot_in_the_middle_of_another_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.marker(1, 2);
    world.hear("a", "1", 1);
    world.marker(2, 3);
    world.assert_names("snapshot 2..3 in the middle of another");
}

#[test]
fn a_cut_snapshot_is_sent_again_from_its_start() {
    for (start, is_right) in [(0, true), (1, false), (2, false)] {
        let mut world = World::new();
        world.write("a", "1", 1);
        world.write("b", "1", 2);
        world.write("c", "1", 3);
        world.marker(0, 2);
        world.hear("a", "1", 1);
        world.marker(start, 3);
        match is_right {
            true => {
                world.hear("b", "1", 2);
                world.hear("c", "1", 3);
                world.assert_sound();
            }
            false => world.assert_names("in the middle of another"),
        }
    }
}

#[test]
fn a_snapshot_over_what_is_known_is_named() {
    let mut world = World::new();
    world.both(1..=3);
    world.marker(2, 5);
    world.assert_names("snapshot 2..5 begins too early");
    world.marker(2, 3);
    world.assert_names("snapshot 2..3 has nothing new");
}

#[test]
fn unwritten_versions_are_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.marker(1, 2);
    world.hear("a", "1", 1);
    world.hear("b", "invented", 2);
    world.assert_names("document b: seqno 2 shows what was never written");
}

#[test]
fn a_deletion_that_was_never_sent_is_named() {
    let mut world = World::new();
    world.both(1..=1);
    world.marker(2, 2);
    world.stream.change(VB, b"b", None, Seqno(2), Cas(200));
    world.assert_names("seqno 2 shows what was never written");
}

#[test]
fn a_write_with_the_seqno_of_another_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.write("b", "1", 2);
    world.marker(1, 2);
    world.hear("b", "1", 1);
    world.hear("a", "1", 2);
    world.assert_names("document b: seqno 1 was acknowledged as a's write");
}

#[test]
fn another_cas_than_the_acknowledged_one_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.marker(1, 1);
    world.stream.change(VB, b"a", Some(b"1"), Seqno(1), Cas(1));
    world.assert_names("document a: seqno 1 was acknowledged as a's write");
}

#[test]
fn a_write_that_was_left_out_is_named() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.write("b", "1", 2);
    world.marker(1, 2);
    world.hear("b", "1", 2);
    world.assert_names("document a: the write with seqno 1 was left out");
}

#[test]
fn a_newer_version_makes_up_for_an_older_one_only() {
    let mut world = World::new();
    world.write("a", "1", 1);
    world.marker(1, 1);
    world.hear("a", "1", 1);
    world.assert_sound();
    world.write("a", "2", 2);
    world.write("b", "1", 3);
    world.marker(2, 3);
    world.hear("b", "1", 3);
    world.assert_names("document a: the write with seqno 2 was left out");
}

#[test]
fn accepting_what_a_crash_has_lost_is_named() {
    let mut world = World::new();
    world.both(1..=5);
    world.crash(3);
    world.stream.opened(VB, &world.table.clone());
    world.assert_names("accepted what ends at seqno 3");
}

#[test]
fn the_oracle_names_a_resumed_lost_snapshot() {
    let mut world = World::new();
    // The snapshot replaces a version with seqno 2 that comes back after the crash.
    world.write("b", "1", 1);
    world.write("a", "old", 2);
    world.write("a", "new", 4);
    world.marker(0, 4);
    world.hear("b", "1", 1);
    world.crash(2);
    world.stream.opened(VB, &world.table.clone());
    world.assert_names("accepted what ends at seqno 2");
}

#[test]
fn accepting_an_unknown_history_is_named() {
    let mut world = World::new();
    world.both(1..=2);
    world.crash(2);
    world.table = vec![(VbUuid(SECOND), Seqno(2))];
    let found = VbucketReport { high_seqno: Seqno(2), histories: world.table.clone() };
    world.stream.restarted(&BTreeMap::from([(VB, found)]));
    world.stream.opened(VB, &world.table.clone());
    world.assert_names("accepted a history that it does not have");
}

#[test]
fn a_rollback_below_what_was_promised_is_named() {
    let mut world = World::new();
    world.both(1..=3);
    world.both(4..=6);
    world.crash(5);
    world.stream.rolled_back(VB, Seqno(3));
    world.assert_names("sent back to seqno 3, but 5 was promised");
}

#[test]
fn in_mid_snapshot_its_start_is_a_rollback_point() {
    let mut world = World::new();
    world.both(1..=3);
    world.write("x", "1", 4);
    world.marker(4, 9);
    world.hear("x", "1", 4);
    world.write("y", "1", 6);
    world.hear("y", "1", 6);
    world.write("x", "2", 5);
    world.write("y", "2", 7);
    world.crash(7);
    world.stream.rolled_back(VB, Seqno(4));
    world.assert_sound();
}

#[test]
fn a_rollback_to_nowhere_is_named() {
    let mut world = World::new();
    world.both(1..=5);
    world.crash(3);
    world.stream.rolled_back(VB, Seqno(5));
    world.assert_names("sent back from seqno 5 to 5");
    let mut world = World::new();
    world.both(1..=5);
    world.crash(3);
    world.stream.rolled_back(VB, Seqno(4));
    world.assert_names("sent back to seqno 4, but only 3 is common");
}

#[test]
fn a_rollback_after_an_orderly_stop_is_named() {
    let mut world = World::new();
    world.both(1..=5);
    world.stream.disconnected();
    world.restarted(RunEnd::CleanStop { killed_starts: 0 }, 5);
    world.stream.rolled_back(VB, Seqno(0));
    world.assert_names("sent back to seqno 0, but 5 was promised");
}

#[test]
fn the_oracle_names_an_unstreamed_recovered_version() {
    let mut world = World::new();
    world.write("a", "old", 1);
    world.marker(1, 1);
    world.hear("a", "old", 1);
    world.write("b", "old", 2);
    world.write("b", "new", 3);
    world.marker(2, 3);
    world.hear("b", "new", 3);
    // A store that recovers the replaced version, which the consumer never saw.
    world.crash(2);
    world.stream.rolled_back(VB, Seqno(2));
    world.stream.opened(VB, &world.table.clone());
    world.assert_names("document b: the write with seqno 2 was left out");
}

#[test]
fn a_table_that_differs_from_a_full_read_is_named() {
    let mut world = World::new();
    world.both(1..=2);
    world.marker(3, 3);
    world.hear("b", "other", 3);
    world.stream.compare(&world.acks);
    world.assert_names("b: has another value in the stream's table");

    let mut world = World::new();
    world.write("a", "1", 1);
    world.stream.compare(&world.acks);
    world.assert_names("a: is there, but not in the stream's table");

    let mut world = World::new();
    world.marker(1, 1);
    world.hear("z", "1", 1);
    world.stream.compare(&world.acks);
    world.assert_names("z: is in the stream's table, but not there");
}

#[test]
fn a_table_equal_to_a_full_read_is_sound() {
    let mut world = World::new();
    world.both(1..=4);
    world.stream.compare(&world.acks);
    world.assert_sound();
}
