//! Streams of changes over real HTTP: what they show, how they continue, and how they end.

mod event_source;

use std::io::Read as _;
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_auth::{Role, StoredUser, UserFile};
use oribi_engine::{MutationOutcome, StoreCondition, StoreRequest};
use oribi_protocol::change_token::ChangeToken;
use oribi_protocol::hash::vbucket_of;
use oribi_types::{Cas, CollectionId, DocKey};
use serde_json::{Value, json};

use super::{ADMIN, Fixture, add_user};
use crate::limits::{ADMIN_CHANGES_ID_BYTES_MAX, ADMIN_CHANGES_PIECE_BYTES};
use event_source::EventSource;

const PATH: &str = "/pools/default/buckets/default/changes";
const VBUCKETS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

impl Fixture {
    pub(super) fn put_in(&self, collection: CollectionId, key: &str, value: &[u8]) {
        let bucket = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        let request = StoreRequest {
            mode: StoreCondition::Set,
            value,
            is_compressed: false,
            flags: 7,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
        };
        let vbid = vbucket_of(key.as_bytes(), VBUCKETS);
        let key = DocKey { collection, key: key.as_bytes() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let context = bucket.bucket().context(oribi_system::clock::wall_clock());
            match bucket.bucket().vbucket(vbid).unwrap().store(&context, key, &request) {
                MutationOutcome::Done(_) => return,
                // Memory is short for a moment.
                outcome => assert!(Instant::now() < deadline, "{outcome:?}"),
            }
        }
    }

    pub(super) fn put(&self, key: &str, value: &[u8]) {
        self.put_in(CollectionId::DEFAULT, key, value);
    }

    fn remove(&self, key: &str) {
        let bucket = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        let vbid = vbucket_of(key.as_bytes(), VBUCKETS);
        let key = DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
        let context = bucket.bucket().context(oribi_system::clock::wall_clock());
        let outcome = bucket.bucket().vbucket(vbid).unwrap().delete(&context, key, Cas(0));
        assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
    }

    pub(super) fn collection(&self, scope: &str, name: &str) -> CollectionId {
        let scopes = "/pools/default/buckets/default/scopes";
        self.post(scopes, &format!("name={scope}"));
        let made = self.post(&format!("{scopes}/{scope}/collections"), &format!("name={name}"));
        assert_eq!(made.status, 200, "{}", made.body);
        let bucket = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        bucket.bucket().manifest().collection_id(scope, name).unwrap()
    }

    fn producers(&self) -> u64 {
        let bucket = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        bucket.producers().figures(bucket.bucket()).connections
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.server.as_ref().unwrap().context().connections.memory.stats().reserved_bytes
    }
}

