//! Settings of a bucket on three nodes, which agree through a real etcd. Without etcd these tests
//! are skipped, and say so.

use serde_json::Value;

use crate::copies::{BUCKET, Cluster};

fn path() -> String {
    format!("/pools/default/buckets/{BUCKET}")
}

#[track_caller]
fn change(cluster: &Cluster, at: usize, form: &[(&str, &str)]) {
    let answer = cluster.http(at).post_form(&path(), form).unwrap();
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), cluster.outputs());
}

fn shown(cluster: &Cluster, at: usize) -> Value {
    cluster.http(at).get(&path()).unwrap().json().unwrap()
}

#[test]
fn a_change_on_one_node_is_answered_by_all() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let levels = ["majority", "persistToMajority", "majorityAndPersistActive", "none"];
    for (at, level) in levels.into_iter().enumerate() {
        let ttl = (at + 1).to_string();
        change(&cluster, at % 3, &[("durabilityMinLevel", level), ("maxTTL", &ttl)]);
        for other in 0..3 {
            let bucket = shown(&cluster, other);
            assert_eq!(bucket["durabilityMinLevel"], level, "on {other}");
            assert_eq!(bucket["maxTTL"], at + 1, "on {other}");
        }
    }
    let more = [
        ("ramQuotaMB", "150"),
        ("compressionMode", "active"),
        ("evictionPolicy", "fullEviction"),
        ("memoryTier", "dense"),
        ("flushIntervalMs", "77"),
        ("flushEnabled", "1"),
    ];
    change(&cluster, 1, &more);
    for at in 0..3 {
        let bucket = shown(&cluster, at);
        assert_eq!(bucket["quota"]["rawRAM"], 150 << 20);
        assert_eq!(bucket["compressionMode"], "active");
        assert_eq!(bucket["evictionPolicy"], "fullEviction");
        assert_eq!(bucket["flushIntervalMs"], 77);
    }

    // A node that was away, which the change waits for until its lease ends.
    cluster.nodes[2].kill().unwrap();
    change(&cluster, 0, &[("ramQuotaMB", "160"), ("durabilityMinLevel", "majority")]);
    cluster.nodes[2].restart().unwrap();
    cluster.wait("the node that was away has the change", || {
        let bucket: Value = cluster.http(2).get(&path()).ok()?.json().ok()?;
        (bucket["quota"]["rawRAM"] == 160 << 20).then_some(())
    });
    assert_eq!(shown(&cluster, 2)["durabilityMinLevel"], "majority");
    // It has them at a start too, without the others.
    assert!(cluster.nodes[2].terminate().unwrap().success());
    cluster.nodes[2].restart().unwrap();
    assert_eq!(shown(&cluster, 2)["quota"]["rawRAM"], 160 << 20);
    let status: Value = cluster.http(2).get("/node/cluster").unwrap().json().unwrap();
    assert_eq!(status["settings"], serde_json::json!([]));
}
