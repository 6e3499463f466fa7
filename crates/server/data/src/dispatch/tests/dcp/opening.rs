//! Which connections become producers, what they still may do, and their options.

use std::sync::Arc;

use oribi_auth::UserStore;
use oribi_engine::WarmupStep;
use oribi_storage::{MemoryMedium, MemoryStore};

use super::*;
use crate::connection::close_reason::CloseReason;
use crate::dispatch::tests::about;
use crate::limits::LOADING_WAIT_MS;

fn consumer() -> Client {
    Client::with_features(&CONSUMER)
}

#[test]
fn a_name_is_needed_and_may_have_251_bytes() {
    for (bytes, status) in [(1, Status::Success), (251, Status::Success), (0, Status::Einval)] {
        assert_eq!(consumer().open_as(&vec![b'n'; bytes], 1).status, status, "{bytes} bytes");
    }
    let key = [b'n'; 252];
    let open = RequestParts { extras: &open(1), key: &key, ..RequestParts::new(Opcode::DcpOpen) };
    assert_eq!(consumer().ask(&open).status, Status::Einval);
    assert_eq!(consumer().open_as(b"with \0 and blank", 1).status, Status::Success);
}

// Compat (Change streams): DCP_OPEN
#[test]
fn flags_that_nobody_knows_are_refused() {
    for (flags, status) in [
        (0x001, Status::Success),
        (0x025, Status::Success),
        (0x105, Status::Success),
        (0x041, Status::Success),
        (0x009, Status::Success),
        (0x000, Status::NotSupported),
        (0x003, Status::Einval),
        (0x011, Status::Einval),
        (0x049, Status::Einval),
        (0x081, Status::Einval),
        (0x101, Status::Einval),
        (0x201, Status::Einval),
        (0x401, Status::Einval),
        (0x8000_0001, Status::Einval),
    ] {
        assert_eq!(consumer().open_as(NAME, flags).status, status, "{flags:#x}");
    }
}

