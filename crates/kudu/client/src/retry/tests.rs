//! The decision table against scripted servers: which server gets which call, in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::Instant;

use super::*;
use crate::client::{Client, ClientBuilder};
use crate::proto::common::{
    AppStatusPb, ColumnSchemaPb, HostPortPb, PartitionPb, PartitionSchemaPb, RangeSchemaPb,
    SchemaPb,
};
use crate::proto::master as master_pb;
use crate::proto::rpc::RpcErrorCodePb;
use crate::proto::tserver::{
    SERVICE_NAME, ScanRequestPb, ScanResponsePb, WriteRequestPb, WriteResponsePb,
};
use crate::retry::scripted_server::{Call, ScriptedAnswer, ScriptedServer, message};

static WRITE: Method = Method { service: SERVICE_NAME, name: "Write" };
static SCAN: Method = Method { service: SERVICE_NAME, name: "Scan" };

/// The scripted master's answer about the one tablet of its one table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Leader(usize),
    NoLeader,
    Gone,
}

/// A master, three tablet servers with a replica each, and a client with the open table.
struct Fixture {
    master: ScriptedServer,
    servers: Vec<ScriptedServer>,
    place: Arc<Mutex<Place>>,
    client: Client,
    table: Table,
    tablet: Arc<Tablet>,
}

impl Fixture {
    async fn start() -> Fixture {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(ScriptedServer::start(|_| written(7)).await);
        }
        let addresses: Vec<HostPort> =
            servers.iter().map(|server| server.address.clone()).collect();
        let place = Arc::new(Mutex::new(Place::Leader(0)));
        let told = place.clone();
        let tokens = AtomicUsize::new(0);
        let master = ScriptedServer::start(move |call| match call.method.as_str() {
            "ConnectToMaster" => message(&leader()),
            "GetTableSchema" => message(&schema(tokens.fetch_add(1, Ordering::Relaxed))),
            "GetTableLocations" => message(&locations(&addresses, *told.lock())),
            _ => ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorNoSuchMethod),
        })
        .await;
        let client = ClientBuilder::new([master.address.clone()]).build().await.unwrap();
        let table = client.open_table("t").await.unwrap();
        let tablet = table.snapshot(deadline(5000)).await.unwrap()[0].clone();
        Fixture { master, servers, place, client, table, tablet }
    }

    async fn write(&self) -> Result<TabletReply<WriteResponsePb>, Error> {
        self.write_until(deadline(5000)).await
    }

    async fn write_until(&self, deadline: Instant) -> Result<TabletReply<WriteResponsePb>, Error> {
        let call = TabletCall {
            table: &self.table,
            tablet: &self.tablet,
            operation: Operation::Write,
            method: &WRITE,
            selection: ReplicaSelection::Leader,
            deadline,
            exactly_once: true,
            features: &[],
            body_bytes: 0,
        };
        call_tablet(call, |attempt| {
            let request = WriteRequestPb {
                tablet_id: Bytes::copy_from_slice(attempt.tablet_id.as_bytes()),
                authz_token: attempt.authz_token.cloned(),
                propagated_timestamp: attempt.propagated_timestamp,
                ..WriteRequestPb::default()
            };
            vec![Bytes::from(request.encode_to_vec())]
        })
        .await
    }

    /// Reads from the leader.
    async fn read(&self) -> Result<TabletReply<ScanResponsePb>, Error> {
        let call = TabletCall {
            table: &self.table,
            tablet: &self.tablet,
            operation: Operation::Scan,
            method: &SCAN,
            selection: ReplicaSelection::Leader,
            deadline: deadline(5000),
            exactly_once: false,
            features: &[],
            body_bytes: 0,
        };
        call_tablet(call, |_| vec![Bytes::from(ScanRequestPb::default().encode_to_vec())]).await
    }

    /// How many reads each tablet server has received.
    fn reads(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.servers[index].calls("Scan").len())
    }

    /// How many writes each tablet server has received.
    fn writes(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.servers[index].calls("Write").len())
    }

    fn questions(&self) -> usize {
        self.master.calls("GetTableLocations").len()
    }

    /// Sequence and attempt numbers of all writes at a server.
    fn ids(&self, server: usize) -> Vec<(i64, i64)> {
        self.servers[server]
            .calls("Write")
            .iter()
            .map(|call| call.request_id.as_ref().map(|id| (id.seq_no, id.attempt_no)).unwrap())
            .collect()
    }
}

