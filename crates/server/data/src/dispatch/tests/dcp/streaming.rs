//! Requests for streams, their order of checks, flow control, and ends.

use super::*;
use crate::connection::close_reason::CloseReason;
use crate::dispatch::tests::{about, outside};
use crate::limits::CHANGES_WITHOUT_PAUSE_MAX;

const CURRENT: u64 = u64::MAX;

/// A request from a seqno on, at the end of its snapshot.
fn after(start: u64, end: u64) -> StreamRequestExtras {
    let start = Seqno(start);
    let (snapshot_start, snapshot_end) = (start, start);
    StreamRequestExtras { start, end: Seqno(end), snapshot_start, snapshot_end, ..EVERYTHING }
}

/// A client that has written to vbucket 0, through a connection without collections.
fn writer(keys: usize) -> Client {
    let mut client = Client::modern();
    for number in 0..keys {
        client.write(number);
    }
    client
}

impl Client {
    /// Writes one document of vbucket 0.
    fn write(&mut self, number: usize) {
        let key = format!("key{number}");
        let set = RequestParts {
            vbid: Vbid(0),
            extras: &[0; 8],
            value: b"value",
            ..about(Opcode::Set, key.as_bytes())
        };
        assert_eq!(self.ask(&set).status, Status::Success);
    }
}

