//! Operations of simulated clients: the answer that each must get, and the document after it.
//!
//! Owns: operations and their meaning, written a second time and as simply as possible. Locks are
//! checked where the answer is (`steps.rs`). Writes with metadata are only those that compare
//! nothing.

use oribi_storage::SeededRandom;
use oribi_types::{Cas, Datatype, DocKey, RevSeqno, Timestamp};

use super::dense::random_text;
use super::model::{ModelDocument, ModelKey, ModelValue, ModelVersion};
use crate::bucket::Bucket;
use crate::grace_period::ReadSection;
use crate::item::ItemRef;
use crate::outcome::{
    AppliedMutation, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest, GetOutcome,
    LockOutcome, MetaOutcome, MutationOutcome, OperationRejection, SharedOutcome, StoreCondition,
    StoreRequest, UnlockOutcome, WithMetaMode, WithMetaRequest,
};
use crate::vbucket::{Context, VBucket, WriteVisibility};

/// Which version a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NamedCas {
    Any,
    /// That of the document when the operation is tried.
    Current,
    Wrong,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ModelOperation {
    Get,
    GetMeta,
    Store {
        mode: StoreCondition,
        value: ModelValue,
        flags: u32,
        expiry: u32,
        cas: NamedCas,
    },
    Concat {
        mode: ConcatMode,
        value: ModelValue,
    },
    Delete {
        cas: NamedCas,
    },
    Touch {
        expiry: u32,
    },
    GetAndTouch {
        expiry: u32,
    },
    Count {
        delta: u64,
        initial: Option<u64>,
    },
    /// A version that comes with its metadata and takes the place of whatever is there.
    WithMeta {
        mode: WithMetaMode,
        value: ModelValue,
        expiry: u32,
        rev_seqno: u64,
    },
    Lock {
        seconds: u32,
    },
    /// By the CAS of the lock, or by another one.
    Unlock {
        is_owner: bool,
    },
}

/// The engine's answer, in one form for all operations.
#[derive(Debug)]
pub(super) enum OperationAnswer {
    /// A document was read and not changed.
    Read(ItemRef),
    /// Metadata of a tombstone.
    Tombstone(ItemRef),
    /// A mutation was made; a document came with it.
    Done(Option<AppliedMutation>, Option<ItemRef>),
    Missing,
    Exists,
    NotStored,
    NotANumber,
    /// The document and the CAS of its lock.
    Locked(ItemRef, Cas),
    Unlocked,
    NotLocked,
    Refused(OperationRejection),
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum ExpectedResult {
    Read,
    /// The document becomes this; `None` deletes it.
    Done(Option<ModelDocument>),
    /// The version that there is answers, and nothing is written.
    Unchanged,
    /// A miss, or for metadata a tombstone.
    Missing,
    Exists,
    NotStored,
    NotANumber,
    /// It is locked by this operation.
    Locked,
    /// It is unlocked, if it was locked.
    Unlocked,
}

impl ModelOperation {
    /// With `is_dense` values are mostly texts that a dictionary helps with.
    pub(super) fn random(random: &mut SeededRandom, is_dense: bool) -> ModelOperation {
        let expiry = match random.below(4) {
            0 => 1 + random.below(40) as u32,
            _ => 0,
        };
        let value = ModelValue(random_value(random, is_dense));
        let cas = match random.below(6) {
            0 => NamedCas::Current,
            1 => NamedCas::Wrong,
            _ => NamedCas::Any,
        };
        let flags = random.below(3) as u32;
        match random.below(24) {
            0..5 => ModelOperation::Get,
            5 => ModelOperation::GetMeta,
            6..10 => ModelOperation::Store { mode: StoreCondition::Set, value, flags, expiry, cas },
            10 => ModelOperation::Store {
                mode: StoreCondition::Add,
                value,
                flags,
                expiry,
                cas: NamedCas::Any,
            },
            11 => {
                ModelOperation::Store { mode: StoreCondition::Replace, value, flags, expiry, cas }
            }
            12 => ModelOperation::Concat { mode: ConcatMode::Append, value },
            13 => ModelOperation::Concat { mode: ConcatMode::Prepend, value },
            14..17 => ModelOperation::Delete { cas },
            17 => ModelOperation::Touch { expiry },
            18 => ModelOperation::GetAndTouch { expiry },
            19 => ModelOperation::Count {
                delta: random.below(100),
                initial: (random.below(3) > 0).then(|| random.below(1000)),
            },
            20..22 => {
                let modes = [WithMetaMode::Set, WithMetaMode::Add, WithMetaMode::Delete];
                let mode = modes[random.below(3) as usize];
                let rev_seqno = 1 + random.below(1000);
                ModelOperation::WithMeta { mode, value, expiry, rev_seqno }
            }
            22 => ModelOperation::Lock { seconds: 1 + random.below(30) as u32 },
            _ => ModelOperation::Unlock { is_owner: random.below(3) > 0 },
        }
    }

