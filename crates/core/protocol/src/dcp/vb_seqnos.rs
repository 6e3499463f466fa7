//! GET_ALL_VB_SEQNOS: high seqnos of the vbuckets on a node.

use oribi_types::{CollectionId, Seqno, Vbid};

use crate::request::split_u32;

/// Extras of the request: none, a state, or a state and a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VbSeqnosExtras {
    /// State of the wanted vbuckets; 0 for all that live.
    pub state: Option<u32>,
    /// The collection whose seqnos are wanted.
    pub collection: Option<CollectionId>,
}

impl VbSeqnosExtras {
    /// Decodes 0, 4 or 8 bytes.
    pub fn decode(extras: &[u8]) -> Option<VbSeqnosExtras> {
        if extras.is_empty() {
            return Some(VbSeqnosExtras::default());
        }
        let (state, rest) = split_u32(extras)?;
        if rest.is_empty() {
            return Some(VbSeqnosExtras { state: Some(state), collection: None });
        }
        let (collection, rest) = split_u32(rest)?;
        let collection = Some(CollectionId(collection));
        rest.is_empty().then_some(VbSeqnosExtras { state: Some(state), collection })
    }

    /// Appends the extras. A collection needs a state, so a missing one is sent as 0.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.state.is_some() || self.collection.is_some() {
            out.extend_from_slice(&self.state.unwrap_or(0).to_be_bytes());
        }
        if let Some(collection) = self.collection {
            out.extend_from_slice(&collection.0.to_be_bytes());
        }
    }
}

/// The answer: one entry per vbucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VbSeqnos<'a> {
    entries: &'a [u8],
}

impl<'a> VbSeqnos<'a> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 10;

    /// Views a body of whole entries.
    pub fn decode(value: &'a [u8]) -> Option<VbSeqnos<'a>> {
        value.len().is_multiple_of(Self::ENTRY_BYTES).then_some(VbSeqnos { entries: value })
    }

    /// Each vbucket and its seqno.
    pub fn entries(self) -> impl Iterator<Item = (Vbid, Seqno)> + 'a {
        self.entries.chunks_exact(Self::ENTRY_BYTES).filter_map(|entry| {
            let (vbid, seqno) = entry.split_first_chunk()?;
            let seqno = seqno.try_into().ok()?;
            Some((Vbid(u16::from_be_bytes(*vbid)), Seqno(u64::from_be_bytes(seqno))))
        })
    }

    /// Appends one entry.
    pub fn write_entry(out: &mut Vec<u8>, vbid: Vbid, seqno: Seqno) {
        out.extend_from_slice(&vbid.0.to_be_bytes());
        out.extend_from_slice(&seqno.0.to_be_bytes());
    }
}
