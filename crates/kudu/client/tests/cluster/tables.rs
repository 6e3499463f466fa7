//! Tables made, changed and listed by this client, against a real Kudu and its C++ tool.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use oribi_kudu::{
    Client, ClientBuilder, ColumnChange, ColumnSchema, Compression, DataType, Encoding, Error,
    HashPartition, MasterErrorCode, RangePartition, Schema, TableAlterer, TableCreator, Value,
};
use oribi_testkit::{KuduCluster, SharedKuduCluster};

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

/// A client of the shared cluster, unless there is no Kudu.
async fn connect() -> Option<(&'static KuduCluster, Client)> {
    let cluster = CLUSTER.get()?;
    let client =
        ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap().build().await.unwrap();
    Some((cluster, client))
}

fn describe(cluster: &KuduCluster, table: &str) -> String {
    let arguments = [
        "table",
        "describe",
        &cluster.master_addresses(),
        table,
        "-show_attributes",
        "-show_column_comment",
    ];
    cluster.tool_stdout(&arguments).unwrap()
}

fn number_and_text() -> Schema {
    Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("text", DataType::String).nullable(true))
        .build()
        .unwrap()
}

#[tokio::test]
async fn every_type_matches_the_tools_description() {
    let Some((cluster, client)) = connect().await else { return };
    let schema = Schema::builder()
        .column(ColumnSchema::builder("i8", DataType::Int8).key().encoding(Encoding::BitShuffle))
        .column(
            ColumnSchema::builder("name", DataType::String)
                .key()
                .encoding(Encoding::Prefix)
                .comment("who"),
        )
        .column(
            ColumnSchema::builder("i16", DataType::Int16)
                .nullable(false)
                .default_value(Value::Int16(-5))
                .encoding(Encoding::RunLength),
        )
        .column(
            ColumnSchema::builder("i32", DataType::Int32)
                .nullable(true)
                .compression(Compression::Lz4),
        )
        .column(ColumnSchema::builder("i64", DataType::Int64).nullable(true).block_bytes(8192))
        .column(
            ColumnSchema::builder("b", DataType::Bool)
                .nullable(false)
                .default_value(Value::Bool(true)),
        )
        .column(
            ColumnSchema::builder("f", DataType::Float)
                .nullable(true)
                .compression(Compression::Zlib),
        )
        .column(
            ColumnSchema::builder("d", DataType::Double)
                .nullable(false)
                .default_value(Value::Double(1.5)),
        )
        .column(
            ColumnSchema::builder("text", DataType::String)
                .nullable(true)
                .encoding(Encoding::Dictionary)
                .default_value(Value::String("none")),
        )
        .column(
            ColumnSchema::builder("raw", DataType::Binary)
                .nullable(true)
                .encoding(Encoding::Plain)
                .compression(Compression::Snappy),
        )
        .column(
            ColumnSchema::builder("at", DataType::UnixtimeMicros).nullable(true).immutable(true),
        )
        .column(ColumnSchema::builder("day", DataType::Date).nullable(true))
        .column(oribi_kudu::ColumnSchemaBuilder::decimal("small", 5, 2).nullable(true))
        .column(oribi_kudu::ColumnSchemaBuilder::decimal("large", 38, 10).nullable(true))
        .column(oribi_kudu::ColumnSchemaBuilder::varchar("short", 40).nullable(true))
        .build()
        .unwrap();
    let creator = TableCreator::new("every_type", schema.clone())
        .hash_partition(HashPartition::new(["name"], 3))
        .num_replicas(1)
        .owner("somebody")
        .comment("all types")
        .extra_config("kudu.table.history_max_age_sec", "900");
    let table = client.create_table(creator).await.unwrap();
    assert_eq!(
        (table.name(), table.num_replicas(), table.owner(), table.comment()),
        ("every_type", 1, "somebody", "all types")
    );
    assert_eq!(table.extra_configs()["kudu.table.history_max_age_sec"], "900");
    let described = describe(cluster, "every_type");
    for expected in [
        "i8 INT8 NOT NULL BIT_SHUFFLE DEFAULT_COMPRESSION",
        "name STRING NOT NULL PREFIX_ENCODING DEFAULT_COMPRESSION",
        "i16 INT16 NOT NULL RLE DEFAULT_COMPRESSION -5 -5",
        "i32 INT32 NULLABLE AUTO_ENCODING LZ4",
        "b BOOL NOT NULL AUTO_ENCODING DEFAULT_COMPRESSION true true",
        "f FLOAT NULLABLE AUTO_ENCODING ZLIB",
        "d DOUBLE NOT NULL AUTO_ENCODING DEFAULT_COMPRESSION 1.5 1.5",
        "text STRING NULLABLE DICT_ENCODING DEFAULT_COMPRESSION \"none\" \"none\"",
        "raw BINARY NULLABLE PLAIN_ENCODING SNAPPY",
        "at UNIXTIME_MICROS NULLABLE IMMUTABLE",
        "day DATE NULLABLE",
        "small DECIMAL(5, 2) NULLABLE",
        "large DECIMAL(38, 10) NULLABLE",
        "short VARCHAR(40) NULLABLE",
        "PRIMARY KEY (i8, name)",
        "HASH (name) PARTITIONS 3",
        "OWNER somebody",
        "REPLICAS 1",
        "COMMENT all types",
        "who",
    ] {
        assert!(described.contains(expected), "{expected:?} is missing in\n{described}");
    }
    // What the server sends back is the schema that was asked for.
    assert_eq!(table.schema().columns().len(), schema.columns().len());
    for (present, wanted) in table.schema().columns().iter().zip(schema.columns()) {
        assert_eq!(present.name(), wanted.name());
        assert_eq!(present.data_type(), wanted.data_type());
        assert_eq!(present.type_attributes(), wanted.type_attributes());
        assert_eq!(present.default_value(), wanted.default_value());
        assert_eq!(
            (present.encoding(), present.compression()),
            (wanted.encoding(), wanted.compression())
        );
    }
}

