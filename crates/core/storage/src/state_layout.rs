//! A vbucket's state as bytes, the same in every store that is not in memory only. The table
//! "Vbucket state" of `docs/storage-format.md` says the same, and a test compares the two.
//!
//! Owns: offsets and the version of a state. Invariants: little-endian; whatever bytes come in,
//! decoding answers a state or an error and never panics. A state of version 1, which knew no
//! copies, is read as one of version 2; whatever is written has version 2.

use oribi_types::{Cas, CopiesEpoch, RevSeqno, Seqno, VbUuid};

use crate::{FailoverEntry, StoreError, VbBatch, VbucketPhase, VbucketState};

/// Most vbuckets of a bucket.
pub const VBUCKETS_MAX: u16 = 1024;

/// Version of a vbucket state, as it is written.
pub(crate) const STATE_VERSION: u8 = 2;
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
/// Offset of the snapshot's start, u64.
pub(crate) const STATE_SNAPSHOT_START_AT: usize = 34;
/// Offset of the snapshot's end, u64.
pub(crate) const STATE_SNAPSHOT_END_AT: usize = 42;
/// Offset of the high prepared seqno, u64.
pub(crate) const STATE_HIGH_PREPARED_AT: usize = 50;
/// Offset of the high completed seqno, u64.
pub(crate) const STATE_HIGH_COMPLETED_AT: usize = 58;
/// Offset of the highest visible seqno, u64.
pub(crate) const STATE_MAX_VISIBLE_AT: usize = 66;
/// Offset of the promised epoch, u64.
pub(crate) const STATE_PROMISED_EPOCH_AT: usize = 74;
/// Offset of the recorded epoch, u64.
pub(crate) const STATE_RECORDED_EPOCH_AT: usize = 82;
/// Offset of the marks, u8.
pub(crate) const STATE_MARKS_AT: usize = 90;
/// Offset of the number of failover entries, u8.
pub(crate) const STATE_FAILOVER_COUNT_AT: usize = 91;
/// Offset of the first failover entry.
pub(crate) const STATE_FAILOVER_AT: usize = 92;
/// Length of a failover entry: uuid, seqno and epoch, u64 each.
pub(crate) const FAILOVER_ENTRY_BYTES: usize = 24;
/// Most failover entries of a vbucket.
pub(crate) const FAILOVER_ENTRIES_MAX: usize = 25;

/// Bits of the marks.
const MARK_STOPPED_CLEANLY: u8 = 0x01;
const MARK_INTACT: u8 = 0x02;
const MARK_REWOUND: u8 = 0x04;
const MARKS: u8 = MARK_STOPPED_CLEANLY | MARK_INTACT | MARK_REWOUND;

/// Version 1: the number of failover entries followed the purge seqno, and an entry had no epoch.
const V1_FAILOVER_COUNT_AT: usize = 34;
const V1_FAILOVER_AT: usize = 35;
const V1_FAILOVER_ENTRY_BYTES: usize = 16;