#[track_caller]
pub(super) fn wait_until(mut holds: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn edit_user(data_dir: &Path, name: &str, roles: &[&str]) {
    let roles = roles.iter().map(|role| role.parse::<Role>().unwrap()).collect();
    let user = StoredUser::new(name, b"secret1", roles).unwrap();
    let put = |file: &mut UserFile| {
        file.put(user);
        true
    };
    assert!(UserFile::edit(data_dir, put).unwrap());
}

#[test]
fn present_and_new_documents_are_events() {
    let fixture = Fixture::development();
    fixture.put("a", br#"{"n":1}"#);
    fixture.put("b", b"\x00binary");
    fixture.remove("b");
    let mut source = EventSource::begin(&fixture, "from=beginning&with-values");
    let head = source.head.to_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let a = source.find_key("a");
    assert_eq!((a.kind.as_str(), &a.data["type"]), ("message", &json!("mutation")));
    assert_eq!(a.data["value"], json!({"n": 1}));
    assert_eq!((&a.data["flags"], &a.data["datatype"]), (&json!(7), &json!(["json"])));
    let path = (&a.data["scope"], &a.data["collection"]);
    assert_eq!(path, (&json!("_default"), &json!("_default")));
    let token: ChangeToken = a.id.parse().expect("an id is a token");
    let position = token.position(vbucket_of(b"a", VBUCKETS)).expect("the vbucket is in it");
    assert_eq!(a.data["token"], position.to_string(), "and covers this event");

    fixture.put("c", b"\x00binary");
    let c = source.find_key("c");
    assert_eq!(c.data["value_base64"], BASE64.encode(b"\x00binary"));
    fixture.remove("a");
    assert_eq!(source.find_key("a").data["type"], "deletion");
    wait_until(|| fixture.producers() == 1, "it is among the consumers");
    drop(source);
    wait_until(|| fixture.producers() == 0, "a client that is gone is noticed");
    wait_until(|| fixture.reserved_bytes() == 0, "its memory is given back");
}

#[test]
fn now_is_where_the_response_begins() {
    let fixture = Fixture::development();
    fixture.put("before", b"1");
    let mut source = EventSource::begin(&fixture, "");
    source.wait_for_id();
    fixture.put("after", b"1");
    let event = source.next().unwrap();
    assert_eq!(event.data["key"], "after");
    assert_eq!(event.data.get("value"), None, "values are shown on request");
}

#[test]
fn ends_after_the_present_changes() {
    let fixture = Fixture::development();
    for number in 0..20 {
        fixture.put(&format!("key{number}"), b"1");
    }
    let query = "from=beginning&until-now&snapshots";
    let (events, reason) = EventSource::begin(&fixture, query).rest();
    assert_eq!(reason, "complete");
    let documents = events.iter().filter(|event| event.data["type"] == "mutation");
    assert_eq!(documents.count(), 20);
    let ends = events.iter().filter(|event| event.data["type"] == "snapshot_end");
    assert!(ends.count() >= 1);
    // A part of the vbuckets.
    let (first, _) = EventSource::begin(&fixture, "from=beginning&until-now&vbuckets=0-1").rest();
    let (second, _) = EventSource::begin(&fixture, "from=beginning&until-now&vbuckets=2-3").rest();
    assert_eq!(first.len() + second.len(), 20);
    assert!(first.iter().all(|event| event.data["vbucket"].as_u64().unwrap() < 2));
}

// Compat (Change streams): Changes over HTTP
// Invariant: An event over HTTP is a line of `oribi watch`, and its id covers exactly the events
// before it.
/// Cut off at any byte, a client that reconnects with the id it has gets each change once.
#[test]
fn a_reconnect_misses_and_repeats_nothing() {
    let fixture = Fixture::development();
    const DOCUMENTS: usize = 400;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..DOCUMENTS {
                fixture.put(&format!("key{number}"), format!("{{\"n\":{number}}}").as_bytes());
            }
        });
        let mut seen: Vec<Value> = Vec::new();
        let mut id = String::new();
        let mut cut = 1;
        while seen.len() < DOCUMENTS {
            let query = "from=beginning&with-values";
            let mut source = EventSource::open(&fixture, query, ADMIN, &id);
            assert_eq!(source.status, 200, "{}", source.head);
            // The first block names the place; then some bytes more, each time another number.
            source.wait_for_id();
            cut = (cut * 7 + 13) % 9001;
            let mut left = cut;
            while left > 0 && source.pending.len() < 100_000 && seen.len() < DOCUMENTS {
                source.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                let mut piece = vec![0; left];
                let Ok(length) = source.stream.read(&mut piece) else { break };
                left -= length;
                source.chunks.extend_from_slice(&piece[..length]);
                source.decode_chunks();
            }
            while let Some(block) = source.take_block() {
                seen.extend(block.map(|event| event.data));
            }
            id = source.id;
        }
        let mut keys: Vec<&str> = seen.iter().map(|line| line["key"].as_str().unwrap()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((keys.len(), seen.len()), (DOCUMENTS, DOCUMENTS), "each of them once");
        for vbucket in 0..VBUCKETS {
            let of = |line: &&Value| line["vbucket"] == json!(vbucket);
            let seqnos = seen.iter().filter(of).map(|line| line["seqno"].as_u64().unwrap());
            assert!(seqnos.is_sorted_by(|one, other| one < other), "in order");
        }
    });
}

#[test]
fn sparse_ids_come_with_the_last_event_of_a_piece() {
    let fixture = Fixture::development();
    for number in 0..50 {
        fixture.put(&format!("key{number}"), b"1");
    }
    let mut source = EventSource::begin(&fixture, "from=beginning&sparse-ids");
    source.wait_for_id();
    let first = source.id.clone();
    let ids: Vec<String> = (0..50).map(|_| source.next().unwrap().id).collect();
    assert_eq!(ids[0], first, "the first event has the id of the beginning");
    let mut again = EventSource::open(&fixture, "", ADMIN, ids.last().unwrap());
    fixture.put("later", b"1");
    assert_eq!(again.next().unwrap().data["key"], "later", "the last id covers all");
}

