//! Random operations on the real server and on a map, which have to agree on every answer.
//!
//! One connection, so the model is exact: status, value, flags, and that CAS and seqno only rise.
//! Every so often the server is stopped and started, after which all documents are compared. The
//! variable `ORIBI_TEST_SEED` chooses another seed.

use std::collections::BTreeMap;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::{RawConnection, Request, Response, seed};
use oribi_types::{Cas, Seqno, Vbid};

use crate::fixture::{Fixture, Random, call_when_warm};

const SEED: u64 = 1;
const KEYS: u64 = 40;
const OPERATIONS: u64 = 12_000;
const OPERATIONS_PER_LIFE: u64 = 3_000;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Document {
    value: Vec<u8>,
    flags: u32,
    cas: Cas,
}

/// Documents by key, and how far each vbucket has come.
#[derive(Default)]
struct Model {
    documents: BTreeMap<String, Document>,
    highest: BTreeMap<Vbid, (Seqno, Cas)>,
}

/// One operation with everything that was chosen at random.
#[derive(Clone, Debug)]
enum Operation {
    Get,
    Store { opcode: Opcode, value: Vec<u8>, flags: u32 },
    Concat { opcode: Opcode, value: Vec<u8> },
    Count { opcode: Opcode, delta: u64, initial: u64 },
    Delete,
}

/// Which CAS a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Nothing,
    Current,
    Other,
}

impl Operation {
    fn random(random: &mut Random) -> Operation {
        let text = |random: &mut Random| {
            let length = random.below(60) as usize;
            format!("{}-{}", random.below(1_000_000), "v".repeat(length)).into_bytes()
        };
        match random.below(10) {
            0..3 => Operation::Get,
            3..6 => {
                let opcodes = [Opcode::Set, Opcode::Add, Opcode::Replace];
                let opcode = opcodes[random.below(3) as usize];
                // Every other value is a number, so that counters meet both kinds.
                let value = match random.below(2) {
                    0 => random.below(1000).to_string().into_bytes(),
                    _ => text(random),
                };
                Operation::Store { opcode, value, flags: random.below(1 << 32) as u32 }
            }
            6 => {
                let opcode = [Opcode::Append, Opcode::Prepend][random.below(2) as usize];
                Operation::Concat { opcode, value: text(random) }
            }
            7..9 => {
                let opcode = [Opcode::Increment, Opcode::Decrement][random.below(2) as usize];
                Operation::Count { opcode, delta: random.below(600), initial: random.below(100) }
            }
            _ => Operation::Delete,
        }
    }

    fn takes_cas(&self) -> bool {
        match self {
            Operation::Store { opcode, .. } => *opcode != Opcode::Add,
            Operation::Concat { .. } | Operation::Delete => true,
            Operation::Get | Operation::Count { .. } => false,
        }
    }

    fn request(&self, key: &str) -> Request {
        match self {
            Operation::Get => Request::get(key),
            Operation::Store { opcode, value, flags } => {
                Request::store(*opcode, key, value).flags_and_expiry(*flags, 0)
            }
            Operation::Concat { opcode, value } => Request::about(*opcode, key).value(value),
            Operation::Count { opcode, delta, initial } => {
                Request::counter(*opcode, key, *delta, *initial)
            }
            Operation::Delete => Request::delete(key),
        }
    }
}

