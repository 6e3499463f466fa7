//! The cache in front of a master that counts its questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::client::ClientBuilder;
use crate::proto::common::{
    ColumnSchemaPb, PartitionPb, PartitionSchemaPb, RangeSchemaPb, SchemaPb,
};
use crate::proto::master as pb;
use crate::proto::rpc::RpcErrorCodePb;
use crate::retry::scripted_server::{Call, ScriptedAnswer, ScriptedServer, message};

/// A master whose only table has tablets from b to d and from f to h, and that answers no more of
/// them than the question allows.
async fn table() -> (ScriptedServer, Table) {
    let master = ScriptedServer::start(answer).await;
    let client = ClientBuilder::new([master.address.clone()]).build().await.unwrap();
    let table = client.open_table("t").await.unwrap();
    (master, table)
}

fn answer(call: &Call) -> ScriptedAnswer {
    match call.method.as_str() {
        "ConnectToMaster" => message(&pb::ConnectToMasterResponsePb {
            role: Some(pb::RaftRolePb::Leader as i32),
            ..Default::default()
        }),
        "GetTableSchema" => {
            let key = ColumnSchemaPb {
                name: "key".to_owned(),
                r#type: 8,
                is_key: Some(true),
                id: Some(0),
                ..Default::default()
            };
            let partition_schema = PartitionSchemaPb {
                range_schema: Some(RangeSchemaPb::default()),
                ..Default::default()
            };
            message(&pb::GetTableSchemaResponsePb {
                schema: Some(SchemaPb { columns: vec![key] }),
                partition_schema: Some(partition_schema),
                table_id: Some("id".into()),
                table_name: Some("t".to_owned()),
                ..Default::default()
            })
        }
        "GetTableLocations" => {
            let tablet =
                |id: &'static str, start: &'static str, end: &'static str| pb::TabletLocationsPb {
                    tablet_id: id.into(),
                    partition: Some(PartitionPb {
                        hash_buckets: Vec::new(),
                        partition_key_start: Some(start.into()),
                        partition_key_end: Some(end.into()),
                    }),
                    interned_replicas: Vec::new(),
                };
            let tablet_locations = vec![tablet("1", "b", "d"), tablet("2", "f", "h")];
            message(&pb::GetTableLocationsResponsePb {
                tablet_locations,
                ttl_millis: Some(300_000),
                ..Default::default()
            })
        }
        _ => ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorNoSuchMethod),
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[tokio::test]
async fn many_who_want_the_tablets_at_once_ask_one_question() {
    let (master, table) = table().await;
    let snapshots = join_all((0..60).map(|_| table.snapshot(deadline()))).await;
    assert_eq!(master.calls("GetTableLocations").len(), 1);
    let first = snapshots[0].as_ref().unwrap();
    assert!(snapshots.iter().all(|snapshot| Arc::ptr_eq(first, snapshot.as_ref().unwrap())));
}

#[tokio::test]
async fn many_who_need_newer_replicas_ask_one_question() {
    let (master, table) = table().await;
    let tablets = table.snapshot(deadline()).await.unwrap();
    let generation = tablets[0].generation();
    let refreshed =
        join_all((0..60).map(|_| table.refresh_tablet(&tablets[0], generation, deadline()))).await;
    assert!(refreshed.into_iter().all(|refreshed| refreshed.is_ok()));
    assert_eq!(master.calls("GetTableLocations").len(), 2);
}

#[tokio::test]
async fn a_snapshot_is_shared_until_something_changes() {
    let (master, table) = table().await;
    let first = table.snapshot(deadline()).await.unwrap();
    assert_eq!(first.iter().map(|tablet| tablet.id()).collect::<Vec<_>>(), ["1", "2"]);
    assert!(Arc::ptr_eq(&first, &table.snapshot(deadline()).await.unwrap()));
    assert_eq!(master.calls("GetTableLocations").len(), 1);
    table.client().shared().meta_cache().forget_table("id");
    let second = table.snapshot(deadline()).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    // A holder of the old list still gets new replicas.
    let generation = first[0].generation();
    table.refresh_tablet(&first[0], generation, deadline()).await.unwrap();
    assert!(first[0].generation() > generation);
}

#[tokio::test]
async fn reopening_a_table_finds_added_partitions() {
    let (master, table) = table().await;
    table.snapshot(deadline()).await.unwrap();
    table.client().open_table("t").await.unwrap().snapshot(deadline()).await.unwrap();
    assert_eq!(master.calls("GetTableLocations").len(), 2);
}

#[tokio::test]
async fn an_answer_that_answers_something_else_is_refused() {
    let (master, table) = table().await;
    master.set_script(|_| {
        let partition = PartitionPb {
            hash_buckets: Vec::new(),
            partition_key_start: Some("x".into()),
            partition_key_end: Some(Bytes::from_static(b"y")),
        };
        let tablet = |id: String| pb::TabletLocationsPb {
            tablet_id: id.into(),
            partition: Some(partition.clone()),
            interned_replicas: Vec::new(),
        };
        message(&pb::GetTableLocationsResponsePb {
            tablet_locations: vec![tablet("1".to_owned()), tablet("2".to_owned())],
            ..Default::default()
        })
    });
    assert!(matches!(table.snapshot(deadline()).await, Err(Error::Malformed { .. })));
}

/// Whoever opens the table again forgets its gaps, also between an answer and the look at it. The
/// client took that for an answer that says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tablets_dropped_by_others_are_looked_up_again() {
    let (_master, table) = table().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (other, stop) = (table.clone(), Arc::clone(&is_over));
    let forgetting = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            other.cache().forget_gaps();
            std::thread::yield_now();
        }
    });
    for _ in 0..100 {
        table.cache().forget_gaps();
        let found = table.snapshot(deadline()).await.expect("the master answers every question");
        assert_eq!(found.len(), 2);
    }
    is_over.store(true, Ordering::Relaxed);
    forgetting.join().expect("it only forgets");
}

#[tokio::test]
async fn a_queued_lookup_keeps_its_deadline() {
    let (master, table) = table().await;
    let tablets = table.snapshot(deadline()).await.unwrap();
    master.set_script(|_| ScriptedAnswer::Silence);
    let patient = table.refresh_tablet(&tablets[0], tablets[0].generation(), deadline());
    let hasty = table.refresh_tablet(
        &tablets[1],
        tablets[1].generation(),
        Instant::now() + Duration::from_millis(50),
    );
    tokio::select! {
        biased;
        _ = patient => panic!("the master is silent"),
        ended = hasty => assert!(matches!(ended, Err(Error::Timeout { operation: Operation::LocateTablets, .. }))),
    }
}
