//! A response as received, with the few decodings that tests need.

use anyhow::{Context, Result};
use oribi_protocol::frame::Header;
use oribi_protocol::response::MutationTokenExtras;
use oribi_protocol::status::Status;
use oribi_types::{Cas, Seqno, VbUuid};

/// One response, in owned parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Opcode of the request that it answers.
    pub opcode: u8,
    pub status_code: u16,
    /// Opaque of the request that it answers.
    pub opaque: u32,
    /// Version of the document.
    pub cas: Cas,
    /// Datatype bits of the value.
    pub datatype: u8,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The data of a successful mutation when mutation tokens were negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Version of the document.
    pub cas: Cas,
    /// History that the seqno belongs to.
    pub vb_uuid: VbUuid,
    /// Place in that history.
    pub seqno: Seqno,
}

impl Response {
    /// Cuts a body according to its header.
    pub(super) fn from_parts(header: &Header, body: &[u8]) -> Result<Response> {
        let (_, rest) = body
            .split_at_checked(usize::from(header.framing_bytes))
            .context("framing extras are longer than the body")?;
        let (extras, rest) = rest
            .split_at_checked(usize::from(header.extras_bytes))
            .context("extras are longer than the body")?;
        let (key, value) = rest
            .split_at_checked(usize::from(header.key_bytes))
            .context("the key is longer than the body")?;
        Ok(Response {
            opcode: header.opcode,
            status_code: header.vbucket_or_status,
            opaque: header.opaque,
            cas: Cas(header.cas),
            datatype: header.datatype,
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        })
    }

    /// The status.
    ///
    /// # Panics
    /// When the server sent a code that is not in the protocol's table, which no server may do.
    #[track_caller]
    pub fn status(&self) -> Status {
        let code = self.status_code;
        Status::from_u16(code).unwrap_or_else(|| panic!("status 0x{code:04x} does not exist"))
    }

    pub fn mutation(&self) -> Result<Mutation> {
        let extras = MutationTokenExtras::decode(&self.extras)
            .with_context(|| format!("not a mutation with a token: {self:?}"))?;
        Ok(Mutation { cas: self.cas, vb_uuid: extras.vb_uuid, seqno: extras.seqno })
    }

    /// The value as text, invalid bytes replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}
