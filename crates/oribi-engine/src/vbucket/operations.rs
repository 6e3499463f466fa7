//! What clients do to documents of one vbucket.
//!
//! Owns: the rules of each operation. Every write ends in `VBucket::write_version`: build the new block
//! outside the locks, then check the condition and publish under them. Operations whose new value
//! depends on the old one build it from a reference to the old block and start again in the rare
//! case that somebody else wrote in between, so no value is ever copied under a lock.

use arc_swap::ArcSwap;
use oribi_types::{Cas, CollectionId, DocKey, Timestamp};

use super::compressed::{body_compressed, plain_body, received_form, stored_form};
use super::fetching::is_absence_marker;
use super::locks::Claim;
use super::sub_document::Sought;
use super::versions::Denied;
use super::{Table, VBucket};
use crate::attributes::{datatype_with, tombstone, tombstone_of, with_attributes_of};
use crate::collections::Manifest;
use crate::compression::CompressionSwitch;
use crate::flusher::FlusherSignal;
use crate::hash_table::KeyHash;
use crate::item::{FillingItem, ItemFields, ItemRef, NewItem};
use crate::memory::Memory;
use crate::outcome::{
    ConcatMode, ConcatRequest, CounterOutcome, CounterRequest, GetOutcome, MetaOutcome, Mutation,
    MutationOutcome, Refused, StoreMode, StoreRequest,
};
use crate::{datatype, expiry};

/// What an operation needs to know about its bucket.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) manifest: &'a ArcSwap<Manifest>,
    pub(crate) signal: &'a FlusherSignal,
    pub(crate) now: Timestamp,
    pub(crate) value_bytes_max: usize,
    pub(crate) memory: &'a Memory,
    pub(crate) compression: &'a CompressionSwitch,
}

impl Context<'_> {
    /// Asked under the table lock: a collection is purged from the table after it has left the
    /// manifest, so whoever still finds it here has its document purged as well.
    pub(super) fn knows(&self, collection: CollectionId) -> bool {
        collection == CollectionId::DEFAULT || self.manifest.load().contains(collection)
    }

    /// Absolute expiry of a document of `collection`, from what the client asked for.
    pub(super) fn expiry(&self, collection: CollectionId, wire: u32) -> u32 {
        self.limited_expiry(collection, expiry::absolute(wire, self.now))
    }

    /// An absolute expiry as far as documents of `collection` may have it.
    pub(super) fn limited_expiry(&self, collection: CollectionId, expiry: u32) -> u32 {
        if collection == CollectionId::DEFAULT {
            return expiry;
        }
        let manifest = self.manifest.load();
        let max_ttl_s = manifest.collection(collection).and_then(|found| found.max_ttl_s);
        expiry::limited(expiry, max_ttl_s, self.now)
    }
}

impl VBucket {
    pub(crate) fn get(&self, context: &Context<'_>, hash: KeyHash, key: DocKey<'_>) -> GetOutcome {
        let refer = |table: &Table, item: &ItemRef| {
            (item.clone_for_use(), table.locks.is_locked(item, context.now))
        };
        match self.look_up(context, hash, key, Sought::Document, refer) {
            Err(refused) => GetOutcome::Refused(refused),
            Ok(Some((item, is_locked))) if item.is_live(context.now.unix_s()) => {
                match (item.is_evicted(), is_locked) {
                    (false, false) => GetOutcome::Hit(item),
                    (false, true) => GetOutcome::HitLocked(item),
                    (true, _) => GetOutcome::Refused(Refused::NeedsFetch),
                }
            }
            Ok(Some((item, _))) => {
                if item.is_expired(context.now.unix_s()) {
                    self.expire(context, hash, &item);
                }
                GetOutcome::Miss
            }
            Ok(None) => GetOutcome::Miss,
        }
    }

    pub(crate) fn get_meta(&self, context: &Context<'_>, key: DocKey<'_>) -> MetaOutcome {
        let (hash, now_s) = (self.seed.hash(key), context.now.unix_s());
        let found = match self.find_shown(context, hash, key, Sought::Tombstone) {
            Ok(Some((item, _))) if item.is_expired(now_s) => {
                // Who asks for metadata must see the same of a document that ended by itself as of a deleted one:
                // its tombstone.
                self.expire(context, hash, &item);
                self.find_shown(context, hash, key, Sought::Tombstone)
            }
            found => found,
        };
        match found {
            Err(refused) => MetaOutcome::Refused(refused),
            Ok(Some((item, _))) if is_absence_marker(&item) => MetaOutcome::Miss,
            Ok(Some((item, cas))) if !item.is_expired(now_s) => MetaOutcome::Found(item, cas),
            Ok(_) => MetaOutcome::Miss,
        }
    }