fn deadline(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

/// A script that gives the first answers in turn and then repeats the last one.
fn in_turn(answers: Vec<fn() -> ScriptedAnswer>) -> impl Fn(&Call) -> ScriptedAnswer {
    let next = AtomicUsize::new(0);
    move |_| answers[next.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1)]()
}

fn written(timestamp: u64) -> ScriptedAnswer {
    message(&WriteResponsePb { timestamp: Some(timestamp), ..WriteResponsePb::default() })
}

fn refused(code: TabletServerErrorCode, status: StatusCode) -> ScriptedAnswer {
    let status =
        AppStatusPb { code: status as i32, message: Some("scripted".to_owned()), posix_code: None };
    message(&WriteResponsePb {
        error: Some(TabletServerErrorPb { code: code as i32, status }),
        ..WriteResponsePb::default()
    })
}

fn not_the_leader() -> ScriptedAnswer {
    refused(TabletServerErrorCode::NotTheLeader, StatusCode::IllegalState)
}

fn leader() -> master_pb::ConnectToMasterResponsePb {
    master_pb::ConnectToMasterResponsePb {
        role: Some(master_pb::RaftRolePb::Leader as i32),
        ..Default::default()
    }
}

fn schema(token: usize) -> master_pb::GetTableSchemaResponsePb {
    let key = ColumnSchemaPb {
        name: "key".to_owned(),
        r#type: 7,
        is_key: Some(true),
        id: Some(0),
        ..ColumnSchemaPb::default()
    };
    let token = SignedTokenPb {
        token_data: Some(Bytes::from(token.to_string())),
        ..SignedTokenPb::default()
    };
    master_pb::GetTableSchemaResponsePb {
        schema: Some(SchemaPb { columns: vec![key] }),
        partition_schema: Some(PartitionSchemaPb {
            range_schema: Some(RangeSchemaPb::default()),
            ..Default::default()
        }),
        table_id: Some("id".into()),
        table_name: Some("t".to_owned()),
        authz_token: Some(token),
        ..Default::default()
    }
}

fn locations(addresses: &[HostPort], place: Place) -> master_pb::GetTableLocationsResponsePb {
    let role = |index| {
        if place == Place::Leader(index) {
            master_pb::RaftRolePb::Leader
        } else {
            master_pb::RaftRolePb::Follower
        }
    };
    let replica = |index: usize| master_pb::InternedReplicaPb {
        ts_info_idx: index as u32,
        role: role(index) as i32,
        dimension_label: None,
    };
    let tablet = master_pb::TabletLocationsPb {
        tablet_id: if place == Place::Gone { "another".into() } else { "tablet".into() },
        partition: Some(PartitionPb::default()),
        interned_replicas: (0..addresses.len()).map(replica).collect(),
    };
    let server = |address: &HostPort| master_pb::TsInfoPb {
        permanent_uuid: Bytes::from(address.to_string()),
        rpc_addresses: vec![HostPortPb { host: address.host.clone(), port: address.port.into() }],
        location: None,
    };
    master_pb::GetTableLocationsResponsePb {
        tablet_locations: vec![tablet],
        ttl_millis: Some(300_000),
        ts_infos: addresses.iter().map(server).collect(),
        ..Default::default()
    }
}

// Compat (Apache Kudu): a silent replica
#[test]
fn attempt_timeouts_grow_with_bytes_and_silences() {
    let seconds = |body_bytes, silences| attempt_timeout(body_bytes, silences).as_secs();
    assert_eq!((seconds(0, 0), seconds(0, 1), seconds(0, 3), seconds(0, 1000)), (3, 6, 24, 24));
    assert_eq!((seconds(49 << 20, 0), seconds(49 << 20, 1)), (15, 30));
}

#[tokio::test]
async fn a_write_reaches_the_leader_and_keeps_its_timestamp() {
    let fixture = Fixture::start().await;
    let reply = fixture.write().await.unwrap();
    assert_eq!(reply.server, fixture.servers[0].address);
    assert_eq!(fixture.writes(), [1, 0, 0]);
    assert_eq!(fixture.client.last_observed_timestamp(), 7);
    fixture.write().await.unwrap();
    let second = WriteRequestPb::decode(fixture.servers[0].calls("Write")[1].body.clone()).unwrap();
    assert_eq!(second.propagated_timestamp, Some(7));
    assert_eq!(second.tablet_id, "tablet");
}

