//! Versions that were made elsewhere, with their metadata: what replication between clusters and
//! restores stand on.
//!
//! Owns: which of two versions is newer, and the write of the newer one. Both kinds of resolution
//! compare in a fixed order of properties, so that two clusters which exchange their versions end
//! up with the same one, whatever the order. The tombstone of a deletion is compared like a
//! document, so it is fetched when it has left memory.
//!
//! A given CAS is kept as it is, also when it is lower than that of other versions here. One that
//! is ahead of this machine's clock moves the vbucket's clock forward: CAS values count on from
//! there until time has caught up, so that whatever is written after it has a higher one.

use std::cmp::Ordering;

use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_subdoc::xattr;
use oribi_types::policy::ConflictResolution;
use oribi_types::{Datatype, DocKey};

use super::VBucket;
use super::compressed::body_compressed;
use super::context::{Context, WriteVisibility};
use super::locks::Claim;
use super::operations::{check_cas, mutated};
use super::writing::{Basis, FoundVersion, WriteTerms};
use crate::attributes::datatype_with;
use crate::datatype;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::outcome::{
    EXPLICIT_CAS_END, MutationOutcome, ReadTarget, WithMetaMode, WithMetaRequest,
};

impl VBucket {
    /// Stores a version from elsewhere, with its own CAS and revision, if it is newer than the
    /// current one; otherwise [`MutationOutcome::Exists`].
    pub fn store_with_meta(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        request: &WithMetaRequest<'_>,
    ) -> MutationOutcome {
        if is_too_large(request, context.value_bytes_max) {
            return MutationOutcome::TooLarge;
        }
        // A comparison has to know deletions as well.
        let sought = request.resolution.map_or(ReadTarget::Document, |_| ReadTarget::Tombstone);
        let terms = WriteTerms {
            claim: Claim::Cas(request.cas),
            cas: request.given_cas,
            rev_seqno: Some(request.rev_seqno),
            visibility: WriteVisibility::AtOnce,
        };
        let written = self.write(context, key, Basis::Metadata(sought), terms, |found| {
            check(request, found)?;
            Ok(version_of(key, request, context))
        });
        mutated(written)
    }
}

/// Attributes and body have a limit each, as when they are written in other ways.
fn is_too_large(request: &WithMetaRequest<'_>, value_bytes_max: usize) -> bool {
    let body = match request.datatype.contains(Datatype::XATTR) {
        true => xattr::body_of(request.value).unwrap_or(request.value),
        false => request.value,
    };
    debug_assert!(body.len() <= request.value.len(), "the body is a part of the value");
    body.len() > value_bytes_max || request.value.len() - body.len() > XATTR_BYTES_MAX
}

/// Whether a version may replace the one that was found.
fn check(request: &WithMetaRequest<'_>, found: &FoundVersion<'_>) -> Result<(), MutationOutcome> {
    check_cas(found, request.cas)?;
    if request.mode == WithMetaMode::Add && found.live.is_some() {
        return Err(MutationOutcome::Exists);
    }
    let (Some(known), Some(resolution)) = (found.version, request.resolution) else {
        return Ok(());
    };
    match compare(request, known, resolution) {
        Ordering::Greater => Ok(()),
        Ordering::Less | Ordering::Equal => Err(MutationOutcome::Exists),
    }
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
    debug_assert!(request.given_cas.is_none_or(|cas| cas < EXPLICIT_CAS_END), "the caller checks");
    let expiry = match request.expiry {
        0 if deleted => context.now.unix_s(),
        expiry if deleted => expiry,
        expiry => context.limited_expiry(key.collection, expiry),
    };
    let datatype = Datatype(request.datatype.0 & Datatype::XATTR.0);
    let (flags, expired) = (request.flags, deleted && request.expired);
    let fields = ItemFields { flags, expiry, datatype, deleted, expired, ..Default::default() };
    let new = NewItem::new(key, fields, &[request.value]);
    if deleted {
        return new;
    }
    let body = datatype::detect(new.as_item().body());
    let datatype = datatype_with(new.as_item().attributes(), body);
    body_compressed(context, new.with_datatype(datatype), false)
}
