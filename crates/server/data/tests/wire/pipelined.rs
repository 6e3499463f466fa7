//! Pipelined batches against a simple model, on the server's connection state machine without
//! sockets.
//!
//! Checked, whatever the batches are and however their bytes are cut: a piece of input is answered
//! by exactly the answers of the requests that it completes, in their order, with the right
//! content; quiet requests are silent when they should be; an error in mid-batch does not disturb
//! its neighbours; nothing after a QUIT is served; and connections that take turns see each other's
//! writes at once. Documents are evicted between the pieces, so that requests anywhere in a batch
//! wait for the store. The answers must not differ.

mod model;
mod request;

use std::sync::Arc;

use oribi_engine::EvictionPolicy;
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_server::harness::{ConnectionHarness, HARNESS_VBUCKETS};
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey};
use proptest::prelude::*;

use model::{Answer, AnsweredCas, Model};
use request::{Condition, Request, batch};

/// A CAS that no document of a test has: they count nanoseconds since 1970.
const WRONG_CAS: u64 = 3;

/// A request in flight: where it ends in its connection's stream, its opaque and its CAS.
struct RequestInFlight {
    request: Request,
    end: usize,
    opaque: u32,
    cas: u64,
}

/// One connection with the batch that it is sending.
struct Client {
    harness: ConnectionHarness,
    bytes: Vec<u8>,
    fed: usize,
    sent: std::vec::IntoIter<RequestInFlight>,
    /// The request that is completed next.
    next: Option<RequestInFlight>,
    opaque: u32,
}

impl Client {
    fn new(harness: ConnectionHarness) -> Client {
        let sent = Vec::new().into_iter();
        let mut client = Client { harness, bytes: Vec::new(), fed: 0, sent, next: None, opaque: 0 };
        // The first request about a document makes it a client of memcached's kind.
        let mut hello = Vec::new();
        Request::Get { key: 0, quiet: true, with_key: false }.encode(0, 0, &mut hello);
        client.harness.feed(&hello);
        client
    }

    /// Puts a batch into the stream, with what the model knows of CAS now.
    fn begin(&mut self, batch: &[Request], model: &Model) {
        assert!(self.is_idle(), "the batch before is sent");
        (self.bytes, self.fed) = (Vec::new(), 0);
        let mut sent = Vec::new();
        for request in batch {
            let cas = match request.condition() {
                Some((key, Condition::Current)) => model.known_cas(key).unwrap_or(WRONG_CAS),
                Some((_, Condition::Wrong)) => WRONG_CAS,
                Some((_, Condition::Any)) | None => 0,
            };
            self.opaque += 1;
            request.encode(self.opaque, cas, &mut self.bytes);
            let end = self.bytes.len();
            sent.push(RequestInFlight { request: request.clone(), end, opaque: self.opaque, cas });
        }
        self.sent = sent.into_iter();
        self.next = self.sent.next();
    }

    fn is_idle(&self) -> bool {
        self.fed == self.bytes.len()
    }

    /// Feeds up to `bytes` of the stream and compares what is answered. False when the connection
    /// has ended.
    fn feed(&mut self, bytes: usize, model: &mut Model) -> bool {
        let end = (self.fed + bytes).min(self.bytes.len());
        let answered = self.harness.feed(&self.bytes[self.fed..end]);
        self.fed = end;
        let mut rest = &answered[..];
        while let Some(sent) = self.next.take_if(|sent| sent.end <= end) {
            if let Some(answer) = model.run(&sent.request, sent.cas) {
                rest = compare(&sent, &answer, rest, model);
            }
            if matches!(sent.request, Request::Quit { .. }) {
                assert!(rest.is_empty(), "something was answered after QUIT");
                assert!(self.harness.close_reason().is_some());
                return false;
            }
            self.next = self.sent.next();
        }
        assert!(rest.is_empty(), "an answer that nobody asked for");
        assert_eq!(self.harness.close_reason(), None);
        true
    }
}

/// memcached's text for a failure; `None` for those that it does not know.
fn words_of(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::KeyEnoent => "Not found",
        Status::KeyEexists => "Data exists for key.",
        Status::NotStored => "Not stored.",
        Status::DeltaBadval => "Non-numeric server-side value for incr or decr",
        Status::Einval => "Invalid arguments",
        Status::E2big => "Too large.",
        Status::AuthError => "Auth failure.",
        Status::UnknownCommand => "Unknown command",
        Status::Enomem => "Out of memory",
        _ => return None,
    })
}

