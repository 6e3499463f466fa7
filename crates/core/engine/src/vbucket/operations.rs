//! Clients' operations on documents of one vbucket.
//!
//! Owns: the rules of each operation: when it is refused, and what the next version is made of.
//! Looking up is in [`super::reading`], writing in [`super::writing`]. SET and DELETE build their
//! block without a look-up. A document with extended attributes keeps them, so over such a one they
//! build the block again in the write loop, where the other operations begin.

use oribi_types::{Cas, Datatype, DocKey};

use super::VBucket;
use super::compressed::{body_compressed, plain_body, received_form, stored_form};
use super::context::Context;
use super::locks::{Claim, Locks};
use super::next_version::{CurrentVersion, NextVersion};
use super::table::VbucketTable;
use super::writing::{Basis, FoundVersion, WriteError, WriteTerms};
use crate::attributes::{datatype_with, tombstone, tombstone_of, with_attributes_of};
use crate::datatype;
use crate::hash_table::KeyHash;
use crate::item::{FillingItem, ItemFields, ItemRef, NewItem};
use crate::outcome::{
    AppliedMutation, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest, GetOutcome,
    MutationOutcome, OperationRejection, ReadTarget, RewriteOutcome, StoreCondition, StoreRequest,
};

impl VBucket {
    /// Set, add or replace.
    pub fn store(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
    ) -> MutationOutcome {
        self.store_hashed(context, self.hash_of(key), key, request)
    }

    /// [`VBucket::store`] under a key whose hash is known.
    pub fn store_hashed(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
    ) -> MutationOutcome {
        debug_assert!(hash == self.hash_of(key), "another key's hash");
        if request.value.len() > context.value_bytes_max {
            return MutationOutcome::TooLarge;
        }
        if let Some(refused) = context.memory.refuses(false) {
            return MutationOutcome::Refused(refused);
        }
        let fields = store_fields(context, key, request);
        let new = match stored_form(context, key, fields, request) {
            Ok(new) => new,
            Err(unusable) => return unusable.into(),
        };
        match self.store_new(context, hash, new, request) {
            Ok(mutation) => MutationOutcome::Done(mutation),
            Err((refusal, _)) => refusal,
        }
    }

    /// Set, add or replace with a value that was received into its block; `request.value` is
    /// ignored. Takes the block, unless the answer is [`OperationRejection::NeedsFetch`] or
    /// [`OperationRejection::TemporaryFailure`]: the caller may need it again then.
    ///
    /// # Panics
    /// When there is no block, or some of the value is missing.
    pub fn store_received(
        &self,
        context: &Context<'_>,
        received: &mut Option<FillingItem>,
        request: &StoreRequest<'_>,
    ) -> MutationOutcome {
        let received_value = received.take().expect("the caller has received a value");
        let new = match received_value.is_settled() {
            true => received_value.finish(),
            false => match received_form(context, received_value.finish(), request) {
                Ok(new) => new,
                Err(unusable) => return unusable.into(),
            },
        };
        let hash = self.table.seed().hash(new.as_item().key());
        debug_assert!(received.is_none(), "the block is stored or given back");
        match self.store_new(context, hash, new, request) {
            Ok(mutation) => MutationOutcome::Done(mutation),
            Err((refusal, new)) => {
                let again = [OperationRejection::NeedsFetch, OperationRejection::TemporaryFailure];
                if again.map(MutationOutcome::Refused).contains(&refusal) {
                    *received = Some(FillingItem::filled(new));
                }
                refusal
            }
        }
    }

