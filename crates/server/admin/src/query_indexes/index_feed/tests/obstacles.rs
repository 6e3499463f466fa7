//! What stops a feed for a while: other histories, memory that is short, and full indexes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oribi_engine::{MemoryGrant, MemoryRequest, ReaderMemory};
use oribi_protocol::hash::vbucket_of;
use oribi_query::QueryDocument;
use oribi_types::{Datatype, Vbid};

use super::{VBUCKETS, World, load};

const VBID: Vbid = Vbid(2);

/// Keys whose vbucket is [`VBID`].
fn keys() -> impl Iterator<Item = String> {
    let all = (0..).map(|number: u32| format!("o{number}"));
    all.filter(|key| vbucket_of(key.as_bytes(), VBUCKETS) == VBID)
}

impl World {
    fn write_documents(&self, keys: impl Iterator<Item = String>) {
        keys.for_each(|key| self.write(&self.own, &key, r#"{"a":1}"#));
    }
}

#[test]
fn a_shorter_history_resets_the_progress() {
    let mut world = World::new(4, 64 << 20);
    world.add_index(&["`a`"], None);
    world.write_documents(keys().take(10));
    world.catch_up();
    // Fed and not flushed, so the other node does not have them.
    world.write_documents(keys().skip(10).take(40));
    let high = |world: &World| world.own.vbucket(VBID).unwrap().high_seqno();
    let lost = high(&world);
    for _ in 0..20 {
        world.turn();
    }
    assert!(world.progress.has_all(&[(VBID, lost)]));
    world.own.deactivate(VBID);
    world.other.take_over(&[VBID]).unwrap();
    load(&world.other);
    world.other.deactivate(VBID);
    world.own.take_over(&[VBID]).unwrap();
    load(&world.own);
    assert!(high(&world) < lost, "a shorter history");
    assert!(!world.progress.has_all(&[(VBID, lost)]), "before the feed has noticed it");
    world.turn();
    assert!(world.progress.seqno(VBID) <= high(&world));
    world.catch_up();
    assert!(!world.progress.has_all(&[(VBID, lost)]));
    assert!(world.progress.has_all(&[(VBID, high(&world))]));
}

/// Memory that is always granted.
struct GrantedMemory;

impl ReaderMemory for GrantedMemory {
    fn request(&self, _: usize) -> Box<dyn MemoryRequest> {
        Box::new(GrantedMemory)
    }
}

impl MemoryRequest for GrantedMemory {
    fn poll(&mut self) -> Option<Box<dyn MemoryGrant>> {
        Some(Box::new(GrantedMemory))
    }
}

impl MemoryGrant for GrantedMemory {
    fn shrink_to(&mut self, _: usize) {}
}

#[test]
fn a_large_document_interrupts_no_index() {
    let mut world = World::new(5, 64 << 20);
    world.own.set_reader_memory(Arc::new(GrantedMemory));
    let index = world.add_index(&["`a`"], None);
    world.write_documents(keys().take(10));
    world.catch_up();
    world.documents.is_short.store(true, Ordering::Relaxed);
    let text = "x".repeat(300 << 10);
    let mut is_paused = false;
    // So many that their cursor is dropped, and a backfill reads them.
    for key in keys().take(60) {
        world.write(&world.own, &key, &format!("{{\"a\":2,\"text\":\"{text}\"}}"));
        world.own.flush_step().unwrap();
        world.own.recover_checkpoints_step();
        world.turn();
        world.backfill();
        assert!(index.is_usable(), "it lags and has all documents");
        is_paused |= world.feed.online.describe().contains("waiting");
    }
    assert!(is_paused, "the stream has returned the memory of the large document");
    let high = world.own.vbucket(VBID).unwrap().high_seqno();
    assert!(!world.progress.has_all(&[(VBID, high)]), "request_plus waits");
    world.catch_up();
    world.check();
}

#[test]
fn a_full_index_is_swept_in_slices() {
    let mut world = World::new(6, 4 << 20);
    let index = world.add_index(&["`a`"], None);
    world.catch_up();
    let text = "x".repeat(100);
    for number in 0.. {
        let (key, value) =
            (format!("gone{number}"), format!("{{\"a\":\"{}{text}\"}}", number * 7_919 % 100_003));
        let document = QueryDocument::of_body(key.as_bytes(), Datatype::JSON, value.as_bytes());
        if index.entries.insert(&(&document).into(), true).is_err() {
            break;
        }
    }
    let (all, mut most) = (index.entries.entry_count(), 0);
    assert!(all > 8_000, "{all} stale entries");
    world.write(&world.own, "o0", &format!("{{\"a\":\"{text}{text}\"}}"));
    for _ in 0..400 {
        let before = index.entries.entry_count();
        world.turn();
        most = most.max(before.saturating_sub(index.entries.entry_count()));
    }
    assert!(most > 0 && most < 4_000, "{most} entries of {all} in one turn");
    world.catch_up();
    assert_eq!(index.entries.entry_count(), 1);
}

#[test]
fn indexes_that_are_full_in_turns_go_offline() {
    let mut world = World::new(7, 64 << 20);
    let indexes = [world.add_index(&["`a`"], None), world.add_index(&["`open`"], None)];
    for index in indexes.iter().cycle().take(24) {
        world.now += Duration::from_millis(300);
        world.feed.free_memory(Arc::clone(index), world.now);
    }
    assert!(indexes.iter().all(|index| index.is_offline()));
}

#[test]
fn an_index_with_a_costly_document_goes_offline() {
    let mut world = World::new(8, 64 << 20);
    let pairs = "(array_length(array (array_length(array (`y`) for `y` in `a` end)) \
                 for `x` in `a` end))";
    let (costly, other) = (world.add_index(&[pairs], None), world.add_index(&["`a`"], None));
    world.write_documents(keys().take(10));
    world.catch_up();
    let numbers: Vec<String> = (0..4_000).map(|number| number.to_string()).collect();
    let key = keys().next().unwrap();
    world.write(&world.own, &key, &format!("{{\"a\":[{}]}}", numbers.join(",")));
    for _ in 0..10 {
        world.turn();
    }
    let (state, reason) = costly.shown_state();
    assert_eq!(state, "offline");
    assert!(reason.unwrap().contains(&format!("the document {key:?}")));
    assert!(other.is_usable());
    world.indexes.retain(|index| !Arc::ptr_eq(index, &costly));
    world.catch_up();
}