    /// A set or a deletion.
    pub(super) fn random_write(random: &mut SeededRandom, is_dense: bool) -> ModelOperation {
        match random.below(3) {
            0 => ModelOperation::Delete { cas: NamedCas::Any },
            _ => ModelOperation::Store {
                mode: StoreCondition::Set,
                value: ModelValue(random_value(random, is_dense)),
                flags: 0,
                expiry: 0,
                cas: NamedCas::Any,
            },
        }
    }

    /// The expected answer when the newest version is `version`.
    pub(super) fn expected(&self, version: Option<&ModelVersion>, now_s: u32) -> ExpectedResult {
        let live = version.and_then(|version| version.live(now_s));
        match (self, live) {
            (ModelOperation::Get | ModelOperation::GetMeta, Some(_)) => ExpectedResult::Read,
            (ModelOperation::Get | ModelOperation::GetMeta, None) => ExpectedResult::Missing,
            (ModelOperation::Store { mode, value, flags, expiry, cas }, live) => {
                match (mode, live, cas) {
                    (StoreCondition::Add, Some(_), _) => ExpectedResult::Exists,
                    (StoreCondition::Replace, None, _) => ExpectedResult::Missing,
                    // A version that does not exist cannot be replaced by its CAS.
                    (_, None, NamedCas::Wrong) => ExpectedResult::Missing,
                    (_, Some(_), NamedCas::Wrong) => ExpectedResult::Exists,
                    _ => ExpectedResult::Done(Some(ModelDocument {
                        value: value.clone(),
                        flags: *flags,
                        expiry: absolute(*expiry, now_s),
                    })),
                }
            }
            (ModelOperation::Lock { .. } | ModelOperation::Unlock { .. }, None) => {
                ExpectedResult::Missing
            }
            (ModelOperation::Lock { .. }, Some(_)) => ExpectedResult::Locked,
            (ModelOperation::Unlock { .. }, Some(_)) => ExpectedResult::Unlocked,
            (ModelOperation::WithMeta { mode: WithMetaMode::Add, .. }, Some(_)) => {
                ExpectedResult::Exists
            }
            // A deletion leaves a tombstone, whatever was there.
            (ModelOperation::WithMeta { mode: WithMetaMode::Delete, .. }, _) => {
                ExpectedResult::Done(None)
            }
            (ModelOperation::WithMeta { value, expiry, .. }, _) => {
                let expiry = absolute(*expiry, now_s);
                ExpectedResult::Done(Some(ModelDocument { value: value.clone(), flags: 0, expiry }))
            }
            (ModelOperation::Concat { .. }, None) => ExpectedResult::NotStored,
            (ModelOperation::Concat { mode, value }, Some(live)) => {
                let parts = match mode {
                    ConcatMode::Append => [&live.value.0, &value.0],
                    ConcatMode::Prepend => [&value.0, &live.value.0],
                };
                let value = ModelValue([parts[0].as_slice(), parts[1]].concat());
                ExpectedResult::Done(Some(ModelDocument { value, ..live.clone() }))
            }
            (ModelOperation::Delete { .. } | ModelOperation::Touch { .. }, None) => {
                ExpectedResult::Missing
            }
            (ModelOperation::Delete { cas: NamedCas::Wrong }, Some(_)) => ExpectedResult::Exists,
            (ModelOperation::Delete { .. }, Some(_)) => ExpectedResult::Done(None),
            (ModelOperation::Touch { expiry }, Some(live)) => {
                let expiry = absolute(*expiry, now_s);
                match expiry == live.expiry {
                    true => ExpectedResult::Unchanged,
                    false => ExpectedResult::Done(Some(ModelDocument { expiry, ..live.clone() })),
                }
            }
            (ModelOperation::GetAndTouch { .. }, None) => ExpectedResult::Missing,
            (ModelOperation::GetAndTouch { expiry }, Some(live)) => {
                let expiry = absolute(*expiry, now_s);
                match expiry == live.expiry {
                    true => ExpectedResult::Read,
                    false => ExpectedResult::Done(Some(ModelDocument { expiry, ..live.clone() })),
                }
            }
            (ModelOperation::Count { initial: None, .. }, None) => ExpectedResult::Missing,
            (ModelOperation::Count { initial: Some(initial), .. }, None) => {
                let value = ModelValue(initial.to_string().into_bytes());
                ExpectedResult::Done(Some(ModelDocument { value, flags: 0, expiry: 0 }))
            }
            (ModelOperation::Count { delta, .. }, Some(live)) => match number(&live.value.0) {
                None => ExpectedResult::NotANumber,
                Some(before) => {
                    let value = before.wrapping_add(*delta).to_string();
                    let value = ModelValue(value.into_bytes());
                    ExpectedResult::Done(Some(ModelDocument { value, ..live.clone() }))
                }
            },
        }
    }

