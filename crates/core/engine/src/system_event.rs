//! System events: the creation and the end of collections and scopes in a vbucket's history.
//!
//! Owns: the key and the body of such a record, and nothing of how it travels. An event is an item
//! of the collection [`CollectionId::SYSTEM`], with a seqno among those of the documents. A
//! creation is a live record, an end a tombstone with a body. Both have the same key, so a history
//! that is read from its beginning shows the last event only.
//!
//! Key: `c` or `s`, then the id of the collection or scope in 8 hexadecimal digits.
//!
//! Body, little endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | layout, 1 |
//! | 1 | 1 | kind |
//! | 2 | 1 | 1 if there is a longest life, otherwise 0 |
//! | 3 | 8 | manifest uid to show |
//! | 11 | 4 | scope id |
//! | 15 | 4 | collection id, 0 for a scope |
//! | 19 | 4 | longest life of documents in seconds, or 0 |
//! | 23 | n | name, UTF-8 |

use oribi_types::{CollectionId, DocKey, ManifestUid, ScopeId, Seqno};

const LAYOUT: u8 = 1;
const NAME_AT: usize = 23;
const _: () = assert!(NAME_AT == 3 + size_of::<u64>() + 3 * size_of::<u32>());

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ManifestEventKind {
    /// A collection was created.
    CollectionBegin = 0,
    /// A collection was dropped.
    CollectionEnd = 1,
    /// The longest life of a collection's documents was changed. The record stands for the
    /// creation as well, which it supersedes.
    CollectionChanged = 2,
    /// A scope was created.
    ScopeBegin = 3,
    /// A scope was dropped.
    ScopeEnd = 4,
}