/// Takes the first frame and compares it; returns the rest.
fn compare<'a>(
    sent: &RequestInFlight,
    answer: &Answer,
    bytes: &'a [u8],
    model: &mut Model,
) -> &'a [u8] {
    let request = &sent.request;
    let Ok(DecodedFrame::Complete { frame, consumed }) = frame::decode(bytes) else {
        panic!("no answer to {request:?}");
    };
    let Frame { header, framing, extras, key, value } = frame;
    assert_eq!(
        (header.opcode, header.opaque),
        (request.opcode(), sent.opaque),
        "another request is answered than {request:?}"
    );
    assert_eq!(header.vbucket_or_status, answer.status as u16, "status of {request:?}");
    assert_eq!((framing, header.datatype), (&[][..], 0), "{request:?}");
    assert_eq!((extras, key), (&answer.extras[..], &answer.key[..]), "{request:?}");
    match &answer.value {
        // Clients without HELLO read memcached's words, but for a miss that names its key.
        Some(_) if answer.status != Status::Success && answer.key.is_empty() => {
            let words = String::from_utf8_lossy(value);
            let expected = words_of(answer.status);
            assert!(!words.is_empty(), "{request:?} fails without a reason");
            assert_eq!(words, expected.unwrap_or(&words), "{request:?}");
        }
        Some(expected) => assert!(value == expected, "value of {request:?}"),
        None => assert!(!value.is_empty(), "{request:?}"),
    }
    match answer.cas {
        AnsweredCas::Zero => assert_eq!(header.cas, 0, "{request:?}"),
        AnsweredCas::Of(key) => model.learn(key, header.cas),
        AnsweredCas::OfLock(key) => model.learn_lock(key, header.cas),
        AnsweredCas::Hidden => assert_eq!(header.cas, u64::MAX, "{request:?}"),
    }
    &bytes[consumed..]
}

