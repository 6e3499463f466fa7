//! The messenger against real servers. Skipped where Kudu is not installed; see the testkit.

use std::time::Duration;

use oribi_testkit::{KuduCluster, KuduOptions, KuduServer, SharedKuduCluster};
use tokio::time::Instant;

use super::*;
use crate::error::{StatusCode, TabletServerErrorCode};
use crate::proto::common::RowOperationsPb;
use crate::proto::master::{self, ConnectToMasterRequestPb, ConnectToMasterResponsePb};
use crate::proto::rpc::RpcErrorCodePb;
use crate::proto::tserver::{
    self, PingRequestPb, PingResponsePb, ScanRequestPb, ScanResponsePb, WriteRequestPb,
    WriteResponsePb,
};
use crate::rpc::{EncryptionPolicy, NegotiationError};

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

const CONNECT: Method = Method { service: master::SERVICE_NAME, name: "ConnectToMaster" };
const PING: Method = Method { service: tserver::SERVICE_NAME, name: "Ping" };
const WRITE: Method = Method { service: tserver::SERVICE_NAME, name: "Write" };
const SCAN: Method = Method { service: tserver::SERVICE_NAME, name: "Scan" };

fn soon() -> CallOptions {
    CallOptions::new(Instant::now() + Duration::from_secs(20))
}

fn messenger(encryption: EncryptionPolicy) -> Messenger {
    Messenger::new(MessengerOptions { encryption, ..MessengerOptions::new("oribi") })
}

fn master_of(cluster: &KuduCluster) -> HostPort {
    cluster.address(KuduServer::Master(0)).parse().expect("an address")
}

fn tablet_server_of(cluster: &KuduCluster) -> HostPort {
    cluster.address(KuduServer::TabletServer(0)).parse().expect("an address")
}

async fn ping(messenger: &Messenger, server: &HostPort) -> Result<(), RpcError> {
    messenger.call::<_, PingResponsePb>(server, &PING, &PingRequestPb {}, &soon()).await.map(|_| ())
}

/// Asks the master for credentials, which it also gives over a plain connection on the loopback
/// interface.
async fn connect(messenger: &Messenger, master: &HostPort) -> ConnectToMasterResponsePb {
    let request = ConnectToMasterRequestPb {};
    let reply = messenger.call(master, &CONNECT, &request, &soon()).await.expect("a reply");
    reply.message
}

/// A Write for a tablet that does not exist, whose rows are `bytes` long.
async fn write(messenger: &Messenger, server: &HostPort, bytes: usize) -> Result<i32, RpcError> {
    let head = WriteRequestPb { tablet_id: vec![b'0'; 32].into(), ..WriteRequestPb::default() };
    let rows = Bytes::from(vec![0; bytes]);
    let operations = RowOperationsPb { rows: Some(rows.clone()), indirect_data: None };
    // The pieces of the message are everything up to the rows, and the rows.
    let mut prefix = head.encode_to_vec();
    prefix.push(3 << 3 | 2);
    prost::encoding::encode_varint(operations.encoded_len() as u64, &mut prefix);
    prefix.push(2 << 3 | 2);
    prost::encoding::encode_varint(bytes as u64, &mut prefix);
    let reply: RpcReply<WriteResponsePb> =
        messenger.call_pieces(server, &WRITE, vec![prefix.into(), rows], &soon()).await?;
    Ok(reply.message.error.map_or(0, |error| error.code))
}

#[tokio::test]
async fn calls_are_answered_over_one_plain_connection() {
    let Some(cluster) = CLUSTER.get() else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let master = connect(&messenger, &master_of(cluster)).await;
    assert_eq!(master.role, Some(crate::proto::master::RaftRolePb::Leader as i32));
    assert!(master.authn_token.is_some() && !master.ca_cert_der.is_empty());
    let server = tablet_server_of(cluster);
    let pings = (0..500).map(|_| ping(&messenger, &server));
    for result in futures_util::future::join_all(pings).await {
        result.expect("a reply");
    }
}

