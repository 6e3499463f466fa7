//! Simulation of agents, leader and agreement with faults, one step at a time by one seed.
//!
//! The agents are the real ones; copies are logs in memory (`disk`), and agreement is the one in
//! memory with its faults. Nodes pause, lose agreement, die, lose their disk; answers of agreement
//! are lost before and after they count; operators fail nodes over; beacons are late, lost, and cut
//! one way. Checked after every step:
//! - one node at most serves a vbucket;
//! - what a write quorum held in an epoch is in every copy that serves later.
//!
//! Healed, all copies converge.

mod beacons;
mod disk;
mod faults;
mod holes;
mod node;
mod only_copies;
mod rebalance;
mod resize;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord};
use oribi_types::Vbid;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::agreement::memory::MemoryAgreement;
use crate::agreement::{Agreement, RecordChange};
use crate::copies::record::{self, FailoverRequest};
use crate::copies::roster::Roster;
use crate::member::failover_limit_s;
use crate::records::RecordKeys;
use beacons::SimDatagram;
use disk::{SimDisk, VBUCKETS};
use node::{BASE_NS, LEASE_S, SimClock, SimNode};

const LIMIT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);
/// Seeds of an ordinary run; `cargo xtask soak agents --seeds N --from SEED` runs others.
const SEEDS: u64 = 24;
/// Only one simulation at a time has the clock.
static CLOCK_IS_USED: Mutex<()> = Mutex::new(());

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct World {
    runtime: Runtime,
    agreement: Arc<MemoryAgreement>,
    keys: RecordKeys,
    random: Random,
    replicas: u8,
    nodes: Vec<SimNode>,
    next_write: u64,
    /// Writes that a quorum held in an epoch, by vbucket.
    safe: BTreeMap<Vbid, BTreeMap<CopiesEpoch, BTreeSet<u64>>>,
    promotions: u64,
    epochs: BTreeMap<Vbid, CopiesRecord>,
    /// Pairs of nodes without a link: who is active, and who follows.
    cut: BTreeSet<(String, String)>,
    /// Pairs of nodes between which no datagram arrives: from, and to.
    cut_beacons: BTreeSet<(String, String)>,
    datagrams: Vec<SimDatagram>,
}

impl World {
    fn new(seed: u64, nodes: usize, replicas: u8) -> World {
        BASE_NS.store(1, Ordering::SeqCst);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = || Duration::from_nanos(BASE_NS.load(Ordering::SeqCst));
        let agreement = MemoryAgreement::new(Box::new(clock));
        let mut world = World {
            runtime,
            agreement,
            keys: RecordKeys::new("test"),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            replicas,
            nodes: Vec::new(),
            next_write: 0,
            safe: BTreeMap::new(),
            promotions: 0,
            epochs: BTreeMap::new(),
            cut: BTreeSet::new(),
            cut_beacons: BTreeSet::new(),
            datagrams: Vec::new(),
        };
        for at in 0..nodes {
            let name = format!("n{at}");
            let disk = SimDisk::new(&format!("disk of {name}"));
            let clock = world.clock();
            let node = SimNode::start(&name, disk, &world.agreement, clock);
            world.nodes.push(node);
        }
        world.nodes[0].buckets.create(replicas);
        world
    }

    /// Lets time pass in which nothing runs.
    fn jump(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap();
        BASE_NS.fetch_add(ns, Ordering::SeqCst);
    }

    /// A clock of a node that has just booted. The slowest and the fastest are the most common.
    fn clock(&mut self) -> SimClock {
        let rate_permille = match self.random.below(3) {
            0 => 900,
            1 => 1100,
            _ => 900 + self.random.below(201),
        };
        SimClock { rate_permille, boot_ns: 1 + self.random.below(1 << 40) }
    }

    fn tick(&mut self, at: usize) {
        let World { runtime, nodes, .. } = self;
        runtime.block_on(nodes[at].tick());
        self.check();
    }

