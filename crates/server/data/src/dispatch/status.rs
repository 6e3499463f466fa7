//! The single wire status of each outcome of the engine.
//!
//! One exhaustive match per outcome type: a new outcome does not compile until it has a status
//! here. A missing document is a reply, not a failure; the dispatcher gives it its status. Only the
//! dispatcher calls this. [`for_legacy`] gives classic memcached statuses to a client that did not
//! negotiate extended ones.

use oribi_engine::{
    CounterOutcome, MutationOutcome, OperationRejection, PersistOutcome, UnlockOutcome,
};
use oribi_protocol::frame_info::FrameInfoError;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_subdoc::SubdocError;

/// Why the engine did not look at the key.
pub fn of_refused(refused: OperationRejection) -> Status {
    match refused {
        OperationRejection::NotMyVbucket => Status::NotMyVbucket,
        OperationRejection::UnknownCollection => Status::UnknownCollection,
        OperationRejection::TemporaryFailure => Status::Etmpfail,
        OperationRejection::NoMemory => Status::Enomem,
        // Without a wait for the fetch the client has to retry.
        OperationRejection::NeedsFetch => Status::Etmpfail,
        OperationRejection::Locked => Status::Locked,
        OperationRejection::DurableWriteInProgress => Status::SyncWriteInProgress,
        OperationRejection::Recommitting => Status::SyncWriteReCommitInProgress,
    }
}

/// The result of an unlock.
pub fn of_unlock(outcome: UnlockOutcome) -> Status {
    match outcome {
        UnlockOutcome::Done => Status::Success,
        UnlockOutcome::NotFound => Status::KeyEnoent,
        UnlockOutcome::NotLocked => Status::NotLocked,
        UnlockOutcome::Refused(refused) => of_refused(refused),
    }
}

/// True for requests that answer "temporary failure" at a lock to a client without extended errors.
/// To the other requests a lock looks like a concurrent write.
pub fn locked_is_temporary(opcode: Opcode) -> bool {
    use Opcode::{Delete, Deleteq, GetLocked, UnlockKey};
    matches!(opcode, GetLocked | UnlockKey | Delete | Deleteq)
}

