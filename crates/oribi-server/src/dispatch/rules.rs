//! What each implemented opcode requires before its handler runs: rights, and the shape of its frame.
//!
//! One table, checked in one place, so that a handler can rely on it. An opcode without a rule is not
//! implemented and is answered NotSupported.

use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_types::Datatype;

use crate::auth::{Privilege, PrivilegeSet};
use crate::counters::timings::CommandKind;
use crate::slow_operation_log::OperationClass;

/// Who may send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Anybody, before authentication too.
    Anybody,
    /// Whoever has authenticated; needs no bucket.
    Authenticated,
    /// Whoever holds these privileges in the collection that the key belongs to.
    InCollection(PrivilegeSet),
    /// Whoever holds them in the whole of the selected bucket.
    InBucket(PrivilegeSet),
    /// Whoever holds them in some collection of the selected bucket. The handler asks
    /// [`super::Exchange::allows`] about the collection that the body names.
    Somewhere(PrivilegeSet),
    /// Administrators; needs no bucket.
    Admin,
}

const NOTHING: PrivilegeSet = PrivilegeSet::NONE;
pub(super) const READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read]);
const INSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Insert]);
const UPSERT: PrivilegeSet = PrivilegeSet::of(&[Privilege::Upsert]);
const REMOVE: PrivilegeSet = PrivilegeSet::of(&[Privilege::Delete]);
const META_READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::MetaRead]);
pub(super) const RANGE_SCAN: PrivilegeSet = PrivilegeSet::of(&[Privilege::RangeScan]);
pub(super) const SYSTEM_XATTR_READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::SystemXattrRead]);
const META_WRITE: PrivilegeSet = PrivilegeSet::of(&[Privilege::MetaWrite]);

/// Whether a part of the frame may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Absent,
    Present,
    Either,
}

/// See the module text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// Who may send it.
    pub who: Who,
    /// Allowed lengths of the extras: bit n set for n bytes. None is longer than 31.
    extras: u32,
    key: Part,
    value: Part,
    /// Datatype bits that the request may have, if the client has negotiated them.
    pub datatypes: u8,
    /// A CAS other than 0 may be given.
    cas: bool,
    /// A durability frame may be given.
    pub durable: bool,
    /// A preserve-expiry frame may be given.
    pub preserves_expiry: bool,
    /// With unordered execution negotiated it may overtake, and be overtaken by, parked writes.
    pub reorders: bool,
    /// How its latency is sampled; `None` for what is not timed here.
    pub timed: Option<CommandKind>,
}

impl Rule {
    const fn new(who: Who) -> Rule {
        Rule {
            who,
            extras: 1,
            key: Part::Absent,
            value: Part::Absent,
            datatypes: Datatype::JSON.0,
            cas: false,
            durable: false,
            preserves_expiry: false,
            reorders: false,
            timed: None,
        }
    }

    /// Reads and writes of one document have a key.
    const fn document(needed: PrivilegeSet) -> Rule {
        Rule { key: Part::Present, reorders: true, ..Rule::new(Who::InCollection(needed)) }
    }

    /// The same for somebody else.
    const fn by(self, needed: PrivilegeSet) -> Rule {
        Rule { who: Who::InCollection(needed), ..self }
    }

    /// A classic quiet form: as the loud one, but always in order and never durable.
    const fn quiet(self) -> Rule {
        Rule { durable: false, reorders: false, ..self }
    }

    /// What its duration is compared with.
    pub(crate) fn class(&self) -> OperationClass {
        match self.who {
            Who::InCollection(_) if self.durable || self.cas => OperationClass::Write,
            Who::InCollection(_) => OperationClass::Read,
            _ => OperationClass::Other,
        }
    }

    /// True when the frame has the shape that its opcode demands.
    pub(crate) fn admits(&self, frame: &Frame<'_>) -> bool {
        self.admits_extras(frame.extras)
            && part_fits(self.key, frame.key)
            && part_fits(self.value, frame.value)
            && (self.cas || frame.header.cas == 0)
    }

