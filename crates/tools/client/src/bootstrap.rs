//! How a connection comes to be: TCP, TLS, features, authentication, bucket.
//!
//! Each step waits for the one before, which costs a handful of round trips once per connection and
//! keeps every failure attributable to its step.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::{ClientError, RejectionKind};
use crate::features::FeatureSet;
use crate::options::ConnectOptions;
use crate::response::Response;
use crate::sasl::{self, Mechanism, Scram};
use crate::socket::Socket;
use crate::tls::ClientTls;

/// Bytes of randomness in a SCRAM nonce.
const NONCE_BYTES: usize = 24;

impl Connection {
    /// Connects, agrees on features, authenticates and selects the bucket, if one is named.
    /// Operations then have the options' `operation_timeout`.
    pub async fn open(options: &ConnectOptions) -> Result<Connection, ClientError> {
        let mut connection = Connection::connect(options).await?;
        connection.handshake(options).await?;
        Ok(connection)
    }

    /// Connects, and agrees on TLS if that is wanted, without saying anything else.
    pub async fn connect(options: &ConnectOptions) -> Result<Connection, ClientError> {
        let ConnectOptions { host, port, connect_timeout: timeout, .. } = options;
        let peer = peer_of(host, *port);
        let deadline = Instant::now() + *timeout;
        let stream = connect_tcp(host, *port, &peer, *timeout).await?;
        let socket = match &options.tls {
            None => Socket::Plain(stream),
            Some(tls) => secure(stream, tls, host, &peer, deadline).await?,
        };
        Ok(Connection::new(socket, peer, *timeout))
    }

    /// Connects to `host:port` without saying anything, as clients of memcached do. `timeout`
    /// limits connecting, and each operation afterwards.
    pub async fn open_plain(
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<Connection, ClientError> {
        let peer = peer_of(host, port);
        let stream = connect_tcp(host, port, &peer, timeout).await?;
        Ok(Connection::new(Socket::Plain(stream), peer, timeout))
    }

    /// Does on a connection made by [`Connection::connect`] what [`Connection::open`] does once it
    /// has connected. Apart, the two steps can be timed.
    pub async fn handshake(&mut self, options: &ConnectOptions) -> Result<(), ClientError> {
        let mut handshake = Handshake { connection: self };
        let features = handshake.hello(options).await?;
        handshake.connection.set_features(features);
        handshake.authenticate(options).await?;
        if let Some(bucket) = &options.bucket {
            handshake.select_bucket(bucket).await?;
        }
        self.set_timeout(options.operation_timeout);
        Ok(())
    }
}

fn peer_of(host: &str, port: u16) -> Arc<str> {
    match host.contains(':') {
        true => format!("[{host}]:{port}").into(),
        false => format!("{host}:{port}").into(),
    }
}

async fn connect_tcp(
    host: &str,
    port: u16,
    peer: &Arc<str>,
    timeout: Duration,
) -> Result<TcpStream, ClientError> {
    let failed = |error| ClientError::Connect { peer: peer.clone(), error: Arc::new(error) };
    let late = || io::Error::new(ErrorKind::TimedOut, format!("no answer within {timeout:?}"));
    let connected = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
    let stream = connected.map_err(|_| failed(late()))?.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

async fn secure(
    stream: TcpStream,
    tls: &ClientTls,
    host: &str,
    peer: &Arc<str>,
    deadline: Instant,
) -> Result<Socket, ClientError> {
    let late = || io::Error::new(ErrorKind::TimedOut, "the TLS handshake was not finished");
    let secured = tokio::time::timeout_at(deadline, Socket::secure(stream, tls, host)).await;
    secured
        .unwrap_or_else(|_| Err(late()))
        .map_err(|error| ClientError::Connect { peer: peer.clone(), error: Arc::new(error) })
}

/// A connection during the handshake.
struct Handshake<'a> {
    connection: &'a mut Connection,
}

impl Handshake<'_> {
    async fn call(
        &mut self,
        opcode: Opcode,
        key: &str,
        value: Bytes,
    ) -> Result<Response, ClientError> {
        let parts = RequestParts { key: key.as_bytes(), ..RequestParts::new(opcode) };
        self.connection.call(&parts, &value).await
    }

