//! Scripted masters: leadership, transient refusals, and lost answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::client::{Client, ClientBuilder};
use crate::error::{MasterErrorCode, StatusCode};
use crate::proto::common::{AppStatusPb, HostPortPb, SchemaPb};
use crate::proto::master::{self as pb, MasterErrorPb};
use crate::proto::rpc::RpcErrorCodePb;
use crate::retry::scripted_server::{Call, ScriptedAnswer, ScriptedServer, message};
use crate::schema::{ColumnSchema, DataType, Schema};
use crate::table::TableCreator;

fn answer(code: MasterErrorCode, status: StatusCode) -> MasterErrorPb {
    let status =
        AppStatusPb { code: status as i32, message: Some("words".to_owned()), posix_code: None };
    MasterErrorPb { code: code as i32, status }
}

#[test]
fn a_follower_master_leads_to_the_leader() {
    for code in [MasterErrorCode::NotTheLeader, MasterErrorCode::CatalogManagerNotInitialized] {
        assert_eq!(
            remedy_for_answer(&answer(code, StatusCode::IllegalState)),
            MasterRemedy::FindLeader
        );
    }
    let busy = answer(MasterErrorCode::Unknown, StatusCode::ServiceUnavailable);
    assert_eq!(remedy_for_answer(&busy), MasterRemedy::Again);
    let invalid = answer(MasterErrorCode::InvalidSchema, StatusCode::InvalidArgument);
    assert_eq!(remedy_for_answer(&invalid), MasterRemedy::GiveUp);
}

#[test]
fn a_refusal_is_named_by_its_code() {
    let error = refusal(
        &answer(MasterErrorCode::TableNotFound, StatusCode::NotFound),
        Operation::OpenTable,
        "t",
    );
    assert!(
        matches!(&error, Error::TableNotFound { table, operation: Operation::OpenTable } if table == "t")
    );
    let error = refusal(
        &answer(MasterErrorCode::EvenReplicationFactor, StatusCode::InvalidArgument),
        Operation::CreateTable,
        "t",
    );
    assert!(!error.is_retryable());
    assert_eq!(error.status(), StatusCode::InvalidArgument);
}

fn leader() -> pb::ConnectToMasterResponsePb {
    pb::ConnectToMasterResponsePb {
        role: Some(pb::RaftRolePb::Leader as i32),
        ..Default::default()
    }
}

async fn client_of(master: &ScriptedServer) -> Client {
    let builder =
        ClientBuilder::new([master.address.clone()]).admin_timeout(Duration::from_secs(5));
    builder.build().await.unwrap()
}

fn schema() -> Schema {
    Schema::builder().column(ColumnSchema::builder("key", DataType::Int64).key()).build().unwrap()
}

/// A master that executes the first call of a method and closes the connection instead of
/// answering. It then answers `second`.
async fn forgetful_master(
    method: &'static str,
    second: fn() -> ScriptedAnswer,
    columns: SchemaPb,
) -> ScriptedServer {
    let calls = AtomicUsize::new(0);
    ScriptedServer::start(move |call| match call.method.as_str() {
        "ConnectToMaster" => message(&leader()),
        "GetTableSchema" => message(&pb::GetTableSchemaResponsePb {
            schema: Some(columns.clone()),
            ..Default::default()
        }),
        "IsCreateTableDone" => {
            message(&pb::IsCreateTableDoneResponsePb { done: Some(true), ..Default::default() })
        }
        called if called == method && calls.fetch_add(1, Ordering::Relaxed) == 0 => {
            ScriptedAnswer::Close
        }
        called if called == method => second(),
        _ => ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorNoSuchMethod),
    })
    .await
}

fn already_present() -> ScriptedAnswer {
    let error = Some(answer(MasterErrorCode::TableAlreadyPresent, StatusCode::AlreadyPresent));
    message(&pb::CreateTableResponsePb { error, ..Default::default() })
}

#[tokio::test]
async fn a_creation_without_answer_is_found_created() {
    let master = forgetful_master("CreateTable", already_present, schema().to_pb()).await;
    let client = client_of(&master).await;
    let table = client.create_table(TableCreator::new("t", schema())).await.unwrap();
    assert_eq!(table.schema().columns().len(), 1);
    assert_eq!(master.calls("CreateTable").len(), 2);
    // The third call gets an answer, so the table can only be another client's.
    let again = client.create_table(TableCreator::new("t", schema())).await;
    assert!(matches!(again, Err(Error::TableAlreadyPresent { .. })));
}

