//! Requests as a test chooses them, and as they go over the wire.
//!
//! Owns: what kinds there are, including the ones that no sound client sends, their encoding, and
//! the strategy that draws them. Which answers they get is the model's.

use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{
    COUNTER_DO_NOT_CREATE, CounterExtras, ExpiryExtras, RequestParts, SetExtras, encode_request,
};
use oribi_server::harness::HARNESS_VBUCKETS;
use oribi_types::Vbid;
use proptest::prelude::*;

/// An expiry that no test reaches, the same at any time.
const FAR_OFF: u32 = u32::MAX - 1;

/// Number of a key; few, so that requests meet.
pub type Key = u8;
pub const KEYS: Key = 6;

/// An opcode that no version of the protocol has.
const UNKNOWN_OPCODE: u8 = 0x7e;

/// The CAS that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Any,
    /// The one that the document had when the request was encoded, as far as it was known then.
    Current,
    /// One that no document ever had.
    Wrong,
}

/// One request. `quiet` chooses the quiet form of the opcode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Get {
        key: Key,
        quiet: bool,
        with_key: bool,
    },
    GetAndTouch {
        key: Key,
        quiet: bool,
    },
    Touch {
        key: Key,
    },
    Set {
        key: Key,
        quiet: bool,
        condition: Condition,
        flags: u32,
        value: Vec<u8>,
    },
    Add {
        key: Key,
        quiet: bool,
        flags: u32,
        value: Vec<u8>,
    },
    Replace {
        key: Key,
        quiet: bool,
        condition: Condition,
        flags: u32,
        value: Vec<u8>,
    },
    Concat {
        key: Key,
        quiet: bool,
        condition: Condition,
        prepend: bool,
        value: Vec<u8>,
    },
    Delete {
        key: Key,
        quiet: bool,
        condition: Condition,
    },
    Count {
        key: Key,
        quiet: bool,
        condition: Condition,
        decrement: bool,
        delta: u64,
        initial: Option<u64>,
    },
    Lock {
        key: Key,
    },
    Unlock {
        key: Key,
        condition: Condition,
    },
    Noop,
    /// The connection ends, and what follows in the same batch is not served.
    Quit {
        quiet: bool,
    },
    /// A known opcode in the wrong shape.
    Malformed {
        opcode: Opcode,
    },
    /// A key longer than keys may be.
    LongKey {
        opcode: Opcode,
    },
    /// A vbucket that the bucket does not have.
    Elsewhere {
        opcode: Opcode,
        key: Key,
    },
    /// An opcode that does not exist, with a body.
    UnknownOpcode {
        body_bytes: usize,
    },
    /// An opcode that exists and is not served.
    NotSupported,
}

pub fn key_name(key: Key) -> Vec<u8> {
    // Of different lengths, so that frames begin at all sorts of offsets.
    format!("key-{key}{}", "-".repeat(usize::from(key) * 3)).into_bytes()
}

fn choose(quiet: bool, loud: Opcode, silent: Opcode) -> Opcode {
    if quiet { silent } else { loud }
}

impl Request {
    /// The opcode, as it is repeated in an answer.
    pub fn opcode(&self) -> u8 {
        let opcode = match self {
            Request::Get { quiet, with_key: false, .. } => {
                choose(*quiet, Opcode::Get, Opcode::Getq)
            }
            Request::Get { quiet, with_key: true, .. } => {
                choose(*quiet, Opcode::Getk, Opcode::Getkq)
            }
            Request::GetAndTouch { quiet, .. } => choose(*quiet, Opcode::Gat, Opcode::Gatq),
            Request::Touch { .. } => Opcode::Touch,
            Request::Set { quiet, .. } => choose(*quiet, Opcode::Set, Opcode::Setq),
            Request::Add { quiet, .. } => choose(*quiet, Opcode::Add, Opcode::Addq),
            Request::Replace { quiet, .. } => choose(*quiet, Opcode::Replace, Opcode::Replaceq),
            Request::Concat { quiet, prepend: false, .. } => {
                choose(*quiet, Opcode::Append, Opcode::Appendq)
            }
            Request::Concat { quiet, prepend: true, .. } => {
                choose(*quiet, Opcode::Prepend, Opcode::Prependq)
            }
            Request::Delete { quiet, .. } => choose(*quiet, Opcode::Delete, Opcode::Deleteq),
            Request::Count { quiet, decrement: false, .. } => {
                choose(*quiet, Opcode::Increment, Opcode::Incrementq)
            }
            Request::Count { quiet, decrement: true, .. } => {
                choose(*quiet, Opcode::Decrement, Opcode::Decrementq)
            }
            Request::Lock { .. } => Opcode::GetLocked,
            Request::Unlock { .. } => Opcode::UnlockKey,
            Request::Noop => Opcode::Noop,
            Request::Quit { quiet } => choose(*quiet, Opcode::Quit, Opcode::Quitq),
            Request::Malformed { opcode }
            | Request::LongKey { opcode }
            | Request::Elsewhere { opcode, .. } => *opcode,
            Request::UnknownOpcode { .. } => return UNKNOWN_OPCODE,
            Request::NotSupported => Opcode::Rget,
        };
        opcode as u8
    }

