//! Why a connection ends. Every end has exactly one reason, and the server logs it once.

use std::fmt;

use oribi_protocol::text::ForeignProtocol;

/// First byte of a TLS client's first record.
const TLS_HANDSHAKE: u8 = 0x16;

/// The reason of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed its side.
    PeerClosed,
    /// The client said QUIT.
    Quit,
    /// The operating system reported an error.
    Io(std::io::ErrorKind),
    ServerStopping,
    /// The first byte of a frame is no magic: the stream is out of step, or another protocol.
    UnknownMagic(u8),
    /// A client sent a frame that only a server may send.
    NotARequest(u8),
    /// A header whose parts exceed its body.
    BodyTooShort,
    /// A frame beyond the protocol's limit.
    FrameTooLarge {
        frame_bytes: usize,
    },
    /// A frame too large for a client that has not authenticated.
    UnauthenticatedFrameTooLarge {
        frame_bytes: usize,
    },
    /// A line of the text protocol that is too long, or too many bytes before a login.
    LineTooLong,
    /// The client speaks another protocol.
    ForeignProtocol(ForeignProtocol),
    /// The balancer's header of the PROXY protocol is malformed, or not acceptable.
    ProxyHeader(&'static str),
    /// The bytes are not TLS, or the client has no acceptable certificate.
    Tls,
    /// The TLS handshake was not finished in time.
    TlsDeadline,
    /// The client's certificate names no user, and the server requires one that does.
    ClientCertificate,
    /// The request needs a bucket or a right, and the client does not understand such an answer.
    NoAccess,
    /// The user was removed.
    UserRemoved,
    /// Authentication was not finished in time.
    AuthDeadline,
    /// The client sent no request for longer than the idle timeout.
    Idle,
    /// The remaining places are reserved for administrators.
    TooManyConnections,
    /// A frame was not finished in time.
    FrameDeadline,
    /// The client does not read its answers.
    SendDeadline,
    /// The client neither finishes its request nor reads its answer, and others wait for that
    /// memory.
    HoldsMemory,
    /// All connections together hold too much memory, and this client lagged most.
    MemoryShort,
    /// A document turned out to be damaged after a part of it was sent.
    DamagedDocument,
    /// The bucket whose changes the connection followed was deleted.
    BucketDeleted,
    /// Another connection for change streams took the name.
    NameTaken,
    /// A consumer of change streams sent nothing for too long.
    ConsumerSilent,
    /// An answer to no message of the server.
    WrongAnswer,
    /// The user may not follow changes any more.
    RightsLost,
    /// This node's lease ended while it served, so its answers may no longer be true.
    LeaseLost,
}

impl CloseReason {
    /// True when the client caused the end by a violation of the protocol or its limits.
    pub fn is_for_cause(self) -> bool {
        !matches!(
            self,
            Self::PeerClosed
                | Self::Quit
                | Self::Io(_)
                | Self::ServerStopping
                | Self::LeaseLost
                | Self::DamagedDocument
                | Self::BucketDeleted
        )
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerClosed => f.write_str("the client closed the connection"),
            Self::Quit => f.write_str("the client said QUIT"),
            Self::Io(kind) => write!(f, "I/O error: {kind}"),
            Self::ServerStopping => f.write_str("the server stops"),
            Self::UnknownMagic(TLS_HANDSHAKE) => {
                f.write_str("unknown magic 0x16: a TLS client on the port without TLS?")
            }
            Self::UnknownMagic(magic) => write!(f, "unknown magic 0x{magic:02x}"),
            Self::NotARequest(magic) => write!(f, "magic 0x{magic:02x} is not a client's request"),
            Self::BodyTooShort => f.write_str("body shorter than framing, extras and key"),
            Self::FrameTooLarge { frame_bytes } => {
                write!(f, "frame of {frame_bytes} bytes is over the limit")
            }
            Self::UnauthenticatedFrameTooLarge { frame_bytes } => {
                write!(f, "frame of {frame_bytes} bytes before authentication")
            }
            Self::LineTooLong => f.write_str("a line of the text protocol is too long"),
            Self::ForeignProtocol(ForeignProtocol::Http) => {
                f.write_str("an HTTP request on the data port; HTTP is served on the admin port")
            }
            Self::ForeignProtocol(protocol) => write!(
                f,
                "a client of {protocol}; this port serves Couchbase's and memcached's protocols"
            ),
            Self::ProxyHeader(detail) => write!(f, "PROXY protocol: {detail}"),
            Self::Tls => f.write_str("TLS failed"),
            Self::TlsDeadline => f.write_str("the TLS handshake was not finished in time"),
            Self::ClientCertificate => f.write_str("the client's certificate names no user"),
            Self::NoAccess => {
                f.write_str("no access or no bucket, and the client did not negotiate XERROR")
            }
            Self::UserRemoved => f.write_str("the user was removed"),
            Self::AuthDeadline => f.write_str("not authenticated in time"),
            Self::Idle => f.write_str("idle for longer than idle_timeout_ms"),
            Self::TooManyConnections => {
                f.write_str("the connections that are left are for administrators")
            }
            Self::FrameDeadline => f.write_str("a frame was not completed in time"),
            Self::SendDeadline => f.write_str("the client does not read its answers"),
            Self::HoldsMemory => f.write_str("too slow while others wait for its memory"),
            Self::MemoryShort => {
                f.write_str("too slow while connections hold more memory than they may")
            }
            Self::DamagedDocument => f.write_str("a document is damaged"),
            Self::BucketDeleted => f.write_str("the bucket was deleted"),
            Self::NameTaken => f.write_str("another connection took the name"),
            Self::ConsumerSilent => f.write_str("nothing came from the consumer for too long"),
            Self::WrongAnswer => f.write_str("an answer to no message of the server"),
            Self::RightsLost => f.write_str("the user may not follow changes any more"),
            Self::LeaseLost => f.write_str("this node's lease ended while it served"),
        }
    }
}
