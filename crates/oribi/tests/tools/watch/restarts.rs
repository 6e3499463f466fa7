//! A watch continues after restarts of either side, where it was.

use oribi_client::{DcpEvent, DcpStreamOptions};
use oribi_testkit::PATIENCE;
use rustix::process::Signal;

use crate::watch::{Fixture, write};

/// The server is killed twice, the watch once. Each durable write is shown, and the second watch
/// begins where the first one ended.
#[tokio::test]
async fn continues_after_kills_of_both_sides() {
    let mut fixture = Fixture::start();
    let place = fixture.path("place");
    let resume = ["--from", "beginning", "--resume", &*place];
    let watch = fixture.watch(&resume);
    let client = fixture.client().await;
    for round in 0..2 {
        for number in 0..50 {
            let key = format!("r{round}:{number}");
            write(&client, client.default_collection(), &key, number).await;
        }
        watch.change_of(&format!("r{round}:49"));
        fixture.server.kill().expect("it runs");
        fixture.server.restart().expect("it starts again");
    }
    write(&client, client.default_collection(), "last", 1).await;
    watch.change_of("last");
    assert_eq!(watch.end(Signal::INT), Some(130));

    // While no `watch` runs.
    write(&client, client.default_collection(), "missed", 1).await;
    fixture.server.kill().expect("it runs");
    fixture.server.restart().expect("it starts again");
    let lines = fixture.watched_until_now(&resume);
    let keys: Vec<&str> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
    assert_eq!(keys, ["missed"]);
    let none = fixture.watched_until_now(&resume);
    assert!(none.iter().all(|line| line["key"].is_null()), "{none:?}");

    let other = fixture.command(&["watch", "--resume", &*place, "--scope", "_default"]).output();
    let other = other.expect("the program runs");
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && error.contains("other collections"), "{error}");
}

/// Writes that are not durable may be lost; a table made of the stream, with documents read again
/// behind each rollback, is the server's in the end.
#[tokio::test]
async fn a_table_built_from_dcp_matches_after_crashes() {
    use std::collections::BTreeMap;

    use oribi_client::{Bytes, ChangeKind, WriteOptions};

    let mut fixture = Fixture::start();
    let client = fixture.client().await;
    let default = client.default_collection();
    let options = DcpStreamOptions::new().from_beginning();
    let mut changes = client.dcp_stream(&options).await.expect("a stream");
    let mut table: BTreeMap<Bytes, (Option<Bytes>, oribi_client::Vbid, u64)> = BTreeMap::new();
    for round in 0..4_u64 {
        for number in 0..200_u64 {
            let key = format!("k{}", number % 60);
            let value = Bytes::from(format!("{round}:{number}"));
            client.upsert(default, key.as_bytes(), value, &WriteOptions::new()).await.unwrap();
        }
        if round < 3 {
            fixture.server.kill().expect("it runs");
            fixture.server.restart().expect("it starts again");
        }
        let key = format!("end{round}");
        write(&client, default, &key, round).await;
        let mut has_ended = false;
        while !has_ended {
            let next = tokio::time::timeout(PATIENCE, changes.next()).await.expect("in time");
            match next.expect("no error").expect("it goes on") {
                DcpEvent::Change(change) => {
                    has_ended = change.key == key.as_bytes();
                    let value = (change.kind == ChangeKind::Mutation)
                        .then(|| change.value().expect("a value"));
                    let entry = (value, change.vbid(), change.seqno().0);
                    table.insert(change.key.clone(), entry);
                }
                DcpEvent::Rollback(rollback) => {
                    let to = rollback.to;
                    for (key, (value, vbid, seqno)) in &mut table {
                        if *vbid == to.vbid && *seqno > to.seqno.0 {
                            let document = client.get(default, key).await.expect("an answer");
                            (*value, *seqno) = (document.map(|found| found.value), to.seqno.0);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    // The rest of the stream, up to what there is now.
    let rest = DcpStreamOptions::new().resume(changes.token()).until_now(true);
    let mut rest = client.dcp_stream(&rest).await.expect("a stream");
    while let Some(event) = rest.next().await.expect("no error") {
        if let DcpEvent::Change(change) = event {
            let entry = (Some(change.value().expect("a value")), change.vbid(), change.seqno().0);
            table.insert(change.key.clone(), entry);
        }
    }
    for (key, (value, ..)) in &table {
        let document = client.get(default, key).await.expect("an answer");
        assert_eq!(*value, document.map(|found| found.value), "{key:?}");
    }
    assert_eq!(table.len(), 64);
}
