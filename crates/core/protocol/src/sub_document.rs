//! Sub-document requests: flags, extras and lists of specs; and the lists in their responses.
//!
//! | request | extras |
//! |---|---|
//! | look-up of one path | path length u16, path flags u8, then [document extras](DocExtras) |
//! | mutation of one path | the same |
//! | look-up of several | document extras |
//! | mutation of several | document extras |
//!
//! Document extras are the expiry u32, the user flags u32 and the document flags u8. Each is
//! optional, but user flags require an expiry before them; a lookup has at most document flags.
//!
//! The value of a single request is path, then operand. The value of a multi request is a list:
//! opcode u8, path flags u8, path length u16, in mutations the operand's length u32, path, operand.
//! Decoding borrows and checks every length; the server decides what flags and opcodes mean
//! together.

use crate::status::Status;

/// Flags of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathFlags(pub u8);

impl PathFlags {
    /// Create missing objects on the path.
    pub const MAKE_PARENTS: PathFlags = PathFlags(0x01);
    /// The path begins with the key of an extended attribute.
    pub const XATTR: PathFlags = PathFlags(0x04);
    /// The operand is a macro.
    pub const EXPAND_MACROS: PathFlags = PathFlags(0x10);
    /// The operand is bytes instead of JSON, and so is the value of a read.
    pub const BINARY: PathFlags = PathFlags(0x20);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: PathFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when only the flags above are set.
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
    /// Create the document; fail if it exists.
    pub const ADD: DocFlags = DocFlags(0x02);
    /// A tombstone is acceptable.
    pub const ACCESS_DELETED: DocFlags = DocFlags(0x04);
    /// Create a tombstone.
    pub const CREATE_AS_DELETED: DocFlags = DocFlags(0x08);
    /// Revive a tombstone as a document.
    pub const REVIVE: DocFlags = DocFlags(0x10);
    /// Read from a replica.
    pub const REPLICA_READ: DocFlags = DocFlags(0x20);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: DocFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when only the flags of a mutation are set: all above except the last.
    pub const fn are_of_mutation(self) -> bool {
        self.0 & !0x1f == 0
    }
}

/// The part of the extras about the whole document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DocExtras {
    /// Expiry as on the wire, if present.
    pub expiry: Option<u32>,
    /// Opaque flags of the document, if present.
    pub user_flags: Option<u32>,
    /// Flags of the request.
    pub doc_flags: DocFlags,
}

impl DocExtras {
    /// Decodes the extras of a look-up: 0 or 1 byte.
    pub fn of_lookup(extras: &[u8]) -> Option<DocExtras> {
        match *extras {
            [] => Some(DocExtras::default()),
            [flags] => Some(DocExtras { doc_flags: DocFlags(flags), ..DocExtras::default() }),
            _ => None,
        }
    }

    /// Decodes the extras of a mutation: 0, 1, 4, 5, 8 or 9 bytes.
    pub fn of_mutation(extras: &[u8]) -> Option<DocExtras> {
        let (expiry, rest) = split_u32(extras);
        let (user_flags, rest) = split_u32(rest);
        Some(DocExtras { expiry, user_flags, ..DocExtras::of_lookup(rest)? })
    }
}

/// Splits a number off the front, if there is space for one.
fn split_u32(bytes: &[u8]) -> (Option<u32>, &[u8]) {
    match bytes.split_first_chunk() {
        Some((number, rest)) => (Some(u32::from_be_bytes(*number)), rest),
        None => (None, bytes),
    }
}

/// The part of the extras about the path, in a request for one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathExtras {
    /// Length of the path at the start of the value.
    pub path_bytes: u16,
    /// Flags of the path.
    pub path_flags: PathFlags,
}

impl PathExtras {
    /// Splits 3 bytes off the extras; the rest is about the document.
    pub fn split(extras: &[u8]) -> Option<(PathExtras, &[u8])> {
        let ([length_high, length_low, path_flags], rest) = extras.split_first_chunk()?;
        let path_bytes = u16::from_be_bytes([*length_high, *length_low]);
        Some((PathExtras { path_bytes, path_flags: PathFlags(*path_flags) }, rest))
    }
}

/// One path of a request and its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec<'a> {
    /// Opcode of the operation.
    pub opcode: u8,
    /// Flags of the path.
    pub flags: PathFlags,
    /// The path.
    pub path: &'a [u8],
    /// The operand; empty in lookups.
    pub value: &'a [u8],
}

impl<'a> Spec<'a> {
    /// Splits the first spec off a list of lookups.
    pub fn split_lookup(list: &'a [u8]) -> Option<(Spec<'a>, &'a [u8])> {
        let ([opcode, flags, high, low], rest) = list.split_first_chunk()?;
        let (path, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        Some((Spec { opcode: *opcode, flags: PathFlags(*flags), path, value: &[] }, rest))
    }

    /// Splits the first spec off a list of mutations.
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

/// Appends the head of one result of a multi lookup, before its value.
///
/// # Panics
/// When the value is 4 GiB long, which no part of a document is.
pub fn write_lookup_head(out: &mut Vec<u8>, status: Status, value_bytes: usize) {
    out.extend_from_slice(&status.code().to_be_bytes());
    write_length(out, value_bytes);
}

/// Appends one result of a multi mutation that returns a value.
///
/// # Panics
/// As [`write_lookup_head`].
pub fn write_mutation_result(out: &mut Vec<u8>, index: u8, value: &[u8]) {
    out.push(index);
    out.extend_from_slice(&Status::Success.code().to_be_bytes());
    write_length(out, value.len());
    out.extend_from_slice(value);
}

/// The value of the response to a multi mutation that failed; it names the first failed mutation.
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
    use super::{DocExtras, DocFlags, PathExtras, PathFlags, Spec};
    use super::{LOOKUP_HEAD_BYTES, mutation_failure, write_lookup_head, write_mutation_result};
    use crate::status::Status;

    #[test]
    fn extras_by_their_length() {
        let path = PathExtras { path_bytes: 0x0102, path_flags: PathFlags(5) };
        assert_eq!(PathExtras::split(&[1, 2, 5]), Some((path, &[][..])));
        assert_eq!(PathExtras::split(&[1, 2, 5, 9]), Some((path, &[9][..])));
        assert_eq!(PathExtras::split(&[1, 2]), None);
        let all = [0, 0, 1, 0, 2, 0, 0, 0, 3];
        let doc_flags = DocFlags(3);
        let (expiry, user_flags) = (Some(256), Some(0x0200_0000));
        let none = DocExtras::default();
        for (extras, wanted) in [
            (&all[..0], none),
            (&all[8..], DocExtras { doc_flags, ..none }),
            (&all[..4], DocExtras { expiry, ..none }),
            (&[0, 0, 1, 0, 3], DocExtras { expiry, doc_flags, ..none }),
            (&all[..8], DocExtras { expiry, user_flags, ..none }),
            (&all, DocExtras { expiry, user_flags, doc_flags }),
        ] {
            assert_eq!(DocExtras::of_mutation(extras), Some(wanted), "{extras:?}");
            let of_lookup = Some(wanted).filter(|_| extras.len() < 2);
            assert_eq!(DocExtras::of_lookup(extras), of_lookup, "{extras:?}");
        }
        for length in [2, 3, 6, 7, 10, 11, 12, 13] {
            assert_eq!(DocExtras::of_mutation(&vec![0; length]), None, "{length}");
            assert_eq!(DocExtras::of_lookup(&vec![0; length]), None, "{length}");
        }
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