#[tokio::test]
async fn rpc_errors_keep_their_code_and_the_connection() {
    let Some(cluster) = CLUSTER.get() else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let server = tablet_server_of(cluster);
    let no_method = Method { service: tserver::SERVICE_NAME, name: "Pong" };
    let error = messenger
        .call::<_, PingResponsePb>(&server, &no_method, &PingRequestPb {}, &soon())
        .await
        .expect_err("there is no such method");
    assert!(
        matches!(error, RpcError::Remote { code: RpcErrorCodePb::ErrorNoSuchMethod, .. }),
        "{error}"
    );
    let options = CallOptions { required_feature_flags: &[1, 4242], ..soon() };
    let error = messenger
        .call::<_, PingResponsePb>(&server, &PING, &PingRequestPb {}, &options)
        .await
        .expect_err("there is no such feature");
    match error {
        RpcError::Remote { code, unsupported_flags, .. } => {
            assert_eq!(code, RpcErrorCodePb::ErrorInvalidRequest);
            assert_eq!(unsupported_flags, [4242]);
        }
        other => panic!("{other}"),
    }
    ping(&messenger, &server).await.expect("the connection is still good");
}

#[tokio::test]
async fn large_frames_pass_oversized_ones_are_not_sent() {
    let Some(cluster) = CLUSTER.get() else { return };
    let server = tablet_server_of(cluster);
    for encryption in [EncryptionPolicy::Optional, EncryptionPolicy::Required] {
        let messenger = messenger(encryption);
        for bytes in [0, 1, 70_000, 49 * 1024 * 1024] {
            let code = write(&messenger, &server, bytes).await.expect("a reply");
            assert_eq!(code, TabletServerErrorCode::TabletNotFound as i32, "{bytes} bytes");
        }
        let error = write(&messenger, &server, 51 * 1024 * 1024).await.expect_err("too large");
        assert!(matches!(error, RpcError::TooLarge { .. }), "{error}");
        assert!(error.is_unsent());
        ping(&messenger, &server).await.expect("the connection is still good");
    }
}

#[tokio::test]
async fn a_token_authenticates_inside_tls() {
    let Some(cluster) = CLUSTER.get() else { return };
    let plain = messenger(EncryptionPolicy::Optional);
    let answer = connect(&plain, &master_of(cluster)).await;
    let messenger = messenger(EncryptionPolicy::Required);
    messenger.set_credentials(answer.ca_cert_der.clone(), answer.authn_token.clone());
    let reply = connect(&messenger, &master_of(cluster)).await;
    assert!(reply.authn_token.is_none(), "a master gives no token to a client that came with one");
    let options = CallOptions { primary_credentials: true, ..soon() };
    let request = ConnectToMasterRequestPb {};
    let reply: RpcReply<ConnectToMasterResponsePb> =
        messenger.call(&master_of(cluster), &CONNECT, &request, &options).await.expect("a reply");
    assert!(reply.message.authn_token.is_some(), "a client that came with its name gets a token");
    ping(&messenger, &tablet_server_of(cluster)).await.expect("a reply");
}