impl Model {
    /// The expected answer, and the document afterwards.
    fn apply(
        &self,
        key: &str,
        operation: &Operation,
        expected: Expected,
    ) -> (Status, Option<Document>) {
        let current = self.documents.get(key).cloned();
        let Some(document) = current else {
            return match operation {
                Operation::Store { opcode, value, flags }
                    if *opcode != Opcode::Replace && expected == Expected::Nothing =>
                {
                    (Status::Success, Some(fresh(value.clone(), *flags)))
                }
                Operation::Count { initial, .. } => {
                    (Status::Success, Some(fresh(initial.to_string().into_bytes(), 0)))
                }
                Operation::Concat { .. } => (Status::NotStored, None),
                _ => (Status::KeyEnoent, None),
            };
        };
        let refused = |status| (status, Some(document.clone()));
        if expected == Expected::Other {
            return refused(Status::KeyEexists);
        }
        let with = |value| Some(Document { value, ..document.clone() });
        match operation {
            Operation::Get => refused(Status::Success),
            Operation::Store { opcode: Opcode::Add, .. } => refused(Status::KeyEexists),
            Operation::Store { value, flags, .. } => {
                (Status::Success, Some(fresh(value.clone(), *flags)))
            }
            Operation::Concat { opcode: Opcode::Append, value } => {
                (Status::Success, with([&document.value[..], value].concat()))
            }
            Operation::Concat { value, .. } => {
                (Status::Success, with([&value[..], &document.value].concat()))
            }
            Operation::Count { opcode, delta, .. } => {
                let text = String::from_utf8_lossy(&document.value).into_owned();
                let Ok(number) = text.parse::<u64>() else { return refused(Status::DeltaBadval) };
                let number = match opcode {
                    Opcode::Increment => number.wrapping_add(*delta),
                    _ => number.saturating_sub(*delta),
                };
                (Status::Success, with(number.to_string().into_bytes()))
            }
            Operation::Delete => (Status::Success, None),
        }
    }

    /// Checks that a mutation's CAS and seqno rise within its vbucket.
    fn note(&mut self, key: &str, response: &Response) {
        let mutation = response.mutation().unwrap();
        let vbid = oribi_protocol::hash::vbucket_of(key.as_bytes(), 64);
        let highest = self.highest.entry(vbid).or_default();
        assert!(mutation.seqno > highest.0 && mutation.cas > highest.1, "{mutation:?} {highest:?}");
        *highest = (mutation.seqno, mutation.cas);
    }
}

fn fresh(value: Vec<u8>, flags: u32) -> Document {
    Document { value, flags, cas: Cas(0) }
}

/// Runs one random operation on both and compares.
fn step(connection: &mut RawConnection, model: &mut Model, random: &mut Random) {
    let key = format!("key-{}", random.below(KEYS));
    let operation = Operation::random(random);
    let expected = match random.below(6) {
        0 if operation.takes_cas() => Expected::Current,
        1 if operation.takes_cas() => Expected::Other,
        _ => Expected::Nothing,
    };
    let cas = model.documents.get(&key).map_or(Cas(12345), |document| document.cas);
    let request = match expected {
        Expected::Nothing => operation.request(&key),
        Expected::Current => operation.request(&key).cas(cas),
        Expected::Other => operation.request(&key).cas(Cas(cas.0 ^ 1)),
    };
    let (status, after) = model.apply(&key, &operation, expected);
    let response = call_when_warm(connection, &request);
    assert_eq!(response.status(), status, "{key} {operation:?} {expected:?}: {response:?}");
    if matches!(operation, Operation::Get) {
        let found = (status == Status::Success).then(|| document_of(&response));
        assert_eq!(found, after, "{key}");
        return;
    }
    if status == Status::Success {
        model.note(&key, &response);
        if let Operation::Count { .. } = operation {
            let number = after.as_ref().map(|document| document.value.clone()).unwrap();
            let answered = u64::from_be_bytes(response.value.clone().try_into().unwrap());
            assert_eq!(answered.to_string().into_bytes(), number, "{key} {operation:?}");
        }
        match after {
            Some(document) => {
                model.documents.insert(key, Document { cas: response.cas, ..document });
            }
            None => {
                model.documents.remove(&key);
            }
        }
    }
}

fn document_of(response: &Response) -> Document {
    let flags = u32::from_be_bytes(response.extras.clone().try_into().unwrap());
    Document { value: response.value.clone(), flags, cas: response.cas }
}

#[test]
fn the_server_answers_as_a_map_would() {
    let mut random = Random::new(seed(SEED));
    let mut model = Model::default();
    let mut fixture = Fixture::start();
    let mut connection = fixture.login();
    for count in 1..=OPERATIONS {
        step(&mut connection, &mut model, &mut random);
        if count % OPERATIONS_PER_LIFE == 0 {
            fixture.restart();
            connection = fixture.login();
            for index in 0..KEYS {
                let key = format!("key-{index}");
                let response = call_when_warm(&mut connection, &Request::get(&key));
                let found = (response.status() == Status::Success).then(|| document_of(&response));
                assert_eq!(found.as_ref(), model.documents.get(&key), "{key} after a restart");
            }
        }
    }
    fixture.finish(&[]);
}
