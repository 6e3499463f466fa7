//! Extended attributes in items: a block before the body, as the datatype says.
//!
//! What the engine's own operations know of them: a new body leaves them as they are, a deletion keeps
//! the system's. Their layout and keys are `oribi_subdoc::xattr`'s. Documents without attributes, nearly all of
//! them, pay one test of a byte that was read anyway.

use oribi_subdoc::xattr::{self, XattrDraft};
use oribi_types::{Datatype, DocKey, Timestamp};

use crate::item::{ItemFields, ItemRef, NewItem};

impl ItemRef {
    /// The value without extended attributes: what a client knows as the document, compressed if
    /// [`ItemRef::is_compressed`].
    #[inline]
    pub fn body(&self) -> &[u8] {
        match self.has_attributes() {
            // What was stored was well-formed; if it is not, nobody can say where the body begins.
            true => xattr::body_of(self.value()).unwrap_or_default(),
            false => self.value(),
        }
    }

    /// True when the value begins with extended attributes.
    #[inline]
    pub fn has_attributes(&self) -> bool {
        self.datatype().contains(Datatype::XATTR)
    }

    /// The block before the body; empty without attributes.
    pub fn attributes(&self) -> &[u8] {
        let value = self.value();
        &value[..value.len() - self.body().len()]
    }
}

/// The datatype of a value that begins with `attributes`.
pub(crate) fn datatype_with(attributes: &[u8], body: Datatype) -> Datatype {
    if attributes.is_empty() { body } else { Datatype(body.0 | Datatype::XATTR.0) }
}

/// `new` with the attributes of `kept` in place of its own.
pub(crate) fn with_attributes_of(
    new: &ItemRef,
    kept: Option<&ItemRef>,
    keeps_expiry: bool,
) -> NewItem {
    let attributes = kept.map_or(&[][..], ItemRef::attributes);
    let body = Datatype(new.datatype().0 & !Datatype::XATTR.0);
    let fields = ItemFields {
        flags: new.flags(),
        expiry: new.expiry(),
        datatype: datatype_with(attributes, body),
        keeps_expiry,
        ..ItemFields::default()
    };
    NewItem::new(new.key(), fields, &[attributes, new.body()])
}

/// The tombstone of a key that never had attributes.
pub(crate) fn tombstone(key: DocKey<'_>, now: Timestamp) -> NewItem {
    let fields = ItemFields { deleted: true, expiry: now.unix_s(), ..Default::default() };
    NewItem::new(key, fields, &[])
}

/// The tombstone of a version, with the system's attributes if it has such. Those of an evicted version
/// are not at hand and are lost; who can fetch it first does.
pub(crate) fn tombstone_of(item: &ItemRef, now: Timestamp) -> NewItem {
    if !item.has_attributes() || item.is_evicted() {
        return tombstone(item.key(), now);
    }
    let Ok((xattrs, _)) = xattr::split(item.value()) else { return tombstone(item.key(), now) };
    let mut kept = XattrDraft::new(xattrs);
    kept.retain(xattr::is_system);
    let mut block = Vec::with_capacity(kept.byte_count());
    kept.write(&mut block);
    let datatype = datatype_with(&block, Datatype::RAW);
    let fields = ItemFields { deleted: true, expiry: now.unix_s(), datatype, ..Default::default() };
    NewItem::new(item.key(), fields, &[&block])
}
