//! Why a connection ends. Every end has exactly one reason, and that reason is logged once.

use std::fmt;

/// First byte of a TLS client's first record.
const TLS_HANDSHAKE: u8 = 0x16;

/// See the module text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed its side.
    PeerClosed,
    /// The client said QUIT.
    Quit,
    /// The operating system reported an error.
    Io(std::io::ErrorKind),
    /// The server stops.
    ServerStopping,
    /// The first byte of a frame is no magic: the stream is out of step, or not this protocol.
    UnknownMagic(u8),
    /// A client sent a frame that only a server may send.
    NotARequest(u8),
    /// A header whose parts exceed its body.
    BodyTooShort,
    /// A frame beyond the protocol's limit.
    FrameTooLarge {
        /// Announced size.
        frame_bytes: usize,
    },
    /// A frame too large for somebody who has not authenticated.
    UnauthenticatedFrameTooLarge {
        /// Announced size.
        frame_bytes: usize,
    },
    /// What was sent is not TLS, or the client has no acceptable certificate.
    Tls,
    /// The TLS handshake was not finished in time.
    TlsDeadline,
    /// The client's certificate names no user, and clients have to have one that does.
    ClientCertificate,
    /// The user was removed.
    UserRemoved,
    /// Authentication was not finished in time.
    AuthDeadline,
    /// Nothing was asked for longer than the idle timeout.
    Idle,
    /// The places that are left are for administrators.
    TooManyConnections,
    /// A frame was not finished in time.
    FrameDeadline,
    /// The client does not read what it asked for.
    SendDeadline,
    /// This node's lease ended while it served, so that what it has to say may not be true any more.
    LeaseLost,
}

impl CloseReason {
    /// True for an end that the client brought about by breaking the rules.
    pub fn is_for_cause(self) -> bool {
        !matches!(
            self,
            Self::PeerClosed | Self::Quit | Self::Io(_) | Self::ServerStopping | Self::LeaseLost
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
            Self::Tls => f.write_str("TLS failed"),
            Self::TlsDeadline => f.write_str("the TLS handshake was not finished in time"),
            Self::ClientCertificate => f.write_str("the client's certificate names no user"),
            Self::UserRemoved => f.write_str("the user was removed"),
            Self::AuthDeadline => f.write_str("not authenticated in time"),
            Self::Idle => f.write_str("idle for longer than idle_timeout_ms"),
            Self::TooManyConnections => {
                f.write_str("the connections that are left are for administrators")
            }
            Self::FrameDeadline => f.write_str("a frame was not completed in time"),
            Self::SendDeadline => f.write_str("the client does not read its answers"),
            Self::LeaseLost => f.write_str("this node's lease ended while it served"),
        }
    }
}
