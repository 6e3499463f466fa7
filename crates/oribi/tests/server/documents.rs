//! Document operations over a connection, and that documents survive a stop.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras};
use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, Request, poll_until};
use oribi_types::{Cas, Datatype, Vbid};

use crate::fixture::{Fixture, call_when_warm, expect};

#[test]
fn a_document_is_written_read_replaced_and_deleted() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let mut call = |request: &Request| connection.call(request).unwrap();

    expect(call(&Request::get("a")), Status::KeyEnoent);
    let stored =
        expect(call(&Request::set("a", "one").flags_and_expiry(0xCAFE, 0)), Status::Success);
    let first = stored.mutation().unwrap();
    assert_ne!(first.cas, Cas(0));
    let got = expect(call(&Request::get("a")), Status::Success);
    assert_eq!((got.value.as_slice(), got.cas), (&b"one"[..], first.cas));
    assert_eq!(got.extras, 0xCAFE_u32.to_be_bytes());

    expect(call(&Request::store(Opcode::Add, "a", "x")), Status::KeyEexists);
    expect(call(&Request::store(Opcode::Replace, "b", "x")), Status::KeyEnoent);
    expect(call(&Request::set("a", "x").cas(Cas(first.cas.0 + 1))), Status::KeyEexists);
    let second = expect(call(&Request::set("a", "two").cas(first.cas)), Status::Success);
    let second = second.mutation().unwrap();
    assert!(second.cas > first.cas && second.seqno > first.seqno);
    assert_eq!(second.vb_uuid, first.vb_uuid);

    expect(call(&Request::delete("a").cas(first.cas)), Status::KeyEexists);
    expect(call(&Request::delete("a").cas(second.cas)), Status::Success);
    expect(call(&Request::delete("a")), Status::KeyEnoent);
    expect(call(&Request::get("a")), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn append_prepend_and_counters_work() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let mut call = |request: &Request| connection.call(request).unwrap();

    expect(call(&Request::about(Opcode::Append, "a").value("x")), Status::NotStored);
    expect(call(&Request::set("a", "b")), Status::Success);
    expect(call(&Request::about(Opcode::Append, "a").value("c")), Status::Success);
    expect(call(&Request::about(Opcode::Prepend, "a").value("a")), Status::Success);
    assert_eq!(call(&Request::get("a")).text(), "abc");
    expect(call(&Request::counter(Opcode::Increment, "a", 1, 0)), Status::DeltaBadval);

    let extras = CounterExtras { delta: 1, initial: 1, expiry: COUNTER_DO_NOT_CREATE };
    let no_create = Request::about(Opcode::Increment, "n").extras(&extras.encode());
    expect(call(&no_create), Status::KeyEnoent);
    let mut count = |opcode, delta| {
        let answer = expect(call(&Request::counter(opcode, "n", delta, 10)), Status::Success);
        u64::from_be_bytes(answer.value.try_into().unwrap())
    };
    assert_eq!(count(Opcode::Increment, 5), 10);
    assert_eq!(count(Opcode::Increment, 5), 15);
    assert_eq!(count(Opcode::Decrement, 6), 9);
    assert_eq!(count(Opcode::Decrement, 100), 0);
    assert_eq!(connection.call(&Request::get("n")).unwrap().text(), "0");
    fixture.finish(&[]);
}

#[test]
fn json_is_recognised_whatever_the_client_says() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    for (value, json) in
        [("{\"a\":[1,2]}", true), ("12", true), ("{\"a\":", false), ("text", false)]
    {
        expect(connection.call(&Request::set("a", value)).unwrap(), Status::Success);
        let got = expect(connection.call(&Request::get("a")).unwrap(), Status::Success);
        assert_eq!(Datatype(got.datatype).contains(Datatype::JSON), json, "{value}");
    }
    fixture.finish(&[]);
}

