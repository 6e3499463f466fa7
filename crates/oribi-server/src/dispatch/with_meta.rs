//! Writes with metadata: versions that were made in another cluster, or come from a backup.
//!
//! Owns: the extras in their four lengths, the option bits, and which of these go with the bucket's conflict resolution. The
//! comparison itself is the engine's. Limits that only this family knows: a CAS of 0 or of all ones is nobody's and answered
//! like a lost conflict; one from 2^63 on, in the year 2262, would stop the vbucket's clock and is not acceptable.

use oribi_engine::compression::inflate_into;
use oribi_engine::{
    ConflictResolution, GIVEN_CAS_END, MutationOutcome, WithMetaMode, WithMetaRequest,
};
use oribi_protocol::limits::{FRAME_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_subdoc::xattr;
use oribi_types::{Cas, Datatype, RevSeqno};

use super::exchange::Exchange;
use super::writes::answer_mutation;
use crate::auth::Privilege;
use crate::status;

/// Extras without options and without the length of extended metadata.
const META_BYTES: usize = 24;
const OPTIONS_BYTES: usize = 4;
/// Revisions have 48 bits, as in change streams.
const REV_SEQNO_MAX: u64 = (1 << 48) - 1;

/// What a request brings at most: a body, attributes, and extended metadata, whose length has 16 bits.
pub(super) const SENT_BYTES_MAX: usize = VALUE_BYTES_MAX + XATTR_BYTES_MAX + u16::MAX as usize;
const _: () = assert!(SENT_BYTES_MAX + 1024 < FRAME_BYTES_MAX, "heads are far shorter than that");

/// The sender knows that the bucket resolves conflicts by time.
const FORCE: u32 = 1 << 0;
/// To be accepted even if its CAS is ahead of the clock; such are always accepted.
const FORCE_ACCEPT: u32 = 1 << 1;
/// The version gets a CAS of this server's.
const REGENERATE_CAS: u32 = 1 << 2;
/// Nothing is compared.
const SKIP_CONFLICT_RESOLUTION: u32 = 1 << 3;
/// A deletion that was an expiration.
const IS_EXPIRATION: u32 = 1 << 4;
const ALL_OPTIONS: u32 =
    FORCE | FORCE_ACCEPT | REGENERATE_CAS | SKIP_CONFLICT_RESOLUTION | IS_EXPIRATION;

/// What the extras say.
struct Extras {
    flags: u32,
    expiry: u32,
    rev_seqno: u64,
    cas: u64,
    options: u32,
    /// Bytes of extended metadata behind the value, which are not kept.
    metadata_bytes: usize,
}

impl Extras {
    /// flags u32, expiry or time of deletion u32, revision u64, CAS u64, then options u32 and length of metadata u16,
    /// each or both of which may be missing.
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

    /// True when the options go together, with the mode, and with the bucket's conflict resolution.
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
    fn given_cas(&self) -> Result<Option<Cas>, Status> {
        match self.cas {
            _ if self.has(REGENERATE_CAS) => Ok(None),
            0 | u64::MAX => Err(Status::KeyEexists),
            cas if cas >= GIVEN_CAS_END.0 => Err(Status::CasValueInvalid),
            cas => Ok(Some(Cas(cas))),
        }
    }
}

/// SetWithMeta, AddWithMeta, DelWithMeta and their quiet forms.
pub(super) fn store(x: &mut Exchange<'_>) {
    let mode = match x.opcode {
        Opcode::DelWithMeta | Opcode::DelqWithMeta => WithMetaMode::Delete,
        Opcode::AddWithMeta | Opcode::AddqWithMeta => WithMetaMode::Add,
        _ => WithMetaMode::Set,
    };
    let Some(key) = x.doc_key() else { return };
    let resolution = x.bucket().conflict_resolution();
    let extras = Extras::decode(x.frame.extras);
    let Some(extras) = extras.filter(|extras| extras.are_possible(mode, resolution)) else {
        return x.fail_with(Status::Einval, "options that do not fit the request or the bucket");
    };
    if !(1..=REV_SEQNO_MAX).contains(&extras.rev_seqno) {
        return x.fail_with(Status::Einval, "revisions are 1 to 2^48 - 1");
    }
    let mut plain = Vec::new();
    let value = value_of(x, &extras, mode, &mut plain);
    let given_cas = extras.given_cas().map_err(|status| (status, "no version has such a CAS"));
    let (given_cas, value) = match (given_cas, value) {
        (Ok(cas), Ok(value)) => (cas, value),
        (Err((status, why)), _) | (_, Err((status, why))) => return x.fail_with(status, why),
    };
    if value.has_system && !x.allows(key.collection, Privilege::SystemXattrWrite.into()) {
        return;
    }
    let request = WithMetaRequest {
        mode,
        value: value.bytes,
        datatype: value.datatype,
        flags: extras.flags,
        expiry: extras.expiry,
        given_cas,
        rev_seqno: RevSeqno(extras.rev_seqno),
        cas: Cas(x.frame.header.cas),
        resolution: (!extras.has(SKIP_CONFLICT_RESOLUTION)).then_some(resolution),
    };
    let vbid = x.vbid(key);
    let outcome = x.bucket().bucket().store_with_meta(vbid, key, &request, x.env.now);
    let is_deletion = mode == WithMetaMode::Delete;
    let counters = x.counters();
    match (&outcome, is_deletion) {
        (MutationOutcome::Done(_), true) => counters.ep_num_ops_del_meta.add(1),
        (MutationOutcome::Done(_), false) => counters.ep_num_ops_set_meta.add(1),
        (MutationOutcome::Exists, true) => counters.ep_num_ops_del_meta_res_fail.add(1),
        (MutationOutcome::Exists, false) => counters.ep_num_ops_set_meta_res_fail.add(1),
        _ => {}
    }
    if matches!(outcome, MutationOutcome::Done(_)) {
        let counters = x.collection_counters(key.collection);
        if is_deletion { counters.deletes.add(1) } else { counters.stores.add(1) }
    }
    answer_mutation(x, vbid, outcome);
}

/// Attributes and body, inflated and checked.
struct Value<'v> {
    bytes: &'v [u8],
    datatype: Datatype,
    /// There are attributes of the system's among them.
    has_system: bool,
}

