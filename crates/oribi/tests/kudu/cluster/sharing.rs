//! Nodes that come and go in order.

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, poll_until};

use crate::cluster::nodes::{self, Cluster, check, wait_for_items, wait_for_shares, write};

#[tokio::test]
async fn two_nodes_share_a_bucket_and_one_stops_in_order() {
    let Some(cluster) = Cluster::start("sharing") else { return };
    let one = cluster.node("one");
    wait_for_shares(&one, &[64]);
    let client = nodes::client(&[&one]).await;
    write(&client, "early", 200, "1", true).await;

    let mut two = cluster.node("two");
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    // The client knows of one node only, and follows the map to the other.
    check(&client, "early", 200, "1").await;
    write(&client, "late", 200, "2", false).await;
    assert!(wait_for_items(&one) < 400 && wait_for_items(&two) < 400);

    // Nothing asked for durability, and nothing is lost.
    assert!(two.terminate().unwrap().success(), "{}", two.output());
    wait_for_shares(&one, &[64]);
    check(&client, "early", 200, "1").await;
    check(&client, "late", 200, "2").await;
    nodes::assert_quiet(&[&one, &two]);
}

/// A node reads its own vbuckets only, so a scan of a bucket that two nodes share is refused.
#[tokio::test]
async fn a_statement_needs_its_vbuckets_on_its_node() {
    let Some(cluster) = Cluster::start("statements") else { return };
    let (one, two) = (cluster.node("one"), cluster.node("two"));
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = nodes::client(&[&one, &two]).await;
    write(&client, "k", 40, "1", true).await;
    let http =
        HttpClient::new(one.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let query = |statement: &str| {
        let form = [("statement", statement)];
        http.post_form("/query/service", &form).unwrap().json().unwrap()
    };
    let scan = query("SELECT RAW META().id FROM `default`");
    assert_eq!(scan["errors"][0]["code"], 12008, "{scan}");
    let (mut own, mut elsewhere) = (0, 0);
    for number in 0..40 {
        let answer = query(&format!("SELECT RAW META().id FROM `default` USE KEYS 'k-{number}'"));
        match answer["errors"][0]["code"].as_u64() {
            None => {
                assert_eq!(answer["results"], serde_json::json!([format!("k-{number}")]));
                own += 1;
            }
            Some(code) => {
                assert_eq!(code, 12008, "{answer}");
                elsewhere += 1;
            }
        }
    }
    assert!(own > 0 && elsewhere > 0, "{own} here, {elsewhere} elsewhere");
    nodes::assert_quiet(&[&one, &two]);
}

#[tokio::test]
async fn nodes_that_start_at_once_make_the_same_bucket() {
    let Some(cluster) = Cluster::start("at_once") else { return };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| cluster.node("two"));
        (cluster.node("one"), other.join().unwrap())
    });
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    for node in [&one, &two] {
        let output = node.output();
        assert!(!output.contains("closed a bucket"), "{output}");
    }
    let client = nodes::client(&[&one, &two]).await;
    write(&client, "k", 40, "1", true).await;
    check(&client, "k", 40, "1").await;
    nodes::assert_quiet(&[&one, &two]);
}

#[tokio::test]
async fn a_bucket_that_is_deleted_and_made_again_is_empty() {
    let Some(cluster) = Cluster::start("again") else { return };
    let (one, two) = (cluster.node("one"), cluster.node("two"));
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = nodes::client(&[&one, &two]).await;
    write(&client, "k", 40, "1", true).await;
    let http =
        HttpClient::new(one.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    assert_eq!(http.delete("/pools/default/buckets/default").unwrap().status, 200);
    let form = [("name", "default"), ("ramQuota", "100")];
    // The name is free as soon as the answer is there.
    let made = http.post_form("/pools/default/buckets", &form).unwrap();
    assert_eq!(made.status, 202, "{}", made.text());
    // Not the map of the one before: it is served in full again.
    let beside = nodes::client(&[&one, &two]).await;
    for number in 0..40 {
        let key = format!("k-{number}");
        let found = beside.get(beside.default_collection(), key.as_bytes()).await.unwrap();
        assert!(found.is_none(), "{key} is back");
    }
    write(&beside, "k", 40, "2", true).await;
    check(&beside, "k", 40, "2").await;
    nodes::assert_quiet(&[&one, &two]);
}

// Compat (Differences): Several nodes
#[tokio::test]
async fn every_node_creates_and_drops_collections() {
    let Some(cluster) = Cluster::start("buckets") else { return };
    let (one, two) = (cluster.node("one"), cluster.node("two"));
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let http = |node: &oribi_testkit::ServerProcess| {
        HttpClient::new(node.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
    };
    let (at_one, at_two) = (http(&one), http(&two));
    let made = at_one
        .post_form("/pools/default/buckets/default/scopes/_default/collections", &[("name", "c")])
        .unwrap();
    assert_eq!(made.status, 200, "{}", made.text());
    let uid = made.json().unwrap()["uid"].as_str().unwrap().to_owned();
    let ensured = || {
        let path = format!("/pools/default/buckets/default/scopes/@ensureManifest/{uid}");
        let answer = at_two.post_form(&path, &[]).ok()?;
        (answer.status == 200).then_some(())
    };
    poll_until(PATIENCE, ensured).expect("the other node knows the collection");
    let client = nodes::client(&[&two]).await;
    let collection = client.collection("c").await.unwrap();
    let value = bytes::Bytes::from_static(b"v");
    let options = oribi_client::WriteOptions::default();
    for number in 0..40 {
        let key = format!("k-{number}");
        client.upsert(&collection, key.as_bytes(), value.clone(), &options).await.unwrap();
    }

    let quota = [("name", "more"), ("ramQuota", "100")];
    assert_eq!(at_two.post_form("/pools/default/buckets", &quota).unwrap().status, 202);
    let has = |at: &HttpClient, expected: u16| {
        let answer = at.get("/pools/default/buckets/more").ok()?;
        (answer.status == expected).then_some(())
    };
    poll_until(PATIENCE, || has(&at_one, 200)).expect("the bucket is on the other node, too");
    assert_eq!(at_one.delete("/pools/default/buckets/more").unwrap().status, 200);
    poll_until(PATIENCE, || has(&at_two, 404)).expect("it goes from the other node, too");
    nodes::assert_quiet(&[&one, &two]);
}
