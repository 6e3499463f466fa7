//! Every operation on a document, byte by byte as a server sees and answers it.

use bytes::Bytes;
use oribi_client::{
    Client, ClientError, ConnectOptions, DocumentPolicy, Lookup, LookupInOptions, LookupInReply,
    MutateInOptions, MutationToken, Operation, PathError, PathMutation, Persistence,
    PipelineOptions, RejectionKind, WriteOptions,
};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{MutationTokenExtras, ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype, RevSeqno, Seqno, VbUuid, Vbid};

use crate::support::{
    ServerAction, answer, answer_with_cas, handshake, handshake_with, opcode, serve,
};

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

#[tokio::test]
async fn reads_locks_and_meta() {
    let options = serve(|frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        assert_eq!(frame.key[0], 0, "the default collection's prefix");
        match (opcode(frame), &frame.key[1..]) {
            (_, b"missing") => answer(out, frame, Status::KeyEnoent, &[], b""),
            (Opcode::Gat, _) => {
                assert_eq!(frame.extras, [0, 0, 0, 60]);
                answer_with_cas(out, frame, 5, b"\0\0\0\x07", b"touched");
            }
            (Opcode::GetLocked, b"taken") => answer(out, frame, Status::Locked, &[], b""),
            (Opcode::GetLocked, _) => {
                assert_eq!(frame.extras, [0, 0, 0, 15]);
                answer_with_cas(out, frame, 6, b"\0\0\0\0", b"locked");
            }
            (Opcode::UnlockKey, b"free") => answer(out, frame, Status::NotLocked, &[], b""),
            (Opcode::UnlockKey, _) => {
                assert_eq!(frame.header.cas, 6);
                answer(out, frame, Status::Success, &[], b"");
            }
            (Opcode::GetMeta, key) => {
                let mut extras = [0; 20];
                extras[3] = u8::from(key == b"deleted");
                extras[7] = 2;
                extras[11] = 3;
                extras[19] = 4;
                answer_with_cas(out, frame, 7, &extras, b"");
            }
            (Opcode::Append, b"none") => answer(out, frame, Status::NotStored, &[], b""),
            (Opcode::Append | Opcode::Prepend, _) => {
                assert_eq!((frame.extras, frame.value), (&b""[..], &b"more"[..]));
                answer_with_cas(out, frame, 8, &[], b"");
            }
            other => panic!("unexpected {other:?}"),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let default = client.default_collection();
    let touched = client.get_and_touch(default, b"k", 60).await.unwrap().expect("a hit");
    assert_eq!((touched.value, touched.cas, touched.flags), ("touched".into(), Cas(5), 7));
    assert_eq!(client.get_and_touch(default, b"missing", 60).await.unwrap(), None);
    let locked = client.get_and_lock(default, b"k", 15).await.unwrap().expect("a hit");
    client.unlock(default, b"k", locked.cas).await.unwrap();
    let error = client.get_and_lock(default, b"taken", 15).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::Locked));
    let error = client.unlock(default, b"free", locked.cas).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotLocked));

    let meta = client.get_meta(default, b"k").await.unwrap().expect("there is some");
    assert_eq!((meta.cas, meta.flags, meta.expiry), (Cas(7), 2, 3));
    assert_eq!((meta.rev_seqno, meta.is_deleted), (RevSeqno(4), false));
    assert!(client.exists(default, b"k").await.unwrap());
    assert!(!client.exists(default, b"deleted").await.unwrap());
    assert!(!client.exists(default, b"missing").await.unwrap());
    let write = WriteOptions::default();
    let more = Bytes::from_static(b"more");
    let written = client.append(default, b"k", more.clone(), &write).await.unwrap();
    assert_eq!(written.cas, Cas(8));
    client.prepend(default, b"k", more.clone(), &write).await.unwrap();
    let error = client.append(default, b"none", more, &write).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotStored));
}