// Compat (Change streams): STREAM_REQ
#[test]
fn checks_come_in_the_order_consumers_observe() {
    let client = writer(3);
    let mut consumer = Client::consumer_of(client.harness.beside(), &CONSUMER);
    assert_eq!(consumer.open_as(NAME, 1).status, Status::Success);
    let nowhere = outside().0;
    let backwards = after(5, 4);
    let flags = |flags| StreamRequestExtras { flags: StreamFlags(flags), ..backwards };
    // Flags before the vbucket.
    assert_eq!(consumer.stream_status(nowhere, &flags(0x008), "{"), Status::Einval);
    assert_eq!(consumer.stream_status(nowhere, &flags(0x100), "{"), Status::Einval);
    // The vbucket before the noop.
    assert_eq!(consumer.stream_status(nowhere, &flags(0x010), "{"), Status::NotMyVbucket);
    // The noop before the range.
    assert_eq!(consumer.stream_status(0, &backwards, "{"), Status::NotSupported);
    consumer.choose("enable_noop", "true");
    // The range before the filter.
    assert_eq!(consumer.stream_status(0, &backwards, "{"), Status::Erange);
    let outside = StreamRequestExtras { snapshot_end: Seqno(4), ..after(5, CURRENT) };
    assert_eq!(consumer.stream_status(0, &outside, "{"), Status::Erange);
    // The filter before the id.
    assert_eq!(consumer.stream_status(0, &EVERYTHING, "{"), Status::Einval);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, "{}"), Status::Einval);
    let unknown = r#"{"collections":["77"],"sid":1}"#;
    let (reply, _) = consumer.stream(0, &EVERYTHING, unknown);
    assert_eq!(reply.status, Status::UnknownCollection);
    let body = String::from_utf8(reply.value).unwrap();
    assert!(body.contains(r#""manifest_uid":"0""#), "{body}");
    let unknown = r#"{"scope":"77"}"#;
    assert_eq!(consumer.stream_status(0, &EVERYTHING, unknown), Status::UnknownScope);
    let superfluous = r#"{"sid":1}"#;
    assert_eq!(consumer.stream_status(0, &EVERYTHING, superfluous), Status::DcpStreamIdInvalid);
    // The stream that is there before the rollback.
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    assert_eq!(consumer.stream_status(0, &after(9, CURRENT), ""), Status::KeyEexists);
    let (reply, told) = consumer.stream(1, &after(9, CURRENT), "");
    assert_eq!((reply.status, reply.value.as_slice()), (Status::Rollback, &[0; 8][..]));
    assert!(reply.extras.is_empty() && told.is_empty(), "no stream, no end");
    assert_eq!(consumer.harness.close_reason(), None);
}

#[test]
fn a_value_needs_collections_and_no_datatype() {
    let client = writer(1);
    let mut legacy = client.consumer(&LEGACY, 1);
    assert_eq!(legacy.stream_status(0, &EVERYTHING, r#"{"uid":"0"}"#), Status::Einval);
    let mut consumer = client.consumer(&CONSUMER, 1);
    let parts = RequestParts {
        extras: &EVERYTHING.encode(),
        value: br#"{"uid":"0"}"#,
        datatype: 1,
        ..RequestParts::new(Opcode::DcpStreamReq)
    };
    assert_eq!(consumer.ask(&parts).status, Status::Einval);
}

/// Plain consumers of old need no noop.
#[test]
fn plain_consumers_need_no_noop() {
    let client = writer(1);
    for (flags, status) in [(1, Status::Success), (5, Status::NotSupported)] {
        let mut legacy = Client::consumer_of(client.harness.beside(), &LEGACY);
        assert_eq!(legacy.open_as(NAME, flags).status, Status::Success);
        assert_eq!(legacy.stream_status(0, &EVERYTHING, ""), status, "{flags:#x}");
    }
}

// Compat (Change streams): CLOSE_STREAM, GET_FAILOVER_LOG, BUFFER_ACK
#[test]
fn the_answer_is_the_failover_log_newest_first() {
    let client = writer(1);
    let mut consumer = client.consumer(&CONSUMER, 1);
    let (reply, _) = consumer.stream(0, &EVERYTHING, "");
    let log = consumer.ask(&RequestParts::new(Opcode::DcpGetFailoverLog)).value;
    assert_eq!(reply.value, log);
    assert_eq!(log.len() % 16, 0);
    assert!(!log.is_empty());
    let nowhere = RequestParts { vbid: outside(), ..RequestParts::new(Opcode::DcpGetFailoverLog) };
    assert_eq!(consumer.ask(&nowhere).status, Status::NotMyVbucket);
}

#[test]
fn an_empty_range_ends_at_once_and_without_a_marker() {
    let client = writer(2);
    let mut consumer = client.consumer(&CONSUMER, 1);
    let (reply, told) = consumer.stream(0, &after(0, 0), "");
    assert_eq!(reply.status, Status::Success);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].told(), &DcpEvent::End(EndReason::Ok));
    // It is gone, so another takes its place.
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
}

// Compat (Change streams): CLOSE_STREAM, GET_FAILOVER_LOG, BUFFER_ACK
#[test]
fn a_closed_stream_sends_a_stream_end_on_request() {
    let client = writer(0);
    let mut consumer = client.consumer(&CONSUMER, 1);
    assert_eq!(consumer.close_stream(0, &[]), (Status::KeyEnoent, vec![]));
    assert_eq!(consumer.close_stream(outside().0, &[]), (Status::KeyEnoent, vec![]));
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let sid = stream_id_frame(1);
    assert_eq!(consumer.close_stream(0, &sid), (Status::DcpStreamIdInvalid, vec![]));
    assert_eq!(consumer.close_stream(0, &[]), (Status::Success, vec![]));
    assert_eq!(consumer.close_stream(0, &[]), (Status::KeyEnoent, vec![]));
    consumer.choose("send_stream_end_on_client_close_stream", "true");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let (status, told) = consumer.close_stream(0, &[]);
    assert_eq!((status, told), (Status::Success, vec![DcpEvent::End(EndReason::Closed)]));
    assert_eq!(consumer.close_stream(0, &[]), (Status::KeyEnoent, vec![]));
}

/// Regression: the end of a closed stream took the key of the stream that was opened after it, so
/// that the consumer could not close that one, and could open it twice.
#[test]
fn an_ending_stream_keeps_its_successor_listed() {
    let client = writer(3);
    let mut consumer = client.consumer(&CONSUMER, 1);
    consumer.choose("send_stream_end_on_client_close_stream", "true");
    consumer.choose("connection_buffer_size", "1");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let (status, told) = consumer.close_stream(0, &[]);
    assert_eq!((status, told), (Status::Success, vec![]), "the window is closed");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let ended = |frame: &ServerFrame| {
        matches!(frame, ServerFrame::Message { told: DcpEvent::End(EndReason::Closed), .. })
    };
    assert!(consumer.acknowledge(1 << 20).iter().any(ended));
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::KeyEexists);
    assert_eq!(consumer.close_stream(0, &[]).0, Status::Success);
}

