//! The requirements of each implemented opcode before its handler runs: rights, and the shape of
//! its frame.
//!
//! One table, checked in one place, so a handler can rely on it. An opcode without a rule is not
//! implemented and is answered NotSupported.

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_types::Datatype;

use crate::diagnostics::counters::timings::CommandKind;
use crate::diagnostics::slow_operation_log::OperationClass;

/// The right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredAccess {
    /// Any client, before authentication too.
    Anybody,
    /// Any authenticated user; needs no bucket.
    Authenticated,
    /// Users with these privileges in the key's collection.
    InCollection(PrivilegeSet),
    /// Users with these privileges in the whole of the selected bucket.
    InBucket(PrivilegeSet),
    /// Users with these privileges in some collection of the selected bucket. The handler asks
    /// [`super::request::Request::demand`] about the collection that the body names.
    Somewhere(PrivilegeSet),
    /// Administrators; needs no bucket.
    Admin,
}

const NOTHING: PrivilegeSet = PrivilegeSet::NONE;
pub(super) const READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read]);
pub(super) const INSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Insert]);
pub(super) const UPSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Upsert]);
pub(super) const REMOVE: PrivilegeSet = PrivilegeSet::of(&[Privilege::Delete]);
const META_READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::MetaRead]);
pub(super) const RANGE_SCAN: PrivilegeSet = PrivilegeSet::of(&[Privilege::RangeScan]);
pub(super) const SYSTEM_XATTR_READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::SystemXattrRead]);
const DCP_STREAM: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpStream]);
const META_WRITE: PrivilegeSet = PrivilegeSet::of(&[Privilege::MetaWrite]);

/// Whether the frame may have a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Absent,
    Present,
    Either,
}

/// When a command answers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    Never,
    /// A quiet read: when the document does not exist.
    OnMiss,
    /// A quiet write: when the write is done.
    OnSuccess,
}

/// The rule of one opcode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// The right that it needs.
    pub required: RequiredAccess,
    /// Allowed lengths of the extras: bit n set for n bytes. None is longer than 63.
    extras: u64,
    key: Part,
    value: Part,
    /// Datatype bits that the request may have, if the client negotiated them.
    pub datatypes: u8,
    /// A CAS other than 0 may be given.
    cas: bool,
    /// A durability frame may be given.
    pub durable: bool,
    /// A preserve-expiry frame may be given.
    pub preserves_expiry: bool,
    /// With unordered execution negotiated, the request may overtake parked writes and be overtaken
    /// by them.
    pub reorders: bool,
    /// How its latency is sampled; `None` for requests that are not timed here.
    pub timed: Option<CommandKind>,
    /// When the server sends no answer.
    pub(super) silence: Silence,
}

impl Rule {
    const fn new(required: RequiredAccess) -> Rule {
        Rule {
            required,
            extras: 1,
            key: Part::Absent,
            value: Part::Absent,
            datatypes: Datatype::JSON.0,
            cas: false,
            durable: false,
            preserves_expiry: false,
            reorders: false,
            timed: None,
            silence: Silence::Never,
        }
    }

    /// The rule of a read or write of one document, which has a key.
    const fn document(needed: PrivilegeSet) -> Rule {
        Rule {
            key: Part::Present,
            reorders: true,
            ..Rule::new(RequiredAccess::InCollection(needed))
        }
    }

    /// The same rule for other privileges.
    const fn by(self, needed: PrivilegeSet) -> Rule {
        Rule { required: RequiredAccess::InCollection(needed), ..self }
    }

    /// A classic quiet form: as the loud one, but always in order and never durable.
    const fn quiet(self, silence: Silence) -> Rule {
        Rule { durable: false, reorders: false, silence, ..self }
    }

    /// The class whose threshold its duration is compared with.
    pub(crate) fn class(&self) -> OperationClass {
        match self.required {
            RequiredAccess::InCollection(_) if self.is_write() => OperationClass::Write,
            RequiredAccess::InCollection(_) => OperationClass::Read,
            _ => OperationClass::Other,
        }
    }

