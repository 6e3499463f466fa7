//! Runs sequences of mutations of a few documents against a plain model, whose rules about document
//! flags are the table. Each step finds the result of the previous one.

use std::collections::BTreeMap;

use oribi_protocol::opcode::Opcode::*;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use proptest::test_runner::Config;

use super::{
    ACCESS_DELETED, ADD, Alive, Amend, CREATE_AS_DELETED, Exist, MAKE_PARENTS, Make, Miss, Place,
    Revive,
};
use super::{Spec, Stage, State, XATTR, attribute, client_in, expected, mutate};
use crate::dispatch::tests::{Client, about, set_extras};

const KEYS: [&str; 3] = ["a", "b", "c"];
/// A user's attribute, which a deletion removes, and a system's, which it leaves.
const ATTRIBUTES: [&str; 2] = ["user", "_sys"];
/// Makes a body long enough to be worth an eviction.
const PADDING: &str = "long enough to be worth an eviction, as short values stay";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BodyChange {
    Nothing,
    Upsert,
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CasMatch {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Debug)]
struct Change {
    doc_flags: u8,
    cas: CasMatch,
    /// The attributes to write.
    attributes: [bool; 2],
    body: BodyChange,
    expires: bool,
    user_flags: Option<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    Mutate(Change),
    Set,
    Delete,
    Advance,
    /// Persists and evicts everything.
    Evict,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Body {
    number: Option<u32>,
    padded: bool,
}

impl Body {
    fn text(&self) -> String {
        match (self.number, self.padded) {
            (Some(number), true) => format!(r#"{{"n":{number},"pad":"{PADDING}"}}"#),
            (Some(number), false) => format!(r#"{{"n":{number}}}"#),
            (None, _) => "{}".to_owned(),
        }
    }
}

/// A document, or its tombstone, which has no body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Version {
    body: Option<Body>,
    attributes: BTreeMap<&'static str, u32>,
    flags: u32,
    expiry: Option<u32>,
}

impl Version {
    fn delete(&mut self) {
        self.attributes.retain(|key, _| key.starts_with('_'));
        (self.body, self.expiry) = (None, None);
    }

    fn state(version: Option<&Version>) -> State {
        match version {
            Some(Version { body: Some(_), .. }) => State::Live,
            Some(_) => State::Deleted,
            None => State::Absent,
        }
    }
}

/// The next version and the status of a change. `number` is the value written everywhere.
fn outcome(before: Option<&Version>, change: &Change, number: u32) -> (Status, Option<Version>) {
    let refused = |status| (status, before.cloned());
    let Some(does) = expected(change.doc_flags, Version::state(before)) else {
        return refused(Status::Einval);
    };
    if change.doc_flags & ADD != 0 && change.cas != CasMatch::None {
        return refused(Status::Einval);
    }
    let base = match does {
        Miss => return refused(Status::KeyEnoent),
        Make | Stage if change.cas != CasMatch::None => return refused(Status::KeyEnoent),
        Exist => return refused(Status::KeyEexists),
        Make | Stage => Version::default(),
        _ if change.cas == CasMatch::Wrong => return refused(Status::KeyEexists),
        Alive => return refused(Status::SubdocCanOnlyReviveDeletedDocuments),
        _ => before.cloned().unwrap_or_default(),
    };
    let is_deleted = matches!(does, Stage | Amend);
    if is_deleted && change.body != BodyChange::Nothing {
        return refused(Status::SubdocDeletedDocumentCantHaveValue);
    }
    let mut after = base;
    if matches!(does, Make | Revive) {
        after.body = Some(Body::default());
    }
    for (key, _) in ATTRIBUTES.iter().zip(change.attributes).filter(|(_, written)| *written) {
        after.attributes.insert(key, number);
    }
    after.flags = change.user_flags.map_or(after.flags, u32::from);
    after.expiry = (change.expires && !is_deleted).then_some(1);
    match (change.body, &mut after.body) {
        (BodyChange::Upsert, Some(body)) => body.number = Some(number),
        (BodyChange::Remove, _) => after.delete(),
        _ => {}
    }
    let status = if is_deleted { Status::SubdocSuccessDeleted } else { Status::Success };
    (status, Some(after))
}

struct World {
    client: Client,
    versions: BTreeMap<&'static str, Version>,
    /// Each written value is unique.
    number: u32,
}

impl World {
    fn step(&mut self, key: &'static str, step: &Step) {
        self.number += 1;
        let number = self.number;
        match step {
            Step::Mutate(change) => self.change(key, change),
            Step::Set => {
                let body = Body { number: Some(number), padded: true };
                let (text, extras) = (body.text(), set_extras(number, 0));
                let parts = about(Set, key.as_bytes());
                let set = RequestParts { extras: &extras, value: text.as_bytes(), ..parts };
                assert_eq!(self.client.ask(&set).status, Status::Success);
                let before = self.versions.remove(key).filter(|before| before.body.is_some());
                let attributes = before.unwrap_or_default().attributes;
                let version = Version { body: Some(body), attributes, flags: number, expiry: None };
                self.versions.insert(key, version);
            }
            Step::Delete => {
                let status = self.client.ask(&about(Delete, key.as_bytes())).status;
                match self.versions.get_mut(key).filter(|version| version.body.is_some()) {
                    None => assert_eq!(status, Status::KeyEnoent),
                    Some(version) => {
                        assert_eq!(status, Status::Success);
                        version.delete();
                        version.flags = 0;
                    }
                }
            }
            Step::Advance => {
                self.client.harness.advance_ms(2_000);
                for version in self.versions.values_mut().filter(|one| one.expiry.is_some()) {
                    version.delete();
                    version.flags = 0;
                }
            }
            Step::Evict => {
                let bucket = self.client.harness.bucket().bucket();
                bucket.flush_step().unwrap();
                for key in KEYS {
                    let vbid = about(Get, key.as_bytes()).vbid;
                    let key = DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
                    bucket.evict(vbid, key);
                }
            }
        }
    }

