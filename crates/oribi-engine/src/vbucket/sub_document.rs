//! Reading and rewriting whole versions, tombstones included: what sub-document operations stand on.
//!
//! The engine does not know paths. [`Bucket::rewrite`] hands the current version to its caller, who
//! builds the next one from it outside of all locks and is asked again when somebody else wrote in
//! between. A new version may hold places for its own CAS and seqno ([`Stamp`]): they are written in
//! under the table lock, where nobody else can take a seqno, before the version is queued. Versions
//! without such places do not pay for it.

use oribi_types::{Cas, Datatype, DocKey, Seqno, Timestamp, Vbid};

use super::VBucket;
use super::compressed::body_compressed;
use super::fetching::is_absence_marker;
use super::locks::Claim;
use super::operations::Context;
use super::versions::{Denied, Overtaken};
use crate::bucket::Bucket;
use crate::hash_table::KeyHash;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::outcome::{Mutation, Refused};

/// Digits that a [`Stamp`] takes.
const STAMP_DIGITS: usize = 16;

/// What a read is after, and therefore what it has to ask the store about before it says that there is nothing.
/// Whatever is in memory is found in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// Documents.
    Document,
    /// Tombstones as well, which are in the store only soon after the deletion.
    Tombstone,
}

/// Answer of a read that sees tombstones.
#[derive(Debug)]
pub enum VersionOutcome {
    /// The document or its tombstone, and the CAS that may be shown.
    Found(ItemRef, Cas),
    /// Neither is there.
    Miss,
    /// Not tried.
    Refused(Refused),
}

/// Answer of a rewrite.
#[derive(Debug)]
pub enum RewriteOutcome<E> {
    /// Done, in memory.
    Done(Mutation),
    /// The caller did not want to.
    Rejected(E),
    /// Not tried.
    Refused(Refused),
}

/// What the next version of a rewrite is made from.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// The document, its tombstone, or nothing.
    pub version: Option<&'a ItemRef>,
    /// The request named the CAS of a lock of this version, so the version's own does not matter.
    pub is_lock_cas: bool,
    /// The absolute expiry that the request's means in the key's collection.
    pub expiry: u32,
}

/// Everything about a version but its key, its value and what is assigned to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct VersionFields {
    /// Opaque client flags.
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none. Not used for a tombstone.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
}

/// A place in a value for 16 hexadecimal digits about the version itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// The CAS, lowest byte first, as Couchbase prints it.
    Cas {
        /// Offset in the value.
        at: usize,
    },
    /// The seqno, highest byte first.
    Seqno {
        /// Offset in the value.
        at: usize,
    },
}

/// A version that is complete but for its stamps.
pub struct NextVersion {
    item: NewItem,
    stamps: Vec<Stamp>,
}

impl NextVersion {
    /// Puts a version together, copying the parts of its value once.
    ///
    /// # Panics
    /// When key or value are longer than the protocol allows; callers check.
    pub fn new(
        key: DocKey<'_>,
        fields: VersionFields,
        parts: &[&[u8]],
        now: Timestamp,
    ) -> NextVersion {
        let VersionFields { flags, expiry, datatype, deleted } = fields;
        // The expiry of a tombstone is the time of the deletion.
        let expiry = if deleted { now.unix_s() } else { expiry };
        let fields = ItemFields { flags, expiry, datatype, deleted, ..ItemFields::default() };
        NextVersion { item: NewItem::new(key, fields, parts), stamps: Vec::new() }
    }

    /// Adds places to be written in.
    ///
    /// # Panics
    /// When it is used and a place is not inside the value.
    #[must_use]
    pub fn with_stamps(mut self, stamps: Vec<Stamp>) -> NextVersion {
        self.stamps = stamps;
        self
    }
}

fn stamp(new: &mut NewItem, stamps: &[Stamp], (cas, seqno): (Cas, Seqno)) {
    for stamp in stamps {
        let (at, number) = match stamp {
            Stamp::Cas { at } => (*at, cas.0.swap_bytes()),
            Stamp::Seqno { at } => (*at, seqno.0),
        };
        let digits = format!("{number:0width$x}", width = STAMP_DIGITS);
        new.patch_value(at, digits.as_bytes());
    }
}

