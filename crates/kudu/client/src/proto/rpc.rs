//! Messages of the RPC layer itself: the headers of calls and replies, negotiation, and the signed
//! tokens that authenticate a connection or authorise a request.
//!
//! The codec, the negotiation and the messenger call it. The client reads only the expiry of a
//! token.

use bytes::Bytes;

/// The header of every frame from the client to the server.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestHeaderPb {
    #[prost(int32, required, tag = "3")]
    pub call_id: i32,
    #[prost(message, optional, tag = "6")]
    pub remote_method: Option<RemoteMethodPb>,
    /// How long the caller waits, in milliseconds. A full service queue evicts calls without it
    /// first.
    #[prost(uint32, optional, tag = "10")]
    pub timeout_millis: Option<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    pub required_feature_flags: Vec<u32>,
    #[prost(message, optional, tag = "15")]
    pub request_id: Option<RequestIdPb>,
    #[prost(uint32, repeated, packed = "false", tag = "16")]
    pub sidecar_offsets: Vec<u32>,
}

/// The service and the method of a call.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RemoteMethodPb {
    #[prost(string, required, tag = "1")]
    pub service_name: String,
    #[prost(string, required, tag = "2")]
    pub method_name: String,
}

/// Identifies one logical request over all its attempts, so that the server runs it once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RequestIdPb {
    #[prost(string, required, tag = "1")]
    pub client_id: String,
    #[prost(int64, required, tag = "2")]
    pub seq_no: i64,
    /// Every smaller sequence number has been answered: the server may forget its replies.
    #[prost(int64, required, tag = "3")]
    pub first_incomplete_seq_no: i64,
    #[prost(int64, required, tag = "4")]
    pub attempt_no: i64,
}

/// The header of every frame from the server to the client.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseHeaderPb {
    /// Required by the protocol; read as optional, because a missing one must not count as call 0.
    #[prost(int32, optional, tag = "1")]
    pub call_id: Option<i32>,
    #[prost(bool, optional, tag = "2")]
    pub is_error: Option<bool>,
    /// Offsets of the sidecars from the first byte of the body.
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub sidecar_offsets: Vec<u32>,
}

/// The body of a reply whose header marks an error.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorStatusPb {
    #[prost(string, required, tag = "1")]
    pub message: String,
    /// See [`RpcErrorCodePb`].
    #[prost(enumeration = "RpcErrorCodePb", optional, tag = "2")]
    pub code: Option<i32>,
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub unsupported_feature_flags: Vec<u32>,
}

/// Why the server refused a call. From 10 on, except 17, the connection ends with the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RpcErrorCodePb {
    ErrorApplication = 1,
    ErrorNoSuchMethod = 2,
    ErrorNoSuchService = 3,
    ErrorServerTooBusy = 4,
    ErrorInvalidRequest = 5,
    ErrorRequestStale = 6,
    ErrorUnavailable = 7,
    FatalUnknown = 10,
    FatalServerShuttingDown = 11,
    FatalInvalidRpcHeader = 12,
    FatalDeserializingRequest = 13,
    FatalVersionMismatch = 14,
    FatalUnauthorized = 15,
    FatalInvalidAuthenticationToken = 16,
    ErrorInvalidAuthorizationToken = 17,
    FatalInvalidJwt = 18,
}

/// One message of the negotiation, in either direction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NegotiatePb {
    /// See [`RpcFeatureFlagPb`].
    #[prost(enumeration = "RpcFeatureFlagPb", repeated, packed = "false", tag = "1")]
    pub supported_features: Vec<i32>,
    /// See [`NegotiateStepPb`]. Required by the protocol; read as optional, because a missing one
    /// must not count as success, which is 0.
    #[prost(enumeration = "NegotiateStepPb", optional, tag = "2")]
    pub step: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub token: Option<Bytes>,
    #[prost(message, repeated, tag = "4")]
    pub sasl_mechanisms: Vec<SaslMechanismPb>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub tls_handshake: Option<Bytes>,
    #[prost(message, repeated, tag = "7")]
    pub authn_types: Vec<AuthenticationTypePb>,
    #[prost(message, optional, tag = "8")]
    pub authn_token: Option<SignedTokenPb>,
}

/// The name of a SASL mechanism.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SaslMechanismPb {
    #[prost(string, required, tag = "2")]
    pub mechanism: String,
}

/// A step of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum NegotiateStepPb {
    SaslSuccess = 0,
    Negotiate = 1,
    SaslInitiate = 2,
    SaslChallenge = 3,
    SaslResponse = 4,
    TlsHandshake = 5,
    TokenExchange = 6,
    JwtExchange = 7,
    Unknown = 999,
}

/// The features of a peer's RPC layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RpcFeatureFlagPb {
    Unknown = 0,
    ApplicationFeatureFlags = 1,
    Tls = 2,
    TlsAuthenticationOnly = 3,
}

/// An authentication method: the client offers several, and the server answers with its choice.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AuthenticationTypePb {
    #[prost(oneof = "authentication_type_pb::Type", tags = "1, 2, 3, 4")]
    pub kind: Option<authentication_type_pb::Type>,
}

/// The choices of [`AuthenticationTypePb`]; each is a message without fields.
pub(crate) mod authentication_type_pb {
    /// The authentication method.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub(crate) enum Type {
        #[prost(message, tag = "1")]
        Sasl(super::EmptyPb),
        #[prost(message, tag = "2")]
        Token(super::EmptyPb),
        #[prost(message, tag = "3")]
        Certificate(super::EmptyPb),
        #[prost(message, tag = "4")]
        Jwt(super::EmptyPb),
    }
}

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct EmptyPb {}

/// The first frame after negotiation; Kudu's servers ignore its content.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ConnectionContextPb {}

/// A token with the signature of the master that issued it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SignedTokenPb {
    /// A serialised [`TokenPb`]; sent back byte for byte, because the signature covers the bytes.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub token_data: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub signature: Option<Bytes>,
    #[prost(int64, optional, tag = "3")]
    pub signing_key_seq_num: Option<i64>,
}

/// The readable part of a token: the client needs only its expiry.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct TokenPb {
    /// Seconds since 1970-01-01T00:00:00Z after which servers refuse the token.
    #[prost(int64, optional, tag = "1")]
    pub expire_unix_epoch_seconds: Option<i64>,
}