    /// Returns the block with the answer when it is not stored.
    fn store_new(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        request: &StoreRequest<'_>,
    ) -> Result<AppliedMutation, (MutationOutcome, NewItem)> {
        let claim = match request.mode {
            StoreCondition::Add => Claim::Any,
            StoreCondition::Set | StoreCondition::Replace => Claim::Cas(request.cas),
        };
        let decide = |_: &VbucketTable, found: &FoundVersion<'_>, new: &mut NewItem| {
            check_store(request, found)?;
            if let Some(live) = found.live {
                if live.has_attributes() {
                    return Err(WriteError::Rebase);
                }
                if request.preserve_expiry {
                    new.set_expiry(live.expiry());
                }
            }
            Ok(())
        };
        let terms = WriteTerms::of(claim, context);
        match self.publish(context, hash, terms, new, decide, |_| ()) {
            Ok((mutation, ())) => Ok(mutation),
            Err((WriteError::Refused(refusal), new)) => Err((
                self.refused_replace(context, hash, new.as_item().key(), request, refusal),
                new,
            )),
            Err((WriteError::Rebase, body)) => self.store_body(context, claim, body, request),
        }
    }

    /// A replace of nothing misses, also while a write of the key waits for the store.
    #[cold]
    fn refused_replace(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        refusal: MutationOutcome,
    ) -> MutationOutcome {
        let in_progress = OperationRejection::DurableWriteInProgress.into();
        if request.mode != StoreCondition::Replace || refusal != in_progress {
            return refusal;
        }
        let is_live = |_: &mut Locks, item: &ItemRef| item.is_live(context.now.unix_s());
        match self.look_up(context, hash, key, ReadTarget::Document, is_live) {
            Ok(Some(true)) => refusal,
            Ok(Some(false) | None) => MutationOutcome::NotFound,
            Err(refused) => refused.into(),
        }
    }

    /// Stores a new body of a document with attributes, which stay.
    #[cold]
    fn store_body(
        &self,
        context: &Context<'_>,
        claim: Claim,
        body: NewItem,
        request: &StoreRequest<'_>,
    ) -> Result<AppliedMutation, (MutationOutcome, NewItem)> {
        let new = body.as_item();
        debug_assert!(!new.has_attributes(), "a new body has no attributes yet");
        let written = self.write(context, new.key(), Basis::Document, claim.into(), |found| {
            check_store(request, found)?;
            let kept = found.live.filter(|_| request.preserve_expiry);
            let expiry = kept.map_or(new.expiry(), |item| item.expiry());
            Ok(with_attributes_of(new, found.live, expiry))
        });
        written.map(|(mutation, _)| mutation).map_err(|refusal| (refusal, body))
    }

    pub fn delete(&self, context: &Context<'_>, key: DocKey<'_>, cas: Cas) -> MutationOutcome {
        let (hash, claim) = (self.table.seed().hash(key), Claim::Cas(cas));
        let new = tombstone(key, context.now);
        debug_assert!(new.as_item().is_deleted(), "a deletion writes a tombstone");
        let decide = |_: &VbucketTable, found: &FoundVersion<'_>, _: &mut NewItem| {
            let live = check_existing(found, cas, MutationOutcome::NotFound)?;
            if live.has_attributes() { Err(WriteError::Rebase) } else { Ok(()) }
        };
        let terms = WriteTerms::of(claim, context);
        match self.publish(context, hash, terms, new, decide, |_| ()) {
            Ok((mutation, ())) => MutationOutcome::Done(mutation),
            Err((WriteError::Refused(refusal), _)) => refusal,
            // The system's attributes stay.
            Err((WriteError::Rebase, _)) => mutated(self.update(context, key, cas, |found| {
                let live = check_existing(found, cas, MutationOutcome::NotFound)?;
                Ok(tombstone_of(live, context.now))
            })),
        }
    }

    pub fn concat(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &ConcatRequest<'_>,
    ) -> MutationOutcome {
        mutated(self.update(context, key, request.cas, |found| {
            let live = check_existing(found, request.cas, MutationOutcome::NotStored)?;
            let body_bytes = live.plain_body_bytes().unwrap_or(0);
            if body_bytes + request.value.len() > context.value_bytes_max {
                return Err(MutationOutcome::TooLarge);
            }
            let mut scratch = Vec::new();
            let body = plain_body(live, &mut scratch)?;
            let attributes = live.attributes();
            let parts = match request.mode {
                ConcatMode::Append => [attributes, body, request.value],
                ConcatMode::Prepend => [attributes, request.value, body],
            };
            let fields =
                ItemFields { flags: live.flags(), expiry: live.expiry(), ..Default::default() };
            let joined = NewItem::new(key, fields, &parts);
            debug_assert_eq!(
                joined.as_item().value_bytes(),
                parts.iter().map(|part| part.len()).sum::<usize>(),
                "both parts are in the new value"
            );
            let body = datatype::detect(&joined.as_item().value()[attributes.len()..]);
            let joined = joined.with_datatype(datatype_with(attributes, body));
            Ok(body_compressed(context, joined, false))
        }))
    }

    /// Changes the expiry, given as on the wire.
    pub fn touch(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        wire_expiry: u32,
    ) -> MutationOutcome {
        let expiry = context.expiry(key.collection, wire_expiry);
        mutated(self.update(context, key, Cas(0), |found| match found.live {
            None => Err(MutationOutcome::NotFound),
            // The same expiry again is no mutation, so the current version is the answer.
            Some(live) if live.expiry() == expiry && context.may_keep_current() => {
                let (cas, seqno, vb_uuid) = (live.cas(), live.seqno(), self.uuid());
                Err(MutationOutcome::Done(AppliedMutation { cas, seqno, vb_uuid }))
            }
            Some(live) => Ok(with_expiry(live, expiry)),
        }))
    }

    /// Reads a document and changes its expiry, given as on the wire.
    pub fn get_and_touch(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        wire_expiry: u32,
    ) -> GetOutcome {
        let expiry = context.expiry(key.collection, wire_expiry);
        let written = self.update(context, key, Cas(0), |found| match found.live {
            None => Err(GetOutcome::Miss),
            // The same expiry again changes nothing, so it is no mutation.
            Some(live) if live.expiry() == expiry && context.may_keep_current() => {
                Err(GetOutcome::Hit(live.clone()))
            }
            Some(live) => Ok(with_expiry(live, expiry)),
        });
        written.map_or_else(|denied| denied, |(_, item)| GetOutcome::Hit(item))
    }

    pub fn counter(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &CounterRequest,
    ) -> CounterOutcome {
        let mut value = 0;
        let written = self.update(context, key, request.cas, |found| {
            let fields = match found.live {
                Some(_) if !found.admits(request.cas) => return Err(CounterOutcome::Exists),
                Some(live) => {
                    let current = current_counter(live)?;
                    value = match request.decrement {
                        true => current.saturating_sub(request.delta),
                        false => current.wrapping_add(request.delta),
                    };
                    ItemFields { flags: live.flags(), expiry: live.expiry(), ..Default::default() }
                }
                None if request.cas != Cas(0) => return Err(CounterOutcome::NotFound),
                None => {
                    value = request.initial.ok_or(CounterOutcome::NotFound)?;
                    let expiry = context.expiry(key.collection, request.expiry);
                    ItemFields { expiry, ..Default::default() }
                }
            };
            let mut digits = [0u8; DECIMAL_DIGITS_MAX];
            let digits = write_decimal(value, &mut digits);
            debug_assert_eq!(
                parse_counter(digits),
                Some(value),
                "a counter is read as it is written"
            );
            // A decimal number is a JSON text.
            let attributes = found.live.map_or(&[][..], |item| item.attributes());
            let datatype = datatype_with(attributes, Datatype::JSON);
            Ok(NewItem::new(key, ItemFields { datatype, ..fields }, &[attributes, digits]))
        });
        written
            .map_or_else(|denied| denied, |(mutation, _)| CounterOutcome::Done { mutation, value })
    }

    /// Writes the version that `build` makes from the current one, tombstones included; the expiry
    /// is as on the wire. `cas` is the request's, 0 for none: it opens a lock; `build` checks it
    /// against the version. `build` may run more than once; the last result counts. Sub-document
    /// operations use it; the engine does not know paths.
    pub fn rewrite<E>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: ReadTarget,
        (wire_expiry, cas): (u32, Cas),
        mut build: impl FnMut(CurrentVersion<'_>) -> Result<NextVersion, E>,
    ) -> RewriteOutcome<E> {
        let expiry = context.expiry(key.collection, wire_expiry);
        let terms = Claim::Cas(cas).into();
        let written = self.write(context, key, Basis::Settled(sought), terms, |found| {
            let current =
                CurrentVersion { version: found.version, is_lock_cas: found.is_lock_cas, expiry };
            let next = build(current).map_err(RewriteOutcome::Rejected)?;
            // Stamps are in the attributes, which stay where they are.
            Ok(NextVersion { item: body_compressed(context, next.item, false), ..next })
        });
        written.map_or_else(|denied| denied, |(mutation, _)| RewriteOutcome::Done(mutation))
    }

    /// Writes what `build` makes of the document, for a request that names `cas`.
    fn update<R: From<OperationRejection>>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        cas: Cas,
        build: impl FnMut(&FoundVersion<'_>) -> Result<NewItem, R>,
    ) -> Result<(AppliedMutation, ItemRef), R> {
        self.write(context, key, Basis::Document, Claim::Cas(cas).into(), build)
    }
}