    /// True for a write of one document. A look-up of paths may name a CAS too.
    fn is_write(&self) -> bool {
        self.durable || (self.cas && self.required != RequiredAccess::InCollection(READ))
    }

    /// True when the request may have a value.
    pub(crate) fn takes_value(&self) -> bool {
        self.value != Part::Absent
    }

    /// True when the frame has the shape that its opcode demands.
    pub(crate) fn admits(&self, frame: &Frame<'_>) -> bool {
        self.admits_extras(frame.extras)
            && part_fits(self.key, frame.key)
            && part_fits(self.value, frame.value)
            && (self.cas || frame.header.cas == 0)
    }

    /// The fault in the shape of a frame that [`Rule::admits`] refuses.
    #[cold]
    pub(crate) fn misfit(&self, frame: &Frame<'_>) -> &'static str {
        debug_assert!(!self.admits(frame), "a frame that fits is served");
        if !self.admits_extras(frame.extras) {
            "the extras have the wrong length"
        } else if !part_fits(self.key, frame.key) {
            if frame.key.is_empty() { "the key is missing" } else { "no key may be given" }
        } else if !part_fits(self.value, frame.value) {
            if frame.value.is_empty() { "the value is missing" } else { "no value may be given" }
        } else {
            "no CAS may be given"
        }
    }

    fn admits_extras(&self, extras: &[u8]) -> bool {
        extras.len() < 64 && self.extras >> extras.len() & 1 == 1
    }
}

fn part_fits(part: Part, bytes: &[u8]) -> bool {
    match part {
        Part::Absent => bytes.is_empty(),
        Part::Present => !bytes.is_empty(),
        Part::Either => true,
    }
}

const GET: Rule = Rule { timed: Some(CommandKind::Get), ..Rule::document(READ) };
const ADD: Rule = Rule {
    extras: 1 << 8,
    value: Part::Either,
    datatypes: Datatype::JSON.0 | Datatype::SNAPPY.0,
    durable: true,
    timed: Some(CommandKind::Store),
    ..Rule::document(INSERT)
};
const SET: Rule = Rule { cas: true, preserves_expiry: true, ..ADD }.by(UPSERT);
const CONCAT: Rule = Rule { extras: 1, ..SET };
const DELETE: Rule =
    Rule { cas: true, durable: true, timed: Some(CommandKind::Delete), ..Rule::document(REMOVE) };
const COUNTER: Rule = Rule {
    extras: 1 << 20,
    preserves_expiry: true,
    timed: Some(CommandKind::Arithmetic),
    // Whether the request creates the counter is known only when the counter is missing.
    ..DELETE.by(READ.and(INSERT).and(UPSERT))
};
const TOUCH: Rule = Rule {
    extras: 1 << 4,
    durable: true,
    timed: Some(CommandKind::Touch),
    ..Rule::document(UPSERT)
};
const GET_AND_TOUCH: Rule = TOUCH.by(READ.and(UPSERT));
const GET_LOCKED: Rule = Rule { extras: 1 << 0 | 1 << 4, ..Rule::document(READ.and(UPSERT)) };
const PATH_LOOKUP: Rule =
    Rule { extras: 1 << 3 | 1 << 4, value: Part::Either, cas: true, timed: None, ..GET };
/// An empty list is an invalid combination of commands, which the frame check does not decide.
const PATHS_LOOKUP: Rule = Rule { extras: 1 << 0 | 1 << 1, ..PATH_LOOKUP };
const PATH_MUTATION: Rule = Rule {
    extras: 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12,
    datatypes: Datatype::JSON.0,
    timed: None,
    ..SET
};
const PATHS_MUTATION: Rule =
    Rule { extras: 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9, ..PATH_MUTATION };
const GET_META: Rule =
    Rule { extras: 1 << 0 | 1 << 1, reorders: false, timed: None, ..GET }.by(META_READ);
const WITH_META: Rule = Rule {
    extras: 1 << 24 | 1 << 26 | 1 << 28 | 1 << 30,
    value: Part::Either,
    datatypes: Datatype::JSON.0 | Datatype::SNAPPY.0 | Datatype::XATTR.0,
    cas: true,
    reorders: false,
    ..Rule::document(META_WRITE)
};
/// Deletes everything, so the user needs the right to delete everywhere.
const FLUSH: Rule = Rule { extras: 1 << 0 | 1 << 4, ..Rule::new(RequiredAccess::InBucket(REMOVE)) };
const SASL: Rule =
    Rule { key: Part::Present, value: Part::Either, ..Rule::new(RequiredAccess::Anybody) };
const COLLECTION_ID: Rule = Rule {
    key: Part::Either,
    value: Part::Either,
    ..Rule::new(RequiredAccess::Somewhere(NOTHING))
};

/// The rules by opcode, computed at compile time.
static RULES: [Option<Rule>; 256] = {
    let mut rules = [None; 256];
    let mut code = 0;
    while code < rules.len() {
        if let Some(opcode) = Opcode::from_u8(code as u8) {
            rules[code] = find(opcode);
            if let Some(rule) = rules[code] {
                let is_silent = matches!(rule.silence, Silence::OnSuccess);
                assert!(!(is_silent && rule.durable), "quiet writes are not durable");
                assert!(rule.extras != 0, "some length of the extras fits");
            }
        }
        code += 1;
    }
    rules
};

/// The rule of an opcode; `None` when it is not implemented.
pub(crate) fn rule(opcode: Opcode) -> Option<&'static Rule> {
    RULES[usize::from(opcode as u8)].as_ref()
}