#[tokio::test]
async fn partitions_match_those_of_the_tool() {
    let Some((cluster, client)) = connect().await else { return };
    let schema = Schema::builder()
        .column(ColumnSchema::builder("a", DataType::Int64).key())
        .column(ColumnSchema::builder("b", DataType::String).key())
        .build()
        .unwrap();
    let creator = TableCreator::new("ranges", schema)
        .hash_partition(HashPartition::new(["a"], 2).with_seed(7))
        .hash_partition(HashPartition::new(["b"], 3))
        .range_columns(["a", "b"])
        .range_partition(RangePartition::new(
            Bound::Unbounded,
            Bound::Excluded(&[("a", Value::Int64(0))]),
        ))
        .unwrap()
        .range_partition(RangePartition::new(
            Bound::Included(&[("a", Value::Int64(10))]),
            Bound::Included(&[("a", Value::Int64(30)), ("b", Value::String("m"))]),
        ))
        .unwrap()
        .split(&[("a", Value::Int64(20))])
        .unwrap()
        .num_replicas(1);
    client.create_table(creator).await.unwrap();
    let described = describe(cluster, "ranges");
    for expected in [
        "HASH (a) PARTITIONS 2 SEED 7",
        "HASH (b) PARTITIONS 3",
        "RANGE (a, b) (",
        "PARTITION VALUES < (0, \"\")",
        "PARTITION (10, \"\") <= VALUES < (20, \"\")",
        "PARTITION (20, \"\") <= VALUES < (30, \"m\\000\")",
    ] {
        assert!(described.contains(expected), "{expected:?} is missing in\n{described}");
    }
    let tablets = client.list_tables("ranges").await.unwrap();
    assert_eq!(tablets.iter().find(|table| table.name == "ranges").unwrap().num_tablets, Some(18));
}

// Compat (Apache Kudu): tables: create, open, alter (all steps),
// delete, recall, list, statistics
#[tokio::test]
async fn a_range_can_be_hashed_in_its_own_way() {
    let Some((cluster, client)) = connect().await else { return };
    let creator = TableCreator::new("own_hash", number_and_text())
        .hash_partition(HashPartition::new(["key"], 2))
        .range_columns(["key"])
        .range_partition(RangePartition::new(
            Bound::Included(&[("key", Value::Int64(0))]),
            Bound::Excluded(&[("key", Value::Int64(100))]),
        ))
        .unwrap()
        .range_partition(
            RangePartition::new(
                Bound::Included(&[("key", Value::Int64(100))]),
                Bound::Excluded(&[("key", Value::Int64(200))]),
            )
            .with_hash([HashPartition::new(["key"], 5)]),
        )
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let described = describe(cluster, "own_hash");
    assert!(described.contains("PARTITION 0 <= VALUES < 100,"), "{described}");
    assert!(
        described.contains("PARTITION 100 <= VALUES < 200 HASH(key) PARTITIONS 5"),
        "{described}"
    );
    let alterer = TableAlterer::new(&table)
        .add_range_partition(
            RangePartition::new(Bound::Included(&[("key", Value::Int64(200))]), Bound::Unbounded)
                .with_hash([HashPartition::new(["key"], 3).with_seed(1)]),
        )
        .unwrap();
    client.alter_table(alterer).await.unwrap();
    let described = describe(cluster, "own_hash");
    assert!(described.contains("PARTITION 200 <= VALUES HASH(key) PARTITIONS 3"), "{described}");
    let tablets = client.list_tables("own_hash").await.unwrap()[0].num_tablets;
    assert_eq!(tablets, Some(2 + 5 + 3));
}

