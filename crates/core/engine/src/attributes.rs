//! Extended attributes in items: a block before the body, as the datatype says.
//!
//! Owns: the rules of the engine's own operations: a new body keeps the attributes, a deletion
//! keeps those of the system. `oribi_subdoc::xattr` has their layout and keys. Documents without
//! attributes, nearly all of them, pay one test of a byte that was read anyway.

use oribi_subdoc::xattr::{self, XattrDraft};
use oribi_types::{Datatype, DocKey, Timestamp};

use crate::item::{Item, ItemFields, ItemRef, NewItem};

impl Item {
    /// The value without extended attributes: the client's document, compressed if
    /// [`Item::is_compressed`].
    #[inline]
    pub fn body(&self) -> &[u8] {
        match self.has_attributes() {
            // Stored attributes were well-formed; in damaged ones the beginning of the body is
            // unknown.
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
        debug_assert!(self.body().len() <= value.len(), "the body is the end of the value");
        &value[..value.len() - self.body().len()]
    }
}

/// The datatype of a value that begins with `attributes`.
pub(crate) fn datatype_with(attributes: &[u8], body: Datatype) -> Datatype {
    if attributes.is_empty() { body } else { Datatype(body.0 | Datatype::XATTR.0) }
}

/// `new` with the attributes of `kept`, and another expiry.
pub(crate) fn with_attributes_of(new: &ItemRef, kept: Option<&ItemRef>, expiry: u32) -> NewItem {
    let attributes = kept.map_or(&[][..], |item| item.attributes());
    let body = Datatype(new.datatype().0 & !Datatype::XATTR.0);
    let fields = ItemFields {
        flags: new.flags(),
        expiry,
        datatype: datatype_with(attributes, body),
        ..ItemFields::default()
    };
    debug_assert!(!new.is_evicted(), "a body that is written is in memory");
    NewItem::new(new.key(), fields, &[attributes, new.body()])
}

/// The tombstone of a key that never had attributes.
pub(crate) fn tombstone(key: DocKey<'_>, now: Timestamp) -> NewItem {
    let fields = ItemFields { deleted: true, expiry: now.unix_s(), ..Default::default() };
    NewItem::new(key, fields, &[])
}

/// The tombstone of a version, with the system's attributes if it has such. Those of an evicted
/// version are not in memory and are lost; a caller that can fetch them does so first.
pub(crate) fn tombstone_of(item: &ItemRef, now: Timestamp) -> NewItem {
    successor_of(item, ItemFields { deleted: true, expiry: now.unix_s(), ..Default::default() })
}

/// The same of a document that has expired.
pub(crate) fn expiration_of(item: &ItemRef, now: Timestamp) -> NewItem {
    let expiry = now.unix_s();
    successor_of(item, ItemFields { deleted: true, expired: true, expiry, ..Default::default() })
}

fn successor_of(item: &ItemRef, fields: ItemFields) -> NewItem {
    debug_assert!(fields.deleted, "a deletion leaves a tombstone");
    let plain = || NewItem::new(item.key(), fields, &[]);
    if !item.has_attributes() || item.is_in_store_only() {
        return plain();
    }
    let Ok(item_plain) = item.to_plain() else { return plain() };
    let Ok((xattrs, _)) = xattr::split(item_plain.value()) else { return plain() };
    let mut kept = XattrDraft::new(xattrs);
    kept.retain(xattr::is_system);
    let mut block = Vec::with_capacity(kept.byte_count());
    kept.write(&mut block);
    debug_assert_eq!(block.len(), kept.byte_count(), "attributes take the bytes they announced");
    let datatype = datatype_with(&block, Datatype::RAW);
    NewItem::new(item.key(), ItemFields { datatype, ..fields }, &[&block])
}