    /// The error of an answer that does not say what it should.
    fn malformed(&mut self, opcode: Opcode, reason: &'static str) -> ClientError {
        self.connection.protocol_error(opcode.name(), reason)
    }

    async fn hello(&mut self, options: &ConnectOptions) -> Result<FeatureSet, ClientError> {
        let mut wanted = vec![
            Feature::TcpNoDelay,
            Feature::MutationSeqno,
            Feature::XError,
            Feature::SelectBucket,
            Feature::Json,
            Feature::AltRequest,
            Feature::SyncReplication,
            Feature::Collections,
            Feature::PreserveTtl,
            Feature::Xattr,
            Feature::SubdocCreateAsDeleted,
            Feature::SubdocAllowsAccessOnMultipleXattrKeys,
            Feature::SubdocBinaryXattr,
            Feature::GetClusterConfigWithKnownVersion,
            Feature::DedupeNotMyVbucketClustermap,
        ];
        if options.unordered_execution {
            wanted.push(Feature::UnorderedExecution);
        }
        if options.snappy {
            wanted.push(Feature::Snappy);
        }
        if options.map_announcements {
            wanted.extend([Feature::Duplex, Feature::ClustermapChangeNotificationBrief]);
        }
        let codes: Vec<u8> =
            wanted.iter().flat_map(|feature| feature.code().to_be_bytes()).collect();
        let response = self.call(Opcode::Hello, &options.agent, codes.into()).await?;
        response.outcome()?;
        let granted = response.value();
        let (codes, rest) = granted.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.malformed(Opcode::Hello, "odd length of the feature list"));
        }
        let known = codes.iter().filter_map(|code| Feature::from_u16(u16::from_be_bytes(*code)));
        let mut features = FeatureSet::default();
        known.for_each(|feature| features.grant(feature));
        Ok(features)
    }

    async fn authenticate(&mut self, options: &ConnectOptions) -> Result<(), ClientError> {
        if options.tls.as_ref().is_some_and(ClientTls::has_identity) {
            return Ok(());
        }
        let mechanism = options.mechanism;
        if mechanism == Mechanism::Plain {
            let message = sasl::plain(&options.user, &options.password);
            let response = self.call(Opcode::SaslAuth, mechanism.name(), message.into()).await?;
            return self.expect_status(&response, Status::Success);
        }
        let mut random = [0; NONCE_BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            ClientError::Authentication(format!("no randomness for a nonce: {error}").into())
        })?;
        let (user, password) = (&options.user, &options.password);
        let known = &options.salted_passwords;
        let (scram, message) = Scram::start(mechanism, user, password, known, &random);
        let response = self.call(Opcode::SaslAuth, mechanism.name(), message.into()).await?;
        self.expect_status(&response, Status::AuthContinue)?;
        let challenge = response.value();
        let proof = tokio::task::spawn_blocking(move || scram.answer(&challenge)).await.map_err(
            |_| ClientError::Authentication("the key derivation was cancelled".into()),
        )??;
        let message = Bytes::from(proof.message.clone());
        let response = self.call(Opcode::SaslStep, mechanism.name(), message).await?;
        self.expect_status(&response, Status::Success)?;
        proof.verify(&response.value())
    }

    async fn select_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        let response = self.call(Opcode::SelectBucket, bucket, Bytes::new()).await?;
        Ok(response.outcome()?)
    }

    fn expect_status(&mut self, response: &Response, expected: Status) -> Result<(), ClientError> {
        let code = response.header.vbucket_or_status;
        if code == expected.code() {
            return Ok(());
        }
        if code == Status::AuthError.code() {
            return Err(ClientError::Authentication("wrong name or password".into()));
        }
        match RejectionKind::from_status(code) {
            Err(refused) if code != Status::AuthContinue.code() => Err(refused.into()),
            _ => Err(self.malformed(Opcode::SaslAuth, "authentication ended at the wrong step")),
        }
    }
}
