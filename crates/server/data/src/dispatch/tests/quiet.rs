//! Quiet forms: silent where memcached's are, loud otherwise.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{Client, SET_EXTRAS, about, counter_extras};

// Compat (Key-value): GET, GETQ, GETK, GETKQ
#[test]
fn quiet_reads_are_silent_on_a_miss_only() {
    let mut client = Client::legacy();
    for opcode in [Opcode::Getq, Opcode::Getkq] {
        assert!(client.send(&about(opcode, b"k")).is_empty());
    }
    let gatq = RequestParts { extras: &[0, 0, 0, 0], ..about(Opcode::Gatq, b"k") };
    assert!(client.send(&gatq).is_empty());
    client.set(b"k", b"v");
    for opcode in [Opcode::Getq, Opcode::Getkq] {
        assert_eq!(client.ask(&about(opcode, b"k")).value, b"v");
    }
    assert_eq!(client.ask(&gatq).value, b"v");
}

#[test]
fn gatk_without_hello_answers_the_key() {
    const EXTRAS: [u8; 4] = 100_u32.to_be_bytes();
    // GATK and GATKQ have codes that are IOCTL_GET and IOCTL_SET after a HELLO.
    let ask = |opcode| RequestParts { extras: &EXTRAS, ..about(opcode, b"k") };
    let (gatk, gatkq) = (ask(Opcode::IoctlGet), ask(Opcode::IoctlSet));
    let mut client = Client::legacy();
    let miss = client.ask(&gatk);
    assert_eq!((miss.status, &miss.key[..]), (Status::KeyEnoent, &b"k"[..]));
    assert!(client.send(&gatkq).is_empty(), "GATKQ is silent on a miss");
    client.set(b"k", b"v");
    for request in [gatk, gatkq] {
        let hit = client.ask(&request);
        assert_eq!(
            (hit.status, &hit.key[..], &hit.value[..]),
            (Status::Success, &b"k"[..], &b"v"[..])
        );
    }
    let without_extras = client.ask(&about(Opcode::IoctlGet, b"k"));
    assert_eq!(without_extras.status, Status::Einval);
    assert_eq!(Client::modern().ask(&gatk).status, Status::NotSupported);
}

// Compat (Key-value): SET, ADD, REPLACE
// Invariant: A handler returns an outcome and writes nothing; `dispatch::answer` alone decides what
// is sent.
#[test]
fn quiet_writes_are_silent_on_success_only() {
    let mut client = Client::legacy();
    let store = |opcode| RequestParts { extras: &SET_EXTRAS, value: b"1", ..about(opcode, b"k") };
    assert_eq!(client.ask(&store(Opcode::Replaceq)).status, Status::KeyEnoent);
    assert!(client.send(&store(Opcode::Addq)).is_empty());
    assert_eq!(client.ask(&store(Opcode::Addq)).status, Status::KeyEexists);
    assert!(client.send(&store(Opcode::Replaceq)).is_empty());
    assert!(client.send(&store(Opcode::Setq)).is_empty());
    let wrong_cas = RequestParts { cas: 1, ..store(Opcode::Setq) };
    assert_eq!(client.ask(&wrong_cas).status, Status::KeyEexists);
    for opcode in [Opcode::Appendq, Opcode::Prependq] {
        assert!(client.send(&RequestParts { value: b"0", ..about(opcode, b"k") }).is_empty());
        let miss = RequestParts { value: b"0", ..about(opcode, b"none") };
        assert_eq!(client.ask(&miss).status, Status::NotStored);
    }
    assert_eq!(client.get(b"k").value, b"010");
    let extras = counter_extras(1, 0, 0);
    for opcode in [Opcode::Incrementq, Opcode::Decrementq] {
        assert!(client.send(&RequestParts { extras: &extras, ..about(opcode, b"k") }).is_empty());
    }
    assert_eq!(client.get(b"k").value.trim_ascii(), b"10");
    assert!(client.send(&about(Opcode::Deleteq, b"k")).is_empty());
    assert_eq!(client.ask(&about(Opcode::Deleteq, b"k")).status, Status::KeyEnoent);
    assert!(client.send(&RequestParts::new(Opcode::Flushq)).is_empty());
}

// Compat (Bootstrap and session): NOOP, VERSION, QUIT, QUITQ
#[test]
fn quitq_is_silent_and_quit_is_not() {
    let mut client = Client::legacy();
    assert!(client.send(&RequestParts::new(Opcode::Quitq)).is_empty());
    assert!(client.harness.close_reason().is_some());
    let mut client = Client::legacy();
    assert_eq!(client.ask(&RequestParts::new(Opcode::Quit)).status, Status::Success);
    assert!(client.harness.close_reason().is_some());
}
