//! The client against a server that does exactly what a test says.

use std::time::Duration;

use bytes::Bytes;
use oribi_client::{
    Client, ClientError, ConnectOptions, CounterOptions, Mechanism, Operation, PipelineOptions,
    RejectionKind, WriteOptions,
};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::SetExtras;
use oribi_protocol::response::{
    CollectionIdExtras, MutationTokenExtras, ResponseParts, write_response,
};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DurabilityLevel, ManifestUid, Seqno, VbUuid};

use crate::support::{ServerAction, answer, cluster_map, handshake, handshake_with, opcode, serve};

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

#[tokio::test]
async fn reads_and_writes_documents() {
    let options = serve(|frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        match opcode(frame) {
            Opcode::Get if frame.key == b"\x00missing" => {
                answer(out, frame, Status::KeyEnoent, &[], b"");
            }
            Opcode::Get => answer(out, frame, Status::Success, b"\x02\0\0\x06", b"{}"),
            Opcode::Set => {
                assert_eq!(frame.key, b"\x00key");
                let vbid = oribi_protocol::hash::vbucket_of(b"key", 64);
                assert_eq!(frame.header.vbucket_or_status, vbid.0);
                let extras = SetExtras::decode(frame.extras).unwrap();
                assert_eq!(extras, SetExtras { flags: 7, expiry: 60 });
                assert_eq!(frame.framing, b"\x11\x03");
                let token = MutationTokenExtras { vb_uuid: VbUuid(5), seqno: Seqno(9) }.encode();
                answer(out, frame, Status::Success, &token, b"");
            }
            Opcode::Add => answer(out, frame, Status::KeyEexists, &[], b""),
            Opcode::Replace => answer(out, frame, Status::E2big, &[], b""),
            Opcode::Delete | Opcode::Touch => answer(out, frame, Status::Success, &[], b""),
            Opcode::Increment => answer(out, frame, Status::Success, &[], &8u64.to_be_bytes()),
            other => panic!("unexpected {other:?}"),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let collection = client.default_collection();
    assert_eq!(client.get(collection, b"missing").await.unwrap(), None);
    let document = client.get(collection, b"key").await.unwrap().expect("a hit");
    assert_eq!((&document.value[..], document.flags), (&b"{}"[..], oribi_client::FLAGS_JSON));
    let options =
        WriteOptions::new().flags(7).expiry(60).durability(DurabilityLevel::PersistToMajority);
    let value = Bytes::from_static(b"v");
    let written = client.upsert(collection, b"key", value.clone(), &options).await.unwrap();
    let token = written.mutation;
    assert_eq!(token.map(|token| (token.vb_uuid, token.seqno)), Some((VbUuid(5), Seqno(9))));
    let plain = WriteOptions::default();
    let error = client.add(collection, b"key", value.clone(), &plain).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::Exists));
    let error = client.replace(collection, b"key", value, &plain).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::TooLarge));
    client.delete(collection, b"key", &plain).await.unwrap();
    client.touch(collection, b"key", 5).await.unwrap();
    let counter = CounterOptions::increment(1).initial(8);
    assert_eq!(client.counter(collection, b"n", &counter).await.unwrap().value, 8);
    let error = client.get(collection, b"").await.unwrap_err();
    assert!(matches!(error, ClientError::InvalidKey { len: 0, max: 250 }));
}