    /// The key that the request is about, and the CAS that it names.
    pub fn condition(&self) -> Option<(Key, Condition)> {
        match self {
            Request::Set { key, condition, .. }
            | Request::Replace { key, condition, .. }
            | Request::Concat { key, condition, .. }
            | Request::Delete { key, condition, .. }
            | Request::Unlock { key, condition }
            | Request::Count { key, condition, .. } => Some((*key, *condition)),
            _ => None,
        }
    }

    pub fn encode(&self, opaque: u32, cas: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let known = Opcode::from_u8(self.opcode()).unwrap_or(Opcode::Noop);
        let (key, extras, value) = self.body();
        let vbid = match self {
            Request::Elsewhere { .. } => Vbid(HARNESS_VBUCKETS + 3),
            // Memcached's clients leave the field empty; both are the same to the server.
            _ if opaque.is_multiple_of(3) => Vbid(0),
            _ => vbucket_of(&key, HARNESS_VBUCKETS),
        };
        let parts = RequestParts {
            opaque,
            cas,
            vbid,
            extras: &extras,
            key: &key,
            value: &value,
            ..RequestParts::new(known)
        };
        encode_request(out, &parts);
        out[start + 1] = self.opcode();
    }

    /// Key, extras and value.
    fn body(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let nothing = Vec::new;
        match self {
            Request::Get { key, .. }
            | Request::Delete { key, .. }
            | Request::Lock { key }
            | Request::Unlock { key, .. } => (key_name(*key), nothing(), nothing()),
            Request::GetAndTouch { key, .. } => {
                (key_name(*key), ExpiryExtras { expiry: 0 }.encode().to_vec(), nothing())
            }
            Request::Touch { key } => {
                (key_name(*key), ExpiryExtras { expiry: FAR_OFF }.encode().to_vec(), nothing())
            }
            Request::Set { key, flags, value, .. }
            | Request::Add { key, flags, value, .. }
            | Request::Replace { key, flags, value, .. } => {
                let extras = SetExtras { flags: *flags, expiry: 0 }.encode();
                (key_name(*key), extras.to_vec(), value.clone())
            }
            Request::Concat { key, value, .. } => (key_name(*key), nothing(), value.clone()),
            Request::Count { key, delta, initial, .. } => {
                let expiry = if initial.is_some() { 0 } else { COUNTER_DO_NOT_CREATE };
                let extras = CounterExtras { delta: *delta, initial: initial.unwrap_or(0), expiry };
                (key_name(*key), extras.encode().to_vec(), nothing())
            }
            // No opcode has three bytes of extras.
            Request::Malformed { .. } => (key_name(0), vec![0; 3], vec![b'x'; 5]),
            Request::LongKey { opcode } => (vec![b'k'; 251], extras_of(*opcode), nothing()),
            Request::Elsewhere { opcode, key } => (key_name(*key), extras_of(*opcode), nothing()),
            Request::UnknownOpcode { body_bytes } => {
                (nothing(), nothing(), vec![b'u'; *body_bytes])
            }
            Request::NotSupported => (key_name(0), nothing(), nothing()),
            Request::Noop | Request::Quit { .. } => (nothing(), nothing(), nothing()),
        }
    }
}

/// Extras of the right length for the opcodes of [`any_document_opcode`].
fn extras_of(opcode: Opcode) -> Vec<u8> {
    match opcode {
        Opcode::Set | Opcode::Setq | Opcode::Addq => vec![0; 8],
        Opcode::Incrementq => vec![0; 20],
        _ => Vec::new(),
    }
}