const _: () = assert!(FAILOVER_ENTRIES_MAX <= u8::MAX as usize, "their number is one byte");
const _: () = assert!(STATE_HIGH_SEQNO_AT == STATE_PHASE_AT + 1);
const _: () = assert!(STATE_MAX_CAS_AT == STATE_HIGH_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_MAX_DELETED_REV_SEQNO_AT == STATE_MAX_CAS_AT + size_of::<u64>());
const _: () = assert!(STATE_PURGE_SEQNO_AT == STATE_MAX_DELETED_REV_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_SNAPSHOT_START_AT == STATE_PURGE_SEQNO_AT + size_of::<u64>());
const _: () = assert!(STATE_SNAPSHOT_END_AT == STATE_SNAPSHOT_START_AT + size_of::<u64>());
const _: () = assert!(STATE_HIGH_PREPARED_AT == STATE_SNAPSHOT_END_AT + size_of::<u64>());
const _: () = assert!(STATE_HIGH_COMPLETED_AT == STATE_HIGH_PREPARED_AT + size_of::<u64>());
const _: () = assert!(STATE_MAX_VISIBLE_AT == STATE_HIGH_COMPLETED_AT + size_of::<u64>());
const _: () = assert!(STATE_PROMISED_EPOCH_AT == STATE_MAX_VISIBLE_AT + size_of::<u64>());
const _: () = assert!(STATE_RECORDED_EPOCH_AT == STATE_PROMISED_EPOCH_AT + size_of::<u64>());
const _: () = assert!(STATE_MARKS_AT == STATE_RECORDED_EPOCH_AT + size_of::<u64>());
const _: () = assert!(STATE_FAILOVER_COUNT_AT == STATE_MARKS_AT + 1);
const _: () = assert!(STATE_FAILOVER_AT == STATE_FAILOVER_COUNT_AT + 1);
const _: () = assert!(FAILOVER_ENTRY_BYTES == 3 * size_of::<u64>());

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
    put(&mut value, STATE_SNAPSHOT_START_AT, state.snapshot_start.0.to_le_bytes());
    put(&mut value, STATE_SNAPSHOT_END_AT, state.snapshot_end.0.to_le_bytes());
    put(&mut value, STATE_HIGH_PREPARED_AT, state.high_prepared_seqno.0.to_le_bytes());
    put(&mut value, STATE_HIGH_COMPLETED_AT, state.high_completed_seqno.0.to_le_bytes());
    put(&mut value, STATE_MAX_VISIBLE_AT, state.max_visible_seqno.0.to_le_bytes());
    put(&mut value, STATE_PROMISED_EPOCH_AT, state.promised_epoch.0.to_le_bytes());
    put(&mut value, STATE_RECORDED_EPOCH_AT, state.recorded_epoch.0.to_le_bytes());
    value[STATE_MARKS_AT] = marks_of(state);
    value[STATE_FAILOVER_COUNT_AT] =
        u8::try_from(entries).expect("assert_fits bounds the failover table");
    for (number, entry) in state.failover_table.iter().enumerate() {
        let at = STATE_FAILOVER_AT + number * FAILOVER_ENTRY_BYTES;
        put(&mut value, at, entry.uuid.0.to_le_bytes());
        put(&mut value, at + 8, entry.seqno.0.to_le_bytes());
        put(&mut value, at + 16, entry.epoch.0.to_le_bytes());
    }
    assert_eq!(
        phase_of(value[STATE_PHASE_AT]),
        Some(state.phase),
        "a phase is read as it is written"
    );
    value
}

fn marks_of(state: &VbucketState) -> u8 {
    let mark = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    mark(state.stopped_cleanly, MARK_STOPPED_CLEANLY)
        | mark(state.is_intact, MARK_INTACT)
        | mark(state.is_rewound, MARK_REWOUND)
}

/// Reads a vbucket's state of version 1 or 2.
///
/// # Errors
/// `Foreign` for a state of a later version, `Corrupt` when the bytes are of neither.
pub fn decode_state(value: &[u8]) -> Result<VbucketState, StoreError> {
    match value.get(STATE_VERSION_AT) {
        Some(1) => decode_first_version(value),
        Some(&STATE_VERSION) => decode_second_version(value),
        Some(later) if *later > STATE_VERSION => Err(StoreError::Foreign(format!(
            "a vbucket state has format version {later}, and this release reads versions 1 to \
             {STATE_VERSION}; start the release that wrote it or a later one"
        ))),
        _ => Err(corrupt("a vbucket state", value)),
    }
}

