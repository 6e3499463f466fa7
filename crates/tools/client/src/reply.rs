//! Replies: the answers to operations, decoded.
//!
//! Owns decoding of answers, compressed values included. A refusal of the server becomes an error
//! here; so does a sub-document write that failed at one of its paths.

use bytes::Bytes;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::MutationTokenExtras;
use oribi_types::{Cas, Datatype, RevSeqno, Seqno, VbUuid, Vbid};

use crate::compression;
use crate::error::MalformedResponse;
use crate::path_outcome;
use crate::response::{Response, ResponseError};

#[cfg(test)]
mod tests;

/// Where a mutation stands in its vbucket's history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MutationToken {
    /// Vbucket.
    pub vbid: Vbid,
    /// History.
    pub vb_uuid: VbUuid,
    /// Sequence number.
    pub seqno: Seqno,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WriteReply {
    /// CAS of the document as it is now.
    pub cas: Cas,
    /// Where the write stands in its vbucket's history, when the server sends it.
    pub mutation: Option<MutationToken>,
}

/// Result of changing a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CounterReply {
    /// The new value.
    pub value: u64,
    /// CAS of the counter as it is now.
    pub cas: Cas,
    /// Where the change stands in its vbucket's history, when the server sends it.
    pub mutation: Option<MutationToken>,
}

/// A document that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Document {
    /// Value.
    pub value: Bytes,
    /// CAS, for a conditional write.
    pub cas: Cas,
    /// Flags that the writer set.
    pub flags: u32,
    /// Datatype that the server reports.
    pub datatype: Datatype,
}

/// Metadata of a document, or of one that was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DocumentMeta {
    /// CAS.
    pub cas: Cas,
    /// True when the document was deleted and only this is left.
    pub is_deleted: bool,
    /// Flags that the writer set.
    pub flags: u32,
    /// Expiry as UNIX time; 0 for none. For a deleted document, when it was deleted.
    pub expiry: u32,
    /// How many times it was mutated.
    pub rev_seqno: RevSeqno,
}

/// The answer to an operation that succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// CAS of the document.
    pub cas: Cas,
    /// Value of a read, or the eight bytes of a counter. Never compressed.
    pub value: Bytes,
    /// Flags of a document that was read.
    pub flags: u32,
    /// Datatype of a document that was read.
    pub datatype: Datatype,
    /// For mutations, when the server sends it.
    pub mutation: Option<MutationToken>,
    pub(crate) opcode: u8,
    pub(crate) status: u16,
    pub(crate) meta: Option<DocumentMeta>,
}

impl Reply {
    /// The reply in the answer to an operation on `vbid`.
    pub(crate) fn from_response(response: Response, vbid: Vbid) -> Result<Reply, ResponseError> {
        let header = response.header;
        let status = header.vbucket_or_status;
        match Opcode::from_u8(header.opcode) {
            Some(opcode) if path_outcome::is_outcome(opcode, status) => {
                path_outcome::check_mutation(opcode, status, &response)?;
            }
            _ => response.outcome()?,
        }
        let extras = response.extras();
        let mutation = MutationTokenExtras::decode(extras).map(|extras| MutationToken {
            vbid,
            vb_uuid: extras.vb_uuid,
            seqno: extras.seqno,
        });
        let flags = <[u8; 4]>::try_from(extras).map_or(0, u32::from_be_bytes);
        let cas = Cas(header.cas);
        let meta = match header.opcode == Opcode::GetMeta as u8 {
            true => Some(DocumentMeta::decode(extras, cas)?),
            false => None,
        };
        let mut value = response.into_value();
        let mut datatype = Datatype(header.datatype);
        if datatype.contains(Datatype::SNAPPY) {
            value = compression::decompress(&value)?;
            datatype.0 &= !Datatype::SNAPPY.0;
        }
        Ok(Reply { cas, value, flags, datatype, mutation, opcode: header.opcode, status, meta })
    }

    /// The counter's new value.
    pub fn counter_value(&self) -> Result<u64, MalformedResponse> {
        let bytes = self.value[..]
            .try_into()
            .map_err(|_| MalformedResponse::new("a counter's answer has eight bytes"))?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Outcome, for the answer to a write.
    pub fn write_reply(&self) -> WriteReply {
        WriteReply { cas: self.cas, mutation: self.mutation }
    }

    /// The document, for the answer to a read.
    pub fn into_document(self) -> Document {
        Document { value: self.value, cas: self.cas, flags: self.flags, datatype: self.datatype }
    }

    /// For the answer to [`crate::Operation::get_meta`].
    pub fn meta(&self) -> Option<DocumentMeta> {
        self.meta
    }
}

impl DocumentMeta {
    /// Bytes that every server sends: deleted, flags, expiry and revision. More may follow.
    const BYTES: usize = 20;

    fn decode(extras: &[u8], cas: Cas) -> Result<DocumentMeta, MalformedResponse> {
        let Some(extras) = extras.first_chunk::<{ DocumentMeta::BYTES }>() else {
            return Err(MalformedResponse::new("a document's metadata has at least twenty bytes"));
        };
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| extras[at + byte]));
        Ok(DocumentMeta {
            cas,
            is_deleted: word(0) != 0,
            flags: word(4),
            expiry: word(8),
            rev_seqno: RevSeqno(u64::from(word(12)) << 32 | u64::from(word(16))),
        })
    }
}