#[test]
fn only_what_is_asked_for_is_shown() {
    let fixture = Fixture::development();
    let orders = fixture.collection("shop", "orders");
    let carts = fixture.collection("shop", "carts");
    fixture.put("default", b"1");
    fixture.put_in(orders, "order", b"1");
    fixture.put_in(carts, "cart", b"1");
    let keys = |query: &str| {
        let query = format!("from=beginning&until-now&{query}");
        let (events, _) = EventSource::begin(&fixture, &query).rest();
        let lines = events.iter().map(|event| &event.data);
        let mut keys: Vec<String> =
            lines.filter_map(|line| Some(line["key"].as_str()?.to_owned())).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys("collection=shop.orders"), ["order"]);
    assert_eq!(keys("collection=shop.orders&collection=_default"), ["default", "order"]);
    assert_eq!(keys("scope=shop"), ["cart", "order"]);
    assert_eq!(keys(""), ["cart", "default", "order"]);
    for (query, status) in [
        ("collection=shop.none", 404),
        ("scope=none", 404),
        ("colection=shop.orders", 400),
        ("vbuckets=2-4", 400),
        ("from=9:1:1", 400),
        ("from=yesterday", 400),
    ] {
        let refused = fixture.get(&format!("{PATH}?{query}"));
        assert_eq!(refused.status, status, "{query}: {}", refused.body);
    }
    let refused = EventSource::open(&fixture, "", ADMIN, "nonsense");
    assert_eq!(refused.status, 400);
    assert_eq!(fixture.get("/pools/default/buckets/none/changes").status, 404);

    // A collection that is created and dropped while it is followed.
    let mut source = EventSource::begin(&fixture, "collection=shop.orders");
    source.wait_for_id();
    let path = "/pools/default/buckets/default/scopes/shop/collections/orders";
    assert_eq!(fixture.ask("DELETE", path, ADMIN, "").status, 200);
    let (events, reason) = source.rest();
    assert_eq!(reason, "filter_empty");
    let drops = events.iter().filter(|event| event.data["type"] == "collection_dropped");
    assert_eq!(drops.count(), usize::from(VBUCKETS), "one in each vbucket");
}

#[test]
fn rights_are_those_of_change_streams() {
    let prepare = |data_dir: &Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "reader", &["read-only:default"]);
        add_user(data_dir, "follower", &["change-streams:default"]);
        add_user(data_dir, "narrow", &["change-streams:default/shop/orders"]);
        add_user(data_dir, "other", &["read-write:elsewhere"]);
    };
    let fixture = Fixture::start(prepare, false);
    let change = |path: &str, name: &str| {
        let made = fixture.ask("POST", path, "root:secret1", &format!("name={name}"));
        assert_eq!(made.status, 200, "{}", made.body);
    };
    let scopes = "/pools/default/buckets/default/scopes";
    change(scopes, "shop");
    change(&format!("{scopes}/shop/collections"), "orders");
    change(&format!("{scopes}/shop/collections"), "carts");
    let status = |query: &str, user: &str| {
        EventSource::open(&fixture, query, &format!("{user}:secret1"), "").status
    };
    assert_eq!(status("", "reader"), 403);
    assert_eq!(status("collection=shop.orders", "reader"), 403);
    assert_eq!(status("", "other"), 403);
    assert_eq!(status("", "nobody"), 401);
    assert_eq!(fixture.ask("GET", PATH, "", "").status, 401);
    for query in ["", "scope=shop", "collection=shop.carts"] {
        assert_eq!(status(query, "follower"), 200, "{query}");
        assert_eq!(status(query, "root"), 200, "{query}");
    }
    assert_eq!(status("collection=shop.orders", "narrow"), 200);
    assert_eq!(status("", "narrow"), 403);
    assert_eq!(status("scope=shop", "narrow"), 403);
    assert_eq!(status("collection=shop.carts", "narrow"), 404, "it looks as if there were none");

    // One user loses the right, the other one is removed, and a third one is untouched.
    let data_dir = fixture.settings.data_dir.clone();
    let begin = |query: &str, user: &str| {
        let mut source = EventSource::open(&fixture, query, &format!("{user}:secret1"), "");
        assert_eq!(source.status, 200, "{}", source.head);
        source.wait_for_id();
        source
    };
    let mut follower = begin("", "follower");
    let mut narrow = begin("collection=shop.orders", "narrow");
    let mut root = begin("", "root");
    edit_user(&data_dir, "follower", &["read-only:default"]);
    assert!(UserFile::edit(&data_dir, |file| file.remove("narrow")).unwrap());
    assert_eq!(follower.rest().1, "lost_privileges");
    assert_eq!(narrow.rest().1, "lost_privileges");
    fixture.put("later", b"1");
    assert_eq!(root.find_key("later").kind, "message");
}

