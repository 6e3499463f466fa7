//! Every operation of the client library, as a real server answers it.

use bytes::Bytes;
use oribi_client::{
    Client, ConnectOptions, CounterOptions, FLAGS_JSON, Mechanism, RejectionKind, WriteOptions,
    WriteReply,
};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_types::{Cas, Datatype, DurabilityLevel};

use crate::doc::Fixture;

fn options(fixture: &Fixture) -> ConnectOptions {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    options.port(fixture.server.port())
}

// Compat (Bootstrap and session): SASL list, auth, step
#[tokio::test]
async fn every_mechanism_is_accepted() {
    let fixture = Fixture::start();
    for mechanism in
        [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1, Mechanism::Plain]
    {
        let options = options(&fixture).mechanism(mechanism);
        let client = Client::connect(options).await.unwrap();
        assert!(client.config().vbucket_count().is_power_of_two());
        assert_eq!(client.config().nodes[0].port, fixture.server.port());
    }
}

#[tokio::test]
async fn documents_come_and_go() {
    let fixture = Fixture::start();
    let client = Client::connect(options(&fixture)).await.unwrap();
    let collection = client.default_collection();
    let json = WriteOptions::json();
    let value = Bytes::from_static(b"{\"a\":1}");

    let error = client.replace(collection, b"k", value.clone(), &json).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotFound));
    let WriteReply { cas, mutation: token, .. } =
        client.add(collection, b"k", value.clone(), &json).await.unwrap();
    assert!(token.is_some_and(|token| token.seqno.0 == 1), "{token:?}");
    let error = client.add(collection, b"k", value.clone(), &json).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::Exists));

    let document = client.get(collection, b"k").await.unwrap().expect("a hit");
    assert_eq!((document.value, document.cas, document.flags), (value, cas, FLAGS_JSON));
    assert_eq!(document.datatype, Datatype::JSON);

    let stale = json.cas(Cas(cas.0 + 1));
    let text = Bytes::from_static(b"text");
    let error = client.upsert(collection, b"k", text.clone(), &stale).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::Exists));
    let fresh = json.cas(cas).durability(DurabilityLevel::PersistToMajority);
    client.upsert(collection, b"k", text, &fresh).await.unwrap();
    let document = client.get(collection, b"k").await.unwrap().expect("a hit");
    assert_eq!(document.datatype, Datatype::RAW);

    client.touch(collection, b"k", 3600).await.unwrap();
    client.delete(collection, b"k", &WriteOptions::default()).await.unwrap();
    assert_eq!(client.get(collection, b"k").await.unwrap(), None);
    let error = client.delete(collection, b"k", &WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotFound));
}

#[tokio::test]
async fn counters_count() {
    let fixture = Fixture::start();
    let client = Client::connect(options(&fixture)).await.unwrap();
    let collection = client.default_collection();
    let up = CounterOptions::increment(5);
    let error = client.counter(collection, b"n", &up).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotFound));
    let create = up.initial(10);
    assert_eq!(client.counter(collection, b"n", &create).await.unwrap().value, 10);
    assert_eq!(client.counter(collection, b"n", &up).await.unwrap().value, 15);
    let down = CounterOptions::decrement(100);
    assert_eq!(client.counter(collection, b"n", &down).await.unwrap().value, 0);
    let text = Bytes::from_static(b"text");
    client.upsert(collection, b"n", text, &WriteOptions::default()).await.unwrap();
    let error = client.counter(collection, b"n", &up).await.unwrap_err();
    assert_eq!(error.rejection(), Some(RejectionKind::NotANumber));
}

#[tokio::test]
async fn collections_are_apart_and_statistics_come() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let client = Client::connect(options(&fixture)).await.unwrap();
    let packages = client.collection("debian.packages").await.unwrap();
    let value = Bytes::from(vec![b'x'; 2_000_000]);
    client.upsert(&packages, b"k", value.clone(), &WriteOptions::default()).await.unwrap();
    let document = client.get(&packages, b"k").await.unwrap().expect("a hit");
    assert!(document.value == value);
    assert_eq!(client.get(client.default_collection(), b"k").await.unwrap(), None);
    for (path, refused) in [
        ("debian.nope", RejectionKind::UnknownCollection),
        ("nope.packages", RejectionKind::UnknownScope),
    ] {
        let error = client.collection(path).await.unwrap_err();
        assert_eq!(error.rejection(), Some(refused), "{path}");
    }
    let stats = client.stats("").await.unwrap();
    assert!(stats.iter().any(|stat| stat.name == "curr_items" && stat.value == "1"), "{stats:?}");
}
