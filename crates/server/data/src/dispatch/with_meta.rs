//! Writes with metadata: versions that were made in another cluster, or come from a backup.
//!
//! Owns: the extras in their four lengths, the option bits, and which options fit the bucket's
//! conflict resolution. The engine makes the comparison.
//!
//! Limits of this family alone: no version has a CAS of 0 or of all ones, so such a CAS is answered
//! like a lost conflict. A CAS from 2^63 on, in the year 2262, would stop the vbucket's clock and
//! is not acceptable.

use oribi_auth::Privilege;
use oribi_engine::compression::inflate_into;
use oribi_engine::{
    ConflictResolution, EXPLICIT_CAS_END, MutationOutcome, WithMetaMode, WithMetaRequest,
    WriteVisibility,
};
use oribi_protocol::limits::{FRAME_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_subdoc::xattr;
use oribi_types::{Cas, CollectionId, Datatype, RevSeqno};

use super::outcome::{Outcome, Rejection};
use super::request::Request;
use super::writes::written;
use crate::dispatch::status;

/// Extras without options and without the length of extended metadata.
const META_BYTES: usize = 24;
const OPTIONS_BYTES: usize = 4;
/// Revisions have 48 bits, as in change streams.
const REV_SEQNO_MAX: u64 = (1 << 48) - 1;

/// Most bytes of a request: a body, attributes, and extended metadata, whose length has 16 bits.
pub(super) const SENT_BYTES_MAX: usize = VALUE_BYTES_MAX + XATTR_BYTES_MAX + u16::MAX as usize;
const _: () = assert!(SENT_BYTES_MAX + 1024 < FRAME_BYTES_MAX, "heads are far shorter than that");

/// The sender expects that the bucket resolves conflicts by time.
const FORCE: u32 = 1 << 0;
/// Accept the version even if its CAS is ahead of the clock; this server always does.
const FORCE_ACCEPT: u32 = 1 << 1;
/// The version gets a new CAS from this server.
const REGENERATE_CAS: u32 = 1 << 2;
/// No comparison with the current version.
const SKIP_CONFLICT_RESOLUTION: u32 = 1 << 3;
/// The deletion was an expiration.
const IS_EXPIRATION: u32 = 1 << 4;
const ALL_OPTIONS: u32 =
    FORCE | FORCE_ACCEPT | REGENERATE_CAS | SKIP_CONFLICT_RESOLUTION | IS_EXPIRATION;

const MISFIT: Rejection =
    Rejection::Because(Status::Einval, "options that do not fit the request or the bucket");

struct Extras {
    flags: u32,
    expiry: u32,
    rev_seqno: u64,
    cas: u64,
    options: u32,
    /// Bytes of extended metadata after the value, which the server does not keep.
    metadata_bytes: usize,
}

impl Extras {
    /// Decodes flags u32, expiry or time of deletion u32, revision u64, CAS u64, then options u32
    /// and length of metadata u16. Each of the last two may be missing.
    fn decode(extras: &[u8]) -> Option<Extras> {
        let (meta, rest) = extras.split_at_checked(META_BYTES)?;
        let (options, rest) = match rest.len() {
            0 | 2 => (0, rest),
            _ => {
                let (options, rest) = rest.split_at_checked(OPTIONS_BYTES)?;
                (u32::from_be_bytes(options.try_into().ok()?), rest)
            }
        };
        let metadata_bytes = match *rest {
            [] => 0,
            [high, low] => usize::from(u16::from_be_bytes([high, low])),
            _ => return None,
        };
        Some(Extras {
            flags: u32::from_be_bytes(meta[..4].try_into().ok()?),
            expiry: u32::from_be_bytes(meta[4..8].try_into().ok()?),
            rev_seqno: u64::from_be_bytes(meta[8..16].try_into().ok()?),
            cas: u64::from_be_bytes(meta[16..].try_into().ok()?),
            options,
            metadata_bytes,
        })
    }

    fn has(&self, option: u32) -> bool {
        self.options & option != 0
    }

    /// True when the options fit each other, the mode, and the bucket's conflict resolution.
    fn are_possible(&self, mode: WithMetaMode, resolution: ConflictResolution) -> bool {
        let is_known = self.options & !ALL_OPTIONS == 0;
        let is_consistent = !self.has(REGENERATE_CAS) || self.has(SKIP_CONFLICT_RESOLUTION);
        let fits_mode = !self.has(IS_EXPIRATION) || mode == WithMetaMode::Delete;
        let fits_bucket = match resolution {
            ConflictResolution::Seqno => !self.has(FORCE),
            ConflictResolution::LastWriteWins => self.has(FORCE) || self.has(REGENERATE_CAS),
        };
        is_known && is_consistent && fits_mode && fits_bucket
    }

    /// The CAS that the version keeps; `None` when it gets a new one.
    fn given_cas(&self) -> Result<Option<Cas>, Rejection> {
        const CONTEXT: &str = "no version has such a CAS";
        match self.cas {
            _ if self.has(REGENERATE_CAS) => Ok(None),
            0 | u64::MAX => Err(Rejection::Because(Status::KeyEexists, CONTEXT)),
            cas if cas >= EXPLICIT_CAS_END.0 => {
                Err(Rejection::Because(Status::CasValueInvalid, CONTEXT))
            }
            cas => Ok(Some(Cas(cas))),
        }
    }
}

/// SetWithMeta, AddWithMeta, DelWithMeta and their quiet forms.
pub(super) fn store<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let mode = match req.opcode {
        Opcode::DelWithMeta | Opcode::DelqWithMeta => WithMetaMode::Delete,
        Opcode::AddWithMeta | Opcode::AddqWithMeta => WithMetaMode::Add,
        _ => WithMetaMode::Set,
    };
    let document = req.locate()?;
    // Its origin has decided how durable it is: no level raises it.
    req.visibility = WriteVisibility::AtOnce;
    let resolution = req.handle().conflict_resolution();
    let extras = Extras::decode(req.frame.extras);
    let extras = extras.filter(|extras| extras.are_possible(mode, resolution)).ok_or(MISFIT)?;
    if !(1..=REV_SEQNO_MAX).contains(&extras.rev_seqno) {
        return Err(Rejection::Because(Status::Einval, "revisions are 1 to 2^48 - 1"));
    }
    let mut plain = Vec::new();
    let value = value_of(req, &extras, mode, &mut plain);
    let given_cas = extras.given_cas()?;
    let value = value?;
    if value.has_system {
        req.demand(document.key.collection, Privilege::SystemXattrWrite.into())?;
    }
    let request = WithMetaRequest {
        mode,
        value: value.bytes,
        datatype: value.datatype,
        flags: extras.flags,
        expiry: extras.expiry,
        expired: extras.has(IS_EXPIRATION),
        given_cas,
        rev_seqno: RevSeqno(extras.rev_seqno),
        cas: req.cas(),
        resolution: (!extras.has(SKIP_CONFLICT_RESOLUTION)).then_some(resolution),
    };
    let key = document.key;
    let outcome = document.vbucket(req)?.store_with_meta(&req.context(), key, &request);
    count_outcome(req, key.collection, mode == WithMetaMode::Delete, &outcome);
    written(outcome)
}

