//! Monitors of Couchbase Server: the requests of each, in its order, and the fields that it reads.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use serde_json::Value;

use super::{Fixture, add_user};

const BUCKET: &str = "/pools/default/buckets/default";

/// A request of a monitor, and JSON pointers to what it reads. `{}` is the node's name.
type Step = (&'static str, &'static [&'static str]);

const POOL: Step = (
    "/pools/default",
    &[
        "/buckets/uri",
        "/storageTotals/ram/total",
        "/storageTotals/ram/quotaTotal",
        "/storageTotals/ram/quotaUsed",
        "/storageTotals/ram/used",
        "/storageTotals/ram/usedByData",
        "/storageTotals/ram/quotaUsedPerNode",
        "/storageTotals/ram/quotaTotalPerNode",
        "/storageTotals/hdd/total",
        "/storageTotals/hdd/quotaTotal",
        "/storageTotals/hdd/used",
        "/storageTotals/hdd/usedByData",
        "/storageTotals/hdd/free",
        "/nodes/0/memoryTotal",
        "/nodes/0/memoryFree",
        "/nodes/0/interestingStats/cmd_get",
        "/nodes/0/interestingStats/mem_used",
        "/nodes/0/systemStats/cpu_utilization_rate",
        "/nodes/0/systemStats/swap_total",
        "/memoryQuota",
        "/rebalanceStatus",
        "/balanced",
    ],
);

const BUCKETS: Step = (
    "/pools/default/buckets",
    &["/0/name", "/0/quota/ram", "/0/stats/uri", "/0/basicStats/opsPerSec", "/0/nodes/0/hostname"],
);

const SAMPLES: Step = (
    "/pools/default/buckets/default/stats",
    &[
        "/op/samples/couch_total_disk_size/0",
        "/op/samples/cmd_get/0",
        "/op/samples/curr_items/0",
        "/op/samples/curr_connections/0",
        "/op/samples/ep_resident_items_rate/0",
        "/op/samples/mem_total/0",
        "/op/samplesCount",
        "/op/lastTStamp",
        "/op/interval",
    ],
);

const TASKS: Step = ("/pools/default/tasks", &["/0/type", "/0/status"]);

const MONITORS: [(&str, &[Step]); 5] = [
    ("telegraf", &[("/pools", &["/pools/0/uri"]), POOL, BUCKETS, SAMPLES]),
    (
        "netdata",
        &[(
            "/pools/default/buckets?skipMap=true",
            &[
                "/0/name",
                "/0/basicStats/quotaPercentUsed",
                "/0/basicStats/opsPerSec",
                "/0/basicStats/diskFetches",
                "/0/basicStats/itemCount",
                "/0/basicStats/diskUsed",
                "/0/basicStats/dataUsed",
                "/0/basicStats/memUsed",
                "/0/basicStats/vbActiveNumNonResident",
            ],
        )],
    ),
    (
        "totvslabs/couchbase-exporter",
        &[
            TASKS,
            BUCKETS,
            SAMPLES,
            (
                "/nodes/self",
                &[
                    "/hostname",
                    "/uptime",
                    "/storageTotals/hdd/free",
                    "/systemStats/cpu_utilization_rate",
                    "/interestingStats/ops",
                    "/mcdMemoryReserved",
                    "/mcdMemoryAllocated",
                    "/memoryQuota",
                    "/recoveryType",
                ],
            ),
            POOL,
        ],
    ),
    (
        "couchbase/couchbase-exporter",
        &[
            BUCKETS,
            SAMPLES,
            ("/pools/nodes", &["/nodes/0/systemStats/mem_free"]),
            TASKS,
            ("/pools/default/buckets/default/nodes", &["/servers/0/hostname"]),
            ("/pools/default/buckets/default/nodes/{}/stats", &["/hostname", "/op/samples/ops/0"]),
        ],
    ),
    ("datadog", &[POOL, BUCKETS, SAMPLES, TASKS]),
];

// Compat (Admin HTTP): figures in `/pools/default`, `/nodes/self`,
// `/pools/default/buckets/B/stats`, `/nodes/NODE/stats` below it
// Compat (Admin HTTP): `GET /pools/default/tasks`
// Compat (Figures for monitors): `quotaTotal`, `memoryQuota`
// Compat (Figures for monitors): `dataUsed`, `couch_docs_actual_disk_size`
#[test]
fn monitors_of_couchbase_find_what_they_read() {
    let fixture = Fixture::development();
    let node = format!("localhost%3A{}", fixture.admin.port());
    for (monitor, steps) in MONITORS {
        for (path, fields) in steps {
            let answer = fixture.get(&path.replace("{}", &node));
            assert_eq!(answer.status, 200, "{monitor}: {path}");
            let answer = answer.json();
            for field in *fields {
                assert!(answer.pointer(field).is_some(), "{monitor}: {path} has no {field}");
            }
        }
    }
    let terse = fixture.get("/pools/default/buckets?skipMap=true").json();
    assert!(terse[0].get("vBucketServerMap").is_none());
    let other_node = fixture.get(&format!("{BUCKET}/nodes/elsewhere%3A1/stats"));
    assert_eq!(other_node.status, 404);
}

// Compat (Figures for monitors): `stats` of a bucket
// Compat (Figures for monitors): changes (DCP)
/// Monitors take the last sample of each figure by the length of one of them.
#[test]
fn samples_are_arrays_of_one_length() {
    let fixture = Fixture::development();
    let answer = fixture.get(SAMPLES.0).json();
    let samples = answer["op"]["samples"].as_object().unwrap();
    for (name, values) in samples {
        let values = values.as_array().unwrap();
        assert!(values.len() == 1 && values[0].is_number(), "{name}: {values:?}");
    }
}

/// Exporters written in Go read rates and sizes into integers.
#[test]
fn figures_of_nodes_and_buckets_are_integers() {
    let fixture = Fixture::development();
    let pool = fixture.get("/pools/default").json();
    let bucket = fixture.get(BUCKET).json();
    for figures in [
        &pool["storageTotals"]["ram"],
        &pool["storageTotals"]["hdd"],
        &pool["nodes"][0]["interestingStats"],
    ] {
        let figures = figures.as_object().unwrap();
        assert!(figures.values().all(Value::is_u64), "{figures:?}");
    }
    for name in ["opsPerSec", "diskFetches", "itemCount", "diskUsed", "memUsed"] {
        assert!(bucket["basicStats"][name].is_u64(), "{name}");
    }
}

#[test]
fn rates_follow_operations() {
    const GETS: usize = 5_000;
    let fixture = Fixture::development();
    let address = fixture.server.as_ref().unwrap().addresses().kv;
    let mut stream = TcpStream::connect(address).unwrap();
    let mut requests = Vec::new();
    for _ in 0..GETS {
        let get = RequestParts { key: b"missing", ..RequestParts::new(Opcode::Get) };
        encode_request(&mut requests, &get);
    }
    let mut reader = stream.try_clone().unwrap();
    let answers = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).unwrap());
    stream.write_all(&requests).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(answers.join().unwrap() >= GETS * 24);

    // The first answer is the average since the start, which was seconds ago at most.
    let answer = fixture.get(SAMPLES.0).json();
    let sample = |name: &str| answer["op"]["samples"][name][0].as_f64().unwrap();
    let seconds = answer["op"]["interval"].as_f64().unwrap() / 1000.0;
    let gets = sample("cmd_get") * seconds;
    assert!((gets - GETS as f64).abs() < GETS as f64 / 20.0, "{gets} in {seconds} s");
    assert_eq!(sample("get_misses"), sample("cmd_get"));
    assert_eq!((sample("get_hits"), sample("hit_ratio")), (0.0, 0.0));
}

