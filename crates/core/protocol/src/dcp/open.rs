//! DCP open: extras and flags. The key is the connection's name.

use crate::request::split_u32;

/// Flags of the request; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// The server is the producer; without it the server becomes a consumer.
    pub const PRODUCER: OpenFlags = OpenFlags(0x001);
    /// Values keep their extended attributes.
    pub const INCLUDE_XATTRS: OpenFlags = OpenFlags(0x004);
    /// Messages have no body, and their datatype says so.
    pub const NO_VALUE: OpenFlags = OpenFlags(0x008);
    /// Deletions have the second layout, with a time.
    pub const INCLUDE_DELETE_TIMES: OpenFlags = OpenFlags(0x020);
    /// Messages have no body, and keep the datatype of the stored document.
    pub const NO_VALUE_WITH_DATATYPE: OpenFlags = OpenFlags(0x040);
    /// Deletions keep the extended attributes of users.
    pub const INCLUDE_DELETED_USER_XATTRS: OpenFlags = OpenFlags(0x100);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: OpenFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when only the flags above are set.
    pub const fn are_known(self) -> bool {
        self.0 & !0x16d == 0
    }
}

/// Extras of the request. The first four bytes are unused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenExtras {
    /// The consumer's flags for all streams.
    pub flags: OpenFlags,
}

impl OpenExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;

    /// Decodes exactly eight bytes.
    pub fn decode(extras: &[u8]) -> Option<OpenExtras> {
        let (_unused, rest) = split_u32(extras)?;
        let (flags, rest) = split_u32(rest)?;
        rest.is_empty().then_some(OpenExtras { flags: OpenFlags(flags) })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[4..].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes
    }
}
