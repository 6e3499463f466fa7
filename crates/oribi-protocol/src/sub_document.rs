//! Sub-document requests: flags, extras, and the lists of specs; and the lists that answer them.
//!
//! | request | extras |
//! |---|---|
//! | look-up of one path | path length u16, path flags u8, then nothing or document flags u8 |
//! | mutation of one path | the same, or with the expiry u32 between path flags and document flags |
//! | look-up of several | nothing or document flags u8 |
//! | mutation of several | nothing, document flags u8, expiry u32, or expiry and document flags |
//!
//! The value of a single request is path, then operand. Of several it is a list: opcode u8, path flags u8,
//! path length u16, in mutations the operand's length u32, path, operand. Decoding borrows and checks
//! every length; what flags and opcodes mean together is decided by the server.

use crate::status::Status;

/// Flags of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathFlags(pub u8);

impl PathFlags {
    /// Make missing objects on the way.
    pub const MAKE_PARENTS: PathFlags = PathFlags(0x01);
    /// The path begins with the key of an extended attribute.
    pub const XATTR: PathFlags = PathFlags(0x04);
    /// The operand is a macro.
    pub const EXPAND_MACROS: PathFlags = PathFlags(0x10);
    /// The operand is bytes, and so is what is read.
    pub const BINARY: PathFlags = PathFlags(0x20);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: PathFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when there are no flags but those above.
    pub const fn are_known(self) -> bool {
        let known = Self::MAKE_PARENTS.0 | Self::XATTR.0 | Self::EXPAND_MACROS.0 | Self::BINARY.0;
        self.0 & !known == 0
    }
}

/// Flags of the whole request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DocFlags(pub u8);

impl DocFlags {
    /// Create the document if it is missing.
    pub const CREATE: DocFlags = DocFlags(0x01);
    /// Create the document; fail if there is one.
    pub const ADD: DocFlags = DocFlags(0x02);
    /// A tombstone will do.
    pub const ACCESS_DELETED: DocFlags = DocFlags(0x04);
    /// What is created is a tombstone.
    pub const CREATE_AS_DELETED: DocFlags = DocFlags(0x08);
    /// Make a document of a tombstone.
    pub const REVIVE: DocFlags = DocFlags(0x10);
    /// Read from a replica.
    pub const REPLICA_READ: DocFlags = DocFlags(0x20);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: DocFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when there are no flags but those that a mutation may have: all above but the last.
    pub const fn are_of_mutation(self) -> bool {
        self.0 & !0x1f == 0
    }
}

/// Extras of a request for one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathExtras {
    /// Length of the path, with which the value begins.
    pub path_bytes: u16,
    /// Flags of the path.
    pub path_flags: PathFlags,
    /// Expiry as on the wire, if one was given. Mutations only.
    pub expiry: Option<u32>,
    /// Flags of the request.
    pub doc_flags: DocFlags,
}

impl PathExtras {
    /// Decodes 3, 4, 7 or 8 bytes.
    pub fn decode(extras: &[u8]) -> Option<PathExtras> {
        let ([length_high, length_low, path_flags], rest) = extras.split_first_chunk()?;
        let (expiry, doc_flags) = expiry_and_flags(rest)?;
        let path_bytes = u16::from_be_bytes([*length_high, *length_low]);
        Some(PathExtras { path_bytes, path_flags: PathFlags(*path_flags), expiry, doc_flags })
    }
}

/// Expiry and document flags, each of which may be left out: all extras of a request for several paths.
pub fn expiry_and_flags(extras: &[u8]) -> Option<(Option<u32>, DocFlags)> {
    match *extras {
        [] => Some((None, DocFlags::default())),
        [flags] => Some((None, DocFlags(flags))),
        [a, b, c, d] => Some((Some(u32::from_be_bytes([a, b, c, d])), DocFlags::default())),
        [a, b, c, d, flags] => Some((Some(u32::from_be_bytes([a, b, c, d])), DocFlags(flags))),
        _ => None,
    }
}

/// One path of a request and what to do there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec<'a> {
    /// Opcode of the operation.
    pub opcode: u8,
    /// Flags of the path.
    pub flags: PathFlags,
    /// The path.
    pub path: &'a [u8],
    /// The operand; empty in look-ups.
    pub value: &'a [u8],
}

