//! The handshake: features, authentication, bucket, cluster map.
//!
//! Each step waits for the one before, which costs a handful of round trips once per connection and
//! keeps every failure attributable to its step.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use crate::connection::Connection;
use crate::error::{ClientError, Refused};
use crate::response::Response;
use crate::sasl::{self, Mechanism, Scram};
use crate::tls::Tls;

/// Bytes of randomness in a SCRAM nonce.
const NONCE_BYTES: usize = 24;

// A feature's code is the number of its bit.
const _: () = {
    let mut rest = Feature::all();
    while let [feature, more @ ..] = rest {
        assert!(feature.code() < u64::BITS as u16);
        rest = more;
    }
};

/// Where to connect, as whom, and to which bucket.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Host name or address.
    pub host: String,
    /// Port of the key-value protocol.
    pub port: u16,
    /// TLS, unless the bytes go over the network as they are.
    pub tls: Option<Tls>,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// How to authenticate.
    pub mechanism: Mechanism,
    /// Further nodes to ask for the cluster map when that one does not answer, as host and port.
    pub seeds: Vec<(String, u16)>,
    /// Connections that [`crate::Client`] keeps to each node, at least 1. Operations on one key always
    /// take the same one.
    pub connections_per_node: usize,
    /// Bucket to select; without one only operations on the server itself are possible.
    pub bucket: Option<String>,
    /// Limit for connecting and for each step of the handshake.
    pub connect_timeout: Duration,
    /// Limit for one operation, retries included.
    pub operation_timeout: Duration,
    /// Allow the server to carry out requests in another order than they were sent. Durable writes
    /// then do not hold up what follows them.
    pub unordered_execution: bool,
    /// Ask for values that are compressed with Snappy. [`crate::Client`] and pipelines decompress them;
    /// the caller of a [`Connection`] has to look at the datatype itself.
    pub snappy: bool,
    /// When the server granted Snappy: compress values that are written by [`crate::Client`] and
    /// pipelines where that pays.
    pub compress_writes: bool,
    /// Ask the server to announce new cluster maps. [`crate::Client`] does so by itself; a
    /// [`Connection`] skips the announcements.
    pub map_announcements: bool,
    /// What this client calls itself; servers show it next to the connection.
    pub agent: String,
}

impl ConnectOptions {
    /// Options for a server on this machine's default port, with usual timeouts.
    pub fn new(user: &str, password: &str, bucket: &str) -> ConnectOptions {
        ConnectOptions {
            host: "127.0.0.1".to_owned(),
            port: 11210,
            tls: None,
            seeds: Vec::new(),
            connections_per_node: 1,
            user: user.to_owned(),
            password: password.to_owned(),
            mechanism: Mechanism::default(),
            bucket: Some(bucket.to_owned()),
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(10),
            unordered_execution: true,
            snappy: false,
            compress_writes: true,
            map_announcements: false,
            agent: concat!("oribi-client/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Without the password: what is printed ends up in logs.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

/// Features that the server granted: one bit for each code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated(u64);

impl Negotiated {
    fn grant(&mut self, feature: Feature) {
        self.0 |= 1 << feature.code();
    }

    /// True when the server granted `feature`.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature.code() != 0
    }
}

/// Runs the whole handshake on a fresh connection.
pub(crate) async fn handshake(
    connection: &mut Connection,
    options: &ConnectOptions,
) -> Result<(), ClientError> {
    let mut handshake = Handshake { connection };
    let negotiated = handshake.hello(options).await?;
    handshake.connection.set_negotiated(negotiated);
    handshake.authenticate(options).await?;
    match &options.bucket {
        Some(bucket) => handshake.select_bucket(bucket).await,
        None => Ok(()),
    }
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
        self.connection.violated(opcode.name(), reason)
    }

    async fn hello(&mut self, options: &ConnectOptions) -> Result<Negotiated, ClientError> {
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
        let features = codes.iter().filter_map(|code| Feature::from_u16(u16::from_be_bytes(*code)));
        let mut negotiated = Negotiated::default();
        features.for_each(|feature| negotiated.grant(feature));
        Ok(negotiated)
    }

    async fn authenticate(&mut self, options: &ConnectOptions) -> Result<(), ClientError> {
        if options.tls.as_ref().is_some_and(Tls::has_identity) {
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
        let (scram, message) = Scram::start(mechanism, &options.user, &options.password, &random);
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
        match Refused::from_status(code) {
            Err(refused) if code != Status::AuthContinue.code() => Err(refused.into()),
            _ => Err(self.malformed(Opcode::SaslAuth, "authentication ended at the wrong step")),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What options show of themselves.

    use super::*;

    #[test]
    fn the_password_is_not_printed() {
        let options = ConnectOptions::new("reader", "correct horse", "default");
        let printed = format!("{options:?}");
        assert!(printed.contains("reader") && !printed.contains("horse"), "{printed}");
    }
}