    /// Copies what the active copies have to the copies that follow them.
    fn stream(&mut self, at: usize) {
        let node = &self.nodes[at];
        if node.is_paused {
            self.end_links(&node.name);
            return;
        }
        for (vbid, epoch, source) in node.disk.following() {
            let active = self.nodes.iter().find(|other| other.name == source);
            let is_cut = self.cut.contains(&(source, node.name.clone()));
            let Some(active) = active else { continue };
            if is_cut {
                active.disk.note_following(vbid, &node.name, None);
            }
            let feeds = !is_cut && !active.is_paused && active.is_running;
            let log = active.disk.served(vbid, epoch).filter(|_| feeds);
            if let Some(log) = log {
                let writes = log.len();
                if node.disk.receive(vbid, epoch, log) {
                    active.disk.note_following(vbid, &node.name, Some(writes));
                }
            }
        }
        self.note_safe();
        self.check();
    }

    /// The others close connections on which nothing comes.
    fn end_links(&self, name: &str) {
        for vbid in (0..VBUCKETS).map(Vbid) {
            self.nodes.iter().for_each(|other| other.disk.note_following(vbid, name, None));
        }
    }

    fn write(&mut self, vbid: Vbid) {
        self.next_write += 1;
        let serving = self.nodes.iter().find(|node| node.serves(vbid).is_some());
        if let Some(node) = serving {
            node.disk.append(vbid, self.next_write);
        }
        self.note_safe();
    }

    fn records(&self) -> BTreeMap<Vbid, CopiesRecord> {
        let list = self.runtime.block_on(self.agreement.list(self.keys.all(), LIMIT)).unwrap();
        let decoded = list.records.iter().filter_map(|entry| {
            let (_, place) = self.keys.copies_of(&entry.key)?;
            Some((place.vbid, record::decode(&entry.value).unwrap()))
        });
        decoded.collect()
    }

    fn roster(&self) -> Roster {
        let found = self.runtime.block_on(self.agreement.get(&self.keys.roster(), LIMIT)).unwrap();
        found.map_or_else(Roster::default, |entry| Roster::decode(&entry.value).unwrap())
    }

    /// Remembers the writes that a write quorum of their record's members holds.
    fn note_safe(&mut self) {
        let roster = self.roster();
        for (vbid, record) in self.records() {
            let held = |number: u16| {
                let has_number =
                    |node: &&SimNode| roster.number(&node.name, node.disk.id()) == Some(number);
                self.nodes.iter().find(has_number)?.disk.recorded_log(vbid, record.epoch)
            };
            let active = held(record.active.node).unwrap_or_default();
            for write in active {
                let holds = |copy: oribi_replication::copies::CopyId| {
                    held(copy.node).is_some_and(|log| log.contains(&write))
                };
                if record.is_write_quorum(holds) {
                    let epochs = self.safe.entry(vbid).or_default();
                    epochs.entry(record.epoch).or_default().insert(write);
                }
            }
        }
    }

    fn check(&mut self) {
        self.check_serving();
        self.check_records();
    }

    /// One node at most serves a vbucket, with all that is safe.
    fn check_serving(&self) {
        for vbid in (0..VBUCKETS).map(Vbid) {
            let serving: Vec<(&SimNode, CopiesEpoch)> =
                self.nodes.iter().filter_map(|node| Some((node, node.serves(vbid)?))).collect();
            let names: Vec<&str> = serving.iter().map(|(node, _)| node.name.as_str()).collect();
            assert!(serving.len() <= 1, "{vbid} is served by {names:?}");
            let Some((node, epoch)) = serving.first() else { continue };
            let log = node.disk.served(vbid, *epoch).unwrap();
            let earlier = self.safe.get(&vbid).into_iter().flat_map(|by| by.range(..*epoch));
            for (from, writes) in earlier {
                let lost = writes.iter().find(|write| !log.contains(write));
                assert_eq!(
                    lost, None,
                    "{vbid} of {} in {epoch:?} lacks one of {from:?}",
                    node.name
                );
            }
        }
    }

    /// Each epoch has one record.
    fn check_records(&mut self) {
        for (vbid, record) in self.records() {
            let before = self.epochs.insert(vbid, record.clone());
            let Some(before) = before else { continue };
            assert!(record.epoch >= before.epoch, "{vbid} went back");
            if record.epoch == before.epoch {
                assert_eq!(record, before, "{vbid} has two records of an epoch");
            } else if record.active != before.active {
                self.promotions += 1;
            }
        }
    }

    fn step(&mut self) {
        let at = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
        match self.random.below(10) {
            0..=3 => self.tick(at),
            4 | 5 => self.stream(at),
            6 => {
                let vbid = Vbid(u16::try_from(self.random.below(VBUCKETS.into())).unwrap());
                self.write(vbid);
            }
            7 | 8 => self.pass_with(STEP, true),
            _ => self.fault(),
        }
        for node in self.nodes.iter().filter(|node| !node.is_paused) {
            self.runtime.block_on(node.renew());
        }
        self.beat(true);
        self.check();
    }

