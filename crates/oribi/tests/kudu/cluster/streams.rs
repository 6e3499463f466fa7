//! Change streams over a take-over: the node that has a vbucket now tells the truth about what the
//! one before had.

use std::collections::{BTreeMap, BTreeSet};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::stream_connection::{SMALL_WINDOW_BYTES, StreamConnection};
use oribi_testkit::{RawConnection, ServerProcess, StreamCopy};
use oribi_types::{Seqno, Vbid};

use crate::cluster::nodes::{self, Cluster, check, wait_for_shares, write};

const DOCUMENTS: usize = 128;

/// Few enough that some vbuckets of a node have none of them.
const DOCUMENTS_IN_MEMORY: usize = 24;

/// So seldom that plain writes are in memory only, and lost by a kill.
const FLUSH_INTERVAL_MS: u64 = 600_000;

/// Vbuckets of the node with this place in the map, as a node shows it.
fn owned(node: &ServerProcess, place: u64) -> Vec<Vbid> {
    let http =
        HttpClient::new(node.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let map = http.get("/pools/default/b/default").unwrap().json().unwrap();
    let owners = map["vBucketServerMap"]["vBucketMap"].as_array().unwrap().clone();
    let of_node = owners.iter().enumerate().filter(|(_, chain)| chain[0] == place);
    of_node.map(|(vbid, _)| Vbid(vbid as u16)).collect()
}

/// High seqnos of some vbuckets of a node.
fn high_seqnos(node: &ServerProcess, vbuckets: &[Vbid]) -> BTreeMap<Vbid, Seqno> {
    let stats = RawConnection::login(node.port()).unwrap().stat("vbucket-seqno").unwrap();
    let highs = stats.iter().filter_map(|(name, value)| {
        let vbid = Vbid(name.strip_prefix("vb_")?.strip_suffix(":high_seqno")?.parse().ok()?);
        vbuckets.contains(&vbid).then_some((vbid, Seqno(value.parse().ok()?)))
    });
    let highs: BTreeMap<Vbid, Seqno> = highs.collect();
    assert_eq!(highs.len(), vbuckets.len(), "{highs:?} of {vbuckets:?}");
    highs
}

/// Over HTTP a node shows the vbuckets that it serves, and none if it does not serve all of them.
fn check_events_of(node: &ServerProcess, vbuckets: &[Vbid]) {
    let http =
        HttpClient::new(node.admin_port()).with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let path = "/pools/default/buckets/default/changes?from=beginning&until-now";
    let refused = http.get(path).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    let of_one = |vbid: &Vbid| http.get(&format!("{path}&vbuckets={}", vbid.0)).unwrap();
    let shown: Vec<String> = vbuckets.iter().map(|vbid| of_one(vbid).text()).collect();
    let ends = |text: &&String| text.contains(r#"{"type":"end","reason":"complete"}"#);
    assert_eq!(shown.iter().filter(ends).count(), vbuckets.len(), "{shown:?}");
    assert!(shown.iter().any(|text| text.contains(r#""type":"mutation""#)), "{shown:?}");
}

/// Brings a copy up to what a node has now.
fn follow(copy: &mut StreamCopy, node: &ServerProcess, vbuckets: &[Vbid]) -> StreamConnection {
    let mut connection = StreamConnection::open(node.port(), "copy", SMALL_WINDOW_BYTES).unwrap();
    copy.resume(&mut connection, vbuckets.iter().copied()).unwrap();
    copy.read_to(&mut connection, &high_seqnos(node, vbuckets)).unwrap();
    connection
}

// Compat (Change streams): Buckets on Kudu
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_rolls_back_lost_changes_only() {
    let Some(cluster) = Cluster::start("streams") else { return };
    let one = cluster.node("one");
    let mut two = cluster.node_at("two", cluster.etcd.port(), FLUSH_INTERVAL_MS);
    wait_for_shares(&one, &[32, 32]);
    wait_for_shares(&two, &[32, 32]);
    let client = nodes::client(&[&one, &two]).await;
    write(&client, "k", DOCUMENTS, "durable", true).await;
    let vbuckets = owned(&two, 1);
    check_events_of(&two, &vbuckets);
    let mut copy = StreamCopy::new();
    let mut connection = follow(&mut copy, &two, &vbuckets);
    let (durable, durable_table) = (high_seqnos(&two, &vbuckets), copy.table());
    assert!(!durable_table.is_empty(), "no document was written to the node that is killed");
    write(&client, "m", DOCUMENTS_IN_MEMORY, "in memory", false).await;
    copy.read_to(&mut connection, &high_seqnos(&two, &vbuckets)).unwrap();
    assert!(copy.table().len() > durable_table.len());

    two.kill().unwrap();
    wait_for_shares(&one, &[64]);
    let beside = nodes::client(&[&one]).await;
    check(&beside, "k", DOCUMENTS, "durable").await;
    let ahead: BTreeMap<Vbid, Seqno> = durable
        .iter()
        .filter(|(vbid, seqno)| copy.seqno(**vbid) > **seqno)
        .map(|(vbid, seqno)| (*vbid, *seqno))
        .collect();
    assert!(!ahead.is_empty() && ahead.len() < vbuckets.len(), "{ahead:?}");
    // New writes get the seqnos of those that were lost.
    write(&beside, "n", DOCUMENTS, "new", true).await;
    follow(&mut copy, &one, &vbuckets);
    let told: BTreeMap<Vbid, Seqno> = copy.rollbacks().iter().copied().collect();
    assert_eq!(told, ahead, "it goes back to what the table has");
    assert_eq!(copy.rollbacks().len(), ahead.len(), "and only once");

    // The copy is that of a consumer who knows the new node only.
    let mut whole = StreamCopy::new();
    follow(&mut whole, &one, &vbuckets);
    assert_eq!(copy.table(), whole.table());
    let keys: BTreeSet<Vec<u8>> = whole.table().into_keys().collect();
    assert!(durable_table.keys().all(|key| keys.contains(key)));
    assert!(keys.iter().all(|key| !key.starts_with(b"m-")), "{keys:?}");
    assert!(whole.disk_snapshots() > 0, "nothing came from the table");
    nodes::assert_quiet(&[&one, &two]);
}