    /// Asks the bucket. `current` is the CAS of the document or, to unlock it, of its lock, for
    /// requests that name it.
    pub(super) fn run(
        &self,
        bucket: &Bucket,
        key: &ModelKey,
        current: Option<Cas>,
        (now, is_pending): (Timestamp, bool),
    ) -> OperationAnswer {
        let vbucket = bucket.vbucket(key.vbid).expect("a vbucket of the map");
        let visibility = match is_pending {
            true => WriteVisibility::WhenStored,
            false => WriteVisibility::AtOnce,
        };
        let (context, doc_key) = (&bucket.context(now).visible(visibility), key.doc_key());
        let cas_of = |named: NamedCas| match named {
            NamedCas::Any => Cas(0),
            NamedCas::Current => current.unwrap_or_default(),
            NamedCas::Wrong => Cas(3),
        };
        match self {
            ModelOperation::Get => of_get(get_either_way(vbucket, context, doc_key)),
            ModelOperation::GetMeta => match vbucket.get_meta(context, doc_key) {
                MetaOutcome::Found(item, _) if item.is_deleted() => {
                    OperationAnswer::Tombstone(item)
                }
                MetaOutcome::Found(item, _) => OperationAnswer::Read(item),
                MetaOutcome::Miss => OperationAnswer::Missing,
                MetaOutcome::Refused(refused) => OperationAnswer::Refused(refused),
            },
            ModelOperation::Store { mode, value, flags, expiry, cas } => {
                let request = StoreRequest {
                    mode: *mode,
                    flags: *flags,
                    expiry: *expiry,
                    cas: cas_of(*cas),
                    ..StoreRequest::set(&value.0)
                };
                of_mutation(vbucket.store(context, doc_key, &request))
            }
            ModelOperation::Concat { mode, value } => {
                let request = ConcatRequest { mode: *mode, value: &value.0, cas: Cas(0) };
                of_mutation(vbucket.concat(context, doc_key, &request))
            }
            ModelOperation::Delete { cas } => {
                of_mutation(vbucket.delete(context, doc_key, cas_of(*cas)))
            }
            ModelOperation::Touch { expiry } => {
                of_mutation(vbucket.touch(context, doc_key, *expiry))
            }
            ModelOperation::GetAndTouch { expiry } => {
                match vbucket.get_and_touch(context, doc_key, *expiry) {
                    GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                        OperationAnswer::Done(None, Some(item))
                    }
                    other => of_get(other),
                }
            }
            ModelOperation::WithMeta { mode, value, expiry, rev_seqno } => {
                let is_deletion = *mode == WithMetaMode::Delete;
                let request = WithMetaRequest {
                    mode: *mode,
                    value: if is_deletion { b"" } else { &value.0 },
                    datatype: Datatype(0),
                    flags: 0,
                    expired: false,
                    expiry: if is_deletion { 0 } else { absolute(*expiry, now.unix_s()) },
                    given_cas: None,
                    rev_seqno: RevSeqno(*rev_seqno),
                    cas: Cas(0),
                    resolution: None,
                };
                of_mutation(vbucket.store_with_meta(context, doc_key, &request))
            }
            ModelOperation::Lock { seconds } => {
                match vbucket.get_and_lock(context, doc_key, *seconds) {
                    LockOutcome::Done { item, cas } => OperationAnswer::Locked(item, cas),
                    LockOutcome::Miss => OperationAnswer::Missing,
                    LockOutcome::Refused(refused) => OperationAnswer::Refused(refused),
                }
            }
            ModelOperation::Unlock { is_owner } => {
                let named = if *is_owner { NamedCas::Current } else { NamedCas::Wrong };
                match vbucket.unlock(context, doc_key, cas_of(named)) {
                    UnlockOutcome::Done => OperationAnswer::Unlocked,
                    UnlockOutcome::NotFound => OperationAnswer::Missing,
                    UnlockOutcome::NotLocked => OperationAnswer::NotLocked,
                    UnlockOutcome::Refused(refused) => OperationAnswer::Refused(refused),
                }
            }
            ModelOperation::Count { delta, initial } => {
                let request = CounterRequest {
                    delta: *delta,
                    decrement: false,
                    initial: *initial,
                    expiry: 0,
                    cas: Cas(0),
                };
                match vbucket.counter(context, doc_key, &request) {
                    CounterOutcome::Done { mutation, .. } => {
                        OperationAnswer::Done(Some(mutation), None)
                    }
                    CounterOutcome::NotFound => OperationAnswer::Missing,
                    CounterOutcome::Exists => OperationAnswer::Exists,
                    CounterOutcome::NotANumber => OperationAnswer::NotANumber,
                    CounterOutcome::Refused(refused) => OperationAnswer::Refused(refused),
                }
            }
        }
    }

