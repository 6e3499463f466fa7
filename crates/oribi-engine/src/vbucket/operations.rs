//! What clients do to documents of one vbucket.
//!
//! Owns: the rules of each operation. Every write ends in [`VBucket::write_if`]: build the new block
//! outside the locks, then check the condition and publish under them. Operations whose new value
//! depends on the old one build it from a reference to the old block and start again in the rare
//! case that somebody else wrote in between, so no value is ever copied under a lock.

use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use oribi_storage::VbucketPhase;
use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Timestamp};

use super::fetching::is_absence_marker;
use super::{FAILED, LOADING, Table, VBucket};
use crate::attributes::{datatype_with, tombstone, tombstone_of, with_attributes_of};
use crate::collections::Manifest;
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
}

impl Context<'_> {
    /// Asked under the table lock: a collection is purged from the table after it has left the
    /// manifest, so whoever still finds it here has its document purged as well.
    pub(super) fn knows(&self, collection: CollectionId) -> bool {
        collection == CollectionId::DEFAULT || self.manifest.load().contains(collection)
    }

    /// Absolute expiry of a document of `collection`, from what the client asked for.
    pub(super) fn expiry(&self, collection: CollectionId, wire: u32) -> u32 {
        if collection == CollectionId::DEFAULT {
            return expiry::absolute(wire, self.now);
        }
        let manifest = self.manifest.load();
        let max_ttl_s = manifest.collection(collection).and_then(|found| found.max_ttl_s);
        expiry::limited(wire, max_ttl_s, self.now)
    }
}

/// Why a write did not happen: refused before its condition, or by its condition.
pub(super) enum Denied<R> {
    Refused(Refused),
    /// Refused because the store has to be asked; the block is needed again.
    NeedsFetch(NewItem),
    Condition(R),
}

impl From<Denied<MutationOutcome>> for MutationOutcome {
    fn from(denied: Denied<MutationOutcome>) -> MutationOutcome {
        match denied {
            Denied::Refused(refused) => MutationOutcome::Refused(refused),
            Denied::NeedsFetch(_) => MutationOutcome::Refused(Refused::NeedsFetch),
            Denied::Condition(outcome) => outcome,
        }
    }
}

/// The version that a new value was built from is not the current one any more.
pub(super) struct Overtaken;

