//! The client library against the real server: the operations that `oribi doc` has no use for, many
//! connections, and a server that is killed and comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_client::{
    Client, Completion, ConnectOptions, Lookup, LookupInOptions, MutateInOptions, Operation,
    PathMutation, Persistence, PipelineOptions, RejectionKind, WriteOptions,
};
use oribi_testkit::PATIENCE;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_types::{Cas, DurabilityLevel};

// The examples of the client are run here, against a real server.
#[path = "../../../tools/client/examples/bulk_load.rs"]
#[allow(dead_code)]
mod bulk_load;
#[path = "../../../tools/client/examples/quickstart.rs"]
#[allow(dead_code)]
mod quickstart;
#[path = "../../../tools/client/examples/sub_document.rs"]
#[allow(dead_code)]
mod sub_document;

oribi_testkit::fixture!();

impl Fixture {
    fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
        options.port(self.server.port()).operation_timeout(PATIENCE)
    }

    async fn client(&self) -> Client {
        Client::connect(self.options()).await.expect("the server answers")
    }
}

#[tokio::test]
async fn documents_are_touched_and_appended_to() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    let write = WriteOptions::default();
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());

    assert!(!client.exists(default, b"k").await.unwrap());
    let error = client.append(default, b"k", text("?"), &write).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotStored));
    client.upsert(default, b"k", text("b"), &write).await.unwrap();
    client.append(default, b"k", text("c"), &write).await.unwrap();
    let cas = client.prepend(default, b"k", text("a"), &write).await.unwrap().cas;
    let document = client.get_and_touch(default, b"k", 3600).await.unwrap().expect("a hit");
    assert_eq!(document.value, "abc");
    let meta = client.get_meta(default, b"k").await.unwrap().expect("a hit");
    assert!(meta.expiry > 0 && !meta.is_deleted && meta.rev_seqno.0 >= 3, "{meta:?}");
    assert!(meta.cas >= cas);
    assert_eq!(client.get_and_touch(default, b"none", 3600).await.unwrap(), None);

    client.delete(default, b"k", &write).await.unwrap();
    assert!(!client.exists(default, b"k").await.unwrap());
}

#[tokio::test]
async fn persistence_is_observed_and_the_manifest_read() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    let durable = WriteOptions::new().durability(DurabilityLevel::PersistToMajority);
    let written = client.upsert(default, b"k", Bytes::new(), &durable).await.unwrap();
    let token = written.mutation.expect("the server sends it");
    assert_eq!(client.persistence(&token).await.unwrap(), Persistence::Persisted);
    let observed = client.observe_seqno(token.vbid, token.vb_uuid).await.unwrap();
    assert!(observed.current >= token.seqno && observed.ended.is_none(), "{observed:?}");

    let manifest = client.collections_manifest().await.unwrap();
    let default_scope = manifest.scopes.iter().find(|scope| scope.id.0 == 0);
    let default_scope = default_scope.expect("the default scope always exists");
    assert_eq!(default_scope.name, "_default");
    assert!(default_scope.collections.iter().any(|collection| collection.name == "_default"));
}

#[tokio::test]
async fn documents_are_locked_for_everybody_but_the_holder() {
    let fixture = Fixture::start();
    let (client, other) = (fixture.client().await, fixture.client().await);
    let default = client.default_collection();
    let plain = WriteOptions::default();
    assert!(client.get_and_lock(default, b"k", 30).await.unwrap().is_none());
    client.upsert(default, b"k", Bytes::from_static(b"1"), &plain).await.unwrap();

    let locked = client.get_and_lock(default, b"k", 30).await.unwrap().expect("a hit");
    assert_eq!(locked.value, "1");
    let again = other.get_and_lock(default, b"k", 30).await.unwrap_err();
    assert_eq!(again.rejection(), Some(RejectionKind::Locked));
    let written = other.upsert(default, b"k", Bytes::new(), &plain).await.unwrap_err();
    assert_eq!(written.rejection(), Some(RejectionKind::Locked));
    let seen = other.get(default, b"k").await.unwrap().expect("readers are not in its way");
    assert_eq!((&seen.value[..], seen.cas), (&b"1"[..], Cas(u64::MAX)));

    let holder = WriteOptions::new().cas(locked.cas);
    client.upsert(default, b"k", Bytes::from_static(b"2"), &holder).await.unwrap();
    other.upsert(default, b"k", Bytes::from_static(b"3"), &plain).await.unwrap();
    let free = client.unlock(default, b"k", locked.cas).await.unwrap_err();
    assert_eq!(free.rejection(), Some(RejectionKind::NotLocked));

    let locked = client.get_and_lock(default, b"k", 30).await.unwrap().expect("a hit");
    let wrong = other.unlock(default, b"k", Cas(1)).await.unwrap_err();
    assert_eq!(wrong.rejection(), Some(RejectionKind::Locked));
    client.unlock(default, b"k", locked.cas).await.unwrap();
    other.upsert(default, b"k", Bytes::from_static(b"4"), &plain).await.unwrap();
}

