//! Extended attributes between a document's value and the field of a line.
//!
//! A value with attributes is their block and then the body, as `oribi_subdoc::xattr` lays it out.
//! Names are text, values are JSON: both fit a member of an object. Both directions refuse what a
//! server would refuse, so that nothing is left out without a word.

use anyhow::bail;
use bytes::Bytes;
use oribi_subdoc::limits::XATTR_KEY_BYTES_MAX;
use oribi_subdoc::xattr::{XattrDraft, Xattrs, is_virtual, split};
use serde_json::value::RawValue;

use super::error::DocumentRowError;
use super::members::RowMembers;

/// The attributes and the body of a value.
///
/// # Errors
/// When the attributes are damaged.
pub fn attributes_of(value: &[u8], has_attributes: bool) -> anyhow::Result<(Xattrs<'_>, &[u8])> {
    if !has_attributes {
        return Ok((Xattrs::default(), value));
    }
    match split(value) {
        Ok((attributes, body)) if attributes.are_acceptable() => Ok((attributes, body)),
        _ => bail!("the attributes are damaged"),
    }
}

/// The block of the attributes in a field; empty for an empty object.
pub(super) fn block_of(field: &RawValue) -> Result<Bytes, DocumentRowError> {
    const OBJECT: DocumentRowError = DocumentRowError::FieldInvalid(super::XATTRS, "an object");
    const NAMES: DocumentRowError = DocumentRowError::FieldInvalid(
        super::XATTRS,
        "an object with names of 1 to 16 bytes, each once",
    );
    const SIZE: DocumentRowError =
        DocumentRowError::FieldInvalid(super::XATTRS, "an object of up to 1 MiB");
    let members = serde_json::from_str::<RowMembers<'_>>(field.get()).map_err(|_| OBJECT)?;
    let mut draft = XattrDraft::default();
    for (name, value) in &members.0 {
        let name = name.as_bytes();
        let is_possible = (1..=XATTR_KEY_BYTES_MAX).contains(&name.len())
            && !is_virtual(name)
            && !name.contains(&0)
            && draft.get(name).is_none();
        if !is_possible {
            return Err(NAMES);
        }
        draft.set(name, value.get().as_bytes().to_vec());
    }
    if draft.is_too_large() {
        return Err(SIZE);
    }
    let mut block = Vec::with_capacity(draft.byte_count());
    draft.write(&mut block);
    Ok(block.into())
}

/// Attributes that were read one by one, as a block.
///
/// # Errors
/// When they are larger than a document's may be.
pub fn block_from(pairs: &[(String, Bytes)]) -> anyhow::Result<Vec<u8>> {
    let mut draft = XattrDraft::default();
    for (name, value) in pairs {
        draft.set(name.as_bytes(), value.to_vec());
    }
    if draft.is_too_large() {
        bail!("the attributes are larger than a document's may be");
    }
    let mut block = Vec::with_capacity(draft.byte_count());
    draft.write(&mut block);
    Ok(block)
}

/// True when a path of a lookup can name the attribute.
pub fn is_path(name: &str) -> bool {
    const SPECIAL: [char; 5] = ['.', '[', ']', '`', '\\'];
    !name.contains(SPECIAL)
}