    pub(crate) fn store(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
    ) -> MutationOutcome {
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
            Err(denied) => denied.into(),
        }
    }

    /// Stores a block whose value was received in place; `request.value` is not looked at. The block is
    /// left where it is when it is needed again.
    pub(crate) fn store_received(
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
        let hash = self.seed.hash(new.as_item().key());
        match self.store_new(context, hash, new, request) {
            Ok(mutation) => MutationOutcome::Done(mutation),
            Err(Denied::NeedsFetch(new)) => {
                *received = Some(FillingItem::filled(new));
                MutationOutcome::Refused(Refused::NeedsFetch)
            }
            Err(denied) => denied.into(),
        }
    }

    fn store_new(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        request: &StoreRequest<'_>,
    ) -> Result<Mutation, Denied<MutationOutcome>> {
        let mut new = new;
        // The version whose attributes `new` has; a document without any is the usual case.
        let mut joined: Option<ItemRef> = None;
        loop {
            let mut apart = None;
            let claim = match request.mode {
                StoreMode::Add => Claim::Any,
                StoreMode::Set | StoreMode::Replace => Claim::Cas(request.cas),
            };
            let written = self.write_if(context, hash, new, claim, |live, is_lock_cas, new| {
                match (request.mode, live) {
                    (StoreMode::Add, Some(_)) => return Err(MutationOutcome::Exists),
                    (StoreMode::Replace, None) => return Err(MutationOutcome::NotFound),
                    _ if is_lock_cas => {}
                    _ => check_cas(live, request.cas)?,
                }
                let attributed = live.filter(|live| live.has_attributes());
                if attributed.map(ItemRef::address) != joined.as_ref().map(ItemRef::address) {
                    let stand_in = tombstone(new.as_item().key(), context.now);
                    apart = Some((std::mem::replace(new, stand_in), attributed.cloned()));
                    return Err(MutationOutcome::Exists);
                }
                if let (true, Some(live)) = (request.preserve_expiry, live) {
                    new.set_expiry(live.expiry());
                }
                Ok(())
            });
            let Some((body, attributed)) = apart else {
                return written.map(|(mutation, _)| mutation);
            };
            if attributed.as_ref().is_some_and(ItemRef::is_evicted) {
                return Err(Denied::NeedsFetch(body));
            }
            let keeps_expiry = request.preserve_expiry;
            new = with_attributes_of(body.as_item(), attributed.as_ref(), keeps_expiry);
            joined = attributed;
        }
    }

    pub(crate) fn delete(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        cas: Cas,
    ) -> MutationOutcome {
        let new = tombstone(key, context.now);
        let mut has_attributes = false;
        let (hash, claim) = (self.seed.hash(key), Claim::Cas(cas));
        let written = self.write_if(context, hash, new, claim, |live, is_lock_cas, _| {
            let Some(live) = live else { return Err(MutationOutcome::NotFound) };
            if !is_lock_cas {
                check_cas(Some(live), cas)?;
            }
            has_attributes = live.has_attributes();
            if has_attributes { Err(MutationOutcome::Exists) } else { Ok(()) }
        });
        if has_attributes {
            return self.delete_attributed(context, key, cas);
        }
        written.map_or_else(MutationOutcome::from, |(mutation, _)| MutationOutcome::Done(mutation))
    }

    /// Deletes a document with attributes, of which the system's stay.
    fn delete_attributed(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        cas: Cas,
    ) -> MutationOutcome {
        let build = |live: Option<&ItemRef>, is_lock_cas: bool| {
            let live = live.ok_or(MutationOutcome::NotFound)?;
            if !is_lock_cas {
                check_cas(Some(live), cas)?;
            }
            Ok(tombstone_of(live, context.now))
        };
        match self.update(context, key, cas, build) {
            Ok((mutation, _)) => MutationOutcome::Done(mutation),
            Err(denied) => denied.into(),
        }
    }

    pub(crate) fn concat(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &ConcatRequest<'_>,
    ) -> MutationOutcome {
        let build = |live: Option<&ItemRef>, is_lock_cas: bool| {
            let live = live.ok_or(MutationOutcome::NotStored)?;
            if !is_lock_cas {
                check_cas(Some(live), request.cas)?;
            }
            let body_bytes = live.plain_body_bytes().unwrap_or(0);
            if body_bytes + request.value.len() > context.value_bytes_max {
                return Err(MutationOutcome::TooLarge);
            }
            let mut scratch = Vec::new();
            let body = plain_body(live, &mut scratch).map_err(MutationOutcome::Refused)?;
            let attributes = live.attributes();
            let parts = match request.mode {
                ConcatMode::Append => [attributes, body, request.value],
                ConcatMode::Prepend => [attributes, request.value, body],
            };
            let fields =
                ItemFields { flags: live.flags(), expiry: live.expiry(), ..Default::default() };
            let joined = NewItem::new(key, fields, &parts);
            let body = datatype::detect(&joined.as_item().value()[attributes.len()..]);
            let joined = joined.with_datatype(datatype_with(attributes, body));
            Ok(body_compressed(context, joined, false))
        };
        match self.update(context, key, request.cas, build) {
            Ok((mutation, _)) => MutationOutcome::Done(mutation),
            Err(denied) => denied.into(),
        }
    }

    pub(crate) fn touch(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        wire_expiry: u32,
    ) -> MutationOutcome {
        let expiry = context.expiry(key.collection, wire_expiry);
        let build = |live: Option<&ItemRef>, _| match live {
            None => Err(MutationOutcome::NotFound),
            Some(live) => Ok(with_expiry(live, expiry)),
        };
        match self.update(context, key, Cas(0), build) {
            Ok((mutation, _)) => MutationOutcome::Done(mutation),
            Err(denied) => denied.into(),
        }
    }

    pub(crate) fn get_and_touch(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        wire_expiry: u32,
    ) -> GetOutcome {
        let expiry = context.expiry(key.collection, wire_expiry);
        let build = |live: Option<&ItemRef>, _| match live {
            None => Err(GetOutcome::Miss),
            // The same expiry again changes nothing, so it is no mutation.
            Some(live) if live.expiry() == expiry => Err(GetOutcome::Hit(live.clone())),
            Some(live) => Ok(with_expiry(live, expiry)),
        };
        match self.update(context, key, Cas(0), build) {
            Ok((_, item)) => GetOutcome::Hit(item),
            Err(Denied::Condition(outcome)) => outcome,
            Err(Denied::Refused(refused)) => GetOutcome::Refused(refused),
            Err(Denied::NeedsFetch(_)) => GetOutcome::Refused(Refused::NeedsFetch),
        }
    }

    pub(crate) fn counter(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &CounterRequest,
    ) -> CounterOutcome {
        let mut value = 0;
        let build = |live: Option<&ItemRef>, is_lock_cas: bool| {
            let fields = match live {
                Some(live) => {
                    if request.cas != Cas(0) && request.cas != live.cas() && !is_lock_cas {
                        return Err(CounterOutcome::Exists);
                    }
                    let current = current_counter(live)?;
                    value = match request.decrement {
                        true => current.saturating_sub(request.delta),
                        false => current.wrapping_add(request.delta),
                    };
                    ItemFields { flags: live.flags(), expiry: live.expiry(), ..Default::default() }
                }
                None => {
                    if request.cas != Cas(0) {
                        return Err(CounterOutcome::NotFound);
                    }
                    value = request.initial.ok_or(CounterOutcome::NotFound)?;
                    let expiry = context.expiry(key.collection, request.expiry);
                    ItemFields { expiry, ..Default::default() }
                }
            };
            let mut digits = [0u8; DECIMAL_DIGITS_MAX];
            let digits = write_decimal(value, &mut digits);
            // A decimal number is a JSON text.
            let attributes = live.map_or(&[][..], ItemRef::attributes);
            let datatype = datatype_with(attributes, oribi_types::Datatype::JSON);
            let fields = ItemFields { datatype, ..fields };
            Ok(NewItem::new(key, fields, &[attributes, digits]))
        };
        match self.update(context, key, request.cas, build) {
            Ok((mutation, _)) => CounterOutcome::Done { mutation, value },
            Err(Denied::Condition(outcome)) => outcome,
            Err(Denied::Refused(refused)) => CounterOutcome::Refused(refused),
            Err(Denied::NeedsFetch(_)) => CounterOutcome::Refused(Refused::NeedsFetch),
        }
    }
}

