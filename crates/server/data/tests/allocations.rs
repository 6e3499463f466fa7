//! Zero-copy and zero-allocation as a test: an allocator that counts, and one connection over an
//! in-memory bucket. A GET allocates nothing; a SET allocates its item block and nothing else;
//! a STAT with thousands of entries allocates nothing for each of them.
//!
//! All are counted over many operations after a warm-up, because containers that grow by doubling
//! (output block, checkpoint chunks, hash table) allocate once in a while by design.

use oribi_engine::block_arena::allocations_of_this_thread;
use oribi_engine::collections::ManifestChange;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_server::buckets::{BucketChange, DurabilityMin};
use oribi_server::harness::{ConnectionHarness, HARNESS_VBUCKETS};
use oribi_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const OPERATIONS: u64 = 1000;

/// A client's negotiated features, and the prefix of its keys.
#[derive(Clone, Copy)]
struct Client {
    /// Bytes before each key: a collection id where collections were negotiated.
    prefix: &'static [u8],
}

const PLAIN: Client = Client { prefix: b"" };
const DEFAULT_COLLECTION: Client = Client { prefix: &[0] };
const NAMED_COLLECTION: Client = Client { prefix: &[8] };
const CLIENTS: [Client; 3] = [PLAIN, DEFAULT_COLLECTION, NAMED_COLLECTION];

/// Wire code of the feature "collections".
const COLLECTIONS: [u8; 2] = [0x00, 0x12];

impl Client {
    fn connect(self) -> ConnectionHarness {
        let mut harness = ConnectionHarness::new();
        if self.prefix.is_empty() {
            return harness;
        }
        let (scope, name) = ("_default".to_owned(), "named".to_owned());
        let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        harness.bucket().bucket().update_manifest(&change).expect("the name is free");
        let mut steps = Vec::new();
        let hello = RequestParts { value: &COLLECTIONS, ..RequestParts::new(Opcode::Hello) };
        let login = RequestParts {
            key: b"PLAIN",
            value: b"\0Administrator\0password",
            ..RequestParts::new(Opcode::SaslAuth)
        };
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        for parts in [&hello, &login, &select] {
            encode_request(&mut steps, parts);
        }
        harness.feed(&steps);
        harness
    }

    /// One request of `opcodes` after the other, over 100 keys, `OPERATIONS` in all.
    fn requests(self, opcodes: &[Opcode], value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for index in 0..OPERATIONS as usize {
            let name = format!("key{:02}", index / opcodes.len() % 100).into_bytes();
            let key = [self.prefix, &name[..]].concat();
            let opcode = opcodes[index % opcodes.len()];
            let stores = matches!(opcode, Opcode::Set | Opcode::Add | Opcode::Replace);
            let (extras, value): (&[u8], _) =
                if stores { (&[0; 8], value) } else { (&[], &[][..]) };
            let vbid = vbucket_of(&name, HARNESS_VBUCKETS);
            let parts =
                RequestParts { vbid, key: &key, value, extras, ..RequestParts::new(opcode) };
            encode_request(&mut bytes, &parts);
        }
        bytes
    }
}

/// Allocations from the system, and item blocks, of feeding `input`, after it was fed twice before.
fn count(harness: &mut ConnectionHarness, input: &[u8]) -> (u64, u64) {
    let mut output = Vec::new();
    for _ in 0..2 {
        output.clear();
        harness.feed_into(input, &mut output);
    }
    output.clear();
    let counts = || (ALLOCATOR.allocations_of_this_thread(), allocations_of_this_thread());
    let before = counts();
    harness.feed_into(input, &mut output);
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

// Invariant: A GET allocates nothing; a write allocates one block.
#[test]
fn reads_allocate_nothing_whether_they_hit_or_miss() {
    for client in CLIENTS {
        let mut harness = client.connect();
        for opcode in [Opcode::Get, Opcode::Getk, Opcode::Getq] {
            assert_eq!(count(&mut harness, &client.requests(&[opcode], b"")), (0, 0), "a miss");
        }
        for value in [&b"small"[..], &[b'x'; 20_000]] {
            harness.feed(&client.requests(&[Opcode::Set], value));
            for opcode in [Opcode::Get, Opcode::Getk, Opcode::Getq] {
                let requests = client.requests(&[opcode], b"");
                assert_eq!(count(&mut harness, &requests), (0, 0), "{}", opcode.name());
                assert!(harness.feed(&requests).len() > value.len() * OPERATIONS as usize);
            }
        }
    }
}

// The answer to each `get` was written into a separate buffer.
#[test]
fn a_text_get_of_a_raised_bucket_allocates_nothing() {
    let mut harness = ConnectionHarness::new();
    assert_eq!(harness.feed(b"set k 0 0 5\r\nvalue\r\n"), b"STORED\r\n");
    let durability_min = Some(DurabilityMin::PersistToMajority);
    let change = BucketChange { durability_min, ..BucketChange::default() };
    harness.server().buckets.update("default", change).expect("the bucket has a store");
    for input in [b"get k\r\n".repeat(1000), b"get x k x\r\n".repeat(1000)] {
        assert_eq!(count(&mut harness, &input), (0, 0));
    }
}

// Invariant: A GET allocates nothing; a write allocates one block.
#[test]
fn each_write_allocates_one_block() {
    use Opcode::{Add, Delete, Replace, Set};
    for client in CLIENTS {
        // Misses first: nothing is there. An add that succeeds needs a delete in between.
        let cases: [(&str, &[Opcode]); 6] = [
            ("replace of a miss", &[Replace]),
            ("delete of a miss", &[Delete]),
            ("add of a miss, delete of a hit", &[Add, Delete]),
            ("set", &[Set]),
            ("add of a hit", &[Add]),
            ("replace of a hit", &[Replace]),
        ];
        let mut harness = client.connect();
        for (name, opcodes) in cases {
            let (system, blocks) = count(&mut harness, &client.requests(opcodes, b"value"));
            assert_eq!(blocks, OPERATIONS, "{name}");
            // Checkpoint chunks hold many items each.
            assert!(system <= OPERATIONS / 50, "{name}: {system}");
        }
    }
}

#[test]
fn stat_allocates_nothing_per_entry() {
    let mut harness = ConnectionHarness::new();
    for index in 0..200 {
        let (scope, name) = ("_default".to_owned(), format!("collection-{index}"));
        let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        harness.bucket().bucket().update_manifest(&change).unwrap();
    }
    let mut input = Vec::new();
    let stat = RequestParts { key: b"collections-details", ..RequestParts::new(Opcode::Stat) };
    encode_request(&mut input, &stat);
    let mut output = Vec::new();
    harness.feed_into(&PLAIN.requests(&[Opcode::Get], b""), &mut output);
    output.clear();
    harness.feed_into(&input, &mut output);
    let bytes = output.len();
    assert!(bytes > 200 * 9 * 4 * 30, "more than seven thousand entries: {bytes}");
    assert!(count(&mut harness, &input).0 < 50);
}