impl VBucket {
    fn read_version(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: Sought,
    ) -> VersionOutcome {
        let hash = self.seed.hash(key);
        match self.settled_version(context, hash, || self.find_shown(context, hash, key, sought)) {
            Ok(Some((item, cas))) => VersionOutcome::Found(item, cas),
            Ok(None) => VersionOutcome::Miss,
            Err(refused) => VersionOutcome::Refused(refused),
        }
    }

    /// The version under a key, after an expired document has become its tombstone; an expired one that
    /// could not is nothing. `find` looks the key up.
    fn settled_version<T>(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        find: impl Fn() -> Result<Option<(ItemRef, T)>, Refused>,
    ) -> Result<Option<(ItemRef, T)>, Refused> {
        let now_s = context.now.unix_s();
        let mut found = find()?;
        if let Some((expired, _)) = found.as_ref().filter(|(item, _)| item.is_expired(now_s)) {
            self.expire(context, hash, expired);
            found = find()?.filter(|(item, _)| !item.is_expired(now_s));
        }
        match found.filter(|(item, _)| !is_absence_marker(item)) {
            Some((item, _)) if item.is_evicted() => Err(Refused::NeedsFetch),
            found => Ok(found),
        }
    }

    fn rewrite<E>(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: Sought,
        (wire_expiry, cas): (u32, Cas),
        mut build: impl FnMut(Current<'_>) -> Result<NextVersion, E>,
    ) -> RewriteOutcome<E> {
        let hash = self.seed.hash(key);
        let expiry = context.expiry(key.collection, wire_expiry);
        let now_s = context.now.unix_s();
        loop {
            let find = || self.find_to_write(context, hash, key, sought, cas);
            let (seen, is_lock_cas) = match self.settled_version(context, hash, find) {
                Ok(Some((seen, is_lock_cas))) => (Some(seen), is_lock_cas),
                Ok(None) => (None, false),
                Err(refused) => return RewriteOutcome::Refused(refused),
            };
            let NextVersion { item, stamps } =
                match build(Current { version: seen.as_ref(), is_lock_cas, expiry }) {
                    Ok(next) => next,
                    Err(rejected) => return RewriteOutcome::Rejected(rejected),
                };
            // Stamps are in the attributes, which stay where they are.
            let item = body_compressed(context, item, false);
            let claim = Claim::Cas(cas);
            let written = self.write_version(context, hash, item, claim, |current, _, new| {
                match (current, &seen) {
                    (Some(current), Some(seen)) if current.same_block(seen) => {}
                    (None, None) => {}
                    (Some(current), None)
                        if current.is_expired(now_s) || is_absence_marker(current) => {}
                    _ => return Err(Overtaken),
                }
                if !stamps.is_empty() {
                    // The table is locked, so the next enqueue is the one of this version.
                    stamp(new, &stamps, self.queue.lock().next_version(context.now));
                }
                Ok(())
            });
            match written {
                Ok((mutation, _)) => return RewriteOutcome::Done(mutation),
                Err(Denied::Refused(refused)) => return RewriteOutcome::Refused(refused),
                Err(Denied::NeedsFetch(_)) => return RewriteOutcome::Refused(Refused::NeedsFetch),
                Err(Denied::Condition(Overtaken)) => {}
            }
        }
    }
}

impl Bucket {
    /// Reads a document or its tombstone.
    pub fn read_version(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        sought: Sought,
        now: Timestamp,
    ) -> VersionOutcome {
        match self.vbucket(vbid) {
            Some(vbucket) => vbucket.read_version(&self.context(now), key, sought),
            None => VersionOutcome::Refused(Refused::NotMyVbucket),
        }
    }

    /// Writes what `build` makes of the current version. `expiry` is as on the wire. `cas` is what the request
    /// names, 0 for nothing: it opens a lock; that it is the version's is for `build` to check. `build` may be
    /// called more than once; what its last call said counts.
    pub fn rewrite<E>(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        sought: Sought,
        (expiry, cas): (u32, Cas),
        now: Timestamp,
        build: impl FnMut(Current<'_>) -> Result<NextVersion, E>,
    ) -> RewriteOutcome<E> {
        match self.vbucket(vbid) {
            Some(vbucket) => vbucket.rewrite(&self.context(now), key, sought, (expiry, cas), build),
            None => RewriteOutcome::Refused(Refused::NotMyVbucket),
        }
    }

    /// Most bytes that the value of a document may have.
    pub fn value_bytes_max(&self) -> usize {
        self.context(Timestamp::default()).value_bytes_max
    }
}