/// Fields of the block of a store request. The datatype is not among them, because it depends on
/// the value.
pub(crate) fn store_fields(
    context: &Context<'_>,
    key: DocKey<'_>,
    request: &StoreRequest<'_>,
) -> ItemFields {
    ItemFields {
        flags: request.flags,
        expiry: context.expiry(key.collection, request.expiry),
        keeps_expiry: request.preserve_expiry,
        ..ItemFields::default()
    }
}

/// The answer of an operation that returns only the mutation.
pub(super) fn mutated(
    written: Result<(AppliedMutation, ItemRef), MutationOutcome>,
) -> MutationOutcome {
    written.map_or_else(|denied| denied, |(mutation, _)| MutationOutcome::Done(mutation))
}

/// Refuses a store request whose condition does not hold.
#[inline]
fn check_store(
    request: &StoreRequest<'_>,
    found: &FoundVersion<'_>,
) -> Result<(), MutationOutcome> {
    match (request.mode, found.live) {
        (StoreCondition::Add, Some(_)) => Err(MutationOutcome::Exists),
        (StoreCondition::Replace, None) => Err(MutationOutcome::NotFound),
        _ => check_cas(found, request.cas),
    }
}

/// The document to change; without one the answer is `missing`.
fn check_existing<'a>(
    found: &FoundVersion<'a>,
    cas: Cas,
    missing: MutationOutcome,
) -> Result<&'a ItemRef, MutationOutcome> {
    let live = found.live.ok_or(missing)?;
    check_cas(found, cas).map(|()| live)
}