#[test]
fn stream_ids_allow_several_streams_of_a_vbucket() {
    let client = writer(0);
    let mut consumer = client.consumer(&CONSUMER, 1);
    consumer.choose("enable_stream_id", "true");
    consumer.choose("send_stream_end_on_client_close_stream", "true");
    for value in ["", r#"{"uid":"0"}"#, r#"{"sid":0}"#, r#"{"sid":65536}"#] {
        let status = consumer.stream_status(0, &EVERYTHING, value);
        assert_eq!(status, Status::DcpStreamIdInvalid, "{value}");
    }
    assert_eq!(consumer.stream_status(0, &EVERYTHING, r#"{"sid":"1"}"#), Status::Einval);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, r#"{"sid":1}"#), Status::Success);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, r#"{"sid":1}"#), Status::KeyEexists);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, r#"{"sid":2}"#), Status::Success);
    assert_eq!(consumer.close_stream(0, &[]).0, Status::DcpStreamIdInvalid);
    assert_eq!(consumer.close_stream(0, &stream_id_frame(3)).0, Status::DcpStreamIdInvalid);
    let close =
        RequestParts { framing: &stream_id_frame(2), ..RequestParts::new(Opcode::DcpCloseStream) };
    let all = consumer.receive(&bytes(&close));
    let [ServerFrame::Answer(_), ServerFrame::Message { stream_id, told, frame_bytes, .. }] =
        &all[..]
    else {
        panic!("{all:?}")
    };
    assert_eq!((*stream_id, told, *frame_bytes), (Some(2), &DcpEvent::End(EndReason::Closed), 31));
}

// Compat (Change streams): CLOSE_STREAM, GET_FAILOVER_LOG, BUFFER_ACK
#[test]
fn only_malformed_acknowledgements_are_answered() {
    let client = writer(0);
    let mut consumer = client.consumer(&CONSUMER, 1);
    assert_eq!(consumer.acknowledge(0), []);
    assert_eq!(consumer.acknowledge(u32::MAX), []);
    let opcode = Opcode::DcpBufferAcknowledgement;
    for parts in [
        RequestParts { extras: &[0; 3], ..RequestParts::new(opcode) },
        RequestParts { extras: &[0; 4], key: b"k", ..RequestParts::new(opcode) },
    ] {
        assert_eq!(consumer.ask(&parts).status, Status::Einval);
    }
}

#[test]
fn a_deleted_bucket_closes_without_stream_ends() {
    let client = writer(0);
    let mut consumer = client.consumer(&CONSUMER, 1);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    client.harness.server().buckets.delete("default").unwrap();
    assert_eq!(consumer.receive(&[]), []);
    assert_eq!(consumer.harness.close_reason(), Some(CloseReason::BucketDeleted));
}

// Compat (Change streams): Rights
#[test]
fn rights_hold_for_scopes_and_collections() {
    let client = writer(0);
    let mut narrow = client.beside_with(&["change-streams:default/_default/_default"], &CONSUMER);
    assert_eq!(narrow.open_as(NAME, 1).status, Status::Success);
    narrow.choose("enable_noop", "true");
    assert_eq!(narrow.stream_status(0, &EVERYTHING, ""), Status::Eaccess);
    assert_eq!(narrow.stream_status(0, &EVERYTHING, r#"{"scope":"0"}"#), Status::Eaccess);
    let own = r#"{"collections":["0"]}"#;
    assert_eq!(narrow.stream_status(0, &EVERYTHING, own), Status::Success);
    let mut scoped = client.beside_with(&["change-streams:default/_default"], &CONSUMER);
    assert_eq!(scoped.open_as(b"scoped", 1).status, Status::Success);
    scoped.choose("enable_noop", "true");
    assert_eq!(scoped.stream_status(0, &EVERYTHING, ""), Status::Eaccess);
    assert_eq!(scoped.stream_status(0, &EVERYTHING, r#"{"scope":"0"}"#), Status::Success);
}

/// Figures of a STAT group by name.
pub(super) fn figures(
    client: &mut Client,
    group: &str,
) -> std::collections::BTreeMap<String, String> {
    let stat = RequestParts { key: group.as_bytes(), ..RequestParts::new(Opcode::Stat) };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    client.send(&stat).into_iter().map(|one| (text(one.key), text(one.value))).collect()
}

// Compat (Statistics): `dcp`, `dcpagg [separator]`, `dcp-vbtakeover vb [name]`
#[test]
fn statistics_show_connections_and_streams() {
    let mut client = writer(3);
    let mut consumer = client.consumer(&CONSUMER, 1);
    consumer.choose("connection_buffer_size", "1000");
    assert_eq!(consumer.stream_status(1, &EVERYTHING, ""), Status::Success);
    consumer.harness.advance_ms(1);
    let all = figures(&mut client, "dcp");
    assert_eq!(all["ep_dcp_count"], "1");
    assert_eq!(all["eq_dcpq:test:1:num_streams"], "1");
    assert_eq!(all["eq_dcpq:test:1:max_buffer_bytes"], "1000");
    assert_eq!(all["eq_dcpq:test:1:noop_enabled"], "true");
    assert_eq!(all["eq_dcpq:test:1:stream_1_opaque"], (OPAQUE + 1).to_string());
    assert_eq!(all["eq_dcpq:test:1:stream_1_filter_type"], "passthrough");
    let sums = figures(&mut client, "dcpagg :");
    assert_eq!(sums["test:count"], "1");
    assert_eq!(sums[":total:activestream_count"], "1");
    assert_eq!(figures(&mut client, "dcpagg")["_unknown:count"], "1");
    let takeover = figures(&mut client, "dcp-vbtakeover 0 test:1");
    assert_eq!(takeover["status"], "stream_does_not_exist");
    let takeover = figures(&mut client, "dcp-vbtakeover 0 other");
    assert_eq!(takeover["status"], "connection_does_not_exist");
    drop(consumer);
    assert_eq!(figures(&mut client, "dcp")["ep_dcp_count"], "0");
}

/// A busy producer does not wait to be woken by a stream that it has read to its end. The write
/// behind that end comes with the next look all the same, and later ones wake the producer.
#[test]
fn a_deferred_stream_change_comes_with_the_next_poll() {
    let mutations = |got: &[ServerFrame]| {
        got.iter().filter(|got| matches!(got.told(), DcpEvent::Mutation { .. })).count()
    };
    let mut client = writer(0);
    let mut consumer = client.consumer(&CONSUMER, 1);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    for _ in 0..3 {
        let many = CHANGES_WITHOUT_PAUSE_MAX + 1;
        // The first look follows a wake-up; the second only that the stream was put off.
        for _ in 0..2 {
            (0..many).for_each(|number| client.write(number));
            let (output, _) = consumer.harness.turn(&[]);
            assert_eq!(mutations(&received(&output)), many, "the stream was put off for good");
        }
        client.write(0);
        let (output, _) = consumer.harness.turn(&[]);
        assert_eq!(mutations(&received(&output)), 1, "the stream was put off for good");
        assert_eq!(consumer.messages(), []);
        client.write(0);
        assert_eq!(mutations(&consumer.receive(&[])), 1);
    }
}