#[tokio::test]
async fn parts_of_documents_are_read_and_written() {
    let fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    let document = Bytes::from_static(br#"{"name": "Ann", "tags": ["a"], "visits": 1}"#);
    client.upsert(default, b"k", document, &WriteOptions::default()).await.unwrap();

    let changes = [
        PathMutation::upsert("by", b"\"test\"").xattr().create_path(),
        PathMutation::upsert("address.city", b"\"Bern\"").create_path(),
        PathMutation::array_append("tags", b"\"b\""),
        PathMutation::counter("visits", 2),
    ];
    let options = MutateInOptions::default();
    let written = client.mutate_in(default, b"k", &changes, &options).await.unwrap();
    let [counter] = &written.values[..] else { panic!("{written:?}") };
    assert_eq!((counter.index, &counter.value[..]), (3, &b"3"[..]));

    let paths = [
        Lookup::get("by").xattr(),
        Lookup::get("address"),
        Lookup::count("tags"),
        Lookup::exists("name"),
        Lookup::get("missing"),
    ];
    let read = client.lookup_in(default, b"k", &paths, &LookupInOptions::default()).await;
    let read = read.unwrap().expect("the document is there");
    assert_eq!(read.cas, written.cas);
    let [by, address, tags, name, missing] = &read.values[..] else { panic!("{read:?}") };
    assert_eq!(by.as_deref(), Ok(&b"\"test\""[..]));
    assert_eq!(address.as_deref(), Ok(&br#"{"city":"Bern"}"#[..]));
    assert_eq!(tags.as_deref(), Ok(&b"2"[..]));
    assert!(name.is_ok() && missing.is_err(), "{read:?}");

    // A body without attributes is what an ordinary read sees.
    let found = client.get(default, b"k").await.unwrap().expect("the document is there");
    assert!(found.value.starts_with(b"{\"name\""), "{:?}", found.value);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_carry_one_pipeline() {
    let fixture = Fixture::start();
    let options = fixture.options().connections_per_node(4).snappy(true);
    let client = Client::connect(options).await.unwrap();
    let default = client.default_collection();
    let write = WriteOptions::default();
    let mut pipeline = client.pipeline(PipelineOptions::default());
    for number in 0..10_000_u32 {
        while pipeline.is_full() {
            pipeline.next().await.expect("some are in flight").result.unwrap();
        }
        // Each key is written ten times; the last one counts.
        let key = format!("key{}", number % 1000);
        let value = Bytes::from(number.to_string().repeat(20));
        pipeline.queue(default, &Operation::upsert(key.as_bytes(), value, &write)).unwrap();
    }
    for number in 0..1000_u32 {
        let key = format!("key{number}");
        pipeline.queue(default, &Operation::get(key.as_bytes())).unwrap();
    }
    let mut results = Vec::new();
    while let Some(Completion { result, .. }) = pipeline.next().await {
        results.push(result.unwrap());
    }
    let reads = &results[results.len() - 1000..];
    for (number, reply) in reads.iter().enumerate() {
        let expected = (9000 + number).to_string().repeat(20);
        assert!(reply.value == expected, "key{number} has {:?}", reply.value);
    }
}

/// A kill in the middle of everything: the client comes back by itself and finds what was durable.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_outlives_the_server() {
    let mut fixture = Fixture::start();
    let client = Arc::new(fixture.client().await);
    let default = client.default_collection();
    let durable = WriteOptions::new().durability(DurabilityLevel::PersistToMajority);
    client.upsert(default, b"k", Bytes::from_static(b"durable"), &durable).await.unwrap();

    // Readers all along: none of them is to see anything but the document.
    let readers = (0..8).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut reads = 0;
            let ends = tokio::time::Instant::now() + Duration::from_secs(2);
            while tokio::time::Instant::now() < ends {
                let document = client.get(client.default_collection(), b"k").await;
                let document = document.expect("reads are repeated").expect("a hit");
                assert_eq!(document.value, "durable");
                reads += 1;
            }
            reads
        })
    });
    let readers: Vec<_> = readers.collect();
    for _ in 0..2 {
        fixture.server.kill().unwrap();
        fixture.server.restart().unwrap();
    }
    for reader in readers {
        assert!(reader.await.expect("no reader panics") > 0);
    }
    let mut pipeline = client.pipeline(PipelineOptions::default());
    pipeline.queue(default, &Operation::get(b"k")).unwrap();
    let reply = pipeline.next().await.expect("one result").result;
    assert_eq!(reply.unwrap().value, "durable");
}

#[tokio::test]
async fn examples_do_what_they_say() {
    let fixture = Fixture::start();
    quickstart::run(fixture.options()).await.expect("quickstart");
    sub_document::run(fixture.options()).await.expect("sub_document");
    bulk_load::run(fixture.options(), 5000).await.expect("bulk_load");
    let client = fixture.client().await;
    let last = client.get(client.default_collection(), b"bulk:4999").await.unwrap();
    assert_eq!(last.expect("it was loaded").value, r#"{"number":4999}"#);
}