// Compat (Apache Kudu): tables: create, open, alter (all steps),
// delete, recall, list, statistics
#[tokio::test]
async fn every_kind_of_alter_step_arrives() {
    let Some((cluster, client)) = connect().await else { return };
    let creator = TableCreator::new("before", number_and_text())
        .range_columns(["key"])
        .range_partition(RangePartition::new(
            Bound::Unbounded,
            Bound::Excluded(&[("key", Value::Int64(0))]),
        ))
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let alterer = TableAlterer::new(&table)
        .add_column(
            ColumnSchema::builder("flag", DataType::Bool)
                .nullable(false)
                .default_value(Value::Bool(false)),
        )
        .unwrap()
        .add_column(ColumnSchema::builder("gone", DataType::Int32).nullable(true))
        .unwrap()
        .drop_column("gone")
        .rename_column("key", "id")
        .alter_column(
            "text",
            ColumnChange::new()
                .encoding(Encoding::Plain)
                .compression(Compression::Zlib)
                .block_bytes(4096)
                .comment("words")
                .name("words"),
        )
        .rename_table("after")
        .owner("else")
        .comment("changed")
        .extra_config("kudu.table.maintenance_priority", "2");
    client.alter_table(alterer).await.unwrap();
    let table = client.open_table("after").await.unwrap();
    assert_eq!(table.extra_configs()["kudu.table.maintenance_priority"], "2");
    let alterer = TableAlterer::new(&table)
        .set_default("words", Value::String("w"))
        .unwrap()
        .add_range_partition(RangePartition::new(
            Bound::Included(&[("id", Value::Int64(0))]),
            Bound::Excluded(&[("id", Value::Int64(10))]),
        ))
        .unwrap()
        .drop_range_partition(RangePartition::new(
            Bound::Unbounded,
            Bound::Excluded(&[("id", Value::Int64(0))]),
        ))
        .unwrap();
    client.alter_table(alterer).await.unwrap();
    let described = describe(cluster, "after");
    for expected in [
        "id INT64 NOT NULL",
        "words STRING NULLABLE PLAIN_ENCODING ZLIB 4096 - \"w\" words",
        "flag BOOL NOT NULL AUTO_ENCODING DEFAULT_COMPRESSION false false",
        "PARTITION 0 <= VALUES < 10",
        "OWNER else",
        "COMMENT changed",
    ] {
        assert!(described.contains(expected), "{expected:?} is missing in\n{described}");
    }
    assert!(!described.contains("gone") && !described.contains("VALUES < 0\n"), "{described}");
    client
        .alter_table(
            TableAlterer::new(&table).alter_column("words", ColumnChange::new().without_default()),
        )
        .await
        .unwrap();
    assert_eq!(
        client.open_table("after").await.unwrap().schema().column("words").unwrap().default_value(),
        None
    );
    client.rename_table("after", "before").await.unwrap();
    assert_eq!(client.open_table("before").await.unwrap().id(), table.id());
}

