//! Replies to operations on parts of a document.
//!
//! A lookup has an outcome for each path, and is no failure when some are. A write succeeds or
//! fails as a whole; a failure names the first path that could not be changed.

use bytes::{Buf, Bytes};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::Cas;

use crate::error::{MalformedResponse, PathError};
use crate::path_outcome::is_about_tombstone;
use crate::reply::{MutationToken, Reply};

/// The answer to [`crate::Operation::lookup_in`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LookupInReply {
    /// CAS of the document.
    pub cas: Cas,
    /// True when the document was deleted.
    pub is_deleted: bool,
    /// Outcome of each path, in their order. JSON, unless the path says otherwise.
    pub values: Vec<Result<Bytes, PathError>>,
}

/// The answer to [`crate::Operation::mutate_in`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MutateInReply {
    /// CAS of the document.
    pub cas: Cas,
    /// Where the write stands in its vbucket's history, when the server sends it.
    pub mutation: Option<MutationToken>,
    /// True when the document was, and still is, deleted.
    pub is_deleted: bool,
    /// New values of paths that have one (counters).
    pub values: Vec<PathValue>,
}

/// The new value at a path that was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PathValue {
    /// Position of the path in the request, from 0.
    pub index: usize,
    /// JSON.
    pub value: Bytes,
}

impl LookupInReply {
    /// Decodes the reply to a lookup of `paths` paths.
    pub fn decode(reply: Reply, paths: usize) -> Result<LookupInReply, MalformedResponse> {
        let Reply { cas, status, opcode, .. } = reply;
        let is_deleted = is_about_tombstone(status);
        let mut values = Vec::with_capacity(paths.min(super::PATHS_MAX));
        if opcode == Opcode::SubdocMultiLookup as u8 {
            let mut rest = reply.value;
            while !rest.is_empty() {
                let (status, value) = split_value(&mut rest)?;
                values.push(PathError::from_status(status).map(|()| value));
            }
        } else {
            let outcome = match status == Status::SubdocSuccessDeleted.code() {
                true => Ok(()),
                false => PathError::from_status(status),
            };
            values.push(outcome.map(|()| reply.value));
        }
        if values.len() != paths {
            return Err(MalformedResponse::new("a lookup's answer has another number of paths"));
        }
        Ok(LookupInReply { cas, is_deleted, values })
    }
}

impl MutateInReply {
    /// Decodes the reply to a write of `paths` paths.
    pub fn decode(reply: Reply, paths: usize) -> Result<MutateInReply, MalformedResponse> {
        let Reply { cas, status, opcode, mutation, .. } = reply;
        let is_deleted = is_about_tombstone(status);
        let mut values = Vec::new();
        let mut rest = reply.value;
        if opcode != Opcode::SubdocMultiMutation as u8 {
            if !rest.is_empty() {
                values.push(PathValue { index: 0, value: rest });
            }
            return Ok(MutateInReply { cas, mutation, is_deleted, values });
        }
        while !rest.is_empty() {
            let index = usize::from(rest.get_u8());
            let (_, value) = split_value(&mut rest)?;
            if index >= paths || values.len() == paths {
                return Err(MalformedResponse::new("a value for a path that was not asked for"));
            }
            values.push(PathValue { index, value });
        }
        Ok(MutateInReply { cas, mutation, is_deleted, values })
    }
}

/// Takes status, length and value off the front of `rest`.
fn split_value(rest: &mut Bytes) -> Result<(u16, Bytes), MalformedResponse> {
    let cut_off = || MalformedResponse::new("the values of a sub-document answer are cut off");
    let status = rest.try_get_u16().map_err(|_| cut_off())?;
    let bytes = rest.try_get_u32().map_err(|_| cut_off())? as usize;
    if bytes > rest.len() {
        return Err(cut_off());
    }
    Ok((status, rest.split_to(bytes)))
}