    /// What is wrong with the shape of a frame that is not admitted.
    #[cold]
    pub(crate) fn misfit(&self, frame: &Frame<'_>) -> &'static str {
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
        extras.len() < 32 && self.extras >> extras.len() & 1 == 1
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
    // Whether it creates the counter is known only when it is not there.
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
const PATH_LOOKUP: Rule = Rule { extras: 1 << 3 | 1 << 4, value: Part::Either, timed: None, ..GET };
const PATHS_LOOKUP: Rule = Rule { extras: 1 << 0 | 1 << 1, value: Part::Present, ..PATH_LOOKUP };
const PATH_MUTATION: Rule = Rule {
    extras: 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8,
    datatypes: Datatype::JSON.0,
    timed: None,
    ..SET
};
const PATHS_MUTATION: Rule =
    Rule { extras: 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5, value: Part::Present, ..PATH_MUTATION };
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
/// Deletes everything, so it needs the right to delete everywhere.
const FLUSH: Rule = Rule { extras: 1 << 0 | 1 << 4, ..Rule::new(Who::InBucket(REMOVE)) };
const SASL: Rule = Rule { key: Part::Present, value: Part::Either, ..Rule::new(Who::Anybody) };
const COLLECTION_ID: Rule =
    Rule { key: Part::Either, value: Part::Either, ..Rule::new(Who::Somewhere(NOTHING)) };

/// The rules by opcode, made by the compiler.
static RULES: [Option<Rule>; 256] = {
    let mut rules = [None; 256];
    let mut code = 0;
    while code < rules.len() {
        if let Some(opcode) = Opcode::from_u8(code as u8) {
            rules[code] = find(opcode);
        }
        code += 1;
    }
    rules
};

/// The rule of an opcode; `None` when it is not implemented.
pub(crate) fn rule(opcode: Opcode) -> Option<&'static Rule> {
    RULES[usize::from(opcode as u8)].as_ref()
}

const fn find(opcode: Opcode) -> Option<Rule> {
    use Opcode::*;
    use Who::{Admin, Anybody, Authenticated, Somewhere};
    Some(match opcode {
        Get | Getk => GET,
        Getq | Getkq => GET.quiet(),
        Set | Replace => SET,
        Setq | Replaceq => SET.quiet(),
        Add => ADD,
        Addq => ADD.quiet(),
        Append | Prepend => CONCAT,
        Appendq | Prependq => CONCAT.quiet(),
        Delete => DELETE,
        Deleteq => DELETE.quiet(),
        Increment | Decrement => COUNTER,
        Incrementq | Decrementq => COUNTER.quiet(),
        Touch => TOUCH,
        Gat => GET_AND_TOUCH,
        Gatq => GET_AND_TOUCH.quiet(),
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
        Opcode::GetMeta | GetqMeta => GET_META,
        Flush | Flushq => FLUSH,
        Noop | Quit | Quitq | Version | SaslListMechs => Rule::new(Anybody),
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
        SetqWithMeta | AddqWithMeta | DelqWithMeta => WITH_META.quiet(),
        EvictKey => Rule { reorders: false, ..Rule::document(UPSERT) },
        GetFailoverLog => Rule::new(Somewhere(META_READ)),
        Observe => Rule { value: Part::Present, ..Rule::new(Somewhere(META_READ)) },
        GetRandomKey => Rule { extras: 1 << 0 | 1 << 4 | 1 << 5, ..Rule::new(Somewhere(READ)) },
        GetKeys => {
            Rule { extras: 1 << 0 | 1 << 4, key: Part::Present, ..Rule::new(Somewhere(READ)) }
        }
        ObserveSeqno => Rule { value: Part::Present, ..Rule::new(Somewhere(META_READ)) },
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

    use super::{PrivilegeSet, Rule, Who, rule};

    #[test]
    fn quiet_forms_are_ordered_and_not_durable() {
        for opcode in Opcode::all().filter(|opcode| opcode.is_quiet()) {
            if let Some(rule) = rule(opcode) {
                assert!(!rule.durable && !rule.reorders, "{}", opcode.name());
            }
        }
    }

    #[test]
    fn whatever_changes_documents_needs_the_right_to_write() {
        let reader = PrivilegeSet::READ_ONLY;
        let is_write = |rule: &&Rule| rule.durable || rule.cas;
        let mut writes = Opcode::all().filter_map(rule).filter(is_write);
        assert!(
            writes
                .all(|rule| matches!(rule.who, Who::InCollection(needed) if !reader.holds(needed)))
        );
    }
}
