//! The single wire status of each outcome of the engine.
//!
//! One exhaustive match per outcome type: a new outcome does not compile until it has a status here.
//! Called by the dispatcher and nobody else. [`for_legacy`] gives the words of classic memcached to
//! a client that did not ask for extended ones.

use oribi_engine::{
    CounterOutcome, GetOutcome, LockOutcome, MetaOutcome, MutationOutcome, PersistOutcome, Refused,
    UnlockOutcome,
};
use oribi_protocol::frame_info::FrameInfoError;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_subdoc::SubdocError;

/// Why the engine did not look at the key at all.
pub fn of_refused(refused: Refused) -> Status {
    match refused {
        Refused::NotMyVbucket => Status::NotMyVbucket,
        Refused::UnknownCollection => Status::UnknownCollection,
        Refused::TemporaryFailure => Status::Etmpfail,
        Refused::NoMemory => Status::Enomem,
        // Who cannot wait for a fetch tells the client to come again.
        Refused::NeedsFetch => Status::Etmpfail,
        Refused::Locked => Status::Locked,
    }
}

/// Get and get-and-touch.
pub fn of_get(outcome: &GetOutcome) -> Status {
    match outcome {
        GetOutcome::Hit(_) | GetOutcome::HitLocked(_) => Status::Success,
        GetOutcome::Miss => Status::KeyEnoent,
        GetOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// Get-meta.
pub fn of_meta(outcome: &MetaOutcome) -> Status {
    match outcome {
        MetaOutcome::Found(..) => Status::Success,
        MetaOutcome::Miss => Status::KeyEnoent,
        MetaOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// Get-and-lock.
pub fn of_lock(outcome: &LockOutcome) -> Status {
    match outcome {
        LockOutcome::Done { .. } => Status::Success,
        LockOutcome::Miss => Status::KeyEnoent,
        LockOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// Unlock.
pub fn of_unlock(outcome: UnlockOutcome) -> Status {
    match outcome {
        UnlockOutcome::Done => Status::Success,
        UnlockOutcome::NotFound => Status::KeyEnoent,
        UnlockOutcome::NotLocked => Status::NotLocked,
        UnlockOutcome::Refused(refused) => of_refused(refused),
    }
}

/// True for requests that a client without extended errors was always told to try again when they met a lock; the
/// others look to it as if somebody else had written.
pub fn locked_is_temporary(opcode: Opcode) -> bool {
    use Opcode::{Delete, Deleteq, GetLocked, UnlockKey};
    matches!(opcode, GetLocked | UnlockKey | Delete | Deleteq)
}

/// Store, concat, delete and touch.
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

/// Increment and decrement.
pub fn of_counter(outcome: &CounterOutcome) -> Status {
    match outcome {
        CounterOutcome::Done { .. } => Status::Success,
        CounterOutcome::NotFound => Status::KeyEnoent,
        CounterOutcome::Exists => Status::KeyEexists,
        CounterOutcome::NotANumber => Status::DeltaBadval,
        CounterOutcome::Refused(refused) => of_refused(*refused),
    }
}

/// An operation on a path.
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

/// A write that waited for the store. After a failure nobody knows whether it is on disk.
pub fn of_persist(outcome: PersistOutcome) -> Status {
    match outcome {
        PersistOutcome::Persisted => Status::Success,
        PersistOutcome::Failed => Status::SyncWriteAmbiguous,
    }
}

/// Framing extras that were not understood.
pub fn of_frame_info(error: FrameInfoError) -> Status {
    match error {
        FrameInfoError::Malformed => Status::Einval,
        FrameInfoError::Unknown(_) => Status::UnknownFrameInfo,
        FrameInfoError::InvalidDurabilityLevel => Status::DurabilityInvalidLevel,
    }
}

/// The nearest classic status for a client without the XError feature. Statuses of the handshake stay
/// as they are, because the commands that answer with them are not classic either.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_status_in_every_family() {
        let all = [
            (Refused::NotMyVbucket, Status::NotMyVbucket),
            (Refused::UnknownCollection, Status::UnknownCollection),
            (Refused::TemporaryFailure, Status::Etmpfail),
            (Refused::NoMemory, Status::Enomem),
            (Refused::NeedsFetch, Status::Etmpfail),
            (Refused::Locked, Status::Locked),
        ];
        for (refused, status) in all {
            assert_eq!(of_refused(refused), status);
            assert_eq!(of_get(&GetOutcome::Refused(refused)), status);
            assert_eq!(of_meta(&MetaOutcome::Refused(refused)), status);
            assert_eq!(of_lock(&LockOutcome::Refused(refused)), status);
            assert_eq!(of_unlock(UnlockOutcome::Refused(refused)), status);
            assert_eq!(of_mutation(&MutationOutcome::Refused(refused)), status);
            assert_eq!(of_counter(&CounterOutcome::Refused(refused)), status);
        }
    }

    #[test]
    fn every_other_outcome_has_its_status() {
        assert_eq!(of_get(&GetOutcome::Miss), Status::KeyEnoent);
        assert_eq!(of_meta(&MetaOutcome::Miss), Status::KeyEnoent);
        assert_eq!(of_lock(&LockOutcome::Miss), Status::KeyEnoent);
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
            of_frame_info(FrameInfoError::InvalidDurabilityLevel),
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