/// Fields of the block that a store request makes, but for the datatype, which takes its value.
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

fn check_cas(live: Option<&ItemRef>, cas: Cas) -> Result<(), MutationOutcome> {
    match live {
        _ if cas == Cas(0) => Ok(()),
        None => Err(MutationOutcome::NotFound),
        Some(live) if live.cas() == cas => Ok(()),
        Some(_) => Err(MutationOutcome::Exists),
    }
}

fn with_expiry(live: &ItemRef, expiry: u32) -> NewItem {
    let fields =
        ItemFields { flags: live.flags(), expiry, datatype: live.datatype(), ..Default::default() };
    NewItem::new(live.key(), fields, &[live.value()])
}

/// Digits of `u64::MAX`.
const DECIMAL_DIGITS_MAX: usize = 20;

/// What a counter stands at. One that takes more bytes than a number has is not inflated to see that.
fn current_counter(live: &ItemRef) -> Result<u64, CounterOutcome> {
    let mut scratch = Vec::new();
    if live.plain_body_bytes().is_ok_and(|bytes| bytes > DECIMAL_DIGITS_MAX) {
        return Err(CounterOutcome::NotANumber);
    }
    let body = plain_body(live, &mut scratch).map_err(CounterOutcome::Refused)?;
    parse_counter(body).ok_or(CounterOutcome::NotANumber)
}

/// A counter's value: 1 to 20 decimal digits and nothing else, at most `u64::MAX`.
fn parse_counter(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > DECIMAL_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Writes `value` into the end of `digits` and returns the used part.
fn write_decimal(mut value: u64, digits: &mut [u8; DECIMAL_DIGITS_MAX]) -> &[u8] {
    let mut at = DECIMAL_DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}
