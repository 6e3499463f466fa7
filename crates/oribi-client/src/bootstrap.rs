//! The handshake: features, authentication, bucket, cluster map.
//!
//! Each step waits for the one before, which costs a handful of round trips once per connection and
//! keeps every failure attributable to its step.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use crate::config::ClusterConfig;
use crate::connection::{Connection, Response};
use crate::error::{ClientError, Refused};
use crate::sasl::{self, Mechanism, Scram};

/// Bytes of randomness in a SCRAM nonce.
const NONCE_BYTES: usize = 24;

/// Where to connect, as whom, and to which bucket.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Host name or address.
    pub host: String,
    /// Port of the key-value protocol without TLS.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// How to authenticate.
    pub mechanism: Mechanism,
    /// Bucket to select.
    pub bucket: String,
    /// Limit for connecting and for each step of the handshake.
    pub connect_timeout: Duration,
    /// Limit for one operation, retries included.
    pub operation_timeout: Duration,
    /// Allow the server to carry out requests in another order than they were sent. Durable writes
    /// then do not hold up what follows them.
    pub unordered_execution: bool,
}

impl ConnectOptions {
    /// Options for a server on this machine's default port, with usual timeouts.
    pub fn new(user: &str, password: &str, bucket: &str) -> ConnectOptions {
        ConnectOptions {
            host: "127.0.0.1".to_owned(),
            port: 11210,
            user: user.to_owned(),
            password: password.to_owned(),
            mechanism: Mechanism::default(),
            bucket: bucket.to_owned(),
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(10),
            unordered_execution: true,
        }
    }
}

/// Features that the server granted.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated(Vec<Feature>);

impl Negotiated {
    /// True when the server granted `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.0.contains(&feature)
    }
}

/// Runs the whole handshake on a fresh connection.
pub(crate) async fn bootstrap(
    connection: &Connection,
    options: &ConnectOptions,
) -> Result<(Negotiated, ClusterConfig), ClientError> {
    let step = Step { connection, timeout: options.connect_timeout };
    let negotiated = step.hello(options.unordered_execution).await?;
    step.authenticate(options).await?;
    step.select_bucket(&options.bucket).await?;
    let config = fetch_config(connection, &options.host, options.connect_timeout).await?;
    Ok((negotiated, config))
}

/// Fetches the cluster map of the selected bucket.
pub(crate) async fn fetch_config(
    connection: &Connection,
    host: &str,
    timeout: Duration,
) -> Result<ClusterConfig, ClientError> {
    let parts = RequestParts::new(Opcode::GetClusterConfig);
    let response = connection.call(&parts, &Bytes::new(), timeout).await?;
    response.outcome()?;
    ClusterConfig::parse(&response.value(), host)
}

/// A connection during the handshake.
struct Step<'a> {
    connection: &'a Connection,
    timeout: Duration,
}

impl Step<'_> {
    async fn call(&self, opcode: Opcode, key: &str, value: Bytes) -> Result<Response, ClientError> {
        let parts = RequestParts { key: key.as_bytes(), ..RequestParts::new(opcode) };
        self.connection.call(&parts, &value, self.timeout).await
    }

    async fn hello(&self, unordered_execution: bool) -> Result<Negotiated, ClientError> {
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
        ];
        if unordered_execution {
            wanted.push(Feature::UnorderedExecution);
        }
        let codes: Vec<u8> =
            wanted.iter().flat_map(|feature| feature.code().to_be_bytes()).collect();
        let agent = concat!("oribi-client/", env!("CARGO_PKG_VERSION"));
        let response = self.call(Opcode::Hello, agent, codes.into()).await?;
        response.outcome()?;
        let granted = response.value();
        let (codes, rest) = granted.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(ClientError::protocol("odd length of the feature list"));
        }
        let features = codes.iter().filter_map(|code| Feature::from_u16(u16::from_be_bytes(*code)));
        Ok(Negotiated(features.collect()))
    }

    async fn authenticate(&self, options: &ConnectOptions) -> Result<(), ClientError> {
        let mechanism = options.mechanism;
        if mechanism == Mechanism::Plain {
            let message = sasl::plain(&options.user, &options.password);
            let response = self.call(Opcode::SaslAuth, mechanism.name(), message.into()).await?;
            return expect_status(&response, Status::Success);
        }
        let mut random = [0; NONCE_BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            ClientError::io("reading randomness", io::Error::other(error.to_string()))
        })?;
        let (scram, message) = Scram::start(mechanism, &options.user, &options.password, &random);
        let response = self.call(Opcode::SaslAuth, mechanism.name(), message.into()).await?;
        expect_status(&response, Status::AuthContinue)?;
        let challenge = response.value();
        let proof = tokio::task::spawn_blocking(move || scram.answer(&challenge))
            .await
            .map_err(|_| ClientError::protocol("the key derivation was cancelled"))??;
        let message = Bytes::from(proof.message.clone());
        let response = self.call(Opcode::SaslStep, mechanism.name(), message).await?;
        expect_status(&response, Status::Success)?;
        proof.verify(&response.value())
    }

    async fn select_bucket(&self, bucket: &str) -> Result<(), ClientError> {
        let response = self.call(Opcode::SelectBucket, bucket, Bytes::new()).await?;
        Ok(response.outcome()?)
    }
}

fn expect_status(response: &Response, expected: Status) -> Result<(), ClientError> {
    let code = response.header.vbucket_or_status;
    if code == expected.code() {
        return Ok(());
    }
    Err(match Status::from_u16(code) {
        Some(Status::AuthError) => ClientError::Authentication("wrong name or password".into()),
        Some(Status::Success | Status::AuthContinue) => {
            ClientError::protocol("authentication ended at the wrong step")
        }
        _ => match Refused::from_status(code) {
            Err(refused) => refused.into(),
            Ok(()) => ClientError::protocol("authentication ended at the wrong step"),
        },
    })
}