impl ManifestEventKind {
    fn from_byte(byte: u8) -> Option<ManifestEventKind> {
        use ManifestEventKind::{
            CollectionBegin, CollectionChanged, CollectionEnd, ScopeBegin, ScopeEnd,
        };
        let all = [CollectionBegin, CollectionEnd, CollectionChanged, ScopeBegin, ScopeEnd];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// True for an event of a scope.
    pub fn is_of_scope(self) -> bool {
        matches!(self, ManifestEventKind::ScopeBegin | ManifestEventKind::ScopeEnd)
    }

    /// True for the end of a collection or scope.
    pub fn is_end(self) -> bool {
        matches!(self, ManifestEventKind::CollectionEnd | ManifestEventKind::ScopeEnd)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestEvent<'a> {
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    pub kind: ManifestEventKind,
    /// The last manifest that a reader knows completely once it has this event.
    pub manifest_uid: ManifestUid,
    /// The scope, or that of the collection.
    pub scope: ScopeId,
    /// The collection, if it is about one.
    pub collection: Option<CollectionId>,
    /// Longest life of a collection's documents in seconds, if one is set.
    pub max_ttl_s: Option<u32>,
    /// Name of what came or was changed; empty for what went.
    pub name: &'a str,
}

impl<'a> ManifestEvent<'a> {
    /// Bytes of each key.
    pub const KEY_BYTES: usize = 9;

    /// The key of the record.
    pub fn key(&self) -> [u8; ManifestEvent::KEY_BYTES] {
        let (letter, id) = match self.collection {
            None => (b's', self.scope.0),
            Some(collection) => (b'c', collection.0),
        };
        let mut key = [letter; ManifestEvent::KEY_BYTES];
        debug_assert_eq!(
            self.kind.is_of_scope(),
            self.collection.is_none(),
            "an event has its subject"
        );
        for (at, digit) in key[1..].iter_mut().enumerate() {
            let nibble = (id >> (28 - 4 * at)) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        key
    }

    /// The body of the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(NAME_AT + self.name.len());
        body.extend([LAYOUT, self.kind as u8, u8::from(self.max_ttl_s.is_some())]);
        body.extend(self.manifest_uid.0.to_le_bytes());
        body.extend(self.scope.0.to_le_bytes());
        body.extend(self.collection.map_or(0, |collection| collection.0).to_le_bytes());
        body.extend(self.max_ttl_s.unwrap_or(0).to_le_bytes());
        debug_assert_eq!(body.len(), NAME_AT, "the name follows the fixed part");
        body.extend(self.name.as_bytes());
        body
    }

    /// The event of the record with this seqno and body; `None` when the bytes are none of ours.
    pub fn decode(seqno: Seqno, body: &'a [u8]) -> Option<ManifestEvent<'a>> {
        let (head, name) = body.split_at_checked(NAME_AT)?;
        let max_ttl_s = u32_at(head, 19)?;
        let max_ttl_s = match head[2] {
            0 if max_ttl_s == 0 => None,
            1 => Some(max_ttl_s),
            _ => return None,
        };
        let uid = u64::from(u32_at(head, 3)?) | u64::from(u32_at(head, 7)?) << 32;
        let (kind, collection) = (ManifestEventKind::from_byte(head[1])?, u32_at(head, 15)?);
        let collection = match kind.is_of_scope() {
            true if collection == 0 => None,
            true => return None,
            false => Some(CollectionId(collection)),
        };
        let event = ManifestEvent {
            seqno,
            kind,
            manifest_uid: ManifestUid(uid),
            scope: ScopeId(u32_at(head, 11)?),
            collection,
            max_ttl_s,
            name: std::str::from_utf8(name).ok()?,
        };
        (head[0] == LAYOUT).then_some(event)
    }
}

/// The lowest key of all events, from which a scan begins.
pub(crate) const FIRST_KEY: DocKey<'static> =
    DocKey { collection: CollectionId::SYSTEM, key: b"c" };

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    fn event(kind: u8, numbers: (u64, u32, u32), max_ttl_s: Option<u32>) -> ManifestEvent<'static> {
        let kind = ManifestEventKind::from_byte(kind).expect("a kind");
        ManifestEvent {
            seqno: Seqno(9),
            kind,
            manifest_uid: ManifestUid(numbers.0),
            scope: ScopeId(numbers.1),
            collection: (!kind.is_of_scope()).then_some(CollectionId(numbers.2)),
            max_ttl_s,
            name: "orders",
        }
    }

    #[test]
    fn the_layout_is_as_in_the_table() {
        let event = event(2, (0x0102_0304_0506_0708, 8, 0x0a0b_0c0d), Some(60));
        let body = event.encode();
        assert_eq!(body[..3], [1, 2, 1]);
        assert_eq!(body[3..11], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(body[11..23], [8, 0, 0, 0, 0xd, 0xc, 0xb, 0xa, 60, 0, 0, 0]);
        assert_eq!(&body[23..], b"orders");
        assert_eq!(&event.key(), b"c0a0b0c0d");
        let scope =
            ManifestEvent { kind: ManifestEventKind::ScopeBegin, collection: None, ..event };
        assert_eq!(&scope.key(), b"s00000008");
        assert!(FIRST_KEY.key <= event.key().as_slice() && FIRST_KEY.key <= scope.key().as_slice());
    }

    proptest! {
        #[test]
        fn encoded_events_are_decoded(
            kind in 0u8..5,
            numbers in any::<(u64, u32, u32)>(),
            max_ttl_s in any::<Option<u32>>(),
        ) {
            let event = event(kind, numbers, max_ttl_s);
            let body = event.encode();
            prop_assert_eq!(ManifestEvent::decode(Seqno(9), &body), Some(event));
        }

        /// Any bytes decode to nothing, or to an event of exactly these bytes.
        #[test]
        fn no_bytes_are_read_wrongly(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
            is_near in any::<bool>(),
        ) {
            if is_near && bytes.len() >= 3 {
                (bytes[0], bytes[1], bytes[2]) = (1, bytes[1] % 6, bytes[2] % 3);
                bytes.iter_mut().skip(NAME_AT).for_each(|byte| *byte &= 0x7f);
            }
            if let Some(event) = ManifestEvent::decode(Seqno(9), &bytes) {
                prop_assert_eq!(event.encode(), bytes);
            }
        }
    }
}