/// The rule of an opcode, for tables that the compiler computes.
pub(super) const fn find(opcode: Opcode) -> Option<Rule> {
    use Opcode::*;
    use RequiredAccess::{Admin, Anybody, Authenticated, Somewhere};
    use Silence::{OnMiss, OnSuccess};
    Some(match opcode {
        Get | Getk | GetReplica => GET,
        Getq | Getkq => GET.quiet(OnMiss),
        Set | Replace => SET,
        Setq | Replaceq => SET.quiet(OnSuccess),
        Add => ADD,
        Addq => ADD.quiet(OnSuccess),
        Append | Prepend => CONCAT,
        Appendq | Prependq => CONCAT.quiet(OnSuccess),
        Delete => DELETE,
        Deleteq => DELETE.quiet(OnSuccess),
        Increment | Decrement => COUNTER,
        Incrementq | Decrementq => COUNTER.quiet(OnSuccess),
        Touch => TOUCH,
        Gat => GET_AND_TOUCH,
        Gatq => GET_AND_TOUCH.quiet(OnMiss),
        GetLocked => GET_LOCKED,
        UnlockKey => Rule { cas: true, ..Rule::document(UPSERT) },
        SubdocGet | SubdocExists | SubdocGetCount => PATH_LOOKUP,
        SubdocMultiLookup => PATHS_LOOKUP,
        SubdocDictAdd
        | SubdocDictUpsert
        | SubdocDelete
        | SubdocReplace
        | SubdocArrayPushLast
        | SubdocArrayPushFirst
        | SubdocArrayInsert
        | SubdocArrayAddUnique
        | SubdocCounter
        | SubdocReplaceBodyWithXattr => PATH_MUTATION,
        SubdocMultiMutation => PATHS_MUTATION,
        Opcode::GetMeta => GET_META,
        GetqMeta => GET_META.quiet(OnMiss),
        Flush => FLUSH,
        Flushq => FLUSH.quiet(OnSuccess),
        Noop | Quit | Version | SaslListMechs => Rule::new(Anybody),
        Quitq => Rule::new(Anybody).quiet(OnSuccess),
        Hello => Rule { key: Part::Either, value: Part::Either, ..Rule::new(Anybody) },
        Opcode::GetErrorMap => Rule { value: Part::Present, ..Rule::new(Anybody) },
        SaslAuth | SaslStep => SASL,
        Verbosity => Rule { extras: 1 << 4, ..Rule::new(Admin) },
        Stat => Rule { key: Part::Either, value: Part::Either, ..Rule::new(Authenticated) },
        SelectBucket => Rule { key: Part::Present, ..Rule::new(Authenticated) },
        ListBuckets => Rule::new(Authenticated),
        GetClusterConfig => {
            Rule { extras: 1 << 0 | 1 << 16, reorders: true, ..Rule::new(Authenticated) }
        }
        CollectionsGetManifest => Rule::new(Somewhere(NOTHING)),
        CollectionsGetId | CollectionsGetScopeId => COLLECTION_ID,
        RangeScanCreate => {
            Rule { value: Part::Present, reorders: true, ..Rule::new(Somewhere(RANGE_SCAN)) }
        }
        RangeScanContinue => Rule { extras: 1 << 28, ..Rule::new(Somewhere(RANGE_SCAN)) },
        RangeScanCancel => Rule { extras: 1 << 16, ..Rule::new(Somewhere(RANGE_SCAN)) },
        SetWithMeta | AddWithMeta | DelWithMeta => WITH_META,
        SetqWithMeta | AddqWithMeta | DelqWithMeta => WITH_META.quiet(OnSuccess),
        EvictKey => Rule { reorders: false, ..Rule::document(UPSERT) },
        GetFailoverLog => Rule::new(Somewhere(META_READ)),
        Observe => Rule { value: Part::Present, ..Rule::new(Somewhere(META_READ)) },
        GetRandomKey => Rule { extras: 1 << 0 | 1 << 4 | 1 << 5, ..Rule::new(Somewhere(READ)) },
        GetKeys => {
            Rule { extras: 1 << 0 | 1 << 4, key: Part::Present, ..Rule::new(Somewhere(READ)) }
        }
        ObserveSeqno => Rule { value: Part::Present, ..Rule::new(Somewhere(META_READ)) },
        DcpOpen => Rule {
            extras: 1 << 8,
            key: Part::Either,
            value: Part::Either,
            ..Rule::new(Somewhere(DCP_STREAM))
        },
        DcpControl => Rule {
            key: Part::Present,
            value: Part::Present,
            datatypes: 0,
            ..Rule::new(Somewhere(DCP_STREAM))
        },
        DcpStreamReq => Rule {
            extras: 1 << 48,
            value: Part::Either,
            datatypes: 0,
            ..Rule::new(Somewhere(DCP_STREAM))
        },
        DcpCloseStream | DcpGetFailoverLog => Rule::new(Somewhere(DCP_STREAM)),
        DcpBufferAcknowledgement => Rule { extras: 1 << 4, ..Rule::new(Somewhere(DCP_STREAM)) },
        DcpSeqnoAcknowledged => Rule { extras: 1 << 8, ..Rule::new(Somewhere(DCP_STREAM)) },
        GetAllVbSeqnos => Rule {
            extras: 1 << 0 | 1 << 4 | 1 << 8,
            reorders: true,
            ..Rule::new(Somewhere(META_READ))
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use oribi_protocol::opcode::Opcode;

    use super::{PrivilegeSet, RequiredAccess, Silence, rule};

    // Compat (Differences): Framing extras
    // Invariant: A handler returns an outcome and writes nothing; `dispatch::answer` alone decides
    // what is sent.
    #[test]
    fn quiet_forms_are_silent_ordered_and_not_durable() {
        for opcode in Opcode::all() {
            let Some(rule) = rule(opcode) else { continue };
            let is_silent = rule.silence != Silence::Never;
            assert_eq!(is_silent, opcode.is_quiet(), "{}", opcode.name());
            assert!(!is_silent || (!rule.durable && !rule.reorders), "{}", opcode.name());
        }
    }

    #[test]
    fn every_document_change_needs_write_rights() {
        let reader = PrivilegeSet::READ_ONLY;
        let mut writes = Opcode::all().filter_map(rule).filter(|rule| rule.is_write());
        assert!(writes.all(
            |rule| matches!(rule.required, RequiredAccess::InCollection(needed) if !reader.holds(needed))
        ));
    }
}
