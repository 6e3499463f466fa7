//! `key` and `vkey`.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

use super::{assert_names, group, refusal};
use crate::dispatch::tests::{Client, about};

const NAMES: [&str; 9] = [
    "key_is_dirty",
    "key_exptime",
    "key_datatype",
    "key_flags",
    "key_cas",
    "key_vb_state",
    "key_is_resident",
    "key_seqno",
    "key_rev_seqno",
];

// Compat (Statistics): `key`, `key-byid`, `vkey`, `vkey-byid`
#[test]
fn key_is_described_before_and_after_it_is_on_disk() {
    let mut client = Client::modern();
    let cas = client.set(b"k", b"v").cas;
    let vbid = about(Opcode::Get, b"k").vbid.0;
    let key = group(&mut client, &format!("key k {vbid}"));
    assert_names(&key, "key_", &NAMES.map(|name| name.strip_prefix("key_").unwrap()));
    for (name, value) in [
        ("key_is_dirty", "true"),
        ("key_flags", "7"),
        ("key_exptime", "0"),
        ("key_vb_state", "active"),
        ("key_datatype", "raw"),
        ("key_cas", &cas.to_string()),
    ] {
        assert_eq!(key[name], value, "{name}");
    }
    assert_eq!(group(&mut client, &format!("vkey k {vbid}"))["key_valid"], "dirty");
    client.harness.bucket().bucket().flush_step().unwrap();
    let verified = group(&mut client, &format!("vkey k {vbid}"));
    assert_eq!(
        (verified["key_valid"].as_str(), verified["key_is_dirty"].as_str()),
        ("valid", "false")
    );
    assert_eq!(verified.len(), key.len() + 1);
    for form in [format!("key-byid k {vbid} 0x0"), format!("key k {vbid} _default._default")] {
        assert_eq!(group(&mut client, &form)["key_cas"], cas.to_string(), "{form}");
    }
}

#[test]
fn json_is_told_from_bytes() {
    let mut client = Client::modern();
    client.set(b"k", b"{\"a\":1}");
    let vbid = about(Opcode::Get, b"k").vbid.0;
    assert_eq!(group(&mut client, &format!("key k {vbid}"))["key_datatype"], "json");
}

#[test]
fn deleted_document_is_not_found() {
    let mut client = Client::modern();
    client.set(b"k", b"v");
    client.ask(&about(Opcode::Delete, b"k"));
    let vbid = about(Opcode::Get, b"k").vbid.0;
    assert_eq!(refusal(&mut client, &format!("key k {vbid}")), Status::KeyEnoent);
    assert_eq!(refusal(&mut client, &format!("vkey k {vbid}")), Status::KeyEnoent);
}
