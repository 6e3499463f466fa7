//! Versions that were made elsewhere, with their metadata: what replication between clusters and restores stand on.
//!
//! Owns: which of two versions is newer, and the write of the newer one. Both kinds of resolution compare in a fixed order of
//! properties, so that two clusters which exchange their versions end up with the same one, whatever the order. The
//! tombstone of a deletion is compared like a document, so it is fetched when it has left memory.
//!
//! A given CAS is kept as it is, also when it is lower than that of other versions here. One that is ahead of this machine's
//! clock moves the vbucket's clock forward: CAS values count on from there until time has caught up, so that whatever is
//! written after it has a higher one.

use std::cmp::Ordering;

use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_subdoc::xattr;
use oribi_types::{Cas, Datatype, DocKey};

use super::VBucket;
use super::compressed::body_compressed;
use super::fetching::is_absence_marker;
use super::locks::Claim;
use super::operations::Context;
use super::sub_document::Sought;
use super::versions::{Denied, GivenVersion, Overtaken};
use crate::attributes::datatype_with;
use crate::datatype;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::outcome::{ConflictResolution, MutationOutcome, Refused, WithMetaMode, WithMetaRequest};

impl VBucket {
    pub(crate) fn store_with_meta(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &WithMetaRequest<'_>,
    ) -> MutationOutcome {
        if is_too_large(request, context.value_bytes_max) {
            return MutationOutcome::TooLarge;
        }
        let hash = self.seed.hash(key);
        let (now, cas) = (context.now, request.cas);
        // Who compares has to know of deletions as well.
        let sought = request.resolution.map_or(Sought::Document, |_| Sought::Tombstone);
        loop {
            let found = match self.find_to_write(context, hash, key, sought, cas) {
                Ok(found) => found,
                Err(refused) => return MutationOutcome::Refused(refused),
            };
            let is_lock_cas = found.as_ref().is_some_and(|(_, is_lock_cas)| *is_lock_cas);
            let found = found.map(|(item, _)| item);
            let known = found.as_ref().filter(|item| !is_absence_marker(item));
            let live = known.filter(|item| item.is_live(now.unix_s()));
            if let Some(denied) = denial(request, known, live, is_lock_cas) {
                return denied;
            }
            let new = version_of(key, request, context);
            let given = GivenVersion { cas: request.given_cas, rev_seqno: request.rev_seqno };
            let terms = (Claim::Cas(cas), Some(given));
            let written = self.write_given(context, hash, new, terms, |current, _, _| {
                match (current, &found) {
                    (None, None) => Ok(()),
                    (Some(current), Some(found)) if current.same_block(found) => Ok(()),
                    _ => Err(Overtaken),
                }
            });
            match written {
                Ok((mutation, _)) => return MutationOutcome::Done(mutation),
                Err(Denied::Refused(refused)) => return MutationOutcome::Refused(refused),
                Err(Denied::NeedsFetch(_)) => return MutationOutcome::Refused(Refused::NeedsFetch),
                Err(Denied::Condition(Overtaken)) => {}
            }
        }
    }
}

/// Attributes and body have a limit each, as when they are written in other ways.
fn is_too_large(request: &WithMetaRequest<'_>, value_bytes_max: usize) -> bool {
    let body = match request.datatype.contains(Datatype::XATTR) {
        true => xattr::body_of(request.value).unwrap_or(request.value),
        false => request.value,
    };
    body.len() > value_bytes_max || request.value.len() - body.len() > XATTR_BYTES_MAX
}

/// Why a version may not be stored; `known` is what is there, `live` the same if it is a document.
fn denial(
    request: &WithMetaRequest<'_>,
    known: Option<&ItemRef>,
    live: Option<&ItemRef>,
    is_lock_cas: bool,
) -> Option<MutationOutcome> {
    if request.cas != Cas(0) && !is_lock_cas {
        match live {
            None => return Some(MutationOutcome::NotFound),
            Some(live) if live.cas() != request.cas => return Some(MutationOutcome::Exists),
            Some(_) => {}
        }
    }
    if request.mode == WithMetaMode::Add && live.is_some() {
        return Some(MutationOutcome::Exists);
    }
    let resolution = request.resolution?;
    let is_newer = known.is_none_or(|known| compare(request, known, resolution).is_gt());
    (!is_newer).then_some(MutationOutcome::Exists)
}

/// Which of the two is newer. Of tombstones only revision and CAS count.
fn compare(
    request: &WithMetaRequest<'_>,
    known: &ItemRef,
    resolution: ConflictResolution,
) -> Ordering {
    let cas = request.given_cas.unwrap_or_default().cmp(&known.cas());
    let revision = request.rev_seqno.cmp(&known.rev_seqno());
    let version = match resolution {
        ConflictResolution::Seqno => revision.then(cas),
        ConflictResolution::LastWriteWins => cas.then(revision),
    };
    if request.mode == WithMetaMode::Delete {
        return version;
    }
    let has_attributes = request.datatype.contains(Datatype::XATTR);
    version
        .then(request.expiry.cmp(&known.expiry()))
        .then(request.flags.cmp(&known.flags()))
        .then(has_attributes.cmp(&known.has_attributes()))
}

fn version_of(key: DocKey<'_>, request: &WithMetaRequest<'_>, context: &Context<'_>) -> NewItem {
    let deleted = request.mode == WithMetaMode::Delete;
    let expiry = match request.expiry {
        0 if deleted => context.now.unix_s(),
        expiry if deleted => expiry,
        expiry => context.limited_expiry(key.collection, expiry),
    };
    let datatype = Datatype(request.datatype.0 & Datatype::XATTR.0);
    let fields =
        ItemFields { flags: request.flags, expiry, datatype, deleted, ..Default::default() };
    let new = NewItem::new(key, fields, &[request.value]);
    if deleted {
        return new;
    }
    let body = datatype::detect(new.as_item().body());
    let datatype = datatype_with(new.as_item().attributes(), body);
    body_compressed(context, new.with_datatype(datatype), false)
}
