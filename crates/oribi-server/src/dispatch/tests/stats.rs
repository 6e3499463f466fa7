//! STAT groups.

use std::collections::BTreeMap;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{Client, Reply};

fn ask(client: &mut Client, group: &str) -> Vec<Reply> {
    client.send(&RequestParts { key: group.as_bytes(), ..RequestParts::new(Opcode::Stat) })
}

/// A whole group; checks that it ends with the one empty answer.
fn group(client: &mut Client, name: &str) -> BTreeMap<String, String> {
    let mut replies = ask(client, name);
    let end = replies.pop().unwrap();
    assert_eq!((end.status, end.key.len(), end.value.len()), (Status::Success, 0, 0));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let count = replies.len();
    let map: BTreeMap<_, _> =
        replies.into_iter().map(|reply| (text(reply.key), text(reply.value))).collect();
    assert_eq!(map.len(), count, "every name once");
    map
}

#[test]
fn general_group_counts() {
    let mut client = Client::legacy();
    client.set(b"k", b"v");
    client.get(b"k");
    client.get(b"none");
    let stats = group(&mut client, "");
    for (name, value) in [
        ("curr_items", "1"),
        ("cmd_set", "1"),
        ("cmd_get", "2"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("vb_active_num", "4"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    for name in ["pid", "uptime", "version", "mem_used", "curr_connections", "bytes_read", "time"] {
        assert!(!stats[name].is_empty(), "{name}");
    }
    assert_eq!(group(&mut client, "reset").len(), 0);
    assert_eq!(group(&mut client, "")["cmd_set"], "0");
}

#[test]
fn every_group_answers() {
    let mut client = Client::modern();
    for name in [
        "uuid",
        "vbucket",
        "vbucket-seqno",
        "vbucket-details",
        "memory",
        "config",
        "collections",
        "warmup",
    ] {
        assert!(!group(&mut client, name).is_empty(), "{name}");
    }
    assert_eq!(group(&mut client, "vbucket")["vb_3"], "active");
    assert_eq!(group(&mut client, "vbucket-seqno 2").len(), 5);
    assert_eq!(group(&mut client, "warmup")["ep_warmup_state"], "done");
}

#[test]
fn bad_groups_and_arguments() {
    let mut client = Client::modern();
    assert_eq!(ask(&mut client, "nonsense")[0].status, Status::KeyEnoent);
    assert_eq!(ask(&mut client, "vbucket-seqno x")[0].status, Status::Einval);
    assert_eq!(ask(&mut client, "vbucket-seqno 9")[0].status, Status::NotMyVbucket);
    client.ask(&RequestParts { key: b"@no bucket@", ..RequestParts::new(Opcode::SelectBucket) });
    assert_eq!(ask(&mut client, "")[0].status, Status::NoBucket);
}