fn count_outcome(
    req: &mut Request<'_>,
    collection: CollectionId,
    is_deletion: bool,
    outcome: &MutationOutcome,
) {
    let counters = req.counters();
    match (outcome, is_deletion) {
        (MutationOutcome::Done(_), true) => counters.ep_num_ops_del_meta.add(1),
        (MutationOutcome::Done(_), false) => counters.ep_num_ops_set_meta.add(1),
        (MutationOutcome::Exists, true) => counters.ep_num_ops_del_meta_res_fail.add(1),
        (MutationOutcome::Exists, false) => counters.ep_num_ops_set_meta_res_fail.add(1),
        _ => {}
    }
    if matches!(outcome, MutationOutcome::Done(_)) {
        let counters = req.collection_counters(collection);
        if is_deletion { counters.deletes.add(1) } else { counters.stores.add(1) }
    }
}

/// Attributes and body, inflated and checked.
struct Value<'v> {
    bytes: &'v [u8],
    datatype: Datatype,
    /// Some attributes are the system's.
    has_system: bool,
}

/// Splits the received value, inflated into `plain` if it is compressed.
fn value_of<'v>(
    req: &Request<'v>,
    extras: &Extras,
    mode: WithMetaMode,
    plain: &'v mut Vec<u8>,
) -> Result<Value<'v>, Rejection> {
    const ATTRIBUTES: Rejection = Rejection::Because(
        Status::XattrEinval,
        "attributes are JSON under keys of up to 16 bytes, each once",
    );
    const TOO_SHORT: Rejection =
        Rejection::Because(Status::Einval, "the value is shorter than its extended metadata");
    let sent = Datatype(req.frame.header.datatype);
    let bytes = req.frame.value.len().checked_sub(extras.metadata_bytes);
    let bytes = bytes.ok_or(TOO_SHORT)?;
    let mut bytes = &req.frame.value[..bytes];
    if sent.contains(Datatype::SNAPPY) {
        inflate_into(bytes, VALUE_BYTES_MAX + XATTR_BYTES_MAX, plain).map_err(|unusable| {
            Rejection::Because(
                status::of_mutation(&unusable.into()),
                "the value cannot be inflated",
            )
        })?;
        bytes = plain;
    }
    let mut value = Value { bytes, datatype: Datatype::RAW, has_system: false };
    let mut body = bytes;
    if sent.contains(Datatype::XATTR) {
        let (xattrs, behind) = xattr::split(bytes).map_err(|_| ATTRIBUTES)?;
        // A tombstone has at most attributes, and a version without any has no block.
        body = behind;
        match xattrs.is_empty() {
            true => value.bytes = body,
            false => value.datatype = Datatype::XATTR,
        }
        debug_assert!(body.len() <= value.bytes.len(), "a body is a part of its value");
        if value.bytes.len() - body.len() > XATTR_BYTES_MAX {
            return Err(Rejection::Because(Status::E2big, "attributes have 1 MiB at most"));
        }
        if !xattrs.are_acceptable() {
            return Err(ATTRIBUTES);
        }
        value.has_system = xattrs.iter().any(|(key, _)| xattr::is_system(key));
    }
    match mode == WithMetaMode::Delete && !body.is_empty() {
        true => Err(Rejection::Because(Status::Einval, "a deletion has no body")),
        false => Ok(value),
    }
}