#[test]
fn settings_with_open_are_refused() {
    for (value, datatype, status) in [
        ("{}", 1, Status::Success),
        (r#"{"consumer_name":"x"}"#, 1, Status::Einval),
        (r#"{"other":1}"#, 1, Status::Einval),
        ("nothing", 0, Status::Einval),
    ] {
        let open = RequestParts {
            extras: &open(1),
            key: NAME,
            value: value.as_bytes(),
            datatype,
            ..RequestParts::new(Opcode::DcpOpen)
        };
        assert_eq!(consumer().ask(&open).status, status, "{value}");
    }
}

// Compat (Change streams): DCP_OPEN
#[test]
fn an_open_connection_keeps_user_bucket_and_features() {
    let mut client = consumer();
    assert_eq!(client.open_as(NAME, 1).status, Status::Success);
    assert_eq!(client.open_as(b"other", 1).status, Status::Einval);
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::NotSupported);
    let plain = RequestParts {
        key: b"PLAIN",
        value: b"\0Administrator\0password",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    assert_eq!(client.ask(&plain).status, Status::NotSupported);
    let mechanisms = client.ask(&RequestParts::new(Opcode::SaslListMechs));
    assert_eq!(mechanisms.status, Status::NotSupported);
    assert_eq!(client.hello(&LEGACY).status, Status::NotSupported);
    // Ordinary requests stay usable.
    let key = [&[0], &b"key"[..]].concat();
    let set = RequestParts { extras: &[0; 8], value: b"v", ..about(Opcode::Set, &key) };
    let set = RequestParts { vbid: Vbid(0), ..set };
    assert_eq!(client.ask(&set).status, Status::Success);
    for opcode in [
        Opcode::Noop,
        Opcode::Version,
        Opcode::GetClusterConfig,
        Opcode::CollectionsGetManifest,
        Opcode::GetAllVbSeqnos,
        Opcode::ListBuckets,
        Opcode::DcpGetFailoverLog,
    ] {
        assert_eq!(client.ask(&RequestParts::new(opcode)).status, Status::Success, "{opcode:?}");
    }
}

#[test]
fn unordered_execution_excludes_streams() {
    let mut client = Client::with_features(&[6, 7, 8, 0x0b, 0x0e, 0x12]);
    assert_eq!(client.open_as(NAME, 1).status, Status::NotSupported);
}

#[test]
fn without_a_bucket_there_is_nothing_to_follow() {
    let mut client = consumer();
    let none = RequestParts { key: b"@no bucket@", ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&none).status, Status::Success);
    assert_eq!(client.open_as(NAME, 1).status, Status::NoBucket);
}

#[test]
fn only_users_with_the_right_may_open() {
    let client = Client::modern();
    for (role, status) in [
        ("read-write:default", Status::Eaccess),
        ("change-streams:default", Status::Success),
        ("change-streams:default/_default/_default", Status::Success),
        ("admin", Status::Success),
    ] {
        let mut other = client.beside_with(&[role], &CONSUMER);
        assert_eq!(other.open_as(NAME, 1).status, status, "{role}");
    }
}

// Compat (Change streams): messages of a producer
#[test]
fn requests_of_consumers_need_an_open_connection() {
    let mut client = consumer();
    let control = RequestParts {
        key: b"enable_noop",
        value: b"true",
        ..RequestParts::new(Opcode::DcpControl)
    };
    let stream =
        RequestParts { extras: &EVERYTHING.encode(), ..RequestParts::new(Opcode::DcpStreamReq) };
    let acknowledge =
        RequestParts { extras: &[0; 4], ..RequestParts::new(Opcode::DcpBufferAcknowledgement) };
    let others = [
        RequestParts::new(Opcode::DcpCloseStream),
        RequestParts::new(Opcode::DcpGetFailoverLog),
        RequestParts::new(Opcode::DcpNoop),
        RequestParts { extras: &[0; 4], ..RequestParts::new(Opcode::DcpAddStream) },
        RequestParts { extras: &[0; 4], ..RequestParts::new(Opcode::DcpStreamEnd) },
    ];
    for parts in [control, stream, acknowledge].iter().chain(&others) {
        assert_eq!(client.ask(parts).status, Status::Einval, "{parts:?}");
    }
    // The server is no consumer, on an open connection either.
    assert_eq!(client.open_as(NAME, 1).status, Status::Success);
    for opcode in [
        Opcode::DcpAddStream,
        Opcode::DcpStreamEnd,
        Opcode::DcpSnapshotMarker,
        Opcode::DcpMutation,
        Opcode::DcpDeletion,
        Opcode::DcpExpiration,
        Opcode::DcpSetVbucketState,
        Opcode::DcpSystemEvent,
        Opcode::DcpCommit,
        Opcode::DcpFlush,
        Opcode::DcpNoop,
    ] {
        assert_eq!(client.ask(&RequestParts::new(opcode)).status, Status::NotSupported);
    }
}

// Compat (Change streams): CONTROL
#[test]
fn dcp_options_never_end_the_connection() {
    let mut client = consumer();
    assert_eq!(client.open_as(NAME, 0x105).status, Status::Success);
    let ok = [
        ("enable_noop", "true"),
        ("enable_noop", "false"),
        ("set_noop_interval", "180"),
        ("set_noop_interval", "0.5"),
        ("set_noop_interval", "0.1"),
        ("connection_buffer_size", "20971520"),
        ("connection_buffer_size", "0"),
        ("connection_buffer_size", "4294967295"),
        ("set_priority", "high"),
        ("set_priority", "low"),
        ("force_value_compression", "true"),
        ("supports_cursor_dropping", "true"),
        ("supports_cursor_dropping_vulcan", "true"),
        ("supports_hifi_MFU", "true"),
        ("send_stream_end_on_client_close_stream", "true"),
        ("enable_expiry_opcode", "true"),
        ("enable_stream_id", "true"),
        ("backfill_order", "sequential"),
        ("backfill_order", "round-robin"),
        ("include_deleted_user_xattrs", "true"),
        ("enable_out_of_order_snapshots", "true"),
        ("enable_out_of_order_snapshots", "true_with_seqno_advanced"),
        ("v7_dcp_status_codes", "true"),
        ("max_marker_version", "2.2"),
    ];
    for (name, value) in ok {
        assert_eq!(client.control(name, value), Status::Success, "{name}={value}");
    }
    let invalid = [
        ("set_noop_interval", "0"),
        ("set_noop_interval", "0.05"),
        ("set_noop_interval", "-1"),
        ("set_noop_interval", "soon"),
        ("set_noop_interval", "inf"),
        ("set_noop_interval", "1e3"),
        ("connection_buffer_size", "4294967296"),
        ("connection_buffer_size", "+1"),
        ("connection_buffer_size", "many"),
        ("set_priority", "urgent"),
        ("enable_stream_id", "false"),
        ("backfill_order", "random"),
        ("include_deleted_user_xattrs", "false"),
        ("enable_out_of_order_snapshots", "false"),
        ("max_marker_version", "2.0"),
        ("snapshot_max_marker_version", "2.2"),
        ("cache_transfer", "true"),
        ("enable_value_compression", "true"),
        ("no_such_option", "true"),
    ];
    for (name, value) in invalid {
        assert_eq!(client.control(name, value), Status::Einval, "{name}={value}");
    }
    for name in
        ["flatbuffers_system_events", "change_streams", "enable_sync_writes", "stream_buffer_size"]
    {
        assert_eq!(client.control(name, "true"), Status::NotSupported, "{name}");
    }
    assert_eq!(client.harness.close_reason(), None);
    for (key, value) in [(&b""[..], &b"true"[..]), (b"enable_noop", b"")] {
        let control = RequestParts { key, value, ..RequestParts::new(Opcode::DcpControl) };
        assert_eq!(client.ask(&control).status, Status::Einval);
    }
}

#[test]
fn options_that_depend_on_what_was_negotiated() {
    let mut client = Client::with_features(&LEGACY);
    assert_eq!(client.open_as(NAME, 1).status, Status::Success);
    assert_eq!(client.control("force_value_compression", "true"), Status::Einval);
    assert_eq!(client.control("max_marker_version", "2.2"), Status::NotSupported);
    assert_eq!(client.control("include_deleted_user_xattrs", "true"), Status::Einval);
}

/// A consumer that comes back before the server has noticed that it was gone gets its name.
#[test]
fn the_second_connection_of_a_name_ends_the_first() {
    let client = Client::modern();
    let mut first = client.consumer(&CONSUMER, 1);
    let (reply, _) = first.stream(0, &EVERYTHING, "");
    assert_eq!(reply.status, Status::Success);
    let mut second = client.consumer(&CONSUMER, 1);
    assert_eq!(second.stream_status(0, &EVERYTHING, ""), Status::Success);
    assert_eq!(first.receive(&[]), [], "no end of the stream is sent");
    assert_eq!(first.harness.close_reason(), Some(CloseReason::NameTaken));
    // The end of the first leaves the second its name.
    drop(first);
    let names: Vec<_> =
        client.harness.bucket().producers().list().iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, [NAME.into()]);
    assert_eq!(second.harness.close_reason(), None);
    drop(second);
    assert!(client.harness.bucket().producers().list().is_empty());
}

