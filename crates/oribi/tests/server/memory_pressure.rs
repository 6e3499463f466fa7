//! Many times more data than memory: every document can be read, at any time, and the process stays
//! within its bounds.

use std::collections::BTreeMap;

use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until, seed};

use crate::fixture::{Fixture, Random};

const SEED: u64 = 1;
const MIB: u64 = 1 << 20;
const QUOTA_MIB: u64 = 32;
/// Values are noise, so that no store makes them smaller.
const VALUE_BYTES: usize = 4000;
/// Four times the quota.
const DOCUMENTS: u32 = 32_000;
const BATCH: usize = 250;
/// The process may exceed its quota by a tenth of it, and this.
const BASE_BYTES: u64 = 64 * MIB;

/// A client's knowledge of the documents: how often each was written.
struct Client {
    connection: RawConnection,
    noise: Vec<u8>,
    versions: BTreeMap<u32, u32>,
    resident_bytes_max: u64,
}

impl Client {
    fn new(fixture: &Fixture, random: &mut Random) -> Client {
        let noise = (0..1 << 17).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
        Client {
            connection: fixture.login(),
            noise,
            versions: BTreeMap::new(),
            resident_bytes_max: 0,
        }
    }

    fn value(&self, number: u32, version: u32) -> Vec<u8> {
        let start = (number as usize * 7919 + version as usize * 104_729)
            % (self.noise.len() - VALUE_BYTES);
        let mut value = self.noise[start..start + VALUE_BYTES].to_vec();
        value[..8].copy_from_slice(&(u64::from(number) << 32 | u64::from(version)).to_le_bytes());
        value
    }

    /// Writes documents, again as long as the server says that it is busy.
    fn write(&mut self, numbers: &[u32]) {
        let mut left: Vec<u32> = numbers.to_vec();
        for number in numbers {
            *self.versions.entry(*number).or_default() += 1;
        }
        poll_until(PATIENCE, || {
            let requests: Vec<Request> = left
                .iter()
                .map(|number| {
                    Request::set(name(*number), self.value(*number, self.versions[number]))
                })
                .collect();
            self.connection.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
            left.retain(|_| match self.connection.receive().unwrap().status() {
                Status::Success => false,
                Status::Etmpfail => true,
                status => panic!("a write was answered {status:?}"),
            });
            left.is_empty().then_some(())
        })
        .expect("the server makes room for writes");
    }

    /// Reads documents; none may fail.
    fn read(&mut self, numbers: &[u32]) {
        let requests: Vec<Request> =
            numbers.iter().map(|number| Request::get(name(*number))).collect();
        self.connection.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
        for number in numbers {
            let response = self.connection.receive().unwrap();
            assert_eq!(response.status(), Status::Success, "document {number}");
            let expected = self.value(*number, self.versions[number]);
            assert!(response.value == expected, "document {number} has another value");
        }
    }

    fn measure(&mut self, fixture: &Fixture) {
        let resident = fixture.server.resident_bytes().unwrap();
        self.resident_bytes_max = self.resident_bytes_max.max(resident);
    }

    fn figures(&mut self) -> BTreeMap<String, u64> {
        let stats = self.connection.stat("").unwrap();
        stats.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
    }
}

fn name(number: u32) -> String {
    format!("document-{number:08}")
}

fn overload(eviction: &str) {
    let mut random = Random::new(seed(SEED));
    let mut fixture = Fixture::start_with(|options| {
        options.setting("memory-quota-mib", QUOTA_MIB).setting("eviction", eviction)
    });
    let mut client = Client::new(&fixture, &mut random);
    let all: Vec<u32> = (0..DOCUMENTS).collect();
    for (round, numbers) in all.chunks(BATCH).enumerate() {
        client.write(numbers);
        let written = (round + 1) as u64 * BATCH as u64;
        let some: Vec<u32> =
            (0..20).map(|_| random.below(written.min(u64::from(DOCUMENTS))) as u32).collect();
        client.read(&some);
        client.measure(&fixture);
    }
    for _ in 0..40 {
        let some: Vec<u32> = (0..100).map(|_| random.below(u64::from(DOCUMENTS)) as u32).collect();
        client.read(&some);
        let unique: std::collections::BTreeSet<u32> = some.into_iter().take(30).collect();
        client.write(&unique.into_iter().collect::<Vec<_>>());
        client.measure(&fixture);
    }
    let figures = client.figures();
    println!("{eviction}: {} bytes at most, {figures:?}", client.resident_bytes_max);
    assert_eq!(figures["curr_items"], u64::from(DOCUMENTS));
    assert!(figures["vb_active_perc_mem_resident"] < 50, "{figures:?}");
    assert!(figures["ep_num_value_ejects"] > u64::from(DOCUMENTS) / 2, "{figures:?}");
    assert!(figures["ep_bg_fetched"] > 1000, "{figures:?}");
    assert!(figures["mem_used"] <= QUOTA_MIB * MIB, "{figures:?}");
    let bound = QUOTA_MIB * MIB * 11 / 10 + BASE_BYTES;
    assert!(client.resident_bytes_max <= bound, "{} bytes", client.resident_bytes_max);

    fixture.restart();
    client.connection = fixture.login();
    // It serves while it loads.
    for numbers in all.chunks(BATCH) {
        client.read(numbers);
        client.measure(&fixture);
    }
    assert!(client.resident_bytes_max <= bound, "{} bytes", client.resident_bytes_max);
    fixture.finish(&[]);
}

#[test]
fn values_come_back_from_the_log() {
    overload("value");
}

#[test]
fn documents_come_back_from_the_log() {
    overload("full");
}