#[tokio::test]
async fn a_busy_server_gets_the_same_request_again() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(in_turn(vec![
        || ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorServerTooBusy),
        || ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorUnavailable),
        || refused(TabletServerErrorCode::Throttled, StatusCode::ServiceUnavailable),
        || refused(TabletServerErrorCode::Unknown, StatusCode::ServiceUnavailable),
        || written(1),
    ]));
    fixture.write().await.unwrap();
    assert_eq!(fixture.writes(), [5, 0, 0]);
    assert_eq!(fixture.ids(0), [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]);
    fixture.write().await.unwrap();
    assert_eq!(fixture.ids(0)[5], (1, 0));
    assert_eq!(
        fixture.servers[0].calls("Write")[5].request_id.as_ref().unwrap().first_incomplete_seq_no,
        1
    );
}

#[tokio::test]
async fn a_write_redirected_by_a_follower_finds_the_leader() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(|_| not_the_leader());
    fixture.servers[1]
        .set_script(|_| refused(TabletServerErrorCode::TabletNotRunning, StatusCode::IllegalState));
    fixture.write().await.unwrap();
    assert_eq!(fixture.writes(), [1, 1, 1]);
    assert_eq!(fixture.ids(2), [(0, 2)]);
    fixture.write().await.unwrap();
    assert_eq!(fixture.writes(), [1, 1, 2]);
    assert_eq!(fixture.questions(), 1);
}

#[tokio::test]
async fn without_a_leader_the_master_is_polled() {
    let fixture = Fixture::start().await;
    for server in &fixture.servers {
        server.set_script(|_| not_the_leader());
    }
    *fixture.place.lock() = Place::NoLeader;
    fixture.servers[1].set_script(in_turn(vec![not_the_leader, not_the_leader, || written(1)]));
    let reply = fixture.write().await.unwrap();
    assert_eq!(reply.server, fixture.servers[1].address);
    assert!(fixture.questions() >= 3, "{}", fixture.questions());
}

#[tokio::test]
async fn a_lost_connection_retries_on_another_replica() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(|_| ScriptedAnswer::Close);
    let reply = fixture.write().await.unwrap();
    assert_eq!(reply.server, fixture.servers[1].address);
    assert_eq!((fixture.ids(0), fixture.ids(1)), (vec![(0, 0)], vec![(0, 1)]));
    let clients = [0, 1].map(|server| {
        fixture.servers[server].calls("Write")[0].request_id.clone().unwrap().client_id
    });
    assert_eq!(clients[0], clients[1]);
}

// Compat (Apache Kudu): reads for the leader when it is away
/// Regression: a read for the leader went to a follower when the leader was gone, and a stale
/// version counted as the newest.
#[tokio::test]
async fn a_leader_read_waits_for_a_leader() {
    let fixture = Fixture::start().await;
    let answer = |_: &Call| message(&ScanResponsePb::default());
    fixture.servers[0].set_script(|_| ScriptedAnswer::Close);
    fixture.servers[1].set_script(answer);
    fixture.servers[2].set_script(answer);
    *fixture.place.lock() = Place::Leader(2);
    let reply = fixture.read().await.unwrap();
    assert_eq!(reply.server, fixture.servers[2].address);
    assert_eq!((fixture.reads(), fixture.questions()), ([1, 0, 1], 2));

    // Reads do not go to a replica that a Write only tries, but they do once it has executed one.
    fixture.servers[2].set_script(|_| ScriptedAnswer::Close);
    *fixture.place.lock() = Place::NoLeader;
    let executes = |call: &Call| match call.method.as_str() {
        "Write" => written(7),
        _ => message(&ScanResponsePb::default()),
    };
    fixture.servers[0].set_script(|_| not_the_leader());
    fixture.servers[1].set_script(executes);
    fixture.write().await.unwrap();
    assert_eq!(fixture.read().await.unwrap().server, fixture.servers[1].address);
    assert_eq!(fixture.reads(), [1, 1, 1]);
}