#[test]
fn a_consumer_without_noop_answers_is_closed() {
    let client = Client::modern();
    let mut consumer = client.consumer(&CONSUMER, 1);
    consumer.choose("set_noop_interval", "2");
    let asked = |got: &[ServerFrame]| match got {
        [] => None,
        [ServerFrame::Message { opaque, vbid: 0, told: DcpEvent::Noop(_), .. }] => Some(*opaque),
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(&received(&consumer.harness.advance_ms(1_900))), None);
    // Opaques count up from 10,000,001 in the byte order of the usual processors.
    assert_eq!(asked(&received(&consumer.harness.advance_ms(200))), Some(0x8196_9800));
    assert_eq!(asked(&received(&consumer.harness.advance_ms(60_000))), None);
    let wrong = answer(Opcode::DcpNoop, Status::Success, 0x8196_9800);
    assert_eq!(consumer.receive(&wrong), []);
    assert_eq!(asked(&received(&consumer.harness.advance_ms(2_000))), Some(0x8296_9800));
    assert_eq!(asked(&received(&consumer.harness.advance_ms(357_000))), None);
    assert_eq!(consumer.harness.close_reason(), None);
    consumer.harness.advance_ms(2_000);
    assert_eq!(consumer.harness.close_reason(), Some(CloseReason::ConsumerSilent));
}