// Invariant: A stalled client of changes over HTTP holds one piece of events or one large document,
// both counted.
/// A client that reads nothing for a while holds one piece, delays no writer, and gets everything
/// when it reads again.
#[test]
fn a_slow_client_holds_one_piece_and_misses_nothing() {
    let fixture = Fixture::development();
    const DOCUMENTS: usize = 3000;
    let mut source = EventSource::begin(&fixture, "with-values");
    source.wait_for_id();
    let value = vec![b'x'; 8 * 1024];
    let bound = (ADMIN_CHANGES_PIECE_BYTES + ADMIN_CHANGES_ID_BYTES_MAX) as u64;
    let mut most = 0;
    // 24 MiB, far more than the kernel's buffers take.
    for number in 0..DOCUMENTS {
        fixture.put(&format!("key{number}"), &value);
        most = most.max(fixture.reserved_bytes());
    }
    wait_until(|| fixture.reserved_bytes() > 0, "a piece waits for the client");
    assert!(most.max(fixture.reserved_bytes()) <= bound, "{most} of at most {bound} bytes");
    let mut keys = Vec::new();
    while keys.len() < DOCUMENTS {
        keys.push(source.next().unwrap().data["key"].as_str().unwrap().to_owned());
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), DOCUMENTS);
    drop(source);
    wait_until(|| fixture.reserved_bytes() == 0, "the memory is given back");
}

/// A client that reads nothing loses its connection once others wait for the memory.
#[test]
fn a_stalled_client_is_closed_when_memory_is_short() {
    let fixture = Fixture::development();
    let mut source = EventSource::begin(&fixture, "with-values");
    source.wait_for_id();
    let value = vec![b'x'; 64 * 1024];
    // 24 MiB, far more than the kernel's buffers take.
    for number in 0..384 {
        fixture.put(&format!("key{number}"), &value);
    }
    assert_eq!(fixture.producers(), 1);
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let other = memory.wait_beside();
    wait_until(|| fixture.producers() == 0, "the client is disconnected");
    drop(other);
    wait_until(|| fixture.reserved_bytes() == 0, "its memory is given back");
    // What the kernel has of the events still arrives, and then the end of the connection.
    let mut piece = vec![0; 1 << 20];
    while source.stream.read(&mut piece).is_ok_and(|length| length > 0) {}
}

/// Holders of memory see that a stream waits for some.
#[test]
fn a_stream_without_memory_counts_as_waiting() {
    let fixture = Fixture::development();
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let others = memory.hold(memory.reservable_bytes()).expect("nothing is held");
    let mut source = EventSource::begin(&fixture, "with-values");
    wait_until(|| memory.has_waiters(), "it waits");
    drop(others);
    source.wait_for_id();
    fixture.put("first", b"{}");
    source.find_key("first");
    wait_until(|| !memory.has_waiters() && fixture.reserved_bytes() == 0, "it has no more");
    let others = memory.hold(memory.reservable_bytes()).expect("nothing is held");
    let looks = Instant::now() + Duration::from_secs(2);
    while Instant::now() < looks {
        assert!(!memory.has_waiters(), "it has no news to send");
        std::thread::yield_now();
    }
    fixture.put("news", b"{}");
    wait_until(|| memory.has_waiters(), "it has news to send");
    drop(others);
    source.find_key("news");
    wait_until(|| !memory.has_waiters(), "it has sent them");
}

// Invariant: While others wait for connection memory, a stalled HTTP client keeps none.
/// A stream that has ended is watched until its client has the last piece.
#[test]
fn the_last_piece_of_a_stream_makes_room_for_others() {
    let fixture = Fixture::development();
    fixture.put("large", &vec![0xfe; 12 << 20]);
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let unread = EventSource::begin(&fixture, "from=beginning&until-now&with-values");
    wait_until(|| fixture.reserved_bytes() > 12 << 20, "it waits for its client");
    let other = memory.wait_beside();
    wait_until(|| fixture.reserved_bytes() == 0, "its memory is given back");
    drop((unread, other));
}

