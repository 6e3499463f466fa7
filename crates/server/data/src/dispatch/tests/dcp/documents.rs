//! Documents on their way from a write to a consumer: order, form, and flow control.

use oribi_engine::collections::ManifestChange;
use oribi_types::Datatype;

use super::*;
use crate::dispatch::tests::about;

impl Client {
    fn write_value(&mut self, key: &[u8], value: &[u8]) {
        let set = RequestParts {
            vbid: Vbid(0),
            extras: &[0, 0, 0, 7, 0, 0, 0, 0],
            value,
            ..about(Opcode::Set, key)
        };
        assert_eq!(self.ask(&set).status, Status::Success);
    }

    fn remove(&mut self, key: &[u8]) {
        let delete = RequestParts { vbid: Vbid(0), ..about(Opcode::Delete, key) };
        assert_eq!(self.ask(&delete).status, Status::Success);
    }
}

fn seqno_of(told: &DcpEvent) -> Option<u64> {
    match told {
        DcpEvent::Mutation { seqno, .. } | DcpEvent::Deletion { seqno, .. } => Some(*seqno),
        DcpEvent::Expiration { seqno, .. } => Some(*seqno),
        _ => None,
    }
}

/// Each change lies inside the last marker, in order of seqno.
fn check_snapshots(all: &[DcpEvent]) {
    let (mut last, mut range) = (0, None);
    for told in all {
        if let DcpEvent::Marker { start, end, .. } = told {
            range = Some(*start..=*end);
        }
        if let Some(seqno) = seqno_of(told) {
            assert!(seqno > last, "{all:?}");
            assert!(range.as_ref().is_some_and(|range| range.contains(&seqno)), "{all:?}");
            last = seqno;
        }
    }
}

// Compat (Key-value): change streams (DCP)
#[test]
fn writes_come_in_order_before_and_after_the_request() {
    let mut writer = Client::modern();
    writer.write_value(b"a", b"1");
    writer.write_value(b"b", b"2");
    let mut consumer = writer.consumer(&CONSUMER, 1);
    let (reply, told) = consumer.stream(0, &EVERYTHING, "");
    assert_eq!(reply.status, Status::Success);
    for got in &told {
        let ServerFrame::Message { opaque, vbid, .. } = got else { panic!("{got:?}") };
        assert_eq!((*opaque, *vbid), (OPAQUE, 0));
    }
    let mut all: Vec<DcpEvent> = told.iter().map(|got| got.told().clone()).collect();
    writer.write_value(b"c", b"3");
    writer.remove(b"a");
    all.extend(consumer.messages());
    check_snapshots(&all);
    let changes: Vec<&DcpEvent> = all.iter().filter(|told| seqno_of(told).is_some()).collect();
    let mutation = |seqno, key: &[u8], value: &[u8]| DcpEvent::Mutation {
        seqno,
        // The default collection has a prefix, too.
        key: [&[0], key].concat(),
        value: value.to_vec(),
        datatype: if value[0].is_ascii_digit() { Datatype::JSON.0 } else { 0 },
    };
    let gone = DcpEvent::Deletion { seqno: 4, key: b"\0a".to_vec(), value: vec![], datatype: 0 };
    let expected =
        [&mutation(1, b"a", b"1"), &mutation(2, b"b", b"2"), &mutation(3, b"c", b"3"), &gone];
    assert_eq!(changes, expected);
}

// Compat (Change streams): Changed collections
#[test]
fn a_changed_max_ttl_is_another_creation() {
    let writer = Client::modern();
    let mut consumer = writer.consumer(&CONSUMER, 1);
    let (reply, _) = consumer.stream(0, &EVERYTHING, "");
    assert_eq!(reply.status, Status::Success);
    let (scope, name) = (String::from("_default"), String::from("c"));
    let create = ManifestChange::CreateCollection {
        scope: scope.clone(),
        name: name.clone(),
        max_ttl_s: None,
    };
    let change = ManifestChange::SetMaxTtl { scope, name, max_ttl_s: Some(60) };
    let bucket = writer.harness.bucket().bucket();
    for change in [create, change] {
        bucket.update_manifest(&change).unwrap();
    }
    let told = consumer.messages();
    let events: Vec<&String> = told
        .iter()
        .filter_map(|told| if let DcpEvent::Event(event) = told { Some(event) } else { None })
        .collect();
    assert_eq!(events.len(), 2, "{told:?}");
    assert!(events.iter().all(|event| event.starts_with("CollectionBegin")), "{events:?}");
    assert!(events[0].contains("max_ttl: None"), "{events:?}");
    assert!(events[1].contains("max_ttl: Some(60)"), "{events:?}");
}