/// The result of a store, concat, delete or touch.
pub fn of_mutation(outcome: &MutationOutcome) -> Status {
    match outcome {
        MutationOutcome::Done(_) => Status::Success,
        MutationOutcome::NotFound => Status::KeyEnoent,
        MutationOutcome::Exists => Status::KeyEexists,
        MutationOutcome::NotStored => Status::NotStored,
        MutationOutcome::TooLarge => Status::E2big,
        MutationOutcome::Corrupt => Status::Einval,
        MutationOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// The result of an increment or decrement.
pub fn of_counter(outcome: &CounterOutcome) -> Status {
    match outcome {
        CounterOutcome::Done { .. } => Status::Success,
        CounterOutcome::NotFound => Status::KeyEnoent,
        CounterOutcome::Exists => Status::KeyEexists,
        CounterOutcome::NotANumber => Status::DeltaBadval,
        CounterOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// The error of an operation on a path.
pub fn of_sub_document(error: SubdocError) -> Status {
    match error {
        SubdocError::PathEnoent => Status::SubdocPathEnoent,
        SubdocError::PathMismatch => Status::SubdocPathMismatch,
        SubdocError::PathEinval => Status::SubdocPathEinval,
        SubdocError::PathE2big => Status::SubdocPathE2big,
        SubdocError::DocE2deep => Status::SubdocDocE2deep,
        SubdocError::ValueCantinsert => Status::SubdocValueCantinsert,
        SubdocError::DocNotJson => Status::SubdocDocNotJson,
        SubdocError::NumErange => Status::SubdocNumErange,
        SubdocError::DeltaEinval => Status::SubdocDeltaEinval,
        SubdocError::PathEexists => Status::SubdocPathEexists,
        SubdocError::ValueEtoodeep => Status::SubdocValueEtoodeep,
    }
}

/// The result of a write that waited for the store. After a failure it is unknown whether the write
/// is on disk.
pub fn of_persist(outcome: PersistOutcome) -> Status {
    match outcome {
        PersistOutcome::Persisted | PersistOutcome::Committed(_) => Status::Success,
        PersistOutcome::Failed => Status::SyncWriteAmbiguous,
    }
}

/// The error in framing extras.
pub fn of_frame_info(error: FrameInfoError) -> Status {
    match error {
        FrameInfoError::Malformed => Status::Einval,
        FrameInfoError::Unknown(_) => Status::UnknownFrameInfo,
        FrameInfoError::InvalidDurability => Status::DurabilityInvalidLevel,
    }
}

/// The nearest classic status for a client without the XError feature. Handshake statuses stay as
/// they are, because the commands that answer with them are not classic either.
pub fn for_legacy(status: Status) -> Status {
    match status {
        Status::Locked => Status::KeyEexists,
        Status::NotLocked => Status::Etmpfail,
        Status::UnknownFrameInfo | Status::DurabilityInvalidLevel => Status::Einval,
        Status::RateLimitedMaxConnections => Status::AuthError,
        Status::UnknownCollection | Status::UnknownScope => Status::KeyEnoent,
        Status::SyncWriteAmbiguous | Status::SyncWriteInProgress => Status::Etmpfail,
        other => other,
    }
}

/// The text of memcached 1.6 in the answer to a failed request, word for word; `None` for a status
/// that memcached does not have.
pub fn memcached_text(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::KeyEnoent => "Not found",
        Status::KeyEexists => "Data exists for key.",
        Status::E2big => "Too large.",
        Status::Einval => "Invalid arguments",
        Status::NotStored => "Not stored.",
        Status::DeltaBadval => "Non-numeric server-side value for incr or decr",
        Status::AuthError => "Auth failure.",
        Status::UnknownCommand => "Unknown command",
        Status::Enomem => "Out of memory",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_status_in_every_family() {
        let all = [
            (OperationRejection::NotMyVbucket, Status::NotMyVbucket),
            (OperationRejection::UnknownCollection, Status::UnknownCollection),
            (OperationRejection::TemporaryFailure, Status::Etmpfail),
            (OperationRejection::NoMemory, Status::Enomem),
            (OperationRejection::NeedsFetch, Status::Etmpfail),
            (OperationRejection::Locked, Status::Locked),
            (OperationRejection::DurableWriteInProgress, Status::SyncWriteInProgress),
            (OperationRejection::Recommitting, Status::SyncWriteReCommitInProgress),
        ];
        for (refused, status) in all {
            assert_eq!(of_refused(refused), status);
            assert_eq!(of_unlock(UnlockOutcome::Refused(refused)), status);
            assert_eq!(of_mutation(&MutationOutcome::Refused(refused)), status);
            assert_eq!(of_counter(&CounterOutcome::Refused(refused)), status);
        }
    }

    // Invariant: Every outcome has exactly one status on the wire.
    #[test]
    fn every_other_outcome_has_its_status() {
        assert_eq!(of_unlock(UnlockOutcome::Done), Status::Success);
        assert_eq!(of_unlock(UnlockOutcome::NotFound), Status::KeyEnoent);
        assert_eq!(of_unlock(UnlockOutcome::NotLocked), Status::NotLocked);
        assert_eq!(of_mutation(&MutationOutcome::NotFound), Status::KeyEnoent);
        assert_eq!(of_mutation(&MutationOutcome::Exists), Status::KeyEexists);
        assert_eq!(of_mutation(&MutationOutcome::NotStored), Status::NotStored);
        assert_eq!(of_mutation(&MutationOutcome::TooLarge), Status::E2big);
        assert_eq!(of_mutation(&MutationOutcome::Corrupt), Status::Einval);
        assert_eq!(of_counter(&CounterOutcome::NotFound), Status::KeyEnoent);
        assert_eq!(of_counter(&CounterOutcome::Exists), Status::KeyEexists);
        assert_eq!(of_counter(&CounterOutcome::NotANumber), Status::DeltaBadval);
        assert_eq!(of_sub_document(SubdocError::PathEnoent).code(), 0xc0);
        assert_eq!(of_sub_document(SubdocError::ValueEtoodeep).code(), 0xca);
        assert_eq!(of_persist(PersistOutcome::Persisted), Status::Success);
        assert_eq!(of_persist(PersistOutcome::Failed), Status::SyncWriteAmbiguous);
        assert_eq!(of_frame_info(FrameInfoError::Malformed), Status::Einval);
        assert_eq!(of_frame_info(FrameInfoError::Unknown(4)), Status::UnknownFrameInfo);
        assert_eq!(
            of_frame_info(FrameInfoError::InvalidDurability),
            Status::DurabilityInvalidLevel
        );
    }

    #[test]
    fn classic_clients_get_classic_statuses() {
        assert_eq!(for_legacy(Status::UnknownCollection), Status::KeyEnoent);
        assert_eq!(for_legacy(Status::UnknownFrameInfo), Status::Einval);
        assert_eq!(for_legacy(Status::SyncWriteAmbiguous), Status::Etmpfail);
        assert_eq!(for_legacy(Status::Locked), Status::KeyEexists);
        assert_eq!(for_legacy(Status::NotLocked), Status::Etmpfail);
        assert_eq!(for_legacy(Status::KeyEnoent), Status::KeyEnoent);
        assert_eq!(for_legacy(Status::Eaccess), Status::Eaccess);
    }
}