    /// Lets every node do its work, in turn, as often as that.
    fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for at in 0..self.nodes.len() {
                self.tick(at);
                self.stream(at);
                if !self.nodes[at].is_paused {
                    self.runtime.block_on(self.nodes[at].renew());
                }
                self.beat(false);
            }
            self.pass(STEP);
        }
    }

    fn heal(&mut self) {
        self.agreement.deliver_late();
        for node in &mut self.nodes {
            node.is_paused = false;
            node.agreement.set_cut(false);
            node.disk.is_full.store(false, Ordering::SeqCst);
        }
        self.cut.clear();
        self.cut_beacons.clear();
        self.agreement.forget_faults();
        self.clear_failover();
        // Leases of earlier sessions end.
        self.pass(Duration::from_secs(LEASE_S * 2));
        self.rounds(60);
        // Pauses before copies that did not follow join again.
        for _ in 0..40 {
            if self.has_all_copies() {
                break;
            }
            self.pass(Duration::from_secs(LEASE_S / 2));
            self.rounds(10);
        }
    }

    fn has_all_copies(&self) -> bool {
        let wanted = usize::from(self.replicas) + 1;
        let sizes = (wanted.min(self.nodes.len()), wanted, false);
        let sizes_of = |it: &CopiesRecord| (it.members.len(), it.configured, it.is_joint());
        self.records().values().all(|it| sizes_of(it) == sizes)
    }

    fn assert_converged(&self) {
        let (roster, records) = (self.roster(), self.records());
        let copies = usize::from(self.replicas) + 1;
        assert_eq!(records.len(), usize::from(VBUCKETS));
        for (vbid, record) in records {
            assert!(!record.is_joint(), "{vbid} is joint: {record:?}");
            let sizes = (record.members.len(), record.configured);
            assert_eq!(sizes, (copies.min(self.nodes.len()), copies), "{vbid}: {record:?}");
            let log_of = |number: u16| {
                let name = roster.name(number).unwrap();
                let node = self.nodes.iter().find(|node| node.name == name).unwrap();
                node.disk.recorded_log(vbid, record.epoch)
            };
            let active = roster.name(record.active.node).unwrap();
            let serving = self.nodes.iter().filter(|node| node.serves(vbid).is_some());
            let serving: Vec<&str> = serving.map(|node| node.name.as_str()).collect();
            assert_eq!(serving, [active], "{vbid}: {record:?}");
            for copy in &record.members {
                let log = log_of(copy.node);
                assert!(log.is_some(), "{vbid}: {copy:?} did not reach {:?}", record.epoch);
                assert_eq!(log, log_of(record.active.node), "{vbid}: {copy:?}");
            }
        }
    }
}

fn run(seed: u64, nodes: usize, replicas: u8, steps: usize) -> u64 {
    let mut world = World::new(seed, nodes, replicas);
    world.rounds(12);
    world.assert_converged();
    for _ in 0..steps {
        world.step();
    }
    world.heal();
    world.assert_converged();
    world.promotions
}

#[test]
fn faults_keep_one_active_and_lose_nothing() {
    let _clock = CLOCK_IS_USED.lock();
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    let from = number("ORIBI_SIMULATION_FROM").unwrap_or(1);
    let seeds = number("ORIBI_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let mut promotions = 0;
    for seed in from..from + seeds {
        println!("seed {seed}");
        promotions += run(seed, 2 + seed as usize % 3, 1 + (seed % 2) as u8, 300);
    }
    println!("{promotions} promotions");
    assert!(promotions * 2 >= seeds, "few failovers happened: {promotions}");
}

#[test]
fn a_node_that_failed_over_comes_back_as_replica() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 2, 1);
    world.rounds(12);
    (0..VBUCKETS).map(Vbid).for_each(|vbid| world.write(vbid));
    world.rounds(3);
    world.nodes[0].is_paused = true;
    world.request_failover("n0");
    world.pass(Duration::from_secs(LEASE_S * 2));
    // The other node's lease has ended as well.
    world.rounds(10);
    assert_eq!(world.failover(), None);
    for vbid in (0..VBUCKETS).map(Vbid) {
        assert!(world.nodes[1].serves(vbid).is_some(), "{vbid}");
    }
    let placement = &world.nodes[1].topology().unwrap().buckets["default"];
    assert_eq!(placement.replica_count, 1);
    assert!(placement.replicas.iter().all(|chain| *chain == [None]), "{placement:?}");
    world.nodes[0].is_paused = false;
    // A node whose copies were left out pauses before it gets them again.
    world.rounds(80);
    world.assert_converged();
    for record in world.records().values() {
        assert_eq!(world.roster().name(record.active.node), Some("n1"));
    }
    let placement = &world.nodes[1].topology().unwrap().buckets["default"];
    assert!(placement.replicas.iter().all(|chain| chain[0].is_some()), "{placement:?}");
    let rev = placement.rev;
    world.request_failover("n1");
    world.rounds(30);
    assert_eq!(world.failover(), None, "a node that serves is failed over, too");
    assert!(world.nodes[0].topology().unwrap().buckets["default"].rev > rev);
    world.assert_converged();
}