// Compat (Figures for monitors): figures of the node and sums over buckets
#[test]
fn figures_of_the_node_need_a_right_everywhere() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "operator", &["stats:*"]);
        add_user(data_dir, "local", &["stats:default"]);
        add_user(data_dir, "reader", &["read:default"]);
    };
    let fixture = Fixture::start(prepare, false);
    let get = |path: &str, user: &str| fixture.ask("GET", path, &format!("{user}:secret1"), "");
    let all = get("/pools/default", "operator").json();
    assert!(all["storageTotals"].is_object() && all["nodes"][0]["systemStats"].is_object());
    assert!(get(SAMPLES.0, "operator").json()["op"]["samples"]["mem_total"].is_array());
    for user in ["local", "reader"] {
        let some = get("/pools/default", user).json();
        let node = &some["nodes"][0];
        assert!(some.get("storageTotals").is_none() && some.get("memoryQuota").is_none());
        assert!(node.get("systemStats").is_none() && node.get("interestingStats").is_none());
        let own = get("/nodes/self", user).json();
        assert!(own["hostname"].is_string() && own.get("storageTotals").is_none());
        let bucket = get(BUCKET, user).json();
        assert!(bucket["nodes"][0].get("memoryTotal").is_none());
    }
    let samples = get(SAMPLES.0, "local").json();
    assert!(samples["op"]["samples"]["curr_items"].is_array());
    assert!(samples["op"]["samples"].get("mem_total").is_none());
    assert_eq!(get(SAMPLES.0, "reader").status, 403);
    assert_eq!(get(&format!("{BUCKET}/nodes"), "nobody").status, 401);
}

/// go-couchbase follows the links, and routes by the map.
#[test]
fn a_client_that_routes_follows_the_links() {
    let fixture = Fixture::development();
    let pools = fixture.get("/pools").json();
    let pool = fixture.get(pools["pools"][0]["uri"].as_str().unwrap()).json();
    let buckets = fixture.get(pool["buckets"]["uri"].as_str().unwrap()).json();
    let bucket = fixture.get(buckets[0]["uri"].as_str().unwrap()).json();
    let map = &bucket["vBucketServerMap"];
    let kv = fixture.server.as_ref().unwrap().addresses().kv;
    assert_eq!(map["serverList"], serde_json::json!([format!("localhost:{}", kv.port())]));
    assert_eq!(map["vBucketMap"], serde_json::json!([[0], [0], [0], [0]]));
    assert_eq!((&map["hashAlgorithm"], &map["numReplicas"]), (&"CRC".into(), &0.into()));
    assert_eq!(fixture.get(bucket["stats"]["uri"].as_str().unwrap()).status, 200);
}

// Compat (Admin HTTP): `?uuid=` and `?bucket_uuid=` in links
#[test]
fn a_link_to_another_cluster_or_bucket_is_404() {
    let fixture = Fixture::development();
    for path in [
        "/pools/default?uuid=0",
        "/pools/default/buckets?uuid=0",
        "/pools/default/buckets/default?bucket_uuid=0",
        "/pools/default/bucketsStreaming/default?bucket_uuid=0",
    ] {
        let answer = fixture.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.contains("uuid does not match the requested"), "{}", answer.body);
    }
}
