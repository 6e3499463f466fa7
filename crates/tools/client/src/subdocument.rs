//! Operations on parts of a document: what is looked up or changed, and how it is sent.
//!
//! One path that is no whole document is sent as its own opcode, anything else as a list of up to
//! [`PATHS_MAX`] specs. A list that no server would accept is refused here, before it is sent. What
//! comes back is decoded in `reply`.
//!
//! ```
//! use oribi_client::{DocumentPolicy, Lookup, LookupInOptions, MutateInOptions, Operation, PathMutation};
//!
//! let paths = [Lookup::get("trace_id").xattr(), Lookup::exists("address.city"), Lookup::count("tags")];
//! let lookup = Operation::lookup_in(b"user:1", &paths, &LookupInOptions::default())?;
//! assert!(lookup.is_read());
//!
//! let paths = [
//!     PathMutation::upsert("address.city", br#""Kyoto""#).create_path(),
//!     PathMutation::array_append("tags", br#""new""#),
//!     PathMutation::counter("visits", 1),
//! ];
//! let options = MutateInOptions::new().document(DocumentPolicy::CreateIfMissing);
//! let mutation = Operation::mutate_in(b"user:1", &paths, &options)?;
//! assert!(!mutation.is_read());
//!
//! let late_xattr = [Lookup::get("a"), Lookup::get("b").xattr()];
//! Operation::lookup_in(b"k", &late_xattr, &LookupInOptions::default()).unwrap_err();
//! # Ok::<(), oribi_client::ClientError>(())
//! ```

mod options;
mod reply;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;
use oribi_protocol::opcode::Opcode;

pub use options::{DocumentPolicy, LookupInOptions, MutateInOptions};
pub use reply::{LookupInReply, MutateInReply, PathValue};

use crate::error::ClientError;

/// Most paths in one operation.
pub const PATHS_MAX: usize = 16;

/// Longest path.
pub const PATH_BYTES_MAX: usize = 1024;

/// Flags of a path.
mod path_flag {
    pub const CREATE_PATH: u8 = 0x01;
    pub const XATTR: u8 = 0x04;
    pub const EXPAND_MACROS: u8 = 0x10;
    pub const BINARY: u8 = 0x20;
}

/// A read at one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup<'a> {
    opcode: Opcode,
    path: &'a str,
    flags: u8,
}

impl<'a> Lookup<'a> {
    /// The value at `path`, for instance `address.lines[0]`.
    pub fn get(path: &'a str) -> Lookup<'a> {
        Lookup { opcode: Opcode::SubdocGet, path, flags: 0 }
    }

    /// Whether there is something at `path`; its value is empty.
    pub fn exists(path: &'a str) -> Lookup<'a> {
        Lookup { opcode: Opcode::SubdocExists, path, flags: 0 }
    }

    /// How many elements the array or object at `path` has, as a decimal number.
    pub fn count(path: &'a str) -> Lookup<'a> {
        Lookup { opcode: Opcode::SubdocGetCount, path, flags: 0 }
    }

    /// The whole document, for use next to its extended attributes.
    pub fn document() -> Lookup<'static> {
        Lookup { opcode: Opcode::Get, path: "", flags: 0 }
    }

    /// Looks into the extended attributes instead of the document.
    pub fn xattr(mut self) -> Lookup<'a> {
        self.flags |= path_flag::XATTR;
        self
    }

    /// Expects an attribute that was written with [`PathMutation::binary`].
    pub fn binary(mut self) -> Lookup<'a> {
        self.flags |= path_flag::BINARY;
        self
    }
}

/// A change at one path. Values are JSON unless it says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathMutation<'a> {
    opcode: Opcode,
    path: &'a str,
    value: Cow<'a, [u8]>,
    flags: u8,
}

impl<'a> PathMutation<'a> {
    fn new(opcode: Opcode, path: &'a str, value: &'a [u8]) -> PathMutation<'a> {
        PathMutation { opcode, path, value: Cow::Borrowed(value), flags: 0 }
    }

    /// Adds an object's field that must not be there.
    pub fn insert(path: &'a str, value: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocDictAdd, path, value)
    }

    /// Sets an object's field.
    pub fn upsert(path: &'a str, value: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocDictUpsert, path, value)
    }

    /// Changes what is present.
    pub fn replace(path: &'a str, value: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocReplace, path, value)
    }

    /// Removes what is present.
    pub fn remove(path: &'a str) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocDelete, path, &[])
    }

    /// Adds elements, separated by commas, at the end of an array.
    pub fn array_append(path: &'a str, values: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocArrayPushLast, path, values)
    }

    /// Adds elements, separated by commas, at the start of an array.
    pub fn array_prepend(path: &'a str, values: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocArrayPushFirst, path, values)
    }

    /// Adds elements before the one that `path` names.
    pub fn array_insert(path: &'a str, values: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocArrayInsert, path, values)
    }

    /// Adds a string, number, boolean or null to an array that must not have it.
    pub fn array_add_unique(path: &'a str, value: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::SubdocArrayAddUnique, path, value)
    }

    /// Adds `delta`, which is not 0, to a number. The new number is among the reply's values.
    pub fn counter(path: &'a str, delta: i64) -> PathMutation<'a> {
        let value = Cow::Owned(delta.to_string().into_bytes());
        PathMutation { value, ..PathMutation::new(Opcode::SubdocCounter, path, &[]) }
    }

    /// Replaces the whole document, for use next to its extended attributes.
    pub fn set_document(value: &'a [u8]) -> PathMutation<'a> {
        PathMutation::new(Opcode::Set, "", value)
    }

    /// Removes the document, for use next to its extended attributes.
    pub fn remove_document() -> PathMutation<'static> {
        PathMutation::new(Opcode::Delete, "", &[])
    }

    /// Creates the objects that lead to the path.
    pub fn create_path(mut self) -> PathMutation<'a> {
        self.flags |= path_flag::CREATE_PATH;
        self
    }

    /// Changes an extended attribute instead of the document.
    pub fn xattr(mut self) -> PathMutation<'a> {
        self.flags |= path_flag::XATTR;
        self
    }

    /// Replaces a macro such as `"${Mutation.CAS}"` by its value. Attributes only.
    pub fn expand_macros(mut self) -> PathMutation<'a> {
        self.flags |= path_flag::EXPAND_MACROS | path_flag::XATTR;
        self
    }

    /// Writes bytes that are not JSON. Attributes only.
    pub fn binary(mut self) -> PathMutation<'a> {
        self.flags |= path_flag::BINARY | path_flag::XATTR;
        self
    }
}

