//! A vbucket's state as bytes, the same in every store that is not in memory only. The table
//! "Vbucket state" of `docs/storage-format.md` says the same, and a test compares the two.
//!
//! Owns: offsets and the version of a state. Invariants: little-endian; whatever bytes come in,
//! decoding answers a state or `StoreError::Corrupt` and never panics.

use oribi_types::{Cas, RevSeqno, Seqno, VbUuid};

use crate::{FailoverEntry, StoreError, VbBatch, VbucketPhase, VbucketState};

/// Most vbuckets of a bucket.
pub const VBUCKETS_MAX: u16 = 1024;

/// Version byte of a vbucket state.
pub(crate) const STATE_VERSION: u8 = 1;
/// Offset of the version byte.
pub(crate) const STATE_VERSION_AT: usize = 0;
/// Offset of the phase.
pub(crate) const STATE_PHASE_AT: usize = 1;
/// Offset of the highest seqno, u64.
pub(crate) const STATE_HIGH_SEQNO_AT: usize = 2;
/// Offset of the highest CAS, u64.
pub(crate) const STATE_MAX_CAS_AT: usize = 10;
/// Offset of the highest revision of a deletion, u64.
pub(crate) const STATE_MAX_DELETED_REV_SEQNO_AT: usize = 18;
/// Offset of the purge seqno, u64.
pub(crate) const STATE_PURGE_SEQNO_AT: usize = 26;
/// Offset of the number of failover entries, u8.
pub(crate) const STATE_FAILOVER_COUNT_AT: usize = 34;
/// Offset of the first failover entry.
pub(crate) const STATE_FAILOVER_AT: usize = 35;
/// Length of a failover entry: uuid and seqno, u64 each.
pub(crate) const FAILOVER_ENTRY_BYTES: usize = 16;
/// Most failover entries of a vbucket.
pub(crate) const FAILOVER_ENTRIES_MAX: usize = 25;
const _: () = assert!(FAILOVER_ENTRIES_MAX <= u8::MAX as usize, "their number is one byte");
const _: () = assert!(STATE_HIGH_SEQNO_AT == STATE_PHASE_AT + 1);
const _: () = assert!(STATE_MAX_CAS_AT == STATE_HIGH_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_MAX_DELETED_REV_SEQNO_AT == STATE_MAX_CAS_AT + size_of::<u64>());
const _: () = assert!(STATE_PURGE_SEQNO_AT == STATE_MAX_DELETED_REV_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_FAILOVER_COUNT_AT == STATE_PURGE_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_FAILOVER_AT == STATE_FAILOVER_COUNT_AT + 1);
const _: () = assert!(FAILOVER_ENTRY_BYTES == 2 * size_of::<u64>());

/// Refuses a batch that a store could not give back unchanged.
///
/// # Panics
/// When the vbucket or its failover table is beyond the layout, which only a bug above the seam can
/// cause.
pub fn assert_fits(batch: &VbBatch<'_>) {
    assert!(batch.vbid.0 < VBUCKETS_MAX, "{} is beyond the layout", batch.vbid);
    let entries = batch.state.failover_table.len();
    assert!(entries <= FAILOVER_ENTRIES_MAX, "{entries} failover entries are beyond the layout");
}

/// Value of a vbucket's state, whose batch passed [`assert_fits`].
pub fn encode_state(state: &VbucketState) -> Vec<u8> {
    let entries = state.failover_table.len();
    let mut value = vec![0; STATE_FAILOVER_AT + entries * FAILOVER_ENTRY_BYTES];
    value[STATE_VERSION_AT] = STATE_VERSION;
    value[STATE_PHASE_AT] = state.phase as u8;
    put(&mut value, STATE_HIGH_SEQNO_AT, state.high_seqno.0.to_le_bytes());
    put(&mut value, STATE_MAX_CAS_AT, state.max_cas.0.to_le_bytes());
    put(&mut value, STATE_MAX_DELETED_REV_SEQNO_AT, state.max_deleted_rev_seqno.0.to_le_bytes());
    put(&mut value, STATE_PURGE_SEQNO_AT, state.purge_seqno.0.to_le_bytes());
    value[STATE_FAILOVER_COUNT_AT] =
        u8::try_from(entries).expect("assert_fits bounds the failover table");
    for (number, entry) in state.failover_table.iter().enumerate() {
        let at = STATE_FAILOVER_AT + number * FAILOVER_ENTRY_BYTES;
        put(&mut value, at, entry.uuid.0.to_le_bytes());
        put(&mut value, at + 8, entry.seqno.0.to_le_bytes());
    }
    assert_eq!(
        phase_of(value[STATE_PHASE_AT]),
        Some(state.phase),
        "a phase is read as it is written"
    );
    value
}

/// Reads a vbucket's state.
///
/// # Errors
/// `Corrupt` when the bytes are not what [`encode_state`] writes.
pub fn decode_state(value: &[u8]) -> Result<VbucketState, StoreError> {
    let Some((header, table)) = value.split_first_chunk::<STATE_FAILOVER_AT>() else {
        return Err(corrupt("a vbucket state", value));
    };
    let entries = usize::from(header[STATE_FAILOVER_COUNT_AT]);
    let phase = phase_of(header[STATE_PHASE_AT]);
    let (Some(phase), STATE_VERSION) = (phase, header[STATE_VERSION_AT]) else {
        return Err(corrupt("a vbucket state", value));
    };
    if entries > FAILOVER_ENTRIES_MAX || table.len() != entries * FAILOVER_ENTRY_BYTES {
        return Err(corrupt("a failover table", value));
    }
    let entry = |bytes: &[u8]| FailoverEntry {
        uuid: VbUuid(u64::from_le_bytes(take(bytes, 0))),
        seqno: Seqno(u64::from_le_bytes(take(bytes, 8))),
    };
    let rev_seqno = u64::from_le_bytes(take(header, STATE_MAX_DELETED_REV_SEQNO_AT));
    Ok(VbucketState {
        phase,
        high_seqno: Seqno(u64::from_le_bytes(take(header, STATE_HIGH_SEQNO_AT))),
        max_cas: Cas(u64::from_le_bytes(take(header, STATE_MAX_CAS_AT))),
        max_deleted_rev_seqno: RevSeqno(rev_seqno),
        purge_seqno: Seqno(u64::from_le_bytes(take(header, STATE_PURGE_SEQNO_AT))),
        failover_table: table.chunks_exact(FAILOVER_ENTRY_BYTES).map(entry).collect(),
    })
}

fn phase_of(byte: u8) -> Option<VbucketPhase> {
    let phases =
        [VbucketPhase::Active, VbucketPhase::Replica, VbucketPhase::Pending, VbucketPhase::Dead];
    phases.into_iter().find(|phase| *phase as u8 == byte)
}

#[inline(always)]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, number: [u8; N]) {
    debug_assert!(at + N <= bytes.len(), "a number is inside its header");
    bytes[at..at + N].copy_from_slice(&number);
}

/// Bytes at a constant offset of a header whose length was checked.
#[inline(always)]
pub(crate) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    debug_assert!(at + N <= bytes.len(), "the header's length was checked");
    bytes[at..at + N].try_into().expect("the range has N bytes")
}

/// Names what is wrong, and which state by its first bytes.
fn corrupt(what: &str, state: &[u8]) -> StoreError {
    let shown = &state[..state.len().min(6)];
    StoreError::Corrupt(format!("{what} is not what this version writes, state {shown:02x?}"))
}

#[cfg(test)]
mod tests;