/// Refuses a request whose CAS, if it names one, is not that of the document.
#[inline]
pub(super) fn check_cas(found: &FoundVersion<'_>, cas: Cas) -> Result<(), MutationOutcome> {
    match found.live {
        _ if found.admits(cas) => Ok(()),
        None => Err(MutationOutcome::NotFound),
        Some(_) => Err(MutationOutcome::Exists),
    }
}

fn with_expiry(live: &ItemRef, expiry: u32) -> NewItem {
    debug_assert!(!live.is_evicted() && !live.is_deleted(), "a document is copied with its value");
    let fields =
        ItemFields { flags: live.flags(), expiry, datatype: live.datatype(), ..Default::default() };
    NewItem::new(live.key(), fields, &[live.value()])
}

const DECIMAL_DIGITS_MAX: usize = 20;

/// Longest text that is read as a counter: its digits and generous padding.
const COUNTER_TEXT_BYTES_MAX: usize = 64;

/// The number that [`VBucket::counter`] would find in a document; `None` when it would find
/// none.
pub fn counter_value(item: &ItemRef) -> Option<u64> {
    current_counter(item).ok()
}

/// The value of a counter. A longer text is not inflated only to be refused.
fn current_counter(live: &ItemRef) -> Result<u64, CounterOutcome> {
    let mut scratch = Vec::new();
    if live.plain_body_bytes().is_ok_and(|bytes| bytes > COUNTER_TEXT_BYTES_MAX) {
        return Err(CounterOutcome::NotANumber);
    }
    let body = plain_body(live, &mut scratch)?;
    parse_counter(body).ok_or(CounterOutcome::NotANumber)
}

/// A counter's value: a decimal number up to `u64::MAX`. Space around it and a plus sign are
/// skipped, as memcached does; its clients may pad.
fn parse_counter(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
    let begin = value.iter().position(|byte| !is_space(byte))?;
    let end = value.iter().rposition(|byte| !is_space(byte))?;
    debug_assert!(begin <= end, "both ends are of the same text");
    std::str::from_utf8(&value[begin..=end]).ok()?.parse().ok()
}

/// Writes `value` into the end of `digits` and returns the used part.
fn write_decimal(mut value: u64, digits: &mut [u8; DECIMAL_DIGITS_MAX]) -> &[u8] {
    let mut at = DECIMAL_DIGITS_MAX;
    loop {
        at -= 1;
        debug_assert!(at < DECIMAL_DIGITS_MAX, "a number of 64 bits has 20 digits");
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}