/// Values on both sides of the gather threshold arrive whole and in place.
#[tokio::test]
async fn large_values_go_and_come_whole() {
    let mut stored = Vec::new();
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        match opcode(frame) {
            Opcode::Set => {
                stored = frame.value.to_vec();
                answer(out, frame, Status::Success, &[], b"");
            }
            _ => answer(out, frame, Status::Success, b"\0\0\0\0", &stored),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let collection = client.default_collection();
    for len in [0, 1, 8191, 8192, 8193, 3_000_000] {
        let value: Bytes = (0..len).map(|at| (at % 251) as u8).collect();
        let options = WriteOptions::default();
        client.upsert(collection, b"k", value.clone(), &options).await.unwrap();
        let document = client.get(collection, b"k").await.unwrap().expect("a hit");
        assert!(document.value == value, "{len} bytes come back");
    }
}

/// Answers in any order come out in the order of the requests.
#[tokio::test]
async fn a_pipeline_keeps_order() {
    const COUNT: u64 = 1000;
    let mut held: Vec<Vec<u8>> = Vec::new();
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        let mut one = Vec::new();
        let parts = ResponseParts {
            cas: frame.value.len() as u64,
            ..ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque)
        };
        write_response(&mut one, &parts);
        held.push(one);
        if held.len() == 100 {
            held.drain(..).rev().for_each(|one| out.extend_from_slice(&one));
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let mut pipeline =
        client.pipeline(PipelineOptions::new().operations_max(250).bytes_max(usize::MAX));
    let mut results = Vec::new();
    let value = Bytes::from(vec![0; 20_000]);
    for number in 0..COUNT {
        while pipeline.is_full() {
            results.push(pipeline.next().await.expect("results are to come"));
        }
        let key = format!("key{number}");
        let value = value.slice(..(number * 19) as usize);
        let operation = Operation::upsert(key.as_bytes(), value, &WriteOptions::default());
        let queued = pipeline.queue(client.default_collection(), &operation).unwrap();
        assert_eq!(queued, number);
    }
    while let Some(result) = pipeline.next().await {
        results.push(result);
    }
    assert_eq!(results.len() as u64, COUNT);
    for (expected, completed) in results.into_iter().enumerate() {
        assert_eq!(completed.number, expected as u64);
        assert_eq!(completed.result.unwrap().cas.0, completed.number * 19);
    }
}

#[tokio::test]
async fn fetches_the_map_again_when_a_vbucket_is_not_there() {
    let mut has_moved = false;
    let options = serve(move |frame, out| {
        match opcode(frame) {
            Opcode::GetClusterConfig if has_moved => {
                answer(out, frame, Status::Success, &[], &cluster_map(2, 8));
            }
            Opcode::Get if frame.header.vbucket_or_status >= 8 => {
                has_moved = true;
                answer(out, frame, Status::NotMyVbucket, &[], b"");
            }
            Opcode::Get => answer(out, frame, Status::Success, b"\0\0\0\0", b"here"),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let key = b"123456789";
    assert_eq!(client.config().vbucket_of(key).0, 0x4bf4 % 64);
    let document = client.get(client.default_collection(), key).await.unwrap();
    assert_eq!(document.map(|document| document.value), Some(Bytes::from_static(b"here")));
    assert_eq!(client.config().vbucket_count(), 8);
}

#[tokio::test]
async fn looks_a_dropped_collection_up_again() {
    let mut id = 8;
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        match opcode(frame) {
            Opcode::CollectionsGetId if frame.value == b"shop.orders" => {
                let extras = CollectionIdExtras {
                    manifest_uid: ManifestUid(1),
                    collection: CollectionId(id),
                };
                id += 1;
                answer(out, frame, Status::Success, &extras.encode(), b"");
            }
            Opcode::CollectionsGetId => answer(out, frame, Status::UnknownScope, &[], b""),
            // The first id is gone, the second one is good.
            Opcode::Get if frame.key == b"\x08k" => {
                answer(out, frame, Status::UnknownCollection, &[], b"");
            }
            Opcode::Get => {
                assert_eq!(frame.key, b"\x09k");
                answer(out, frame, Status::Success, b"\0\0\0\0", b"v");
            }
            other => panic!("unexpected {other:?}"),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let collection = client.collection("shop.orders").await.unwrap();
    assert_eq!(collection.id(), CollectionId(8));
    assert!(client.get(&collection, b"k").await.unwrap().is_some());
    assert_eq!(collection.id(), CollectionId(9));
    let again = client.collection("shop.orders").await.unwrap();
    assert_eq!(again.id(), CollectionId(9), "the cache has the new id");
    let error = client.collection("nowhere.orders").await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::UnknownScope));
}

#[tokio::test]
async fn temporary_failures_are_retried() {
    let mut failures = 3;
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        if failures > 0 {
            failures -= 1;
            answer(out, frame, Status::Etmpfail, &[], b"");
        } else {
            answer(out, frame, Status::Success, &[], b"");
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    client.touch(client.default_collection(), b"k", 1).await.unwrap();
}

/// An answer that comes after its caller gave up is not taken for another request's.
#[tokio::test]
async fn late_answers_are_dropped() {
    let mut late = Vec::new();
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        if late.is_empty() {
            answer(&mut late, frame, Status::Success, b"\0\0\0\0", b"late");
        } else {
            out.append(&mut late);
            answer(out, frame, Status::Success, b"\0\0\0\0", b"in time");
        }
        ServerAction::GoOn
    });
    let options = options.operation_timeout(Duration::from_millis(200));
    let client = connect(options).await;
    let collection = client.default_collection();
    let error = client.get(collection, b"k").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }));
    let document = client.get(collection, b"k").await.unwrap().expect("a hit");
    assert_eq!(document.value, "in time");
}