#[test]
fn the_last_copy_is_given_up_only_on_demand() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 2, 0);
    world.rounds(12);
    world.nodes[0].is_paused = true;
    world.request_failover("n0");
    world.pass(Duration::from_secs(LEASE_S * 2));
    let before = world.records();
    world.rounds(10);
    let refused = world.failover().unwrap().refused.expect("no copy is left");
    assert!(refused.contains("n0") && refused.contains("allow the loss"), "{refused}");
    assert_eq!(world.records(), before, "a refused failover changes nothing");
    let request = FailoverRequest::new("n0", true).encode();
    let put = [RecordChange::put(world.keys.failover(), request)];
    world.runtime.block_on(world.agreement.transact(&[], &put, LIMIT)).unwrap();
    world.safe.clear();
    world.rounds(10);
    assert_eq!(world.failover(), None);
    for vbid in (0..VBUCKETS).map(Vbid) {
        assert!(world.nodes[1].serves(vbid).is_some(), "{vbid}");
    }
}

// All nodes end in disorder at once: the copies that know most are promoted, when all are back.
#[test]
fn copies_recover_after_all_nodes_ended() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 2);
    world.rounds(12);
    (0..VBUCKETS).map(Vbid).for_each(|vbid| world.write(vbid));
    world.rounds(3);
    let before = world.records();
    for at in 0..3 {
        world.restart(at, false);
    }
    world.pass(Duration::from_secs(LEASE_S * 2));
    world.rounds(30);
    world.assert_converged();
    for (vbid, record) in world.records() {
        assert!(record.epoch > before[&vbid].epoch, "{vbid} begins another epoch");
    }
}

// Without a request, the leader finds that a node is gone.
#[test]
fn a_node_that_is_gone_is_failed_over() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 1);
    world.rounds(12);
    (0..VBUCKETS).map(Vbid).for_each(|vbid| world.write(vbid));
    world.rounds(3);
    world.nodes[2].is_paused = true;
    for _ in 0..20 {
        world.pass(Duration::from_secs(LEASE_S / 2));
        world.rounds(1);
    }
    assert_eq!(world.failover(), None);
    for vbid in (0..VBUCKETS).map(Vbid) {
        let serving = world.nodes.iter().filter(|node| node.serves(vbid).is_some());
        assert_eq!(serving.count(), 1, "{vbid}");
    }
    world.nodes[2].is_paused = false;
    world.rounds(30);
    world.assert_converged();
}

// Writes that no other copy had when the node began to leave are not lost.
#[test]
fn a_node_that_leaves_hands_everything_over() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 1);
    world.rounds(12);
    for _ in 0..3 {
        (0..VBUCKETS).map(Vbid).for_each(|vbid| world.write(vbid));
    }
    world.nodes[1].agent.leave();
    world.rounds(20);
    assert!(world.nodes[1].agent.has_left());
    for (vbid, record) in world.records() {
        let serving: Vec<&SimNode> =
            world.nodes.iter().filter(|node| node.serves(vbid).is_some()).collect();
        assert!(serving.len() == 1 && serving[0].name != "n1", "{vbid}: {record:?}");
        let log = serving[0].disk.recorded_log(vbid, record.epoch).unwrap();
        assert_eq!(log.len(), 3, "{vbid} lacks writes");
    }
}