impl<'a> Spec<'a> {
    /// Takes the first spec from a list of look-ups.
    pub fn split_lookup(list: &'a [u8]) -> Option<(Spec<'a>, &'a [u8])> {
        let ([opcode, flags, high, low], rest) = list.split_first_chunk()?;
        let (path, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        Some((Spec { opcode: *opcode, flags: PathFlags(*flags), path, value: &[] }, rest))
    }

    /// Takes the first spec from a list of mutations.
    pub fn split_mutation(list: &'a [u8]) -> Option<(Spec<'a>, &'a [u8])> {
        let ([opcode, flags, high, low], rest) = list.split_first_chunk()?;
        let (value_bytes, rest) = rest.split_first_chunk()?;
        let (path, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_bytes) as usize)?;
        Some((Spec { opcode: *opcode, flags: PathFlags(*flags), path, value }, rest))
    }
}

/// Bytes of a look-up's result before its value: status u16 and length u32.
pub const LOOKUP_HEAD_BYTES: usize = 6;

/// Appends what stands before the value in the result of one look-up of several.
///
/// # Panics
/// When the value is 4 GiB long; it is part of a document.
pub fn write_lookup_head(out: &mut Vec<u8>, status: Status, value_bytes: usize) {
    out.extend_from_slice(&status.code().to_be_bytes());
    write_length(out, value_bytes);
}

/// Appends the result of one mutation of several, for those that have a value to return.
///
/// # Panics
/// As [`write_lookup_head`].
pub fn write_mutation_result(out: &mut Vec<u8>, index: u8, value: &[u8]) {
    out.push(index);
    out.extend_from_slice(&Status::Success.code().to_be_bytes());
    write_length(out, value.len());
    out.extend_from_slice(value);
}

/// The value of an answer to several mutations of which one, the first to fail, could not be done.
pub fn mutation_failure(index: u8, status: Status) -> [u8; 3] {
    let [high, low] = status.code().to_be_bytes();
    [index, high, low]
}

fn write_length(out: &mut Vec<u8>, bytes: usize) {
    let length = u32::try_from(bytes).expect("values are limited to 20 MiB");
    out.extend_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::{DocFlags, PathExtras, PathFlags, Spec, expiry_and_flags};
    use super::{LOOKUP_HEAD_BYTES, mutation_failure, write_lookup_head, write_mutation_result};
    use crate::status::Status;

    #[test]
    fn extras_by_their_length() {
        let bare =
            PathExtras { path_bytes: 0x0102, path_flags: PathFlags(5), ..Default::default() };
        assert_eq!(PathExtras::decode(&[1, 2, 5]), Some(bare));
        let flagged = PathExtras { doc_flags: DocFlags(3), ..bare };
        assert_eq!(PathExtras::decode(&[1, 2, 5, 3]), Some(flagged));
        let expiring = PathExtras { expiry: Some(256), ..bare };
        assert_eq!(PathExtras::decode(&[1, 2, 5, 0, 0, 1, 0]), Some(expiring));
        let both = PathExtras { doc_flags: DocFlags(3), ..expiring };
        assert_eq!(PathExtras::decode(&[1, 2, 5, 0, 0, 1, 0, 3]), Some(both));
        for length in [0, 1, 2, 5, 6, 9] {
            assert_eq!(PathExtras::decode(&vec![0; length]), None, "{length}");
        }
        assert_eq!(expiry_and_flags(&[0; 5]), Some((Some(0), DocFlags(0))));
        assert_eq!(expiry_and_flags(&[0; 2]), None);
    }

    #[test]
    fn lists_are_taken_apart() {
        let list = [0xc5, 4, 0, 2, b'a', b'b', 0xc6, 0, 0, 0];
        let (first, rest) = Spec::split_lookup(&list).unwrap();
        assert_eq!((first.opcode, first.flags, first.path), (0xc5, PathFlags::XATTR, &b"ab"[..]));
        assert_eq!(Spec::split_lookup(rest).unwrap().1, b"");
        let list = [0xc8, 1, 0, 1, 0, 0, 0, 2, b'a', b'1', b'2'];
        let (first, rest) = Spec::split_mutation(&list).unwrap();
        assert_eq!((first.path, first.value, rest), (&b"a"[..], &b"12"[..], &b""[..]));
        for cut in 0..list.len() {
            assert_eq!(Spec::split_mutation(&list[..cut]), None, "{cut}");
        }
        assert_eq!(Spec::split_lookup(&[0xc5, 0, 0, 1]), None);
        assert_eq!(Spec::split_mutation(&[0xc8, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn results_are_laid_out() {
        let mut out = Vec::new();
        write_lookup_head(&mut out, Status::SubdocPathEnoent, 0);
        assert_eq!(out.len(), LOOKUP_HEAD_BYTES);
        write_mutation_result(&mut out, 2, b"42");
        assert_eq!(out, [0, 0xc0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 2, b'4', b'2']);
        assert_eq!(mutation_failure(3, Status::SubdocPathEexists), [3, 0, 0xc9]);
    }
}
