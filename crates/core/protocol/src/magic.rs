//! The first byte of a frame: the sender, and the layout of the header.
//!
//! Invariant: exactly the two `Alt` forms carry framing extras and a one-byte key length.

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Magic {
    /// Client to server, plain header.
    ClientRequest = 0x80,
    /// Client to server with framing extras.
    AltClientRequest = 0x08,
    /// Server's answer, plain header.
    ClientResponse = 0x81,
    /// Server's answer with framing extras.
    AltClientResponse = 0x18,
    /// Request that the server starts on a duplex connection, such as a cluster map notification.
    ServerRequest = 0x82,
    /// Client's answer to a request of the server.
    ServerResponse = 0x83,
}

impl Magic {
    /// The magic with this code, if there is one.
    pub const fn from_u8(code: u8) -> Option<Magic> {
        match code {
            0x80 => Some(Magic::ClientRequest),
            0x08 => Some(Magic::AltClientRequest),
            0x81 => Some(Magic::ClientResponse),
            0x18 => Some(Magic::AltClientResponse),
            0x82 => Some(Magic::ServerRequest),
            0x83 => Some(Magic::ServerResponse),
            _ => None,
        }
    }

    /// True when the header holds a framing-extras length and a one-byte key length.
    pub const fn is_alt(self) -> bool {
        matches!(self, Magic::AltClientRequest | Magic::AltClientResponse)
    }

    /// True for a request, from a client or from a server: bytes 6 and 7 are a vbucket, not a
    /// status.
    pub const fn is_request(self) -> bool {
        matches!(self, Magic::ClientRequest | Magic::AltClientRequest | Magic::ServerRequest)
    }
}

#[cfg(test)]
mod tests {
    //! Codes agree with the enum.

    use super::*;

    #[test]
    fn codes_agree() {
        let known: Vec<Magic> = (0..=u8::MAX).filter_map(Magic::from_u8).collect();
        assert_eq!(known.len(), 6);
        assert!(known.iter().all(|magic| Magic::from_u8(*magic as u8) == Some(*magic)));
        assert_eq!(known.iter().filter(|magic| magic.is_alt()).count(), 2);
        assert_eq!(known.iter().filter(|magic| magic.is_request()).count(), 3);
    }
}
