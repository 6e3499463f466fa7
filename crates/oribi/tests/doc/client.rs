//! Every operation of the client library, as a real server answers it.

use bytes::Bytes;
use oribi_client::{
    Client, ConnectOptions, CounterOptions, FLAGS_JSON, Mechanism, Refused, WriteOptions,
};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_types::{Cas, Datatype, DurabilityLevel};

use crate::Fixture;

fn options(fixture: &Fixture) -> ConnectOptions {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    ConnectOptions { port: fixture.server.port(), ..options }
}

#[tokio::test]
async fn every_mechanism_is_accepted() {
    let fixture = Fixture::start();
    for mechanism in
        [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1, Mechanism::Plain]
    {
        let options = ConnectOptions { mechanism, ..options(&fixture) };
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
    let json = WriteOptions { flags: FLAGS_JSON, ..WriteOptions::default() };
    let value = Bytes::from_static(b"{\"a\":1}");

    let error = client.replace(collection, b"k", value.clone(), &json).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::NotFound));
    let (cas, token) = client.add(collection, b"k", value.clone(), &json).await.unwrap();
    assert!(token.is_some_and(|token| token.seqno.0 == 1), "{token:?}");
    let error = client.add(collection, b"k", value.clone(), &json).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::Exists));

    let document = client.get(collection, b"k").await.unwrap().expect("a hit");
    assert_eq!((document.value, document.cas, document.flags), (value, cas, FLAGS_JSON));
    assert_eq!(document.datatype, Datatype::JSON);

    let stale = WriteOptions { cas: Cas(cas.0 + 1), ..json };
    let text = Bytes::from_static(b"text");
    let error = client.upsert(collection, b"k", text.clone(), &stale).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::Exists));
    let fresh = WriteOptions { cas, durability: DurabilityLevel::PersistToMajority, ..json };
    client.upsert(collection, b"k", text, &fresh).await.unwrap();
    let document = client.get(collection, b"k").await.unwrap().expect("a hit");
    assert_eq!(document.datatype, Datatype::RAW);

    client.touch(collection, b"k", 3600).await.unwrap();
    client.delete(collection, b"k", &WriteOptions::default()).await.unwrap();
    assert_eq!(client.get(collection, b"k").await.unwrap(), None);
    let error = client.delete(collection, b"k", &WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::NotFound));
}

#[tokio::test]
async fn counters_count() {
    let fixture = Fixture::start();
    let client = Client::connect(options(&fixture)).await.unwrap();
    let collection = client.default_collection();
    let up = CounterOptions {
        delta: 5,
        decrement: false,
        initial: None,
        expiry: 0,
        durability: DurabilityLevel::None,
    };
    let error = client.counter(collection, b"n", &up).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::NotFound));
    let create = CounterOptions { initial: Some(10), ..up };
    assert_eq!(client.counter(collection, b"n", &create).await.unwrap(), 10);
    assert_eq!(client.counter(collection, b"n", &up).await.unwrap(), 15);
    let down = CounterOptions { delta: 100, decrement: true, ..up };
    assert_eq!(client.counter(collection, b"n", &down).await.unwrap(), 0);
    let text = Bytes::from_static(b"text");
    client.upsert(collection, b"n", text, &WriteOptions::default()).await.unwrap();
    let error = client.counter(collection, b"n", &up).await.unwrap_err();
    assert_eq!(error.refused(), Some(Refused::NotANumber));
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
    for (path, refused) in
        [("debian.nope", Refused::UnknownCollection), ("nope.packages", Refused::UnknownScope)]
    {
        let error = client.collection(path).await.unwrap_err();
        assert_eq!(error.refused(), Some(refused), "{path}");
    }
    let stats = client.stats("").await.unwrap();
    assert!(stats.iter().any(|(name, value)| name == "curr_items" && value == "1"), "{stats:?}");
}