// The disk of a node was so slow that the node released a vbucket before its copy had begun.
#[test]
fn work_under_way_serves_nothing_without_key() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 2, 1);
    world.rounds(12);
    world.restart(0, true);
    let disk = Arc::clone(&world.nodes[0].disk);
    let before = disk.begun.load(Ordering::SeqCst);
    let slow = disk.slow.lock();
    for _ in 0..100_000 {
        if disk.begun.load(Ordering::SeqCst) > before {
            break;
        }
        world.runtime.block_on(world.nodes[0].look());
        // The other node learns of the process, and grants.
        world.tick(1);
        world.nodes.iter().for_each(|node| world.runtime.block_on(node.renew()));
        world.pass(Duration::from_millis(1));
    }
    assert!(disk.begun.load(Ordering::SeqCst) > before, "a copy begins");
    world.request_failover("n0");
    world.runtime.block_on(world.nodes[0].look());
    let of_n0 = world.roster().number("n0", disk.id()).unwrap();
    drop(slow);
    world.runtime.block_on(world.nodes[0].finish());
    let mut active = 0;
    for (vbid, record) in world.records() {
        active += usize::from(record.active.node == of_n0);
        assert_eq!(world.nodes[0].serves(vbid), None, "{vbid}");
    }
    assert!(active > 0, "the node had vbuckets to serve");
    world.rounds(20);
    world.assert_converged();
}

// The operator's program ended before it read the refusal.
#[test]
fn a_refused_failover_is_withdrawn_by_the_leader() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 1);
    world.rounds(12);
    // Both copies of some vbucket are on nodes that do not answer.
    (world.nodes[0].is_paused, world.nodes[1].is_paused) = (true, true);
    world.pass(Duration::from_secs(LEASE_S * 2));
    world.rounds(3);
    world.request_failover("n0");
    world.rounds(6);
    assert!(world.failover().unwrap().refused.is_some());
    (world.nodes[0].is_paused, world.nodes[1].is_paused) = (false, false);
    // Copies that promised the next epoch serve again although the refusal is still there.
    world.rounds(40);
    world.assert_converged();
    for _ in 0..failover_limit_s(LEASE_S) * 3 {
        world.pass(Duration::from_secs(LEASE_S / 2));
        world.rounds(1);
    }
    assert_eq!(world.failover(), None);
    world.assert_converged();
}

// An etcd restored from a backup knows neither promotions nor members since: copies stay as they
// are, and nothing older than them is served.
#[test]
fn an_old_snapshot_of_agreement_stops_copies() {
    let _clock = CLOCK_IS_USED.lock();
    let mut world = World::new(1, 3, 1);
    world.rounds(12);
    let keys = world.keys.clone();
    let backup = world.runtime.block_on(world.agreement.list(keys.all(), LIMIT)).unwrap();
    world.request_failover("n0");
    world.rounds(30);
    (0..VBUCKETS).map(Vbid).for_each(|vbid| world.write(vbid));
    world.rounds(3);
    assert!(world.promotions > 0);
    let of_disks = |world: &World| -> Vec<String> {
        world.nodes.iter().map(|node| node.disk.describe()).collect()
    };
    let before = of_disks(&world);
    let epochs = std::mem::take(&mut world.epochs);
    world.agreement.restore(&backup);
    world.pass(Duration::from_secs(LEASE_S * 2));
    world.rounds(10);
    let serves = |world: &World, vbid| world.nodes.iter().any(|node| node.serves(vbid).is_some());
    for vbid in (0..VBUCKETS).map(Vbid) {
        assert!(!serves(&world, vbid), "{vbid} is served from an old record");
    }
    assert_eq!(of_disks(&world), before, "no copy changes");
    // The nodes do not remember revisions, but the disks of promoted copies know their epochs.
    for at in 0..world.nodes.len() {
        world.restart(at, true);
    }
    world.pass(Duration::from_secs(LEASE_S * 2));
    world.rounds(10);
    for (vbid, record) in &epochs {
        if record.epoch > world.records()[vbid].epoch {
            let active = world.roster().name(record.active.node).unwrap().to_owned();
            let node = world.nodes.iter().find(|node| node.name == active).unwrap();
            assert!(node.serves(*vbid).is_none(), "{vbid}");
            let log = node.disk.recorded_log(*vbid, record.epoch);
            assert!(log.is_some(), "{vbid}: the promoted copy is gone");
        }
    }
}
