//! Nodes that are killed, paused beyond their lease, and cut off from etcd.

use std::sync::Arc;
use std::time::Instant;

use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::{PATIENCE, RawConnection, Request, ServerProcess, TcpProxy, poll_until};

use crate::cluster::nodes::{self, Cluster, check, wait_for_items, wait_for_shares, write};
use crate::cluster::writer::Writer;

const DOCUMENTS: usize = 128;

/// Numbers of documents that this node serves.
fn served(node: &ServerProcess, prefix: &str) -> Vec<usize> {
    let mut connection = RawConnection::login(node.port()).unwrap();
    (0..DOCUMENTS)
        .filter(|number| {
            let request = Request::get(format!("{prefix}-{number}"));
            connection.call(&request).unwrap().status() == Status::Success
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_is_replaced_without_loss() {
    let Some(cluster) = Cluster::start("killed") else { return };
    let (one, mut two) = (cluster.node("one"), cluster.node("two"));
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = Arc::new(nodes::client(&[&one, &two]).await);
    write(&client, "k", DOCUMENTS, "1", true).await;
    let writer = Writer::start(Arc::clone(&client)).await;
    wait_for_items(&two);
    two.kill().unwrap();
    let killed = Instant::now();
    wait_for_shares(&one, &[64]);
    check(&client, "k", DOCUMENTS, "1").await;
    println!("everything is served again {:?} after the kill", killed.elapsed());
    writer.stop().await.check(&client).await;

    two.restart().unwrap();
    wait_for_shares(&one, &[32, 32]);
    check(&client, "k", DOCUMENTS, "1").await;
    nodes::assert_quiet(&[&one, &two]);
}

#[tokio::test]
async fn a_paused_node_serves_and_writes_nothing_stale() {
    let Some(cluster) = Cluster::start("paused") else { return };
    let one = cluster.node("one");
    // It flushes seldom, so that it has something to overwrite with.
    let two = cluster.node_at("two", cluster.etcd.port(), 5_000);
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = nodes::client(&[&one, &two]).await;
    write(&client, "k", DOCUMENTS, "old", true).await;
    let of_two = served(&two, "k");
    assert!(!of_two.is_empty(), "the paused node has nothing to be stale about");
    let mut connection = RawConnection::login(two.port()).unwrap();
    for number in &of_two {
        let request = Request::set(format!("k-{number}"), "never persisted");
        assert_eq!(connection.call(&request).unwrap().status(), Status::Success);
    }
    two.pause().unwrap();
    // These wait in its socket until it runs again.
    let asked: Vec<Request> =
        of_two.iter().map(|number| Request::get(format!("k-{number}"))).collect();
    connection.send_all(&asked.iter().collect::<Vec<_>>()).unwrap();
    wait_for_shares(&one, &[64]);
    let beside = nodes::client(&[&one]).await;
    write(&beside, "k", DOCUMENTS, "new", true).await;
    two.resume().unwrap();

    // It may close the connection instead of answering.
    let answers = std::iter::from_fn(|| connection.receive().ok()).take(asked.len());
    for answer in answers {
        match answer.status() {
            Status::NotMyVbucket => {}
            // It may have its vbuckets back already.
            Status::Success => assert_eq!(answer.text(), "new"),
            other => assert_eq!(other, Status::Etmpfail),
        }
    }
    wait_for_shares(&one, &[32, 32]);
    check(&beside, "k", DOCUMENTS, "new").await;
    // And so it stays when what it once had queued would have been flushed.
    let is_served = || (!served(&two, "k").is_empty()).then_some(());
    poll_until(PATIENCE, is_served).expect("it has its share again");
    check(&client, "k", DOCUMENTS, "new").await;
    nodes::assert_quiet(&[&one, &two]);
}

/// One of two nodes is cut off from etcd. Clients reach both all the time, and one says that it is
/// not the one to ask.
async fn cut_off_from_etcd(database: &'static str, cut: &str) {
    let Some(cluster) = Cluster::start(database) else { return };
    let proxy = TcpProxy::start(cluster.etcd.port()).unwrap();
    let etcd_of = |name| if name == cut { proxy.port() } else { cluster.etcd.port() };
    let both = ["one", "two"].map(|name| cluster.node_at(name, etcd_of(name), 20));
    both.iter().for_each(|node| wait_for_shares(node, &[32, 32]));
    let client = Arc::new(nodes::client(&[&both[0], &both[1]]).await);
    let [lost, left] = if cut == "one" { [&both[0], &both[1]] } else { [&both[1], &both[0]] };
    write(&client, "k", DOCUMENTS, "old", true).await;
    let of_lost = served(lost, "k");
    assert!(!of_lost.is_empty());
    let writer = Writer::start(Arc::clone(&client)).await;
    proxy.cut();
    let (first, key) = (of_lost[0], format!("k-{}", of_lost[0]));
    let vbid = vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS);
    let at = |node: &ServerProcess| {
        let mut connection = RawConnection::login(node.port()).ok()?;
        Some(connection.call(&Request::get(&key)).ok()?.status())
    };
    let taken_over = poll_until(PATIENCE, || {
        let (new, old) = (at(left), at(lost));
        let both = (new, old) == (Some(Status::Success), Some(Status::Success));
        assert!(!both, "document {first} in {vbid} is served twice");
        (new == Some(Status::Success)).then_some(())
    });
    assert!(taken_over.is_some(), "nobody takes over");
    assert_eq!(at(lost), Some(Status::NotMyVbucket));
    // The node that was cut off has the old map; a client that knows both is not misled by it.
    check(&client, "k", DOCUMENTS, "old").await;
    let beside = nodes::client(&[left]).await;
    write(&beside, "k", DOCUMENTS, "new", true).await;
    writer.stop().await.check(&beside).await;
    proxy.mend();
    wait_for_shares(left, &[32, 32]);
    check(&client, "k", DOCUMENTS, "new").await;
    nodes::assert_quiet(&[&both[0], &both[1]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_etcd_does_not_hear_of_stops_in_time() {
    cut_off_from_etcd("partitioned", "two").await;
}

/// The node that every client asks first.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_node_of_the_map_needs_etcd_too() {
    cut_off_from_etcd("beheaded", "one").await;
}