#[tokio::test]
async fn tablets_are_located_again_when_somebody_says_so() {
    let fixture = Fixture::start().await;
    fixture.write().await.unwrap();
    *fixture.place.lock() = Place::Leader(1);
    fixture.write().await.unwrap();
    assert_eq!((fixture.writes(), fixture.questions()), ([2, 0, 0], 1));
    fixture.table.locate_again();
    fixture.write().await.unwrap();
    assert_eq!((fixture.writes(), fixture.questions()), ([2, 1, 0], 2));
}

#[tokio::test]
async fn a_missing_tablet_is_asked_for_at_the_master() {
    let fixture = Fixture::start().await;
    fixture.servers[0]
        .set_script(|_| refused(TabletServerErrorCode::TabletNotFound, StatusCode::NotFound));
    *fixture.place.lock() = Place::Leader(2);
    let reply = fixture.write().await.unwrap();
    assert_eq!(reply.server, fixture.servers[2].address);
    assert_eq!((fixture.writes(), fixture.questions()), ([1, 0, 1], 2));
}

// Compat (Apache Kudu): rows whose tablet disappears in flight
#[tokio::test]
async fn a_tablet_that_was_replaced_is_gone() {
    let fixture = Fixture::start().await;
    fixture.servers[0]
        .set_script(|_| refused(TabletServerErrorCode::TabletNotFound, StatusCode::NotFound));
    *fixture.place.lock() = Place::Gone;
    let error = fixture.write().await.unwrap_err();
    assert!(
        matches!(&error, Error::TabletGone { table, tablet_id } if table == "t" && tablet_id == "tablet"),
        "{error}"
    );
    assert_eq!(fixture.table.snapshot(deadline(5000)).await.unwrap()[0].id(), "another");
}

#[tokio::test]
async fn a_refused_authorization_token_is_renewed_once() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(in_turn(vec![
        || ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorInvalidAuthorizationToken),
        || written(1),
    ]));
    fixture.write().await.unwrap();
    let tokens: Vec<_> = fixture.servers[0]
        .calls("Write")
        .iter()
        .map(|call| {
            WriteRequestPb::decode(call.body.clone())
                .unwrap()
                .authz_token
                .unwrap()
                .token_data
                .unwrap()
        })
        .collect();
    assert_eq!(tokens, ["0", "1"]);
    assert_eq!(fixture.master.calls("GetTableSchema").len(), 2);
}

#[tokio::test]
async fn a_rejected_token_reconnects_to_the_master() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(in_turn(vec![
        || ScriptedAnswer::Refuse(RpcErrorCodePb::FatalInvalidAuthenticationToken),
        || written(1),
    ]));
    fixture.write().await.unwrap();
    assert_eq!(fixture.master.calls("ConnectToMaster").len(), 2);
}

#[tokio::test]
async fn request_errors_are_reported_at_once() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(|_| {
        refused(TabletServerErrorCode::MismatchedSchema, StatusCode::InvalidArgument)
    });
    let error = fixture.write().await.unwrap_err();
    let Error::TabletServer { code, status, server, message, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (*code, *status),
        (TabletServerErrorCode::MismatchedSchema, StatusCode::InvalidArgument)
    );
    assert_eq!((server, &**message), (&fixture.servers[0].address, "scripted"));
    assert!(!error.is_retryable());
    assert_eq!(fixture.writes(), [1, 0, 0]);
    fixture.servers[0].set_script(|_| ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorInvalidRequest));
    assert!(matches!(fixture.write().await, Err(Error::Rpc { .. })));
}

#[tokio::test]
async fn the_deadline_error_names_the_last_failure() {
    let fixture = Fixture::start().await;
    fixture.servers[0].set_script(|_| ScriptedAnswer::Refuse(RpcErrorCodePb::ErrorServerTooBusy));
    let error = fixture.write_until(deadline(60)).await.unwrap_err();
    let Error::Timeout { operation: Operation::Write, last: Some(last), .. } = &error else {
        panic!("{error}")
    };
    assert!(matches!(**last, Error::Rpc { .. }), "{last}");
    fixture.servers[0].set_script(|_| ScriptedAnswer::Silence);
    let error = fixture.write_until(deadline(60)).await.unwrap_err();
    let Error::Timeout { last: Some(last), .. } = &error else { panic!("{error}") };
    assert!(matches!(**last, Error::NoAnswer { .. }), "{last}");
}