#[tokio::test]
async fn a_forged_token_is_refused_with_its_code() {
    let Some(cluster) = CLUSTER.get() else { return };
    let answer = connect(&messenger(EncryptionPolicy::Optional), &master_of(cluster)).await;
    let mut token = answer.authn_token.expect("a token");
    token.signature = Some(Bytes::from(vec![0; 256]));
    // A tablet server without a signing key from a master yet accepts the name instead of the
    // token.
    let deadline = tokio::time::Instant::now() + oribi_testkit::PATIENCE;
    let error = loop {
        let messenger = messenger(EncryptionPolicy::Required);
        messenger.set_credentials(answer.ca_cert_der.clone(), Some(token.clone()));
        match ping(&messenger, &tablet_server_of(cluster)).await {
            Err(error) => break error,
            Ok(()) => assert!(tokio::time::Instant::now() < deadline, "a forged token is taken"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let code = RpcErrorCodePb::FatalInvalidAuthenticationToken;
    assert!(
        matches!(&error, RpcError::Negotiation { source: NegotiationError::Refused { code: is, .. }, .. } if *is == code),
        "{error}"
    );
}

#[tokio::test]
async fn a_token_is_not_sent_to_a_server_of_another_cluster() {
    let Some(cluster) = CLUSTER.get() else { return };
    let Some(other) = KuduCluster::start_or_skip(KuduOptions::new(1, 0)) else { return };
    let here = connect(&messenger(EncryptionPolicy::Optional), &master_of(cluster)).await;
    let there = connect(&messenger(EncryptionPolicy::Optional), &master_of(&other)).await;
    // A tablet server without a certificate from a master yet takes the name instead.
    let deadline = tokio::time::Instant::now() + oribi_testkit::PATIENCE;
    let error = loop {
        let messenger = messenger(EncryptionPolicy::Required);
        messenger.set_credentials(there.ca_cert_der.clone(), here.authn_token.clone());
        match ping(&messenger, &tablet_server_of(cluster)).await {
            Err(error) => break error,
            Ok(()) => assert!(tokio::time::Instant::now() < deadline, "the token is sent"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(
        matches!(&error, RpcError::Negotiation { source: NegotiationError::Tls(_), .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_cluster_that_requires_encryption_gets_it_unasked() {
    let options = KuduOptions::new(1, 1).flag("--rpc_encryption=required");
    let Some(cluster) = KuduCluster::start_or_skip(options) else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let answer = connect(&messenger, &master_of(&cluster)).await;
    ping(&messenger, &tablet_server_of(&cluster)).await.expect("a reply over SASL");
    messenger.set_credentials(answer.ca_cert_der, answer.authn_token);
    let again = Messenger::new(MessengerOptions::new("oribi"));
    let known = messenger.shared.credentials();
    let (tls_configs, authn_token) = (known.tls_configs.clone(), known.authn_token.clone());
    again.shared.set_credentials(RpcCredentials { tls_configs, authn_token });
    ping(&again, &tablet_server_of(&cluster)).await.expect("a reply over a token");
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_the_connection_stays() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let server = tablet_server_of(&cluster);
    ping(&messenger, &server).await.expect("a reply");
    cluster.pause(KuduServer::TabletServer(0)).expect("paused");
    // A process stops only some time after the request to stop.
    let give_up = Instant::now() + oribi_testkit::PATIENCE;
    let error = loop {
        assert!(Instant::now() < give_up, "the server answers although it is paused");
        let options = CallOptions::new(Instant::now() + Duration::from_millis(50));
        let request = PingRequestPb {};
        match messenger.call::<_, PingResponsePb>(&server, &PING, &request, &options).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RpcError::Timeout { method: "Ping", .. }), "{error}");
    cluster.resume(KuduServer::TabletServer(0)).expect("resumed");
    ping(&messenger, &server).await.expect("the late reply is told from this one");
}

#[tokio::test]
async fn a_killed_server_is_reached_again_when_it_is_back() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let server = tablet_server_of(&cluster);
    ping(&messenger, &server).await.expect("a reply");
    cluster.kill(KuduServer::TabletServer(0)).expect("killed");
    // The first call may still go to the connection of the dead process.
    let first = ping(&messenger, &server).await.expect_err("the server is gone");
    assert!(matches!(first, RpcError::Network { .. }), "{first}");
    let second = ping(&messenger, &server).await.expect_err("nobody listens");
    assert!(matches!(&second, RpcError::Network { .. }) && second.is_unsent(), "{second}");
    cluster.restart(KuduServer::TabletServer(0)).expect("restarted");
    ping(&messenger, &server).await.expect("a new connection");
}

#[tokio::test]
async fn a_scan_of_no_tablet_is_an_error_in_the_reply() {
    let Some(cluster) = CLUSTER.get() else { return };
    let messenger = messenger(EncryptionPolicy::Optional);
    let request = ScanRequestPb {
        scanner_id: Some(Bytes::from_static(b"no such scanner")),
        call_seq_id: Some(1),
        ..ScanRequestPb::default()
    };
    let server = tablet_server_of(cluster);
    let reply: RpcReply<ScanResponsePb> =
        messenger.call(&server, &SCAN, &request, &soon()).await.expect("a reply");
    let error = reply.message.error.expect("an error");
    assert_eq!(error.code, TabletServerErrorCode::ScannerExpired as i32);
    assert_eq!(error.status.code, StatusCode::NotFound as i32);
}