#[test]
fn an_answer_to_nothing_ends_the_connection() {
    let client = Client::modern();
    for (opcode, status, reason) in [
        (Opcode::DcpNoop, Status::Success, Some(CloseReason::WrongAnswer)),
        (Opcode::DcpMutation, Status::Einval, Some(CloseReason::WrongAnswer)),
        (Opcode::DcpMutation, Status::KeyEnoent, None),
        (Opcode::DcpSnapshotMarker, Status::Success, None),
    ] {
        let mut consumer = client.consumer(&CONSUMER, 1);
        assert_eq!(consumer.receive(&answer(opcode, status, 7)), []);
        assert_eq!(consumer.harness.close_reason(), reason, "{opcode:?} {status:?}");
    }
    // On any other connection an answer never was acceptable.
    let mut other = Client::modern();
    let told = other.receive(&answer(Opcode::DcpNoop, Status::Success, 7));
    assert_eq!(told.len(), 1);
    assert!(matches!(other.harness.close_reason(), Some(CloseReason::NotARequest(0x81))));
}

// Compat (Change streams): Loading
/// A consumer that connects while a restarted server loads. Its client would give up on a failure.
#[test]
fn a_request_waits_for_a_load_up_to_the_limit() {
    let disk = Arc::new(MemoryMedium::default());
    let before = ConnectionHarness::over(
        UserStore::development(),
        Arc::new(MemoryStore::on(Arc::clone(&disk))),
    );
    let mut client = Client::on(before, &CONSUMER);
    let set = RequestParts { extras: &[0; 8], value: b"value", ..about(Opcode::Set, b"\0key") };
    assert_eq!(client.ask(&RequestParts { vbid: Vbid(0), ..set }).status, Status::Success);
    client.harness.bucket().bucket().flush_step().expect("the store is sound");
    drop(client);

    let consumer_while_loading = || {
        let store = Arc::new(MemoryStore::on(Arc::clone(&disk)));
        let mut consumer = Client::consumer_of(ConnectionHarness::loading(store), &CONSUMER);
        assert_eq!(consumer.open_as(NAME, 1).status, Status::Success);
        consumer.choose("enable_noop", "true");
        consumer
    };
    let mut consumer = consumer_while_loading();
    let request = RequestParts {
        vbid: Vbid(0),
        opaque: OPAQUE,
        extras: &EVERYTHING.encode(),
        ..RequestParts::new(Opcode::DcpStreamReq)
    };
    let noop = RequestParts::new(Opcode::Noop);
    assert!(consumer.harness.feed(&[bytes(&request), bytes(&noop)].concat()).is_empty());
    for _ in 0..3 {
        let (answers, has_waited) = consumer.harness.retry_writes();
        assert!(has_waited && answers.is_empty());
    }
    let bucket = Arc::clone(consumer.harness.bucket());
    while !matches!(bucket.bucket().warmup_step(), WarmupStep::Done) {}
    let (answers, _) = consumer.harness.retry_writes();
    let answers: Vec<Status> = received(&answers)
        .iter()
        .filter_map(|got| match got {
            ServerFrame::Answer(reply) => Some(reply.status),
            ServerFrame::Message { .. } => None,
        })
        .collect();
    assert_eq!(answers, [Status::Success, Status::Success], "the request and the one behind it");

    let mut consumer = consumer_while_loading();
    assert!(consumer.harness.feed(&bytes(&request)).is_empty());
    consumer.harness.advance_ms(LOADING_WAIT_MS + 1);
    let (answers, _) = consumer.harness.retry_writes();
    let answers = received(&answers);
    let Some(ServerFrame::Answer(reply)) = answers.last() else {
        panic!("no answer in {answers:?}")
    };
    assert_eq!(reply.status, Status::Etmpfail);
}
