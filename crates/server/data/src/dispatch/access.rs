//! Checks whether a user may send a request, and chooses the answer when not.
//!
//! Owns: the checks of the requester's rights.
//!
//! Invariants:
//! - no handler runs before its rule is satisfied;
//! - with rights in the whole bucket a request costs one comparison;
//! - a collection in which the user has no right gets the answer of a missing one, so the answer
//!   does not reveal it.
//!
//! Callers: the dispatcher, before the handler, and handlers that learn the collection from the
//! body.

use std::sync::Arc;

use oribi_auth::PrivilegeSet;
use oribi_auth::audit::Event;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::CollectionId;

use super::durable;
use super::outcome::RuleRejection;
use super::request::Request;
use super::rules::RequiredAccess;
use crate::buckets::BucketHandle;

/// Checks the requester. Inlined, because every request passes here and two places call it.
#[inline(always)]
pub(super) fn check(req: &mut Request<'_>, required: RequiredAccess) -> Result<(), RuleRejection> {
    if required == RequiredAccess::Anybody {
        return Ok(());
    }
    if !req.state.user.is_known() {
        req.state.adopt_memcached(&req.env.server);
        if !req.state.user.is_known() {
            return Err(refuse_unknown(req));
        }
    }
    let rights = req.state.rights();
    let (needed, everywhere) = match required {
        RequiredAccess::Anybody | RequiredAccess::Authenticated => return Ok(()),
        RequiredAccess::Admin if rights.is_admin() => return Ok(()),
        RequiredAccess::Admin => {
            return Err(RuleRejection::Status(Status::Eaccess, "needs the role admin"));
        }
        RequiredAccess::InCollection(needed) | RequiredAccess::InBucket(needed) => {
            (needed, rights.everywhere())
        }
        RequiredAccess::Somewhere(needed) => (needed, rights.somewhere()),
    };
    match req.state.bucket() {
        Some(bucket) if bucket.is_ordinary() => {}
        _ => return check_special_bucket(req, required),
    }
    if everywhere.holds(needed) {
        return Ok(());
    }
    match required {
        RequiredAccess::InCollection(_) => check_key(req, needed),
        _ => Err(RuleRejection::Access(needed.without(everywhere))),
    }
}

/// Checks the requester when no bucket is selected, and raises a write to the bucket's minimum
/// durability. A client that cannot select a bucket gets one.
#[cold]
#[inline(never)]
fn check_special_bucket(
    req: &mut Request<'_>,
    required: RequiredAccess,
) -> Result<(), RuleRejection> {
    req.find_bucket()?;
    req.visibility = durable::visibility(req);
    let rights = req.state.rights();
    match required {
        RequiredAccess::Anybody | RequiredAccess::Authenticated | RequiredAccess::Admin => Ok(()),
        RequiredAccess::InCollection(needed) if rights.everywhere().holds(needed) => Ok(()),
        RequiredAccess::InCollection(needed) => check_key(req, needed),
        RequiredAccess::InBucket(needed) => req.demand_everywhere(needed),
        RequiredAccess::Somewhere(needed) => {
            let missing = needed.without(rights.somewhere());
            if missing.is_empty() { Ok(()) } else { Err(RuleRejection::Access(missing)) }
        }
    }
}

/// The opcode whose handler serves GATK or GATKQ. Their codes mean something else to Couchbase's
/// clients, which say HELLO.
#[cold]
pub(super) fn memcached_opcode(req: &Request<'_>) -> Option<Opcode> {
    let header = &req.frame.header;
    let is_memcached =
        !req.state.features().is_negotiated() && header.magic == Magic::ClientRequest;
    match req.opcode {
        Opcode::IoctlGet if is_memcached => Some(Opcode::Gat),
        Opcode::IoctlSet if is_memcached => Some(Opcode::Gatq),
        _ => None,
    }
}

/// Why a request is refused when its opcode is not implemented or its sender not authenticated.
#[cold]
pub(super) fn refuse_unknown(req: &Request<'_>) -> RuleRejection {
    let is_memcached = req.opcode.is_of_memcached() && !req.state.features().is_negotiated();
    match req.state.identity() {
        Some(_) if super::dcp::is_dcp(req.opcode) && req.state.producer.is_none() => {
            RuleRejection::Status(Status::Einval, "open the connection for change streams first")
        }
        Some(_) => RuleRejection::Status(Status::NotSupported, "this server does not know how"),
        None if is_memcached => RuleRejection::Status(Status::AuthError, "Auth failure."),
        None => RuleRejection::Status(Status::Eaccess, "authenticate first"),
    }
}

