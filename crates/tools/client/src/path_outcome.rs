//! What the status of a sub-document answer says: how its paths fared, or that the request was
//! refused.
//!
//! Owns the reading of statuses, and the error of a write that failed at a path. The values of
//! paths are decoded in `subdocument`.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

use crate::error::{ClientError, MalformedResponse, PathError};
use crate::response::{Response, ResponseError};

/// True for a status about a document that is deleted.
pub(crate) const fn is_about_tombstone(status: u16) -> bool {
    status == Status::SubdocSuccessDeleted.code()
        || status == Status::SubdocMultiPathFailureDeleted.code()
}

const fn is_multi_failure(status: u16) -> bool {
    status == Status::SubdocMultiPathFailure.code()
        || status == Status::SubdocMultiPathFailureDeleted.code()
}

fn is_single(opcode: Opcode) -> bool {
    (Opcode::SubdocGet..=Opcode::SubdocReplaceBodyWithXattr).contains(&opcode)
        && !matches!(opcode, Opcode::SubdocMultiLookup | Opcode::SubdocMultiMutation)
}

fn is_single_lookup(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::SubdocGet | Opcode::SubdocExists | Opcode::SubdocGetCount)
}

/// True for a status that says how paths fared, not that the request was refused.
pub(crate) fn is_outcome(opcode: Opcode, status: u16) -> bool {
    match opcode {
        Opcode::SubdocMultiLookup | Opcode::SubdocMultiMutation => {
            is_multi_failure(status) || is_about_tombstone(status)
        }
        _ if is_single(opcode) => {
            let is_path_status = PathError::from_status(status)
                .is_err_and(|error| !matches!(error, PathError::Other(_)));
            is_path_status || is_about_tombstone(status)
        }
        _ => false,
    }
}

/// Turns the outcome of a write that failed at a path into its error.
pub(crate) fn check_mutation(
    opcode: Opcode,
    status: u16,
    response: &Response,
) -> Result<(), ResponseError> {
    let failed = |index, status| {
        let error = PathError::from_status(status).err().unwrap_or(PathError::Other(status));
        Err(ResponseError::Error(ClientError::Path { index, error }))
    };
    if opcode == Opcode::SubdocMultiMutation && is_multi_failure(status) {
        let value = response.value();
        let Some(&[index, high, low]) = value.first_chunk::<3>() else {
            return Err(MalformedResponse::new("a failed path has a number and a status").into());
        };
        return failed(usize::from(index), u16::from_be_bytes([high, low]));
    }
    let is_single_write = is_single(opcode) && !is_single_lookup(opcode);
    if is_single_write && !is_about_tombstone(status) {
        return failed(0, status);
    }
    Ok(())
}
