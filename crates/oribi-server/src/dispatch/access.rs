//! Whether a user may send a request, and what is answered when not.
//!
//! Owns: the checks of who asks. Invariants: no handler runs before its rule is satisfied; with rights in the
//! whole bucket a request costs one comparison; a collection in which the user has no right is answered as
//! one that does not exist, so that the answer does not tell. Called by the dispatcher before the handler,
//! and by handlers that learn from the body which collection they are about.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::CollectionId;

use super::exchange::Exchange;
use super::rules::Who;
use crate::audit::Event;
use crate::auth::PrivilegeSet;

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// With this status; the text says to people what is wrong.
    Status(Status, &'static str),
    /// The user lacks these privileges.
    Access(PrivilegeSet),
    /// The user may not know whether there is such a collection, or there is none.
    UnknownCollection,
}

/// Checks who asks.
pub(super) fn check(x: &mut Exchange<'_>, who: Who) -> Result<(), Refusal> {
    if who == Who::Anybody {
        return Ok(());
    }
    if x.state.identity.is_none() {
        x.state.adopt_legacy(&x.env.server);
    }
    if x.state.identity.is_none() {
        return Err(Refusal::Status(Status::Eaccess, "authenticate first"));
    }
    let rights = &x.state.rights;
    let (needed, everywhere) = match who {
        Who::Anybody | Who::Authenticated => return Ok(()),
        Who::Admin if rights.is_admin() => return Ok(()),
        Who::Admin => return Err(Refusal::Status(Status::Eaccess, "needs the role admin")),
        Who::InCollection(needed) | Who::InBucket(needed) => (needed, rights.everywhere()),
        Who::Somewhere(needed) => (needed, rights.somewhere()),
    };
    match &x.state.bucket {
        Some(bucket) if !bucket.is_deleted() => {}
        selected => {
            if selected.is_some() {
                x.state.select(None);
            }
            return Err(Refusal::Status(Status::NoBucket, "no bucket is selected"));
        }
    }
    if everywhere.holds(needed) {
        return Ok(());
    }
    match who {
        Who::InCollection(_) => check_key(x, needed),
        _ => Err(Refusal::Access(needed.without(everywhere))),
    }
}

/// Checks the rights in the collection of the request's key.
#[cold]
fn check_key(x: &mut Exchange<'_>, needed: PrivilegeSet) -> Result<(), Refusal> {
    match x.state.doc_key(x.frame.key) {
        Some(key) => check_within(x, key.collection, needed),
        None => Err(Refusal::Status(Status::Einval, "the key is not valid")),
    }
}

/// Checks the rights in a collection.
fn check_within(
    x: &mut Exchange<'_>,
    collection: CollectionId,
    needed: PrivilegeSet,
) -> Result<(), Refusal> {
    if x.state.rights.everywhere().holds(needed) {
        return Ok(());
    }
    let manifest = x.bucket().bucket().manifest();
    let exists = manifest.contains(collection);
    let held = x.state.rights.within(collection, manifest);
    if held.is_empty() || !exists {
        return Err(Refusal::UnknownCollection);
    }
    if held.holds(needed) { Ok(()) } else { Err(Refusal::Access(needed.without(held))) }
}

impl Exchange<'_> {
    /// True when the user holds `needed` in a collection that the request's body names; answered when not.
    pub fn allows(&mut self, collection: CollectionId, needed: PrivilegeSet) -> bool {
        let checked = check_within(self, collection, needed);
        self.admitted(checked)
    }

    /// True when the user holds `needed` in a collection; nothing is answered.
    pub fn holds(&mut self, collection: CollectionId, needed: PrivilegeSet) -> bool {
        check_within(self, collection, needed).is_ok()
    }

    /// True when the user holds `needed` in the whole bucket; answered when not.
    pub fn allows_everywhere(&mut self, needed: PrivilegeSet) -> bool {
        let missing = needed.without(self.state.rights.everywhere());
        self.admitted(if missing.is_empty() { Ok(()) } else { Err(Refusal::Access(missing)) })
    }

    fn admitted(&mut self, checked: Result<(), Refusal>) -> bool {
        if let Err(refusal) = checked {
            self.answer_refusal(refusal);
        }
        checked.is_ok()
    }

    /// Records a refusal because of who asks. That somebody has to log in first is no event: it says nothing of
    /// anybody, and clients that try do it often.
    fn audit(&mut self, refusal: Refusal) {
        let is_about_rights = match refusal {
            Refusal::Status(status, _) => status == Status::Eaccess,
            Refusal::Access(_) => true,
            Refusal::UnknownCollection => self.state.rights.everywhere().is_empty(),
        };
        let is_known = self.state.identity.is_some();
        if !is_about_rights || !is_known || !self.env.audits_refusal() {
            return;
        }
        let context = match refusal {
            Refusal::Status(_, context) => context.to_owned(),
            Refusal::Access(missing) => format!("needs the privilege {missing}"),
            Refusal::UnknownCollection => "unknown collection, or no right in it".to_owned(),
        };
        let bucket = match self.opcode {
            Opcode::SelectBucket => self.frame.key.escape_ascii().to_string(),
            _ => self.state.bucket.as_ref().map_or("", |bucket| bucket.name()).to_owned(),
        };
        let request = format!("{} {bucket}", self.opcode.name()).trim_end().to_owned();
        self.env.server.audit.record(self.state.actor(), Event::Refused { request, context });
    }

    /// Answers a request that is not served.
    #[cold]
    pub(super) fn answer_refusal(&mut self, refusal: Refusal) {
        self.audit(refusal);
        match refusal {
            Refusal::Status(status, context) => self.fail_because(status, context),
            Refusal::UnknownCollection => self.unknown(Status::UnknownCollection),
            Refusal::Access(missing) => {
                self.fail_because(Status::Eaccess, &format!("needs the privilege {missing}"));
            }
        }
    }
}