/// Checks the rights in the collection of the request's key.
#[cold]
fn check_key(req: &mut Request<'_>, needed: PrivilegeSet) -> Result<(), RuleRejection> {
    match req.state.doc_key(req.frame.key) {
        Some(key) => check_within(req, key.collection, needed),
        None => Err(RuleRejection::Status(Status::Einval, "the key is not valid")),
    }
}

/// Checks the rights in a collection.
fn check_within(
    req: &mut Request<'_>,
    collection: CollectionId,
    needed: PrivilegeSet,
) -> Result<(), RuleRejection> {
    if req.state.rights().everywhere().holds(needed) {
        return Ok(());
    }
    let manifest = req.bucket().manifest();
    let exists = manifest.contains(collection);
    let held = req.state.user.rights_mut().within(collection, manifest);
    if held.is_empty() || !exists {
        return Err(RuleRejection::UnknownCollection);
    }
    if held.holds(needed) { Ok(()) } else { Err(RuleRejection::Access(needed.without(held))) }
}

impl Request<'_> {
    /// Ensures that an existing bucket is selected, for a client that cannot select one itself.
    #[cold]
    pub(super) fn find_bucket(&mut self) -> Result<(), RuleRejection> {
        let is_gone = |bucket: &Arc<BucketHandle>| bucket.is_deleted();
        if self.state.bucket().is_some_and(is_gone) {
            self.state.select(None);
        }
        if self.state.bucket().is_none() {
            self.state.adopt_memcached(&self.env.server);
        }
        let context = match (self.state.bucket(), self.state.identity()) {
            (Some(_), _) => return Ok(()),
            (None, Some(user)) if self.state.is_memcached() && user.bucket.is_some() => {
                "the bucket that `oribi user create --bucket` has named for this user is not there"
            }
            (None, _) if self.state.is_memcached() => {
                "no bucket for this user: name one with `oribi user create --bucket`"
            }
            (None, _) => "no bucket is selected",
        };
        Err(RuleRejection::Status(Status::NoBucket, context))
    }

    /// Refuses a request whose user does not hold `needed` in a collection that its body names.
    pub fn demand(
        &mut self,
        collection: CollectionId,
        needed: PrivilegeSet,
    ) -> Result<(), RuleRejection> {
        check_within(self, collection, needed)
    }

    /// True when the user holds `needed` in a collection.
    pub fn holds(&mut self, collection: CollectionId, needed: PrivilegeSet) -> bool {
        check_within(self, collection, needed).is_ok()
    }

    /// Refuses a request whose user does not hold `needed` in the whole bucket.
    pub fn demand_everywhere(&self, needed: PrivilegeSet) -> Result<(), RuleRejection> {
        let missing = needed.without(self.state.rights().everywhere());
        if missing.is_empty() { Ok(()) } else { Err(RuleRejection::Access(missing)) }
    }
}

/// Records a refusal for lack of rights. A request before login is no event: it identifies no user,
/// and clients that try do so often.
pub(super) fn audit(req: &mut Request<'_>, refusal: RuleRejection) {
    let is_about_rights = match refusal {
        RuleRejection::Status(status, _) => status == Status::Eaccess,
        RuleRejection::Access(_) => true,
        RuleRejection::UnknownCollection => req.state.rights().everywhere().is_empty(),
    };
    let is_known = req.state.user.is_known();
    if !is_about_rights || !is_known || !req.env.audits_refusal() {
        return;
    }
    let context = match refusal {
        RuleRejection::Status(_, context) => context.to_owned(),
        RuleRejection::Access(missing) => format!("needs the privilege {missing}"),
        RuleRejection::UnknownCollection => "unknown collection, or no right in it".to_owned(),
    };
    let bucket = match req.opcode {
        Opcode::SelectBucket => req.frame.key.escape_ascii().to_string(),
        _ => req.state.bucket().map_or("", |bucket| bucket.name()).to_owned(),
    };
    let request = format!("{} {bucket}", req.opcode.name()).trim_end().to_owned();
    req.env.server.access.audit.record(req.state.actor(), Event::Refused { request, context });
}