/// A vbucket of version 1 was the only copy, so it is intact and whatever it has is complete.
fn decode_first_version(value: &[u8]) -> Result<VbucketState, StoreError> {
    let Some((header, table)) = value.split_first_chunk::<V1_FAILOVER_AT>() else {
        return Err(corrupt("a vbucket state", value));
    };
    let entries = usize::from(header[V1_FAILOVER_COUNT_AT]);
    if entries > FAILOVER_ENTRIES_MAX || table.len() != entries * V1_FAILOVER_ENTRY_BYTES {
        return Err(corrupt("a failover table", value));
    }
    let entry = |bytes: &[u8]| FailoverEntry {
        uuid: VbUuid(u64::from_le_bytes(take(bytes, 0))),
        seqno: Seqno(u64::from_le_bytes(take(bytes, 8))),
        epoch: CopiesEpoch(0),
    };
    let state = decode_common(header).ok_or_else(|| corrupt("a vbucket state", value))?;
    let failover_table = table.chunks_exact(V1_FAILOVER_ENTRY_BYTES).map(entry).collect();
    let high_seqno = state.high_seqno;
    Ok(VbucketState { failover_table, ..state }.complete_at(high_seqno))
}

fn decode_second_version(value: &[u8]) -> Result<VbucketState, StoreError> {
    let Some((header, table)) = value.split_first_chunk::<STATE_FAILOVER_AT>() else {
        return Err(corrupt("a vbucket state", value));
    };
    let entries = usize::from(header[STATE_FAILOVER_COUNT_AT]);
    if entries > FAILOVER_ENTRIES_MAX || table.len() != entries * FAILOVER_ENTRY_BYTES {
        return Err(corrupt("a failover table", value));
    }
    let marks = header[STATE_MARKS_AT];
    if marks & !MARKS != 0 {
        return Err(corrupt("the marks of a vbucket state", value));
    }
    let entry = |bytes: &[u8]| FailoverEntry {
        uuid: VbUuid(u64::from_le_bytes(take(bytes, 0))),
        seqno: Seqno(u64::from_le_bytes(take(bytes, 8))),
        epoch: CopiesEpoch(u64::from_le_bytes(take(bytes, 16))),
    };
    let state = decode_common(header).ok_or_else(|| corrupt("a vbucket state", value))?;
    let number = |at: usize| u64::from_le_bytes(take(header, at));
    Ok(VbucketState {
        snapshot_start: Seqno(number(STATE_SNAPSHOT_START_AT)),
        snapshot_end: Seqno(number(STATE_SNAPSHOT_END_AT)),
        high_prepared_seqno: Seqno(number(STATE_HIGH_PREPARED_AT)),
        high_completed_seqno: Seqno(number(STATE_HIGH_COMPLETED_AT)),
        max_visible_seqno: Seqno(number(STATE_MAX_VISIBLE_AT)),
        promised_epoch: CopiesEpoch(number(STATE_PROMISED_EPOCH_AT)),
        recorded_epoch: CopiesEpoch(number(STATE_RECORDED_EPOCH_AT)),
        stopped_cleanly: marks & MARK_STOPPED_CLEANLY != 0,
        is_intact: marks & MARK_INTACT != 0,
        is_rewound: marks & MARK_REWOUND != 0,
        failover_table: table.chunks_exact(FAILOVER_ENTRY_BYTES).map(entry).collect(),
        ..state
    })
}

/// The fields that both versions have at the same places; `None` for an unknown phase.
fn decode_common(header: &[u8]) -> Option<VbucketState> {
    let number = |at: usize| u64::from_le_bytes(take(header, at));
    Some(VbucketState {
        phase: phase_of(header[STATE_PHASE_AT])?,
        high_seqno: Seqno(number(STATE_HIGH_SEQNO_AT)),
        max_cas: Cas(number(STATE_MAX_CAS_AT)),
        max_deleted_rev_seqno: RevSeqno(number(STATE_MAX_DELETED_REV_SEQNO_AT)),
        purge_seqno: Seqno(number(STATE_PURGE_SEQNO_AT)),
        ..VbucketState::empty()
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

/// Names the fault, and the state by its first bytes.
fn corrupt(what: &str, state: &[u8]) -> StoreError {
    let shown = &state[..state.len().min(6)];
    StoreError::Corrupt(format!("{what} is not what this version writes, state {shown:02x?}"))
}

#[cfg(test)]
mod tests;