/// Persists everything and evicts the documents of `keys`, one bit for each.
fn evict(harness: &ConnectionHarness, keys: u32) {
    let bucket = harness.bucket().bucket();
    bucket.flush_step().expect("a store in memory takes everything");
    for key in (0..request::KEYS).filter(|key| keys >> key & 1 == 1) {
        let name = request::key_name(key);
        let key = DocKey { collection: CollectionId::DEFAULT, key: &name };
        bucket.evict(vbucket_of(&name, HARNESS_VBUCKETS), key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn batches_are_answered_as_the_model_says(
        batches in prop::collection::vec(batch(), 1..12),
        connections in 1..4_usize,
        prefetch_keys in prop_oneof![Just(0_usize), Just(1), Just(16), Just(32)],
        turns in prop::collection::vec((any::<usize>(), prop_oneof![1..40_usize, 1..2000_usize, 1..200_000_usize]), 1..40),
        evictions in prop::collection::vec(prop_oneof![Just(0_u32), any::<u32>()], 1..40),
        policy in prop::sample::select(vec![EvictionPolicy::Value, EvictionPolicy::Full]),
    ) {
        let store = Arc::new(MemoryStore::new());
        let first = ConnectionHarness::evicting(store, policy, prefetch_keys);
        let mut evictions = evictions.iter().cycle();
        let mut clients: Vec<Client> = (0..connections).map(|_| Client::new(first.beside())).collect();
        let (mut model, mut batches) = (Model::default(), batches.iter());
        let mut turns = turns.iter().cycle();
        loop {
            for client in clients.iter_mut().filter(|client| client.is_idle()) {
                if let Some(batch) = batches.next() {
                    client.begin(batch, &model);
                }
            }
            let mut busy: Vec<_> = clients.iter_mut().filter(|client| !client.is_idle()).collect();
            if busy.is_empty() {
                break;
            }
            let (whose, bytes) = turns.next().expect("there is at least one turn, again and again");
            let whose = whose % busy.len();
            match evictions.next().expect("there is at least one, again and again") {
                0 => {}
                keys => evict(&first, *keys),
            }
            let client = &mut busy[whose];
            if !client.feed(*bytes, &mut model) {
                **client = Client::new(first.beside());
            }
        }
    }
}

/// One batch of every kind of request, errors among them.
fn every_kind() -> Vec<Request> {
    use Condition::{Any, Current, Wrong};
    let value = |text: &str| text.as_bytes().to_vec();
    vec![
        Request::Set { key: 0, quiet: false, condition: Any, flags: 1, value: value("first") },
        Request::Set { key: 1, quiet: true, condition: Any, flags: 2, value: value("41") },
        Request::Get { key: 0, quiet: false, with_key: false },
        Request::Get { key: 5, quiet: true, with_key: true },
        Request::Malformed { opcode: Opcode::Setq },
        Request::Get { key: 1, quiet: true, with_key: true },
        Request::UnknownOpcode { body_bytes: 7 },
        Request::Count {
            key: 1,
            quiet: false,
            condition: Any,
            decrement: false,
            delta: 1,
            initial: None,
        },
        Request::Count {
            key: 1,
            quiet: true,
            condition: Any,
            decrement: true,
            delta: 50,
            initial: None,
        },
        Request::Count {
            key: 0,
            quiet: true,
            condition: Any,
            decrement: true,
            delta: 1,
            initial: None,
        },
        Request::Elsewhere { opcode: Opcode::Setq, key: 1 },
        Request::Add { key: 0, quiet: true, flags: 0, value: value("exists") },
        Request::Replace { key: 4, quiet: true, condition: Any, flags: 0, value: value("missing") },
        Request::Concat { key: 0, quiet: true, condition: Any, prepend: true, value: value("<") },
        Request::Concat { key: 0, quiet: false, condition: Any, prepend: false, value: value(">") },
        Request::NotSupported,
        Request::Get { key: 0, quiet: true, with_key: false },
        Request::Delete { key: 0, quiet: true, condition: Wrong },
        Request::Delete { key: 1, quiet: true, condition: Any },
        Request::Delete { key: 1, quiet: true, condition: Any },
        Request::LongKey { opcode: Opcode::Getkq },
        Request::Touch { key: 0 },
        Request::GetAndTouch { key: 0, quiet: true },
        Request::GetAndTouch { key: 1, quiet: true },
        Request::Set { key: 2, quiet: false, condition: Current, flags: 0, value: value("2") },
        Request::Set { key: 2, quiet: true, condition: Any, flags: 0, value: value("3") },
        Request::Lock { key: 2 },
        Request::Lock { key: 2 },
        Request::Get { key: 2, quiet: false, with_key: false },
        Request::Set { key: 2, quiet: true, condition: Any, flags: 0, value: value("4") },
        Request::Delete { key: 2, quiet: true, condition: Any },
        Request::Unlock { key: 2, condition: Wrong },
        Request::Unlock { key: 3, condition: Any },
        Request::Noop,
    ]
}

#[test]
fn a_batch_may_be_cut_at_every_byte() {
    let batch = every_kind();
    for prefetch_keys in [0, 16] {
        let mut client = Client::new(ConnectionHarness::with_prefetch(prefetch_keys));
        let mut model = Model::default();
        client.begin(&batch, &model);
        let bytes = client.bytes.len();
        assert!(client.feed(bytes, &mut model));
        for cut in 1..bytes {
            client.begin(&batch, &model);
            assert!(client.feed(cut, &mut model) && client.feed(bytes - cut, &mut model));
        }
        client.begin(&batch, &model);
        while !client.is_idle() {
            assert!(client.feed(1, &mut model));
        }
    }
}

/// Mutants: the comparison must find a missing, an additional, a wrong and a misplaced answer.
mod mutants {
    use super::*;

    /// Runs `sent` on the server while the model believes that `believed` was sent.
    fn run(sent: &[Request], believed: &[Request]) {
        let mut client = Client::new(ConnectionHarness::new());
        let mut model = Model::default();
        client.begin(believed, &model);
        let mut bytes = Vec::new();
        for (number, request) in sent.iter().enumerate() {
            request.encode(number as u32 + 1, 0, &mut bytes);
        }
        assert_eq!(bytes.len(), client.bytes.len(), "the two take the same bytes");
        client.bytes = bytes;
        client.feed(usize::MAX / 2, &mut model);
    }

    fn set(key: request::Key, quiet: bool, value: &str) -> Request {
        let value = value.as_bytes().to_vec();
        Request::Set { key, quiet, condition: Condition::Any, flags: 0, value }
    }

    fn get(key: request::Key) -> Request {
        Request::Get { key, quiet: false, with_key: false }
    }

    #[test]
    #[should_panic(expected = "no answer to")]
    fn a_missing_answer() {
        run(&[set(0, true, "a")], &[set(0, false, "a")]);
    }

    #[test]
    #[should_panic(expected = "an answer that nobody asked for")]
    fn an_answer_too_many() {
        run(&[set(0, false, "a")], &[set(0, true, "a")]);
    }

    #[test]
    #[should_panic(expected = "value of")]
    fn a_wrong_value() {
        run(&[set(0, true, "a"), get(0)], &[set(0, true, "b"), get(0)]);
    }

    #[test]
    #[should_panic(expected = "another request is answered")]
    fn answers_in_the_wrong_order() {
        run(&[get(0), set(0, true, "a"), get(0)], &[set(0, true, "a"), get(0), get(0)]);
    }
}