#[tokio::test]
async fn streams_statistics() {
    let options = serve(|frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        if frame.key == b"nothing" {
            answer(out, frame, Status::KeyEnoent, &[], b"");
            return ServerAction::GoOn;
        }
        for (name, value) in [("curr_items", "5"), ("empty", ""), ("", "")] {
            let parts = ResponseParts {
                key: name.as_bytes(),
                value: value.as_bytes(),
                ..ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque)
            };
            write_response(out, &parts);
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let stats = client.stats("").await.unwrap();
    let expected = [("curr_items", "5"), ("empty", "")];
    let stats: Vec<_> = stats.iter().map(|stat| (&*stat.name, &*stat.value)).collect();
    assert_eq!(stats, expected);
    let error = client.stats("nothing").await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotFound));
}

#[tokio::test]
async fn says_what_the_server_does_not_offer() {
    let options = serve(|frame, out| {
        assert!(handshake_with(out, frame, &[Feature::Json, Feature::SelectBucket]));
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let error = client.collection("a.b").await.unwrap_err();
    assert!(matches!(error, ClientError::NotOffered(_)));
    let options = WriteOptions::new().durability(DurabilityLevel::Majority);
    let collection = client.default_collection();
    let error = client.upsert(collection, b"k", Bytes::new(), &options).await.unwrap_err();
    assert!(matches!(error, ClientError::NotOffered(_)));
}

/// A server that skips its proof, or makes one up, does not get a client.
#[tokio::test]
async fn an_impostor_is_refused() {
    for final_message in ["", "v=AAAA"] {
        let options = serve(move |frame, out| {
            match opcode(frame) {
                Opcode::SaslAuth => {
                    let first = String::from_utf8(frame.value.to_vec()).unwrap();
                    let (_, nonce) = first.split_once("r=").unwrap();
                    let challenge = format!("r={nonce}srv,s=c2FsdA==,i=10");
                    answer(out, frame, Status::AuthContinue, &[], challenge.as_bytes());
                }
                Opcode::SaslStep => {
                    answer(out, frame, Status::Success, &[], final_message.as_bytes());
                }
                _ => assert!(handshake(out, frame)),
            }
            ServerAction::GoOn
        });
        let options = options.mechanism(Mechanism::ScramSha512);
        let error = Client::connect(options).await.err().expect("refused");
        assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    }
}

#[tokio::test]
async fn refusals_of_the_handshake_keep_their_meaning() {
    for (refuse, status, text) in [
        (Opcode::SaslAuth, Status::AuthError, "authentication failed: wrong name or password"),
        (Opcode::SelectBucket, Status::Eaccess, "access denied"),
        (Opcode::SelectBucket, Status::KeyEnoent, "not found"),
    ] {
        let options = serve(move |frame, out| {
            if opcode(frame) == refuse {
                answer(out, frame, status, &[], b"");
            } else {
                assert!(handshake(out, frame));
            }
            ServerAction::GoOn
        });
        let error = Client::connect(options).await.err().expect("refused");
        assert_eq!(error.to_string(), text);
    }
}
