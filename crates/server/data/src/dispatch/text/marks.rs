//! Marks of meta commands on documents: stale, and "a client is about to store a new version".
//!
//! Owns: where the marks are. They are an extended attribute of the document, so a document without
//! marks costs nothing, and marks are persisted and evicted with their document. The attribute
//! names the CAS of the version that it was made for. A write that ignores marks keeps attributes
//! but changes the CAS, so it clears them. Touches and counts of this protocol know them
//! (`handling.rs`).

use oribi_engine::{
    AppliedMutation, CurrentVersion, Item, ItemRef, NextVersion, ReadTarget, RewriteOutcome, Stamp,
    VersionFields, VersionOutcome,
};
use oribi_protocol::status::Status;
use oribi_subdoc::json;
use oribi_subdoc::xattr::{self, XattrDraft};
use oribi_types::{Cas, Datatype};

use super::super::outcome::Rejection;
use super::super::request::{Request, RequestLocation};
use crate::connection::parked::Answer;

/// The attribute that holds the marks.
const ATTRIBUTE: &[u8] = b"memcached";

/// The beginning of its value, up to the digits of the CAS.
const CAS_HEAD: &[u8] = b"{\"cas\":\"0x";

/// Digits of the CAS.
const CAS_DIGITS: usize = 16;

const STALE: &[u8] = b"\",\"stale\":true";
const WON: &[u8] = b"\",\"won\":true";
const _: () = assert!(STALE[0] == b'"' && WON[0] == b'"', "a mark ends the digits");

/// How often a change that depends on the marks starts again because the document
/// changed.
pub(super) const ATTEMPTS_MAX: usize = 64;

/// The answer after these attempts.
pub(super) const BUSY: Rejection =
    Rejection::Because(Status::Etmpfail, "the document changes too often");

/// See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Marks {
    /// The document should be stored anew.
    pub stale: bool,
    /// A client has won the right to do so.
    pub won: bool,
}

impl Marks {
    /// The marks of a version.
    pub fn of(item: &Item) -> Marks {
        if !item.has_attributes() {
            return Marks::default();
        }
        let xattrs = xattr::split(item.value()).ok();
        let value = xattrs.and_then(|(xattrs, _)| xattrs.get(ATTRIBUTE));
        let digits = format!("{:016x}", item.cas().0.swap_bytes());
        let rest = value.and_then(|value| value.strip_prefix(CAS_HEAD));
        match rest.and_then(|rest| rest.strip_prefix(digits.as_bytes())) {
            Some(b"\",\"stale\":true,\"won\":true}") => Marks { stale: true, won: true },
            Some(b"\",\"stale\":true}") => Marks { stale: true, won: false },
            Some(b"\",\"won\":true}") => Marks { stale: false, won: true },
            _ => Marks::default(),
        }
    }

    /// The attribute's value; its CAS is stamped in later. Empty without marks.
    fn value(self) -> Vec<u8> {
        let end: &[&[u8]] = match (self.stale, self.won) {
            (false, false) => return Vec::new(),
            (true, false) => &[STALE],
            (false, true) => &[WON],
            (true, true) => &[STALE, &WON[1..]],
        };
        [CAS_HEAD, &[b'0'; CAS_DIGITS], &end.concat(), b"}"].concat()
    }
}

/// Changes of a rewrite.
#[derive(Clone, Copy, Default)]
pub(super) struct Change<'a> {
    /// The marks of the new version.
    pub marks: Marks,
    /// Another expiry, as on the binary wire.
    pub expiry: Option<u32>,
    /// Another value and other client flags.
    pub value: Option<(&'a [u8], u32)>,
    /// Creates the document if there is none.
    pub creates: bool,
}

/// The document, with its value.
pub(super) fn current(
    req: &Request<'_>,
    located: RequestLocation<'_>,
) -> Result<Option<ItemRef>, Rejection> {
    let vbucket = located.vbucket(req)?;
    match vbucket.read_version(&req.context(), located.key, ReadTarget::Document) {
        VersionOutcome::Found(item, _) => Ok(Some(item).filter(|item| !item.is_deleted())),
        VersionOutcome::Miss => Ok(None),
        VersionOutcome::Refused(refused) => Err(refused.into()),
    }
}

/// Writes a version that differs from the one with this CAS by `change`. With `creates`, writes a
/// document where there is none.
pub(super) fn rewrite(
    req: &mut Request<'_>,
    document: RequestLocation<'_>,
    cas: Cas,
    change: &Change<'_>,
) -> Result<AppliedMutation, Rejection> {
    req.admit_durable()?;
    let asked = (change.expiry.unwrap_or(0), cas);
    let (of, key) = (&*req, document.key);
    let build = |current: CurrentVersion<'_>| next_version(of, document, cas, change, current);
    let vbucket = document.vbucket(of)?;
    let context = of.write_context();
    let outcome = vbucket.rewrite(&context, key, ReadTarget::Document, asked, build);
    match outcome {
        RewriteOutcome::Done(mutation) => {
            if req.waits_for_durability() {
                req.state.deferred.text().note(Answer::Mutation(mutation));
            }
            Ok(mutation)
        }
        RewriteOutcome::Rejected(status) => Err(status.into()),
        RewriteOutcome::Refused(refused) => Err(refused.into()),
    }
}

fn next_version(
    req: &Request<'_>,
    document: RequestLocation<'_>,
    cas: Cas,
    change: &Change<'_>,
    current: CurrentVersion<'_>,
) -> Result<NextVersion, Status> {
    let item = current.version.filter(|item| !item.is_deleted());
    match item {
        None if !change.creates => return Err(Status::KeyEnoent),
        Some(_) if change.creates => return Err(Status::KeyEexists),
        Some(item) if item.cas() != cas && !current.is_lock_cas => return Err(Status::KeyEexists),
        _ => {}
    }
    let xattrs = item.and_then(|item| item.has_attributes().then(|| xattr::split(item.value())));
    let (xattrs, _) = xattrs.transpose().map_err(|_| Status::Einternal)?.unwrap_or_default();
    let mut xattrs = XattrDraft::new(xattrs);
    match change.marks.value() {
        value if value.is_empty() => xattrs.remove(ATTRIBUTE),
        value => xattrs.set(ATTRIBUTE, value),
    }
    let mut block = Vec::with_capacity(xattrs.byte_count());
    let mut stamps = Vec::new();
    xattrs.write_with(&mut block, |key, at| {
        if key == ATTRIBUTE {
            stamps.push(Stamp::Cas { at: at + CAS_HEAD.len() });
        }
    });
    let (body, kind, flags) = match (change.value, item) {
        (Some((value, flags)), _) => {
            let kind = if json::is_json(value) { Datatype::JSON.0 } else { 0 };
            (value, kind, flags)
        }
        (None, Some(item)) => (item.body(), item.datatype().0 & !Datatype::XATTR.0, item.flags()),
        (None, None) => (&b""[..], 0, 0),
    };
    if body.len() > req.bucket().config().value_bytes_max || xattrs.is_too_large() {
        return Err(Status::E2big);
    }
    let with_xattrs = if block.is_empty() { 0 } else { Datatype::XATTR.0 };
    let kept = item.map_or(0, |item| item.expiry());
    let fields = VersionFields {
        flags,
        expiry: if change.expiry.is_some() || item.is_none() { current.expiry } else { kept },
        datatype: Datatype(kind | with_xattrs),
        deleted: false,
    };
    let next = NextVersion::new(document.key, fields, &[&block, body], req.env.now);
    Ok(next.with_stamps(stamps))
}