fn any_document_opcode() -> impl Strategy<Value = Opcode> {
    prop::sample::select(vec![
        Opcode::Get,
        Opcode::Getq,
        Opcode::Getkq,
        Opcode::Set,
        Opcode::Setq,
        Opcode::Addq,
        Opcode::Appendq,
        Opcode::Deleteq,
        Opcode::Incrementq,
    ])
}

/// Mostly small; sometimes above the size from which values are sent from their blocks, rarely so
/// large that they are received and sent in several turns.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let filled = |bytes: std::ops::Range<usize>| {
        (any::<u8>(), bytes).prop_map(|(byte, bytes)| vec![byte; bytes])
    };
    prop_oneof![
        20 => filled(0..300),
        8 => "[0-9]{1,4}".prop_map(String::into_bytes),
        // What may be a counter: zeros before it, a sign, space around it, too many digits, too
        // long a text.
        4 => "[ \t\r\n]{0,2}[+-]?(0{0,70}|[1 ])[0-9]{0,21}[ \n]{0,3}".prop_map(String::into_bytes),
        3 => filled(7_000..12_000),
        1 => filled(30_000..70_000),
        1 => filled(250_000..600_000),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![4 => Just(Condition::Any), 3 => Just(Condition::Current), 1 => Just(Condition::Wrong)]
}

/// Any request but Quit.
pub fn request() -> impl Strategy<Value = Request> {
    let key = || 0..KEYS;
    let quiet = any::<bool>;
    prop_oneof![
        12 => (key(), quiet(), quiet()).prop_map(|(key, quiet, with_key)| Request::Get { key, quiet, with_key }),
        2 => (key(), quiet()).prop_map(|(key, quiet)| Request::GetAndTouch { key, quiet }),
        1 => key().prop_map(|key| Request::Touch { key }),
        10 => (key(), quiet(), condition(), any::<u32>(), value())
            .prop_map(|(key, quiet, condition, flags, value)| Request::Set { key, quiet, condition, flags, value }),
        3 => (key(), quiet(), any::<u32>(), value())
            .prop_map(|(key, quiet, flags, value)| Request::Add { key, quiet, flags, value }),
        3 => (key(), quiet(), condition(), any::<u32>(), value())
            .prop_map(|(key, quiet, condition, flags, value)| Request::Replace { key, quiet, condition, flags, value }),
        3 => (key(), quiet(), condition(), quiet(), value())
            .prop_map(|(key, quiet, condition, prepend, value)| Request::Concat { key, quiet, condition, prepend, value }),
        4 => (key(), quiet(), condition()).prop_map(|(key, quiet, condition)| Request::Delete { key, quiet, condition }),
        4 => (key(), quiet(), condition(), quiet(), 0..200_u64, prop::option::of(0..2000_u64))
            .prop_map(|(key, quiet, condition, decrement, delta, initial)| {
                Request::Count { key, quiet, condition, decrement, delta, initial }
            }),
        2 => key().prop_map(|key| Request::Lock { key }),
        3 => (key(), condition()).prop_map(|(key, condition)| Request::Unlock { key, condition }),
        1 => Just(Request::Noop),
        1 => any_document_opcode().prop_map(|opcode| Request::Malformed { opcode }),
        1 => any_document_opcode().prop_map(|opcode| Request::LongKey { opcode }),
        1 => (any_document_opcode(), key()).prop_map(|(opcode, key)| Request::Elsewhere { opcode, key }),
        1 => (0..2000_usize).prop_map(|body_bytes| Request::UnknownOpcode { body_bytes }),
        1 => Just(Request::NotSupported),
    ]
}

/// A pipelined batch; sometimes it says goodbye in the middle.
pub fn batch() -> impl Strategy<Value = Vec<Request>> {
    let requests = prop::collection::vec(request(), 1..40);
    (requests, prop::option::weighted(0.1, (any::<prop::sample::Index>(), any::<bool>()))).prop_map(
        |(mut requests, quit)| {
            if let Some((at, quiet)) = quit {
                let at = at.index(requests.len());
                requests.insert(at, Request::Quit { quiet });
            }
            requests
        },
    )
}