/// Opcode and extras of a sub-document request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationHead {
    pub opcode: Opcode,
    pub is_read: bool,
    extras: [u8; OperationHead::EXTRAS_BYTES_MAX],
    extras_bytes: u8,
}

impl OperationHead {
    /// Length of the path, its flags, expiry and the document's flags.
    const EXTRAS_BYTES_MAX: usize = 8;

    fn new(opcode: Opcode, is_read: bool) -> OperationHead {
        OperationHead {
            opcode,
            is_read,
            extras: [0; OperationHead::EXTRAS_BYTES_MAX],
            extras_bytes: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.extras_bytes);
        self.extras[start..start + bytes.len()].copy_from_slice(bytes);
        self.extras_bytes += bytes.len() as u8;
    }

    fn push_document_flags(&mut self, flags: u8) {
        if flags != 0 {
            self.push(&[flags]);
        }
    }

    /// Extras of the request.
    pub fn extras(&self) -> &[u8] {
        &self.extras[..usize::from(self.extras_bytes)]
    }
}

/// Opcode and extras of a lookup, and its value.
pub(crate) fn encode_lookup(
    paths: &[Lookup<'_>],
    options: &LookupInOptions,
) -> Result<(OperationHead, Bytes), ClientError> {
    check_paths(paths.iter().map(|lookup| (lookup.path, lookup.flags)))?;
    let mut value = Vec::new();
    let mut head = match paths {
        [only] if only.opcode != Opcode::Get => {
            let mut head = OperationHead::new(only.opcode, true);
            head.push(&path_bytes(only.path));
            head.push(&[only.flags]);
            value.extend_from_slice(only.path.as_bytes());
            head
        }
        _ => {
            for lookup in paths {
                value.extend_from_slice(&[lookup.opcode as u8, lookup.flags]);
                value.extend_from_slice(&path_bytes(lookup.path));
                value.extend_from_slice(lookup.path.as_bytes());
            }
            OperationHead::new(Opcode::SubdocMultiLookup, true)
        }
    };
    head.push_document_flags(options.document_flags());
    Ok((head, value.into()))
}

/// Opcode and extras of a write, and its value.
pub(crate) fn encode_mutation(
    paths: &[PathMutation<'_>],
    options: &MutateInOptions,
) -> Result<(OperationHead, Bytes), ClientError> {
    check_paths(paths.iter().map(|mutation| (mutation.path, mutation.flags)))?;
    let mut value = Vec::new();
    let mut head = match paths {
        [only] if !matches!(only.opcode, Opcode::Set | Opcode::Delete) => {
            let mut head = OperationHead::new(only.opcode, false);
            head.push(&path_bytes(only.path));
            head.push(&[only.flags]);
            value.extend_from_slice(only.path.as_bytes());
            value.extend_from_slice(&only.value);
            head
        }
        _ => {
            for mutation in paths {
                let value_bytes = u32::try_from(mutation.value.len())
                    .map_err(|_| ClientError::InvalidArgument("a path's value is too large"))?;
                value.extend_from_slice(&[mutation.opcode as u8, mutation.flags]);
                value.extend_from_slice(&path_bytes(mutation.path));
                value.extend_from_slice(&value_bytes.to_be_bytes());
                value.extend_from_slice(mutation.path.as_bytes());
                value.extend_from_slice(&mutation.value);
            }
            OperationHead::new(Opcode::SubdocMultiMutation, false)
        }
    };
    if let Some(expiry) = options.expiry {
        head.push(&expiry.to_be_bytes());
    }
    head.push_document_flags(options.document_flags());
    Ok((head, value.into()))
}

/// Length of a checked path on the wire.
fn path_bytes(path: &str) -> [u8; 2] {
    u16::try_from(path.len()).expect("check_paths has refused longer ones").to_be_bytes()
}

const _: () = assert!(PATH_BYTES_MAX <= u16::MAX as usize);

fn check_paths<'p>(paths: impl ExactSizeIterator<Item = (&'p str, u8)>) -> Result<(), ClientError> {
    let refuse = |reason| Err(ClientError::InvalidArgument(reason));
    if paths.len() == 0 || paths.len() > PATHS_MAX {
        return refuse("a sub-document operation has 1 to 16 paths");
    }
    let mut is_in_body = false;
    for (path, flags) in paths {
        if path.len() > PATH_BYTES_MAX {
            return refuse("a path has at most 1024 bytes");
        }
        let is_xattr = flags & path_flag::XATTR != 0;
        if is_xattr && is_in_body {
            return refuse("paths of extended attributes come before those of the document");
        }
        is_in_body |= !is_xattr;
    }
    Ok(())
}