/// What came, inflated into `plain` if it is compressed.
fn value_of<'v>(
    x: &Exchange<'v>,
    extras: &Extras,
    mode: WithMetaMode,
    plain: &'v mut Vec<u8>,
) -> Result<Value<'v>, (Status, &'static str)> {
    const ATTRIBUTES: (Status, &str) =
        (Status::XattrEinval, "attributes are JSON under keys of up to 16 bytes, each once");
    let sent = Datatype(x.frame.header.datatype);
    let bytes = x.frame.value.len().checked_sub(extras.metadata_bytes);
    let bytes = bytes.ok_or((Status::Einval, "the value is shorter than its extended metadata"))?;
    let mut bytes = &x.frame.value[..bytes];
    if sent.contains(Datatype::SNAPPY) {
        inflate_into(bytes, VALUE_BYTES_MAX + XATTR_BYTES_MAX, plain).map_err(|unusable| {
            (status::of_mutation(&unusable.into()), "the value cannot be inflated")
        })?;
        bytes = plain;
    }
    let mut value = Value { bytes, datatype: Datatype::RAW, has_system: false };
    let mut body = bytes;
    if sent.contains(Datatype::XATTR) {
        let (xattrs, behind) = xattr::split(bytes).map_err(|_| ATTRIBUTES)?;
        // A tombstone has attributes at most, and a version without any has no block.
        body = behind;
        match xattrs.is_empty() {
            true => value.bytes = body,
            false => value.datatype = Datatype::XATTR,
        }
        if value.bytes.len() - body.len() > XATTR_BYTES_MAX {
            return Err((Status::E2big, "attributes have 1 MiB at most"));
        }
        if !xattrs.are_acceptable() {
            return Err(ATTRIBUTES);
        }
        value.has_system = xattrs.iter().any(|(key, _)| xattr::is_system(key));
    }
    match mode == WithMetaMode::Delete && !body.is_empty() {
        true => Err((Status::Einval, "a deletion has no body")),
        false => Ok(value),
    }
}