    /// True for what takes memory, which a full bucket may refuse.
    pub(super) fn is_write(&self) -> bool {
        !self.is_read()
            && !matches!(self, ModelOperation::Lock { .. } | ModelOperation::Unlock { .. })
    }

    /// True for what no lock stands in the way of.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, ModelOperation::Get | ModelOperation::GetMeta)
    }
}

/// A read without the lock equals a read with the lock.
fn get_either_way(vbucket: &VBucket, context: &Context<'_>, key: DocKey<'_>) -> GetOutcome {
    let section = ReadSection::open();
    let shared = vbucket.get_shared(&section, context, vbucket.hash_of(key), key);
    let outcome = vbucket.get(context, key);
    match (shared, &outcome) {
        (SharedOutcome::Hit(shared), GetOutcome::Hit(item)) => {
            assert!(item.same_block(&shared), "{:?} was found instead of {item:?}", *shared);
        }
        (SharedOutcome::Hit(shared), _) => panic!("{:?} was found: {outcome:?}", *shared),
        (SharedOutcome::Miss, outcome) => {
            assert!(matches!(outcome, GetOutcome::Miss), "nothing was found: {outcome:?}");
        }
        (SharedOutcome::Undecided, _) => {}
    }
    outcome
}

fn of_get(outcome: GetOutcome) -> OperationAnswer {
    match outcome {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => OperationAnswer::Read(item),
        GetOutcome::Miss => OperationAnswer::Missing,
        GetOutcome::Refused(refused) => OperationAnswer::Refused(refused),
    }
}

fn of_mutation(outcome: MutationOutcome) -> OperationAnswer {
    match outcome {
        MutationOutcome::Done(mutation) => OperationAnswer::Done(Some(mutation), None),
        MutationOutcome::NotFound => OperationAnswer::Missing,
        MutationOutcome::Exists => OperationAnswer::Exists,
        MutationOutcome::NotStored => OperationAnswer::NotStored,
        MutationOutcome::TooLarge | MutationOutcome::Corrupt => panic!("every value can be stored"),
        MutationOutcome::Refused(refused) => OperationAnswer::Refused(refused),
    }
}

/// The rule for the short times that are used here.
fn absolute(wire: u32, now_s: u32) -> u32 {
    if wire == 0 { 0 } else { now_s + wire }
}

fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    (text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn random_value(random: &mut SeededRandom, is_dense: bool) -> Vec<u8> {
    match random.below(8) {
        0 => random.below(100_000).to_string().into_bytes(),
        1 => Vec::new(),
        3.. if is_dense => random_text(random),
        kind => {
            let length = random.below(if kind == 2 { 3000 } else { 300 }) as usize;
            let byte = b'a' + random.below(26) as u8;
            let mut value = format!("{:x}-", random.number()).into_bytes();
            value.resize(value.len() + length, byte);
            value
        }
    }
}