#[tokio::test]
async fn a_namesake_table_is_not_taken_as_created() {
    let other = Schema::builder()
        .column(ColumnSchema::builder("other", DataType::Int64).key())
        .build()
        .unwrap();
    let master = forgetful_master("CreateTable", already_present, other.to_pb()).await;
    let created = client_of(&master).await.create_table(TableCreator::new("t", schema())).await;
    assert!(matches!(created, Err(Error::TableAlreadyPresent { .. })));
}

#[tokio::test]
async fn a_deletion_that_lost_its_answer_is_taken_for_done() {
    let not_found = || {
        let error = Some(answer(MasterErrorCode::TableNotFound, StatusCode::NotFound));
        message(&pb::DeleteTableResponsePb { error })
    };
    let master = forgetful_master("DeleteTable", not_found, schema().to_pb()).await;
    let client = client_of(&master).await;
    client.delete_table("t").await.unwrap();
    assert!(matches!(client.delete_table("t").await, Err(Error::TableNotFound { .. })));
}

#[tokio::test]
async fn a_busy_master_is_asked_again() {
    let calls = AtomicUsize::new(0);
    let master = ScriptedServer::start(move |call| {
        match (call.method.as_str(), calls.fetch_add(1, Ordering::Relaxed)) {
            ("ConnectToMaster", _) => message(&leader()),
            (_, 1) => ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorServerTooBusy),
            (_, 2) => {
                let error = Some(answer(MasterErrorCode::Unknown, StatusCode::ServiceUnavailable));
                message(&pb::ListTablesResponsePb { error, ..Default::default() })
            }
            _ => message(&pb::ListTablesResponsePb::default()),
        }
    })
    .await;
    client_of(&master).await.list_tables("").await.unwrap();
    assert_eq!(master.calls("ListTables").len(), 3);
}

#[tokio::test]
async fn the_leading_master_is_found_after_each_change() {
    let follower = |call: &Call| match call.method.as_str() {
        "ConnectToMaster" => message(&pb::ConnectToMasterResponsePb {
            role: Some(pb::RaftRolePb::Follower as i32),
            ..Default::default()
        }),
        _ => message(&pb::ListTablesResponsePb {
            error: Some(answer(MasterErrorCode::NotTheLeader, StatusCode::IllegalState)),
            ..Default::default()
        }),
    };
    let leading = |call: &Call| match call.method.as_str() {
        "ConnectToMaster" => message(&leader()),
        _ => message(&pb::ListTablesResponsePb::default()),
    };
    let masters = [ScriptedServer::start(follower).await, ScriptedServer::start(leading).await];
    let client = ClientBuilder::new(masters.iter().map(|master| master.address.clone()))
        .build()
        .await
        .unwrap();
    assert!(client.list_tables("").await.unwrap().is_empty());
    assert_eq!(
        (masters[0].calls("ListTables").len(), masters[1].calls("ListTables").len()),
        (0, 1)
    );
    masters[1].set_script(follower);
    masters[0].set_script(leading);
    client.list_tables("").await.unwrap();
    assert_eq!(
        (masters[0].calls("ListTables").len(), masters[1].calls("ListTables").len()),
        (1, 2)
    );
}

#[tokio::test]
async fn one_address_is_enough_to_find_the_other_masters() {
    let leading = ScriptedServer::start(|call| match call.method.as_str() {
        "ConnectToMaster" => message(&leader()),
        _ => message(&pb::ListTablesResponsePb::default()),
    })
    .await;
    let named =
        HostPortPb { host: leading.address.host.clone(), port: leading.address.port.into() };
    let follower = ScriptedServer::start(move |_| {
        message(&pb::ConnectToMasterResponsePb {
            role: Some(pb::RaftRolePb::Follower as i32),
            master_addrs: vec![named.clone()],
            ..Default::default()
        })
    })
    .await;
    let client = ClientBuilder::new([follower.address.clone()]).build().await.unwrap();
    client.list_tables("").await.unwrap();
    assert_eq!(leading.calls("ListTables").len(), 1);
}
