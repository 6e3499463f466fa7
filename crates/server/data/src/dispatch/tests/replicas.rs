//! Which requests a copy of another node's vbucket answers, and which answer "not my vbucket".

use std::sync::Arc;

use oribi_engine::EvictionPolicy;
use oribi_protocol::dcp::stream_request::FailoverLog;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::DocFlags;
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, CopiesEpoch, DocKey, DurabilityLevel};

use super::dcp::CONSUMER;
use super::{Client, MODERN, SET_EXTRAS, about};
use crate::harness::ConnectionHarness;

const JSON: &[u8] = br#"{"a":17}"#;

/// A client of a node whose vbucket of `k` is a copy with that document.
fn client_of_a_copy() -> Client {
    let store = Arc::new(MemoryStore::new());
    let harness = ConnectionHarness::evicting(store, EvictionPolicy::Full, 0);
    let mut client = Client::on(harness, &MODERN);
    assert_eq!(client.set(b"k", JSON).status, Status::Success);
    become_replica(&client);
    client
}

fn become_replica(client: &Client) {
    let vbid = about(Opcode::Get, b"k").vbid;
    client.harness.bucket().bucket().become_replica(vbid).expect("the store is sound");
}

fn promote(client: &Client) {
    let vbid = about(Opcode::Get, b"k").vbid;
    client.harness.bucket().bucket().promote(vbid, CopiesEpoch(2)).expect("the store is sound");
}

fn flush(client: &Client) {
    client.harness.bucket().bucket().flush_step().expect("the store is sound");
}

/// A look-up of the path `a`, with the flag of a replica read.
fn look_up(client: &mut Client, flags: u8) -> (Status, Vec<u8>) {
    let extras = [0, 1, 0, flags];
    let value = b"a";
    let asked = RequestParts { extras: &extras[..], value, ..about(Opcode::SubdocGet, b"k") };
    let reply = client.ask(&asked);
    (reply.status, reply.value)
}

// Compat (Key-value): GET_REPLICA
#[test]
fn get_replica_reads_copies_only() {
    let mut client = client_of_a_copy();
    let reply = client.ask(&about(Opcode::GetReplica, b"k"));
    assert_eq!((reply.status, &reply.value[..], reply.extras.len()), (Status::Success, JSON, 4));
    assert_ne!(reply.cas, 0);
    flush(&client);
    // A document that left memory is fetched for it.
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"k" };
    let bucket = client.harness.bucket().bucket();
    assert!(bucket.evict(about(Opcode::Get, b"k").vbid, key));
    assert_eq!(client.ask(&about(Opcode::GetReplica, b"k")).value, JSON);
    promote(&client);
    assert_eq!(client.ask(&about(Opcode::GetReplica, b"k")).status, Status::NotMyVbucket);
    assert_eq!(client.get(b"k").value, JSON);
}

// Compat (Key-value): GET_REPLICA
#[test]
fn a_miss_of_a_copy_is_not_found() {
    let mut client = Client::modern();
    become_replica(&client);
    assert_eq!(client.ask(&about(Opcode::GetReplica, b"k")).status, Status::KeyEnoent);
}

#[test]
fn a_copy_refuses_what_only_an_active_answers() {
    let mut client = client_of_a_copy();
    for opcode in [Opcode::Get, Opcode::Getk, Opcode::GetMeta, Opcode::Delete] {
        assert_eq!(client.ask(&about(opcode, b"k")).status, Status::NotMyVbucket, "{opcode:?}");
    }
    assert_eq!(client.set(b"k", b"2").status, Status::NotMyVbucket);
    let gat = RequestParts { extras: &[0; 4], ..about(Opcode::Gat, b"k") };
    assert_eq!(client.ask(&gat).status, Status::NotMyVbucket);
    let random = client.ask(&RequestParts::new(Opcode::GetRandomKey));
    assert_eq!(random.status, Status::KeyEnoent, "no document of an active");
    let mut framing = Vec::new();
    let level = DurabilityLevel::Majority;
    oribi_protocol::frame_info::encode_durability(level, None, &mut framing);
    let durable = RequestParts {
        framing: &framing,
        extras: &SET_EXTRAS,
        value: b"v",
        ..about(Opcode::Set, b"k")
    };
    assert_eq!(client.ask(&durable).status, Status::NotMyVbucket);
}