#[tokio::test]
async fn observes_what_is_persisted() {
    let mut persisted = 3_u64;
    let options = serve(move |frame, out| {
        match opcode(frame) {
            Opcode::Set => {
                let token = MutationTokenExtras { vb_uuid: VbUuid(0xab), seqno: Seqno(5) }.encode();
                answer(out, frame, Status::Success, &token, b"");
            }
            Opcode::ObserveSeqno => {
                assert_eq!(frame.value, 0xab_u64.to_be_bytes());
                let mut value = vec![0];
                value.extend_from_slice(&frame.header.vbucket_or_status.to_be_bytes());
                for word in [0xab, persisted, 5] {
                    value.extend_from_slice(&word.to_be_bytes());
                }
                persisted += 1;
                answer(out, frame, Status::Success, &[], &value);
            }
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let write = WriteOptions::default();
    let written = client.upsert(client.default_collection(), b"k", Bytes::new(), &write).await;
    let token = written.unwrap().mutation.expect("the server sends it");
    let vbid = Vbid(oribi_protocol::hash::vbucket_of(b"k", 64).0);
    assert_eq!(token, MutationToken { vbid, vb_uuid: VbUuid(0xab), seqno: Seqno(5) });
    for expected in [Persistence::Pending, Persistence::Pending, Persistence::Persisted] {
        assert_eq!(client.persistence(&token).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn the_manifest_lists_collections() {
    let options = serve(|frame, out| {
        if !handshake(out, frame) {
            assert_eq!(opcode(frame), Opcode::CollectionsGetManifest);
            let json = br#"{"uid":"2","scopes":[{"name":"_default","uid":"0","collections":[]},
                {"name":"shop","uid":"8","collections":[{"name":"carts","uid":"9"}]}]}"#;
            answer(out, frame, Status::Success, &[], json);
        }
        ServerAction::GoOn
    });
    let manifest = connect(options).await.collections_manifest().await.unwrap();
    let names: Vec<_> = manifest
        .scopes
        .iter()
        .flat_map(|scope| scope.collections.iter().map(|c| (scope.name.as_str(), c.id)))
        .collect();
    assert_eq!(names, [("shop", CollectionId(9))]);
}

#[tokio::test]
async fn parts_of_documents_are_read_and_changed() {
    let options = serve(|frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        match (opcode(frame), &frame.key[1..]) {
            (_, b"missing") => answer(out, frame, Status::KeyEnoent, &[], b""),
            (Opcode::SubdocMultiLookup, _) => {
                assert_eq!(frame.value, b"\xc5\x00\x00\x01a\xc6\x00\x00\x01b");
                let value = b"\x00\x00\x00\x00\x00\x02[]\x00\xc0\x00\x00\x00\x00";
                answer(out, frame, Status::SubdocMultiPathFailure, &[], value);
            }
            (Opcode::SubdocGetCount, _) => {
                assert_eq!((frame.extras, frame.value), (&b"\0\x01\0"[..], &b"a"[..]));
                answer(out, frame, Status::Success, &[], b"3");
            }
            (Opcode::SubdocMultiMutation, _) if frame.header.cas == 9 => {
                answer(out, frame, Status::SubdocMultiPathFailure, &[], b"\x01\x00\xc9");
            }
            (Opcode::SubdocMultiMutation, _) => {
                assert_eq!(frame.extras, [0x01], "the document is made when it is not there");
                let value = b"\x01\x00\x00\x00\x00\x00\x0212";
                answer_with_cas(out, frame, 4, &[], value);
            }
            (Opcode::SubdocGet, _) => answer(out, frame, Status::NotSupported, &[], b""),
            other => panic!("unexpected {other:?}"),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let default = client.default_collection();
    let how = LookupInOptions::default();
    let both = [Lookup::get("a"), Lookup::exists("b")];
    let reply = client.lookup_in(default, b"k", &both, &how).await.unwrap().expect("a hit");
    assert_eq!(reply.values, [Ok("[]".into()), Err(PathError::NotFound)]);
    let count = client.lookup_in(default, b"k", &[Lookup::count("a")], &how).await.unwrap();
    assert_eq!(count.expect("a hit").values, [Ok("3".into())]);
    assert_eq!(client.lookup_in(default, b"missing", &both, &how).await.unwrap(), None);

    let paths = [PathMutation::upsert("a", b"{}"), PathMutation::counter("n", 2)];
    let options = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
    let reply = client.mutate_in(default, b"k", &paths, &options).await.unwrap();
    let [counter] = &reply.values[..] else { panic!("{reply:?}") };
    assert_eq!((reply.cas, counter.index, &counter.value[..]), (Cas(4), 1, &b"12"[..]));
    let options = options.cas(Cas(9));
    let error = client.mutate_in(default, b"k", &paths, &options).await.unwrap_err();
    let ClientError::Path { index: 1, error: PathError::Exists } = error else { panic!("{error}") };

    // A server without these operations, as Oribi is so far.
    let error = client.lookup_in(default, b"k", &[Lookup::get("a")], &how).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotSupported));
    let mut pipeline = client.pipeline(PipelineOptions::default());
    let operation = Operation::lookup_in(b"k", &both, &how).unwrap();
    pipeline.queue(default, &operation).unwrap();
    let reply = pipeline.next().await.expect("one result").result.unwrap();
    assert_eq!(LookupInReply::decode(reply, 2).unwrap().values.len(), 2);
}

/// A server that keeps what it gets as it gets it, and says whether that was compressed.
fn storing_server(features: &'static [Feature]) -> ConnectOptions {
    let mut stored = (Vec::new(), 0);
    let options = serve(move |frame, out| {
        if handshake_with(out, frame, features) {
            return ServerAction::GoOn;
        }
        match opcode(frame) {
            Opcode::Set => {
                stored = (frame.value.to_vec(), frame.header.datatype);
                let cas = u64::from(frame.header.datatype) << 32 | frame.value.len() as u64;
                answer_with_cas(out, frame, cas, &[], b"");
            }
            _ => {
                let parts = ResponseParts {
                    extras: b"\0\0\0\0",
                    value: &stored.0,
                    datatype: stored.1 | Datatype::JSON.0,
                    ..ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque)
                };
                write_response(out, &parts);
            }
        }
        ServerAction::GoOn
    });
    options.snappy(true)
}

#[tokio::test]
async fn values_are_compressed_when_the_server_grants_it() {
    const GRANTED: &[Feature] = &[Feature::SelectBucket, Feature::Json, Feature::Snappy];
    const NOT_GRANTED: &[Feature] = &[Feature::SelectBucket, Feature::Json];
    let long = Bytes::from(b"0123456789".repeat(100));
    for (features, compress_writes, value, is_compressed) in [
        (GRANTED, true, long.clone(), true),
        (GRANTED, true, long.slice(..32), false),
        (GRANTED, false, long.clone(), false),
        (NOT_GRANTED, true, long.clone(), false),
    ] {
        let options = storing_server(features).compress_writes(compress_writes);
        let client = connect(options).await;
        let default = client.default_collection();
        let write = WriteOptions::default();
        let cas = client.upsert(default, b"k", value.clone(), &write).await.unwrap().cas;
        assert_eq!(cas.0 >> 32 == 2, is_compressed);
        let sent_bytes = (cas.0 & 0xffff_ffff) as usize;
        assert_eq!(sent_bytes < value.len(), is_compressed);
        let document = client.get(default, b"k").await.unwrap().expect("a hit");
        assert_eq!((document.value, document.datatype), (value.clone(), Datatype::JSON));
        let mut pipeline = client.pipeline(PipelineOptions::default());
        pipeline.queue(default, &Operation::upsert(b"k", value.clone(), &write)).unwrap();
        pipeline.queue(default, &Operation::get(b"k")).unwrap();
        assert_eq!(pipeline.next().await.expect("two results").result.unwrap().cas, cas);
        assert_eq!(pipeline.next().await.expect("two results").result.unwrap().value, value);
    }
}
