//! Limits, bounds, read modes, and descriptions that do not fit the table.

use std::time::Duration;

use oribi_kudu::{
    Error, Operand, Predicate, ReadMode, ReplicaSelection, ScanError, TabletServerErrorCode,
};

use super::{OwnedCell, all_rows, connect, loadgen, numbers_table, sorted};

#[tokio::test]
async fn a_limit_holds_over_all_tablets_and_batches() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "limited").await;
    loadgen(cluster, "limited", 2000);
    for limit in [0, 1, 7, 1500, 3999, 4000, 10_000] {
        for batch_bytes in [1, 1 << 20] {
            let scan = table.scan().limit(limit).batch_bytes(batch_bytes);
            assert_eq!(
                scan.clone().build().unwrap().count().await.unwrap(),
                limit.min(4000),
                "{limit}"
            );
            assert_eq!(
                scan.fault_tolerant(true).count().await.unwrap(),
                limit.min(4000),
                "{limit}"
            );
        }
    }
}

#[tokio::test]
async fn bounds_of_the_key_are_inclusive_then_exclusive() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "bounded").await;
    loadgen(cluster, "bounded", 1000);
    let all = sorted(all_rows(table.scan().build().unwrap()).await);
    let key = |row: &Vec<OwnedCell>| match row[0] {
        OwnedCell::Number(key) => key,
        _ => unreachable!("the key is a number"),
    };
    for (lower, upper) in [(100, 200), (0, 1), (5, 5), (-7, 3), (990, i64::MAX)] {
        let rows =
            all_rows(table.scan().lower_bound([lower]).upper_bound([upper]).build().unwrap()).await;
        let inside =
            |row: &&Vec<OwnedCell>| (i128::from(lower)..i128::from(upper)).contains(&key(row));
        assert_eq!(
            sorted(rows),
            all.iter().filter(inside).cloned().collect::<Vec<_>>(),
            "{lower} to {upper}"
        );
    }
}

#[tokio::test]
async fn an_ordered_scan_has_ascending_keys_in_each_tablet() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "ordered").await;
    loadgen(cluster, "ordered", 3000);
    let mut scanner = table.scan().fault_tolerant(true).batch_bytes(10_000).build().unwrap();
    let (mut keys, mut batches) = (Vec::new(), 0);
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        keys.extend(batch.rows().map(|row| row.get::<i64>(0).unwrap()));
        batches += 1;
    }
    assert!(batches > 4, "{batches} batches of four tablets are too few to show anything");
    let descents = keys.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    assert_eq!(
        (keys.len(), descents),
        (6000, 3),
        "keys descend only from one of the four tablets to the next"
    );
}

#[tokio::test]
async fn a_snapshot_stays_while_rows_are_added() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "snapshot").await;
    loadgen(cluster, "snapshot", 100);
    let mut scanner = table.scan().read_mode(ReadMode::AtSnapshot(None)).build().unwrap();
    assert!(scanner.next_batch().await.unwrap().is_some());
    let snapshot = scanner.snapshot().expect("a server chose it");
    assert!(client.last_observed_timestamp() > 0);
    let name = "--table_name=snapshot";
    let arguments = [
        "perf",
        "loadgen",
        &cluster.master_addresses(),
        name,
        "--num_rows_per_thread=50",
        "--seq_start=1000000",
    ];
    cluster.tool_stdout(&arguments).unwrap();
    let at =
        |mode| table.scan().read_mode(mode).replica_selection(ReplicaSelection::Leader).count();
    assert_eq!(at(ReadMode::AtSnapshot(Some(snapshot))).await.unwrap(), 200);
    assert_eq!(at(ReadMode::Latest).await.unwrap(), 300);
    assert_eq!(at(ReadMode::AtSnapshot(None)).await.unwrap(), 300);
    let ordered = table.scan().read_mode(ReadMode::AtSnapshot(Some(snapshot))).fault_tolerant(true);
    assert_eq!(ordered.count().await.unwrap(), 200);
}

#[tokio::test]
async fn unfit_rows_are_rejected_before_sending() {
    let Some((_, client)) = connect().await else { return };
    let table = numbers_table(&client, "refused").await;
    let refusal = |result: Result<oribi_kudu::Scanner, Error>| match result.unwrap_err() {
        Error::Scan(error) => error,
        other => panic!("{other} is another error"),
    };
    let unknown = ScanError::UnknownColumn { column: "absent".to_owned() };
    assert_eq!(refusal(table.scan().columns(["absent"]).build()), unknown);
    assert_eq!(refusal(table.scan().filter(Predicate::is_null("absent")).build()), unknown);
    assert!(matches!(
        refusal(table.scan().columns(["key", "key"]).build()),
        ScanError::DuplicateColumn { column } if column == "key"
    ));
    assert!(matches!(
        refusal(table.scan().filter(Predicate::less("key", "text")).build()),
        ScanError::Operand { .. }
    ));
    assert!(matches!(
        refusal(table.scan().filter(Predicate::equal("int_val", i64::MAX)).build()),
        ScanError::Operand { .. }
    ));
    let two = [Operand::from(1), Operand::from(2)];
    assert_eq!(
        refusal(table.scan().lower_bound(two).build()),
        ScanError::KeyLength { values: 2, key_columns: 1 }
    );
}

#[tokio::test]
async fn a_scanner_can_be_kept_alive_closed_and_dropped() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "kept").await;
    loadgen(cluster, "kept", 3000);
    let scan = table.scan().batch_bytes(1000);
    let mut scanner = scan.clone().build().unwrap();
    let mut rows = scanner.next_batch().await.unwrap().unwrap().num_rows();
    scanner.keep_alive().await.unwrap();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.num_rows();
    }
    assert_eq!(rows, 6000);
    scanner.keep_alive().await.unwrap();
    let mut closed = scan.clone().prefetch(false).build().unwrap();
    closed.next_batch().await.unwrap();
    closed.close().await;
    let mut dropped = scan.build().unwrap();
    dropped.next_batch().await.unwrap();
    drop(dropped);
}

#[tokio::test]
async fn a_caller_who_stops_waiting_loses_no_rows() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "impatient").await;
    loadgen(cluster, "impatient", 3000);
    let mut scanner = table.scan().batch_bytes(5000).build().unwrap();
    let (mut rows, mut given_up) = (0, 0);
    loop {
        match tokio::time::timeout(Duration::from_micros(50), scanner.next_batch()).await {
            Err(_) => given_up += 1,
            Ok(batch) => match batch.unwrap() {
                Some(batch) => rows += batch.num_rows(),
                None => break,
            },
        }
    }
    assert_eq!(rows, 6000);
    assert!(given_up > 0, "every batch came at once, so nothing was tested");
}

#[tokio::test]
async fn an_ancient_snapshot_is_rejected_by_the_server() {
    let Some((_, client)) = connect().await else { return };
    let table = numbers_table(&client, "ancient").await;
    let error =
        table.scan().read_mode(ReadMode::AtSnapshot(Some(1 << 12))).count().await.unwrap_err();
    assert!(
        matches!(&error, Error::TabletServer { code: TabletServerErrorCode::InvalidSnapshot, .. }),
        "{error:?}"
    );
}