#[test]
fn consumers_without_collections_get_plain_keys() {
    let mut writer = Client::modern();
    let mut consumer = writer.consumer(&LEGACY, 1);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    writer.write_value(b"a", b"text");
    let all = consumer.messages();
    let expected =
        DcpEvent::Mutation { seqno: 1, key: b"a".to_vec(), value: b"text".to_vec(), datatype: 0 };
    assert_eq!(all.last(), Some(&expected), "{all:?}");
}

// Invariant: The server sends no change beyond the consumer's window, and sends noops even while
// the window is full.
#[test]
fn a_full_window_pauses_until_it_is_acknowledged() {
    let mut writer = Client::modern();
    let mut consumer = writer.consumer(&CONSUMER, 1);
    consumer.choose("connection_buffer_size", "100");
    consumer.choose("set_noop_interval", "1");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    for number in 0..20 {
        writer.write_value(format!("key{number}").as_bytes(), &[b'v'; 50]);
    }
    let mut changes = 0;
    let mut all = consumer.receive(&[]);
    for _ in 0..100 {
        let bytes: usize = all
            .iter()
            .map(|got| match got {
                ServerFrame::Message { frame_bytes, .. } => *frame_bytes,
                ServerFrame::Answer(reply) => panic!("{reply:?}"),
            })
            .sum();
        assert!(bytes < 100 + 200, "one message more than the window, at most: {bytes}");
        changes += all.iter().filter(|got| seqno_of(got.told()).is_some()).count();
        if changes == 20 {
            return;
        }
        assert_eq!(consumer.receive(&[]), [], "the window is full");
        all = consumer.acknowledge(bytes as u32);
    }
    panic!("only {changes} changes came");
}

// Invariant: The server sends no change beyond the consumer's window, and sends noops even while
// the window is full.
#[test]
fn the_server_asks_with_a_full_window_too() {
    let mut writer = Client::modern();
    let mut consumer = writer.consumer(&CONSUMER, 1);
    consumer.choose("connection_buffer_size", "1");
    consumer.choose("set_noop_interval", "1");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    writer.write_value(b"a", b"text");
    assert_eq!(consumer.receive(&[]).len(), 1, "one message is in flight");
    let asked = received(&consumer.harness.advance_ms(1_100));
    assert!(
        matches!(&asked[..], [ServerFrame::Message { told: DcpEvent::Noop(_), .. }]),
        "{asked:?}"
    );
}

#[test]
fn large_values_arrive_whole() {
    let mut writer = Client::modern();
    let value: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let mut consumer = writer.consumer(&CONSUMER, 1);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    writer.write_value(b"large", &value);
    let all = consumer.messages();
    let Some(DcpEvent::Mutation { value: got, .. }) = all.last() else { panic!("no mutation") };
    assert!(*got == value, "{} bytes of {}", got.len(), value.len());
}

#[test]
fn values_are_left_out_if_the_consumer_does_without() {
    let mut writer = Client::modern();
    for (flags, datatype) in [(0x09, 0), (0x41, Datatype::JSON.0)] {
        let mut consumer = writer.consumer(&CONSUMER, flags);
        assert_eq!(consumer.stream_status(1, &EVERYTHING, ""), Status::Success);
        let set = RequestParts {
            vbid: Vbid(1),
            extras: &[0; 8],
            value: b"{}",
            ..about(Opcode::Set, b"k")
        };
        assert_eq!(writer.ask(&set).status, Status::Success);
        let all = consumer.messages();
        let Some(DcpEvent::Mutation { value, datatype: got, .. }) = all.last() else {
            panic!("{all:?}")
        };
        assert_eq!((value.len(), *got), (0, datatype), "{flags:#x}");
    }
}