#[tokio::test]
async fn tables_are_listed_deleted_and_recalled() {
    let Some((cluster, client)) = connect().await else { return };
    for name in ["fruit.apple", "fruit.pear", "tree"] {
        client
            .create_table(TableCreator::new(name, number_and_text()).num_replicas(1))
            .await
            .unwrap();
    }
    let names = async |filter: &str| -> BTreeSet<String> {
        client.list_tables(filter).await.unwrap().into_iter().map(|table| table.name).collect()
    };
    assert_eq!(
        names("fruit").await,
        BTreeSet::from(["fruit.apple".to_owned(), "fruit.pear".to_owned()])
    );
    let listed = cluster.tool_stdout(&["table", "list", &cluster.master_addresses()]).unwrap();
    assert!(names("").await.iter().all(|name| listed.contains(name.as_str())), "{listed}");

    client.delete_table("fruit.pear").await.unwrap();
    assert!(!client.table_exists("fruit.pear").await.unwrap());
    let error = client.open_table("fruit.pear").await.unwrap_err();
    assert!(
        matches!(&error, Error::TableNotFound { table, .. } if table == "fruit.pear"),
        "{error}"
    );
    assert!(matches!(client.delete_table("fruit.pear").await, Err(Error::TableNotFound { .. })));

    client.soft_delete_table("fruit.apple", Duration::from_secs(600)).await.unwrap();
    assert!(names("fruit").await.is_empty());
    let deleted = client.list_soft_deleted_tables("fruit.apple").await.unwrap();
    client.recall_table(&deleted[0].id, Some("fruit.plum")).await.unwrap();
    assert_eq!(names("fruit").await, BTreeSet::from(["fruit.plum".to_owned()]));
    assert!(client.table_exists("tree").await.unwrap());
}

#[tokio::test]
async fn refusals_are_typed_and_leave_the_client_usable() {
    let Some((_, client)) = connect().await else { return };
    client
        .create_table(TableCreator::new("taken", number_and_text()).num_replicas(1))
        .await
        .unwrap();
    let again = client
        .create_table(TableCreator::new("taken", number_and_text()).num_replicas(1))
        .await
        .unwrap_err();
    assert!(
        matches!(&again, Error::TableAlreadyPresent { table, .. } if table == "taken"),
        "{again}"
    );
    let too_many = client
        .create_table(TableCreator::new("three", number_and_text()).num_replicas(3))
        .await
        .unwrap_err();
    assert!(
        matches!(&too_many, Error::Master { code: MasterErrorCode::ReplicationFactorTooHigh, .. }),
        "{too_many}"
    );
    let even = client
        .create_table(TableCreator::new("two", number_and_text()).num_replicas(2))
        .await
        .unwrap_err();
    assert!(
        matches!(&even, Error::Master { code: MasterErrorCode::EvenReplicationFactor, .. }),
        "{even}"
    );
    let unknown = TableCreator::new("x", number_and_text())
        .hash_partition(HashPartition::new(["nothing"], 2));
    assert!(matches!(client.create_table(unknown).await, Err(Error::InvalidArgument(_))));
    let wrong =
        TableCreator::new("x", number_and_text()).split(&[("key", Value::String("no number"))]);
    assert!(matches!(wrong, Err(Error::Value(_))));
    let opened = client.open_table("taken").await.unwrap();
    assert_eq!(opened.schema().columns()[0].name(), "key");
}

#[tokio::test]
async fn servers_and_statistics_are_known() {
    let Some((cluster, client)) = connect().await else { return };
    assert_eq!(client.cluster_id().len(), 32);
    let servers = client.list_tablet_servers().await.unwrap();
    assert_eq!(servers.len(), 1);
    assert_eq!(
        servers[0].rpc_addresses[0].to_string(),
        cluster.address(oribi_testkit::KuduServer::TabletServer(0))
    );
    assert!(servers[0].software_version.contains("1.18"), "{servers:?}");
    client
        .create_table(TableCreator::new("counted", number_and_text()).num_replicas(1))
        .await
        .unwrap();
    let statistics = client.table_statistics("counted").await.unwrap();
    assert_eq!(statistics.row_count_max, None);
}

#[tokio::test]
async fn without_a_master_the_error_names_it() {
    let builder = ClientBuilder::from_addresses("127.0.0.1:1")
        .unwrap()
        .admin_timeout(Duration::from_millis(200));
    let error = builder.build().await.unwrap_err();
    assert!(
        matches!(&error, Error::NoLeaderMaster { masters, last: Some(_) } if masters[0].port == 1),
        "{error}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_key_that_is_not_unique_is_numbered_by_the_server() {
    let Some((cluster, client)) = connect().await else { return };
    let schema = Schema::builder()
        .column(ColumnSchema::builder("who", DataType::String).key())
        .non_unique_key()
        .column(ColumnSchema::builder("what", DataType::Int32).nullable(true))
        .build()
        .unwrap();
    let creator = TableCreator::new("events", schema)
        .hash_partition(HashPartition::new(["who"], 2))
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    assert!(table.schema().columns()[1].is_auto_incrementing());
    let described = describe(cluster, "events");
    assert!(described.contains("PRIMARY KEY (who, auto_incrementing_id)"), "{described}");
}