// Invariant: A stalled client of changes over HTTP holds one piece of events or one large document,
// both counted.
#[test]
fn a_large_document_is_one_event_in_counted_memory() {
    let fixture = Fixture::development();
    let mut source = EventSource::begin(&fixture, "with-values");
    source.wait_for_id();
    // More than the sockets take.
    let value = vec![0xfe; 16 << 20];
    fixture.put("large", &value);
    wait_until(|| fixture.reserved_bytes() > 16 << 20, "it is reserved");
    let event = source.find_key("large");
    let shown = BASE64.decode(event.data["value_base64"].as_str().unwrap()).unwrap();
    assert!(shown == value, "it is whole");
    wait_until(|| fixture.reserved_bytes() == 0, "the memory is given back");
}

#[test]
fn a_stream_reports_lost_history_and_continues() {
    let fixture = Fixture::start(|_| {}, true);
    for number in 0..20 {
        fixture.put(&format!("key{number}"), b"1");
    }
    // A token of another history.
    let mut source = EventSource::begin(&fixture, "from=0:dead:3&vbuckets=0");
    let rollback = source.next().unwrap();
    assert_eq!((&rollback.data["type"], &rollback.data["from"]), (&json!("rollback"), &json!(3)));
    assert_eq!((&rollback.data["vbucket"], &rollback.data["seqno"]), (&json!(0), &json!(0)));
    assert_eq!(source.next().unwrap().data["type"], "mutation", "from the beginning");

    // The bucket is emptied while it is followed.
    let mut source = EventSource::begin(&fixture, "from=beginning");
    (0..20).for_each(|_| drop(source.next().unwrap()));
    let flush = "/pools/default/buckets/default/controller/doFlush";
    assert_eq!(fixture.post(flush, "").status, 200);
    assert_eq!(source.next().unwrap().data["type"], "rollback");
    fixture.put("new", b"1");
    source.find_key("new");
}

#[test]
fn ends_with_its_bucket_and_with_the_server() {
    let mut fixture = Fixture::development();
    let buckets = "/pools/default/buckets";
    let form = "name=orders&ramQuotaMB=128&numVBuckets=4";
    assert_eq!(fixture.post(buckets, form).status, 202);
    let mut source = EventSource::begin(&fixture, "");
    source.wait_for_id();
    let mut server = EventSource::begin(&fixture, "");
    server.wait_for_id();
    assert_eq!(fixture.ask("DELETE", "/pools/default/buckets/default", ADMIN, "").status, 200);
    assert_eq!(source.rest().1, "bucket_deleted");
    assert_eq!(server.rest().1, "bucket_deleted");
    assert_eq!(EventSource::open(&fixture, "", ADMIN, "").status, 404);

    let form = "name=default&ramQuotaMB=128&numVBuckets=4";
    assert_eq!(fixture.post(buckets, form).status, 202);
    let mut source = EventSource::begin(&fixture, "");
    source.wait_for_id();
    let id = source.id.clone();
    fixture.put("before", b"1");
    source.find_key("before");
    fixture.server.take().unwrap().shutdown().unwrap();
    assert_eq!(source.rest().1, "shutdown");
    let server = crate::start_server(&fixture.settings, None).unwrap();
    fixture.admin = server.addresses().admin;
    fixture.server = Some(server);
    // The server loads the bucket concurrently.
    let mut source = EventSource::open(&fixture, "", ADMIN, &id);
    assert_eq!(source.status, 200);
    assert_eq!(source.next().unwrap().data["key"], "before", "the history is the same");
}

#[test]
fn a_silent_stream_shows_that_it_lives() {
    let fixture = Fixture::development();
    let mut source = EventSource::begin(&fixture, "");
    while source.comments < 2 {
        assert!(source.take_block().is_none_or(|block| block.is_none()), "no event");
        source.read(1024);
    }
    source.stream.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn the_streams_of_a_user_are_bounded() {
    let fixture = Fixture::development();
    let mut streams = Vec::new();
    loop {
        let source = EventSource::open(&fixture, "", ADMIN, "");
        match source.status {
            200 => streams.push(source),
            status => {
                assert_eq!(status, 503);
                break;
            }
        }
    }
    assert_eq!(streams.len(), crate::limits::ADMIN_STREAMS_PER_USER_MAX);
    drop(streams);
    let again = || EventSource::open(&fixture, "", ADMIN, "").status == 200;
    wait_until(again, "streams that end make room");
}
