//! Scans while tablet servers die, come back and stall.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::time::Duration;

use oribi_kudu::{
    Client, ClientBuilder, ColumnSchema, DataType, Error, HashPartition, Scanner, Schema, Table,
    TableCreator, Value,
};
use oribi_testkit::{KuduCluster, KuduOptions, KuduServer};

/// A cluster, and a table with this many rows that the C++ tool wrote, two tablets with a replica
/// on each server.
async fn table_on(servers: usize, rows: u64) -> Option<(KuduCluster, Client, Table)> {
    let cluster = KuduCluster::start_or_skip(KuduOptions::new(1, servers))?;
    let client =
        ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap().build().await.unwrap();
    let schema = Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("int_val", DataType::Int32).nullable(true))
        .column(ColumnSchema::builder("string_val", DataType::String).nullable(true))
        .build()
        .unwrap();
    let creator = TableCreator::new("t", schema)
        .hash_partition(HashPartition::new(["key"], 2))
        .num_replicas(servers as u32);
    let table = client.create_table(creator).await.unwrap();
    let rows = format!("--num_rows_per_thread={}", rows / 2);
    cluster
        .tool_stdout(&["perf", "loadgen", &cluster.master_addresses(), "--table_name=t", &rows])
        .unwrap();
    Some((cluster, client, table))
}

fn keys_of(batch: &oribi_kudu::ScanBatch) -> Vec<i64> {
    batch.rows().map(|row| row.get::<i64>(0).unwrap()).collect()
}

/// Reads to the end, and calls `meanwhile` once, after the third batch.
async fn keys_with_fault(
    mut scanner: Scanner,
    meanwhile: impl FnOnce(),
) -> Result<Vec<i64>, Error> {
    let (mut keys, mut batches, mut meanwhile) = (Vec::new(), 0, Some(meanwhile));
    while let Some(batch) = scanner.next_batch().await? {
        keys.extend(keys_of(&batch));
        batches += 1;
        if batches == 3 {
            meanwhile.take().into_iter().for_each(|fault| fault());
        }
    }
    assert!(batches > 6, "{batches} batches are too few for a fault between them");
    Ok(keys)
}

fn ordered(table: &Table) -> Scanner {
    let scan =
        table.scan().fault_tolerant(true).batch_bytes(50_000).timeout(Duration::from_secs(60));
    scan.build().unwrap()
}

/// Every key once, ascending in each of the two tablets.
fn assert_complete(keys: &[i64], rows: usize) {
    assert_eq!(keys.len(), rows);
    let descents = keys.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    assert!(descents <= 1, "keys descend {descents} times");
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), rows, "a key came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_scan_survives_a_server_restart() {
    let Some((cluster, client, table)) = table_on(1, 20_000).await else { return };
    let server = KuduServer::TabletServer(0);
    let restart = || {
        cluster.kill(server).unwrap();
        cluster.restart(server).unwrap();
    };
    let keys = keys_with_fault(ordered(&table), restart).await.unwrap();
    assert_complete(&keys, 20_000);

    // Without order there is no way to continue, and the scan says so instead of skipping or
    // repeating rows.
    let unordered = table.scan().batch_bytes(50_000).build().unwrap();
    let restart = || {
        cluster.kill(server).unwrap();
        cluster.restart(server).unwrap();
    };
    let error = keys_with_fault(unordered, restart).await.unwrap_err();
    assert!(matches!(error, Error::Network { .. } | Error::TabletServer { .. }), "{error:?}");

    // A lookup that finds its server gone waits for it.
    let lookup = table.point_lookup().timeout(Duration::from_secs(60)).build().unwrap();
    assert!(lookup.get(&[Value::Int64(3)]).await.unwrap().is_some());
    cluster.kill(server).unwrap();
    let waiting = lookup.get(&[Value::Int64(4)]);
    let (found, ()) = tokio::join!(waiting, async { cluster.restart(server).unwrap() });
    assert!(found.unwrap().is_some());
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_scan_goes_on_at_another_replica() {
    let Some((cluster, _client, table)) = table_on(3, 20_000).await else { return };
    for pause in [false, true] {
        let mut resumed = 0;
        // One server after the other, so that whichever is read from is among them.
        for server in (0..3).map(KuduServer::TabletServer) {
            let mut scanner = ordered(&table);
            let mut keys = keys_of(&scanner.next_batch().await.unwrap().unwrap());
            match pause {
                true => cluster.pause(server).unwrap(),
                false => cluster.kill(server).unwrap(),
            }
            while let Some(batch) = scanner.next_batch().await.unwrap() {
                keys.extend(keys_of(&batch));
            }
            assert_complete(&keys, 20_000);
            resumed += scanner.metrics().tablets - 2;
            match pause {
                true => cluster.resume(server).unwrap(),
                false => cluster.restart(server).unwrap(),
            }
            cluster.wait_healthy().unwrap();
        }
        assert!(resumed > 0, "no scan had to go on elsewhere, so nothing was tested");
    }
}
