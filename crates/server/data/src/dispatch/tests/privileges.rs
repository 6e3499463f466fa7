//! Every opcode with every role: none is reachable without its privilege.
//!
//! [`needs`] states again, by hand, what each opcode needs; the test checks the rules against it
//! over the wire. An opcode that gets a rule without an entry here fails the first test.

use std::sync::Arc;

use oribi_auth::{Access, Identity, Privilege, PrivilegeSet, Role};
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{HandlerReply, bytes, replies};
use crate::dispatch::rules;
use crate::harness::ConnectionHarness;
use Privilege::{
    DcpStream, Delete, Insert, MetaRead, MetaWrite, RangeScan, Read, SimpleStats, Upsert,
};

/// Who may send an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequiredRight {
    /// Any client, before authentication too.
    Nothing,
    Authentication,
    Administration,
    /// A selected bucket only.
    Bucket,
    /// Privileges in the collection of the key.
    Key(&'static [Privilege]),
    /// Privileges in the whole bucket.
    Whole(&'static [Privilege]),
    /// Privileges in some collection.
    Some(&'static [Privilege]),
}

fn needs(opcode: Opcode) -> Option<RequiredRight> {
    use Opcode as Op;
    use RequiredRight::{
        Administration, Authentication, Bucket, Key, Nothing, Some as Within, Whole,
    };
    Some(match opcode {
        Op::Hello | Op::GetErrorMap | Op::SaslListMechs | Op::SaslAuth | Op::SaslStep => Nothing,
        Op::Noop | Op::Version | Op::Quit | Op::Quitq => Nothing,
        Op::SelectBucket | Op::ListBuckets | Op::GetClusterConfig => Authentication,
        Op::Verbosity => Administration,
        Op::Get | Op::Getq | Op::Getk | Op::Getkq | Op::GetReplica => Key(&[Read]),
        Op::Set | Op::Setq | Op::Replace | Op::Replaceq => Key(&[Upsert]),
        Op::Append | Op::Appendq | Op::Prepend | Op::Prependq | Op::Touch => Key(&[Upsert]),
        Op::Add | Op::Addq => Key(&[Insert]),
        Op::Delete | Op::Deleteq => Key(&[Delete]),
        Op::Increment | Op::Incrementq => Key(&[Read, Insert, Upsert]),
        Op::Decrement | Op::Decrementq => Key(&[Read, Insert, Upsert]),
        Op::Gat | Op::Gatq | Op::GetLocked => Key(&[Read, Upsert]),
        Op::UnlockKey => Key(&[Upsert]),
        Op::SubdocGet | Op::SubdocExists | Op::SubdocGetCount => Key(&[Read]),
        Op::SubdocMultiLookup => Key(&[Read]),
        Op::SubdocDictAdd | Op::SubdocDictUpsert | Op::SubdocDelete => Key(&[Upsert]),
        Op::SubdocReplace | Op::SubdocArrayPushLast | Op::SubdocArrayPushFirst => Key(&[Upsert]),
        Op::SubdocArrayInsert | Op::SubdocArrayAddUnique | Op::SubdocCounter => Key(&[Upsert]),
        Op::SubdocReplaceBodyWithXattr | Op::SubdocMultiMutation => Key(&[Upsert]),
        Op::GetMeta | Op::GetqMeta => Key(&[MetaRead]),
        Op::SetWithMeta | Op::SetqWithMeta | Op::AddWithMeta => Key(&[MetaWrite]),
        Op::AddqWithMeta | Op::DelWithMeta | Op::DelqWithMeta => Key(&[MetaWrite]),
        Op::EvictKey => Key(&[Upsert]),
        Op::GetFailoverLog | Op::Observe => Within(&[MetaRead]),
        Op::GetRandomKey | Op::GetKeys => Within(&[Read]),
        Op::Flush | Op::Flushq => Whole(&[Delete]),
        Op::Stat => Whole(&[SimpleStats]),
        Op::GetAllVbSeqnos => Whole(&[MetaRead]),
        Op::ObserveSeqno => Within(&[MetaRead]),
        Op::RangeScanCreate | Op::RangeScanContinue | Op::RangeScanCancel => Within(&[RangeScan]),
        Op::DcpOpen | Op::DcpControl | Op::DcpStreamReq | Op::DcpCloseStream => {
            Within(&[DcpStream])
        }
        Op::DcpGetFailoverLog | Op::DcpBufferAcknowledgement => Within(&[DcpStream]),
        Op::DcpSeqnoAcknowledged => Within(&[DcpStream]),
        Op::CollectionsGetManifest | Op::CollectionsGetId | Op::CollectionsGetScopeId => Bucket,
        _ => return None,
    })
}

/// A request that gets past all checks of rights. Its shape need not be valid where rights are
/// checked first.
fn frame(code: u8) -> Vec<u8> {
    let Some(opcode) = Opcode::from_u8(code) else {
        let mut frame = bytes(&RequestParts { opaque: 7, ..RequestParts::new(Opcode::Noop) });
        frame[1] = code;
        return frame;
    };
    let has_key =
        !matches!(needs(opcode), None | Some(RequiredRight::Some(_) | RequiredRight::Whole(_)));
    let key: &[u8] = match opcode {
        Opcode::CollectionsGetId => b"_default.key",
        _ if has_key => b"key",
        _ => b"",
    };
    let value: &[u8] = match opcode {
        Opcode::ObserveSeqno => &[0; 8],
        // A valid shape would lead on to the check of the right in one collection.
        Opcode::GetRandomKey | Opcode::GetKeys => b"x",
        Opcode::CollectionsGetId | Opcode::CollectionsGetScopeId => b"",
        _ => b"",
    };
    bytes(&RequestParts { key, value, opaque: 7, ..RequestParts::new(opcode) })
}

/// A role and the rights it gives, worked out by hand.
struct Rights {
    role: String,
    admin: bool,
    everywhere: PrivilegeSet,
    somewhere: PrivilegeSet,
    in_default: PrivilegeSet,
}

/// Every role for the whole bucket, for the default collection, and for another one.
fn all_rights() -> Vec<Rights> {
    let none = PrivilegeSet::NONE;
    let mut all = vec![
        Rights {
            role: "admin".to_owned(),
            admin: true,
            everywhere: PrivilegeSet::ALL,
            somewhere: PrivilegeSet::ALL,
            in_default: PrivilegeSet::ALL,
        },
        Rights {
            role: "read-write:other".to_owned(),
            admin: false,
            everywhere: none,
            somewhere: none,
            in_default: none,
        },
    ];
    let singles = Privilege::ALL.iter().map(|privilege| privilege.word());
    for word in ["read-write", "read-only", "meta", "stats", "read+upsert+insert"]
        .into_iter()
        .chain(singles)
    {
        let set =
            word.split('+').fold(none, |sum, word| sum.and(PrivilegeSet::from_word(word).unwrap()));
        for (place, everywhere, in_default) in [
            ("default", set, set),
            ("default/_default/_default", none, set),
            ("default/other/one", none, none),
        ] {
            let role = format!("{word}:{place}");
            all.push(Rights { role, admin: false, everywhere, somewhere: set, in_default });
        }
    }
    all
}

/// A client of `first`'s server, logged in with a role.
fn client(first: &ConnectionHarness, role: &str) -> ConnectionHarness {
    let mut harness = first.beside();
    let roles: Vec<Role> = vec![role.parse().unwrap()];
    let identity = Identity {
        name: "ann".to_owned(),
        access: Access::new(roles),
        bucket: None,
        collection: None,
    };
    hello(&mut harness);
    harness.log_in(Arc::new(identity));
    harness
}

fn hello(harness: &mut ConnectionHarness) {
    let features = [0, 7, 0, 8, 0, 0x0b];
    let hello = RequestParts { key: b"t", value: &features, ..RequestParts::new(Opcode::Hello) };
    assert_eq!(replies(&harness.feed(&bytes(&hello)))[0].status, Status::Success);
}

fn select(harness: &mut ConnectionHarness) -> Status {
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    replies(&harness.feed(&bytes(&select)))[0].status
}

/// True for opcodes that change the user or the bucket, and so the connection's rights.
fn changes_who_asks(code: u8) -> bool {
    use Opcode::{Hello, Quit, Quitq, SaslAuth, SaslStep, SelectBucket};
    let opcode = Opcode::from_u8(code);
    opcode
        .is_some_and(|one| matches!(one, Hello | Quit | Quitq | SaslAuth | SaslStep | SelectBucket))
}

/// The answer to the only request; a successful quiet form has none.
fn ask(harness: &mut ConnectionHarness, code: u8) -> Option<HandlerReply> {
    let mut all = replies(&harness.feed(&frame(code)));
    if code != Opcode::Stat as u8 {
        assert!(all.len() <= 1, "0x{code:02x} has {all:?}");
    }
    (!all.is_empty()).then(|| all.remove(0))
}

/// The status with which missing rights refuse an opcode.
fn refusal(harness: &mut ConnectionHarness, code: u8) -> Option<Status> {
    const OF_RIGHTS: [Status; 5] = [
        Status::Eaccess,
        Status::NoBucket,
        Status::UnknownCollection,
        Status::NotSupported,
        Status::UnknownCommand,
    ];
    ask(harness, code).map(|reply| reply.status).filter(|status| OF_RIGHTS.contains(status))
}

#[test]
fn every_opcode_with_a_rule_has_an_entry_here() {
    for opcode in Opcode::all() {
        let (rule, entry) = (rules::rule(opcode), needs(opcode));
        assert_eq!(rule.is_some(), entry.is_some(), "{}: say here what it needs", opcode.name());
    }
}

#[test]
fn before_authentication() {
    let first = ConnectionHarness::new();
    for code in 0..=255_u8 {
        let mut harness = first.beside();
        hello(&mut harness);
        let expected = match Opcode::from_u8(code).map(needs) {
            None => Some(Status::UnknownCommand),
            Some(Some(RequiredRight::Nothing)) => None,
            Some(_) => Some(Status::Eaccess),
        };
        assert_eq!(refusal(&mut harness, code), expected, "0x{code:02x}");
    }
}

#[test]
fn without_a_bucket() {
    let first = ConnectionHarness::new();
    for rights in all_rights() {
        let mut harness = client(&first, &rights.role);
        for code in 0..=255_u8 {
            if changes_who_asks(code.wrapping_sub(1)) {
                harness = client(&first, &rights.role);
            }
            let expected = match Opcode::from_u8(code).map(needs) {
                None => Some(Status::UnknownCommand),
                Some(None) => refused_unserved(code),
                // The bucket `key` that this request selects does not exist.
                _ if code == Opcode::SelectBucket as u8 => Some(Status::Eaccess),
                Some(Some(RequiredRight::Nothing | RequiredRight::Authentication)) => None,
                Some(Some(RequiredRight::Administration)) => {
                    (!rights.admin).then_some(Status::Eaccess)
                }
                Some(Some(_)) => Some(Status::NoBucket),
            };
            assert_eq!(refusal(&mut harness, code), expected, "0x{code:02x} as {}", rights.role);
        }
    }
}

#[test]
fn every_opcode_with_every_role() {
    let first = ConnectionHarness::new();
    for rights in all_rights() {
        let mut harness = client(&first, &rights.role);
        let selected = select(&mut harness);
        if rights.somewhere.is_empty() {
            assert_eq!(selected, Status::Eaccess, "{}", rights.role);
            continue;
        }
        assert_eq!(selected, Status::Success, "{}", rights.role);
        for code in 0..=255_u8 {
            if changes_who_asks(code.wrapping_sub(1)) {
                harness = client(&first, &rights.role);
                select(&mut harness);
            }
            let expected = expected_of(&rights, code);
            assert_eq!(refusal(&mut harness, code), expected, "0x{code:02x} as {}", rights.role);
        }
    }
}

/// Requests of change streams are malformed before the connection is opened for them.
fn refused_unserved(code: u8) -> Option<Status> {
    (!(0x50..=0x67).contains(&code)).then_some(Status::NotSupported)
}

fn expected_of(rights: &Rights, code: u8) -> Option<Status> {
    let Some(needs) = Opcode::from_u8(code).map(needs) else {
        return Some(Status::UnknownCommand);
    };
    let unless = |holds: bool| (!holds).then_some(Status::Eaccess);
    match needs {
        None => refused_unserved(code),
        Some(_) if code == Opcode::SelectBucket as u8 => Some(Status::Eaccess),
        // The collection `key` that this request looks up does not exist.
        Some(RequiredRight::Bucket) if code == Opcode::CollectionsGetId as u8 => {
            Some(Status::UnknownCollection)
                .filter(|_| !rights.in_default.is_empty() || !rights.everywhere.is_empty())
        }
        Some(RequiredRight::Nothing | RequiredRight::Authentication | RequiredRight::Bucket) => {
            None
        }
        Some(RequiredRight::Administration) => unless(rights.admin),
        Some(RequiredRight::Whole(needed)) => {
            unless(rights.everywhere.holds(PrivilegeSet::of(needed)))
        }
        Some(RequiredRight::Some(needed)) => {
            unless(rights.somewhere.holds(PrivilegeSet::of(needed)))
        }
        Some(RequiredRight::Key(_)) if rights.in_default.is_empty() => {
            Some(Status::UnknownCollection)
        }
        Some(RequiredRight::Key(needed)) => {
            unless(rights.in_default.holds(PrivilegeSet::of(needed)))
        }
    }
}

#[test]
fn the_privileges_are_those_of_these_tests() {
    // A new privilege needs a change here, too: which opcodes need it.
    assert_eq!(Privilege::ALL.len(), 12);
    assert!(PrivilegeSet::READ_ONLY.holds(RangeScan.into()));
    assert_eq!(frame(0).len(), HEADER_BYTES + 3);
}