    fn change(&mut self, key: &'static str, change: &Change) {
        let number = self.number.to_string();
        let mut specs: Vec<Spec<'_>> = ATTRIBUTES
            .iter()
            .zip(change.attributes)
            .filter(|(_, written)| *written)
            .map(|(key, _)| (SubdocDictUpsert, XATTR | MAKE_PARENTS, *key, number.as_str()))
            .collect();
        match change.body {
            BodyChange::Upsert => specs.push((SubdocDictUpsert, 0, "n", &number)),
            BodyChange::Remove => specs.push((Delete, 0, "", "")),
            BodyChange::Nothing if specs.is_empty() => return,
            BodyChange::Nothing => {}
        }
        let mut extras = Vec::new();
        if change.expires || change.user_flags.is_some() {
            extras.extend_from_slice(&u32::from(change.expires).to_be_bytes());
        }
        if let Some(flags) = change.user_flags {
            extras.extend_from_slice(&u32::from(flags).to_be_bytes());
        }
        extras.push(change.doc_flags);
        let cas = match change.cas {
            CasMatch::None => 0,
            // No document has the CAS 1, and for a missing document no CAS is right.
            CasMatch::Right => self.cas(key).unwrap_or(1),
            CasMatch::Wrong => 1,
        };
        let before = self.versions.get(key);
        let (status, after) = outcome(before, change, self.number);
        let reply = mutate(&mut self.client, key, &extras, cas, &specs);
        assert_eq!(reply.status, status, "{key} was {before:?}: {change:?}");
        if let Some(after) = after {
            self.versions.insert(key, after);
        }
    }

    fn cas(&mut self, key: &str) -> Option<u64> {
        let extras = [0, 9, XATTR, ACCESS_DELETED];
        let parts = about(SubdocGet, key.as_bytes());
        let reply =
            self.client.ask(&RequestParts { extras: &extras, value: b"$document", ..parts });
        (reply.status != Status::KeyEnoent).then_some(reply.cas)
    }

    fn check(&mut self) {
        for key in KEYS {
            let version = self.versions.get(key).cloned().unwrap_or_default();
            let found = self.client.get(key.as_bytes());
            match &version.body {
                None => assert_eq!(found.status, Status::KeyEnoent, "{key}"),
                Some(body) => {
                    assert_eq!(found.status, Status::Success, "{key}");
                    assert_eq!(String::from_utf8(found.value).unwrap(), body.text(), "{key}");
                    assert_eq!(found.extras, version.flags.to_be_bytes(), "{key}");
                }
            }
            for path in ATTRIBUTES {
                let wanted = version.attributes.get(path).map(u32::to_string);
                assert_eq!(attribute(&mut self.client, key, path), wanted, "{key}: {path}");
            }
            assert_eq!(self.cas(key).is_some(), self.versions.contains_key(key), "{key}");
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let cas = prop_oneof![4 => Just(CasMatch::None), 2 => Just(CasMatch::Right), 1 => Just(CasMatch::Wrong)];
    let body = prop_oneof![
        3 => Just(BodyChange::Nothing),
        3 => Just(BodyChange::Upsert),
        1 => Just(BodyChange::Remove),
    ];
    let user_flags = prop::option::of(any::<u8>());
    (0..0x20u8, cas, any::<[bool; 2]>(), body, any::<bool>(), user_flags).prop_map(
        |(doc_flags, cas, attributes, body, expires, user_flags)| Change {
            doc_flags,
            cas,
            attributes,
            body,
            expires,
            user_flags,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => change().prop_map(Step::Mutate),
        1 => Just(Step::Set),
        2 => Just(Step::Delete),
        1 => Just(Step::Advance),
        2 => Just(Step::Evict),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 60, ..Config::default() })]

    #[test]
    fn sequences_of_mutations_agree_with_the_model(
        steps in vec((0..KEYS.len(), step()), 0..60),
        whole in any::<bool>(),
    ) {
        let place = if whole { Place::EvictedWhole } else { Place::Evicted };
        let mut world =
            World { client: client_in(place), versions: BTreeMap::new(), number: 0 };
        for (key, step) in &steps {
            world.step(KEYS[*key], step);
            world.check();
        }
    }
}

#[test]
#[should_panic(expected = "a was None")]
fn an_insert_over_a_tombstone_would_be_noticed() {
    let staging = Change {
        doc_flags: ADD | ACCESS_DELETED | CREATE_AS_DELETED,
        cas: CasMatch::None,
        attributes: [true, true],
        body: BodyChange::Nothing,
        expires: false,
        user_flags: None,
    };
    let mut world =
        World { client: client_in(Place::Evicted), versions: BTreeMap::new(), number: 0 };
    world.step("a", &Step::Mutate(staging.clone()));
    world.check();
    world.versions.clear();
    world.step("a", &Step::Mutate(staging));
}