#[test]
fn documents_expire() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    expect(
        connection.call(&Request::set("a", "1").flags_and_expiry(0, 1)).unwrap(),
        Status::Success,
    );
    expect(
        connection.call(&Request::set("b", "1").flags_and_expiry(0, 3600)).unwrap(),
        Status::Success,
    );
    poll_until(PATIENCE, || {
        (connection.call(&Request::get("a")).unwrap().status() == Status::KeyEnoent).then_some(())
    })
    .expect("a document with an expiry of one second goes away");
    expect(connection.call(&Request::get("b")).unwrap(), Status::Success);
    // An absolute expiry in the past is over at once.
    expect(
        connection.call(&Request::touch(Opcode::Touch, "b", 2_700_000)).unwrap(),
        Status::Success,
    );
    expect(connection.call(&Request::get("b")).unwrap(), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn get_and_touch_reads_and_sets_the_expiry() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let mut call = |request: &Request| connection.call(request).unwrap();
    expect(call(&Request::touch(Opcode::Gat, "a", 100)), Status::KeyEnoent);
    let first = expect(call(&Request::set("a", "1").flags_and_expiry(7, 0)), Status::Success);
    let touched = expect(call(&Request::touch(Opcode::Gat, "a", 1)), Status::Success);
    assert_eq!((touched.text().as_str(), touched.extras), ("1", 7_u32.to_be_bytes().to_vec()));
    assert!(touched.cas > first.cas, "a touch is a mutation");
    poll_until(PATIENCE, || (call(&Request::get("a")).status() == Status::KeyEnoent).then_some(()))
        .expect("a document that was touched with one second goes away");
    fixture.finish(&[]);
}

#[test]
fn quiet_operations_answer_only_what_has_to_be_known() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let set_quietly = Request::store(Opcode::Setq, "a", "1");
    connection.send(&set_quietly).unwrap();
    connection.send(&Request::about(Opcode::Getq, "missing")).unwrap();
    let hit = connection.send(&Request::about(Opcode::Getkq, "a")).unwrap();
    let failed = connection.send(&Request::store(Opcode::Addq, "a", "2")).unwrap();
    let end = connection.send(&Request::new(Opcode::Noop)).unwrap();
    let answer = expect(connection.receive().unwrap(), Status::Success);
    assert_eq!((answer.opaque, answer.text().as_str()), (hit, "1"));
    // Collections are negotiated, so the key comes back with its prefix.
    assert_eq!(answer.key, b"\0a");
    assert_eq!(expect(connection.receive().unwrap(), Status::KeyEexists).opaque, failed);
    assert_eq!(expect(connection.receive().unwrap(), Status::Success).opaque, end);
    fixture.finish(&[]);
}

#[test]
fn a_vbucket_outside_the_map_is_not_ours() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let answer = connection.call(&Request::get("a").vbucket(Vbid(64))).unwrap();
    let answer = expect(answer, Status::NotMyVbucket);
    assert!(answer.text().contains("vBucketServerMap"), "{answer:?}");
    fixture.finish(&[]);
}

#[test]
fn keys_and_values_up_to_the_limits_are_stored() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let longest_key = "k".repeat(250);
    let largest = vec![b'v'; 20 << 20];
    expect(connection.call(&Request::set(&longest_key, &largest)).unwrap(), Status::Success);
    let got = expect(connection.call(&Request::get(&longest_key)).unwrap(), Status::Success);
    assert!(got.value == largest, "a large value came back different");
    expect(connection.call(&Request::set("k".repeat(251), "x")).unwrap(), Status::Einval);
    expect(connection.call(&Request::set("", "x")).unwrap(), Status::Einval);
    fixture.finish(&[]);
}

#[test]
fn a_thousand_documents_survive_an_orderly_stop() {
    let mut fixture = Fixture::start();
    let mut connection = fixture.login();
    let document = |index: u32| (format!("key-{index}"), format!("{{\"index\":{index}}}"));
    let mut versions = Vec::new();
    for index in 0..1000 {
        let (key, value) = document(index);
        let request = Request::set(key, value).flags_and_expiry(index, 0);
        versions.push(expect(connection.call(&request).unwrap(), Status::Success).cas);
    }
    expect(connection.call(&Request::delete("key-7")).unwrap(), Status::Success);

    fixture.restart();
    let mut connection = fixture.login();
    for index in 0..1000 {
        let (key, value) = document(index);
        let got = call_when_warm(&mut connection, &Request::get(key));
        if index == 7 {
            expect(got, Status::KeyEnoent);
            continue;
        }
        let got = expect(got, Status::Success);
        assert_eq!((got.text(), got.cas), (value, versions[index as usize]));
        assert_eq!(got.extras, index.to_be_bytes());
        assert!(Datatype(got.datatype).contains(Datatype::JSON));
    }
    fixture.finish(&[]);
}