impl VBucket {
    pub(crate) fn get(&self, context: &Context<'_>, hash: KeyHash, key: DocKey<'_>) -> GetOutcome {
        match self.look_up(context, hash, key, ItemRef::clone_for_use) {
            Err(refused) => GetOutcome::Refused(refused),
            Ok(Some(item)) if item.is_live(context.now.unix_s()) => match item.is_evicted() {
                false => GetOutcome::Hit(item),
                true => GetOutcome::Refused(Refused::NeedsFetch),
            },
            Ok(Some(item)) => {
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
        let found = match self.find(context, hash, key) {
            Ok(Some(item)) if item.is_expired(now_s) => {
                // Who asks for metadata must see the same of a document that ended by itself as of a deleted one:
                // its tombstone.
                self.expire(context, hash, &item);
                self.find(context, hash, key)
            }
            found => found,
        };
        match found {
            Err(refused) => MetaOutcome::Refused(refused),
            Ok(Some(item)) if is_absence_marker(&item) => MetaOutcome::Miss,
            Ok(Some(item)) if !item.is_expired(now_s) => MetaOutcome::Found(item),
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
        let fields = ItemFields {
            datatype: datatype::detect(request.value),
            ..store_fields(context, key, request)
        };
        let new = NewItem::new(key, fields, &[request.value]);
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
        let new = received.take().expect("the caller has received a value").finish();
        let datatype = datatype::detect(new.as_item().value());
        let hash = self.seed.hash(new.as_item().key());
        match self.store_new(context, hash, new.with_datatype(datatype), request) {
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
            let written = self.write_if(context, hash, new, |live, new| {
                match (request.mode, live) {
                    (StoreMode::Add, Some(_)) => return Err(MutationOutcome::Exists),
                    (StoreMode::Replace, None) => return Err(MutationOutcome::NotFound),
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
        let written = self.write_if(context, self.seed.hash(key), new, |live, _| {
            let Some(live) = live else { return Err(MutationOutcome::NotFound) };
            check_cas(Some(live), cas)?;
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
        let build = |live: Option<&ItemRef>| {
            let live = live.ok_or(MutationOutcome::NotFound)?;
            check_cas(Some(live), cas)?;
            Ok(tombstone_of(live, context.now))
        };
        match self.update(context, key, build) {
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
        let build = |live: Option<&ItemRef>| {
            let live = live.ok_or(MutationOutcome::NotStored)?;
            check_cas(Some(live), request.cas)?;
            if live.body().len() + request.value.len() > context.value_bytes_max {
                return Err(MutationOutcome::TooLarge);
            }
            let attributes = live.attributes();
            let parts = match request.mode {
                ConcatMode::Append => [attributes, live.body(), request.value],
                ConcatMode::Prepend => [attributes, request.value, live.body()],
            };
            let fields =
                ItemFields { flags: live.flags(), expiry: live.expiry(), ..Default::default() };
            let joined = NewItem::new(key, fields, &parts);
            let body = datatype::detect(&joined.as_item().value()[attributes.len()..]);
            Ok(joined.with_datatype(datatype_with(attributes, body)))
        };
        match self.update(context, key, build) {
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
        let build = |live: Option<&ItemRef>| match live {
            None => Err(MutationOutcome::NotFound),
            Some(live) => Ok(with_expiry(live, expiry)),
        };
        match self.update(context, key, build) {
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
        let build = |live: Option<&ItemRef>| match live {
            None => Err(GetOutcome::Miss),
            // The same expiry again changes nothing, so it is no mutation.
            Some(live) if live.expiry() == expiry => Err(GetOutcome::Hit(live.clone())),
            Some(live) => Ok(with_expiry(live, expiry)),
        };
        match self.update(context, key, build) {
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
        let build = |live: Option<&ItemRef>| {
            let fields = match live {
                Some(live) => {
                    if request.cas != Cas(0) && request.cas != live.cas() {
                        return Err(CounterOutcome::Exists);
                    }
                    let current = parse_counter(live.body()).ok_or(CounterOutcome::NotANumber)?;
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
        match self.update(context, key, build) {
            Ok((mutation, _)) => CounterOutcome::Done { mutation, value },
            Err(Denied::Condition(outcome)) => outcome,
            Err(Denied::Refused(refused)) => CounterOutcome::Refused(refused),
            Err(Denied::NeedsFetch(_)) => CounterOutcome::Refused(Refused::NeedsFetch),
        }
    }

    /// Replaces a document that has expired by its tombstone, if nobody else changed it meanwhile and
    /// writes are not refused; true when it did.
    pub(super) fn expire(&self, context: &Context<'_>, hash: KeyHash, expired: &ItemRef) -> bool {
        let new = tombstone_of(expired, context.now);
        let written = self.write_version(context, hash, new, |current, _| match current {
            Some(current) if current.same_block(expired) => Ok(()),
            _ => Err(Overtaken),
        });
        // Refusal is fine: readers go by the expiry time, and a later one will try again.
        if written.is_ok() {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        written.is_ok()
    }

    pub(super) fn find(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
    ) -> Result<Option<ItemRef>, Refused> {
        self.look_up(context, hash, key, ItemRef::clone)
    }

    /// The version under a key, dead or alive, evicted or not; nothing only when that is certain.
    #[inline]
    fn look_up(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        key: DocKey<'_>,
        refer: impl FnOnce(&ItemRef) -> ItemRef,
    ) -> Result<Option<ItemRef>, Refused> {
        let table = self.table.lock();
        self.check_phase()?;
        if !context.knows(key.collection) {
            return Err(Refused::UnknownCollection);
        }
        if let Some(item) = table.index.get(hash, key) {
            return Ok(Some(refer(item)));
        }
        let is_uncertain = self.is_absence_uncertain(context, &table);
        drop(table);
        if is_uncertain && context.memory.may_be_stored(self.id, key) {
            return Err(Refused::NeedsFetch);
        }
        Ok(None)
    }

    /// True when the store may have a document whose key is not in the table.
    #[inline]
    pub(super) fn is_absence_uncertain(&self, context: &Context<'_>, table: &Table) -> bool {
        (context.memory.is_full_eviction() && table.has_left_any()) || self.is_loading()
    }

    /// Asked under the table's lock, under which the phase changes.
    fn check_phase(&self) -> Result<(), Refused> {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == VbucketPhase::Active as u8 => Ok(()),
            // What is not loaded yet can be fetched.
            LOADING => Ok(()),
            FAILED => Err(Refused::TemporaryFailure),
            _ => Err(Refused::NotMyVbucket),
        }
    }

    /// Reads, builds the next version from what was read, value and all, and writes it unless overtaken.
    fn update<R>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        mut build: impl FnMut(Option<&ItemRef>) -> Result<NewItem, R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        let hash = self.seed.hash(key);
        let now_s = context.now.unix_s();
        loop {
            let found = self.find(context, hash, key).map_err(Denied::Refused)?;
            let live = found.filter(|item| item.is_live(now_s));
            if live.as_ref().is_some_and(ItemRef::is_evicted) {
                return Err(Denied::Refused(Refused::NeedsFetch));
            }
            let new = build(live.as_ref()).map_err(Denied::Condition)?;
            let written = self.write_if(context, hash, new, |current, _| match (current, &live) {
                (None, None) => Ok(()),
                (Some(current), Some(live)) if current.same_block(live) => Ok(()),
                _ => Err(Overtaken),
            });
            match written {
                Ok(done) => return Ok(done),
                Err(Denied::Refused(refused)) => return Err(Denied::Refused(refused)),
                Err(Denied::NeedsFetch(new)) => return Err(Denied::NeedsFetch(new)),
                Err(Denied::Condition(Overtaken)) => {}
            }
        }
    }

    /// Publishes `new` if `condition` holds for the live version under the same key.
    fn write_if<R>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        new: NewItem,
        condition: impl FnOnce(Option<&ItemRef>, &mut NewItem) -> Result<(), R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        let now_s = context.now.unix_s();
        self.write_version(context, hash, new, |current, new| {
            condition(current.filter(|item| item.is_live(now_s)), new)
        })
    }

    /// Publishes `new` if `condition` holds for the version under the same key, dead or alive.
    pub(super) fn write_version<R>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        mut new: NewItem,
        condition: impl FnOnce(Option<&ItemRef>, &mut NewItem) -> Result<(), R>,
    ) -> Result<(Mutation, ItemRef), Denied<R>> {
        // A first look, so that a write which will be refused counts as no pressure on memory.
        self.check_phase().map_err(Denied::Refused)?;
        if let Some(refused) = context.memory.refuses(new.as_item().is_deleted()) {
            return Err(Denied::Refused(refused));
        }
        let key_collection = new.as_item().key().collection;
        let (item, garbage, change) = {
            let mut table = self.table.lock();
            // Under the lock, under which ownership ends: nothing is written after that.
            self.check_phase().map_err(Denied::Refused)?;
            if !context.knows(key_collection) {
                return Err(Denied::Refused(Refused::UnknownCollection));
            }
            let place = table.index.locate(hash, new.as_item().key());
            let current = place.and_then(|place| table.index.at(place));
            if current.is_none() && self.is_absence_uncertain(context, &table) {
                // Revision, CAS and count of what may be there decide what is to become of the write.
                let key = new.as_item().key();
                if context.memory.may_be_stored(self.id, key) {
                    return Err(Denied::NeedsFetch(new));
                }
            }
            condition(current, &mut new).map_err(Denied::Condition)?;
            let (previous, rev) = match current {
                Some(current) if !is_absence_marker(current) => {
                    new.inherit_frequency(current);
                    (Some(current), current.rev_seqno().0 + 1)
                }
                _ => (None, table.max_deleted_rev().0 + 1),
            };
            let mut queue = self.queue.lock();
            let queued = queue.enqueue(new, previous, RevSeqno(rev), context.now);
            let queue_bytes = queue.own_bytes();
            drop(queue);
            let replaced = table.write(hash, place, queued.item.clone());
            if self.persistence_cursor.is_none() && queued.item.is_deleted() {
                // No flush will come to remove it, and nothing on disk needs to be told.
                table.remove_same(hash, &queued.item);
            }
            table.index.show_to(&self.groups);
            let change = table.unreported(queue_bytes, context.memory.report_bytes());
            (queued.item, (queued.displaced, replaced, table.index.take_retired()), change)
        };
        drop(garbage);
        if let Some(bytes) = change {
            context.memory.report(bytes);
        }
        self.mark_dirty(context.signal);
        let mutation = Mutation { cas: item.cas(), seqno: item.seqno(), vb_uuid: self.uuid() };
        Ok((mutation, item))
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