// Compat (Sub-document operations): Replica reads
#[test]
fn sub_document_look_ups_read_copies_by_flag() {
    let mut client = client_of_a_copy();
    let flag = DocFlags::REPLICA_READ.0;
    assert_eq!(look_up(&mut client, flag), (Status::Success, b"17".to_vec()));
    assert_eq!(look_up(&mut client, 0).0, Status::NotMyVbucket);
    promote(&client);
    assert_eq!(look_up(&mut client, flag).0, Status::NotMyVbucket);
    assert_eq!(look_up(&mut client, 0), (Status::Success, b"17".to_vec()));
}

// Compat (Key-value): OBSERVE
#[test]
fn copies_answer_observations() {
    let mut client = client_of_a_copy();
    let cas = client.ask(&about(Opcode::GetReplica, b"k")).cas;
    assert_eq!(super::observing::observe(&mut client, &[b"k"]), [(0, cas)]);
    let vbid = about(Opcode::Get, b"k").vbid;
    let uuid = client.harness.bucket().bucket().vbucket(vbid).map_or(0, |it| it.uuid().0);
    let uuid = uuid.to_be_bytes();
    let asked = RequestParts { value: &uuid, vbid, ..RequestParts::new(Opcode::ObserveSeqno) };
    let seqnos = |reply: &[u8]| {
        let number = |at: usize| u64::from_be_bytes(reply[at..at + 8].try_into().unwrap());
        (number(11), number(19))
    };
    assert_eq!(seqnos(&client.ask(&asked).value), (0, 1));
    flush(&client);
    assert_eq!(super::observing::observe(&mut client, &[b"k"]), [(1, cas)]);
    assert_eq!(seqnos(&client.ask(&asked).value), (1, 1));
}

// Compat (Key-value): FAILOVER_LOG
// Couchbase's Java client of streams asks every copy for its log, and closed its connection to each
// node with a replica when that one answered "not my vbucket".
#[test]
fn copies_answer_with_their_failover_log() {
    let mut client = Client::modern();
    assert_eq!(client.set(b"k", JSON).status, Status::Success);
    let vbid = about(Opcode::Get, b"k").vbid;
    let ask = |opcode| RequestParts { vbid, ..RequestParts::new(opcode) };
    let active = client.ask(&ask(Opcode::GetFailoverLog)).value;
    assert_eq!(active.len(), FailoverLog::ENTRY_BYTES);
    become_replica(&client);
    let mut consumer = client.consumer(&CONSUMER, 1);
    for reply in
        [client.ask(&ask(Opcode::GetFailoverLog)), consumer.ask(&ask(Opcode::DcpGetFailoverLog))]
    {
        assert_eq!((reply.status, &reply.value), (Status::Success, &active));
    }
}

// Compat (Differences): Durability with replicas
// A single node acknowledged "majority" for copies that had not seen the write.
#[test]
fn durable_writes_with_replicas_are_impossible() {
    let mut client = Client::modern();
    assert_eq!(client.set(b"k", b"1").status, Status::Success);
    client.harness.bucket().set_commits_by_copies(true);
    let levels = [
        DurabilityLevel::Majority,
        DurabilityLevel::MajorityAndPersistOnMaster,
        DurabilityLevel::PersistToMajority,
    ];
    for level in levels {
        let mut framing = Vec::new();
        oribi_protocol::frame_info::encode_durability(level, None, &mut framing);
        let set = RequestParts {
            framing: &framing,
            extras: &SET_EXTRAS,
            value: b"2",
            ..about(Opcode::Set, b"k")
        };
        assert_eq!(client.ask(&set).status, Status::DurabilityImpossible, "{level:?}");
        let delete = RequestParts { framing: &framing, ..about(Opcode::Delete, b"k") };
        assert_eq!(client.ask(&delete).status, Status::DurabilityImpossible, "{level:?}");
        become_replica(&client);
        assert_eq!(client.ask(&set).status, Status::NotMyVbucket, "{level:?}");
        promote(&client);
    }
    assert_eq!(client.get(b"k").value, b"1", "nothing was written");
    assert_eq!(client.set(b"k", b"3").status, Status::Success);
    client.harness.bucket().set_commits_by_copies(false);
    let mut framing = Vec::new();
    oribi_protocol::frame_info::encode_durability(levels[0], None, &mut framing);
    let delete = RequestParts { framing: &framing, ..about(Opcode::Delete, b"k") };
    assert_eq!(client.ask(&delete).status, Status::Success, "one copy is a majority of one");
}
