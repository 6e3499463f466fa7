//! Random lives of the budget against a model that counts everything anew after each step.

use std::collections::{BTreeSet, VecDeque};

use oribi_storage::SeededRandom;

use super::{BlockKey, Budget, Demand, Grant};

const LIMIT: usize = 100;
const SEEDS: u64 = 300;
const STEPS: usize = 200;

fn block(number: usize) -> BlockKey {
    BlockKey { address: number, cas: 1 }
}

/// The bytes of a block follow from its key, as those of a version do.
fn demand(random: &mut SeededRandom) -> Demand {
    match random.below(2) {
        0 => Demand::of_bytes(1 + random.below(60) as usize),
        _ => {
            let number = random.below(4) as usize;
            Demand { bytes: 20 + 25 * number, block: Some(block(number)) }
        }
    }
}

/// Reservations and waiters, as a list.
#[derive(Default)]
struct Model {
    held: Vec<Grant>,
    queue: VecDeque<(u32, Demand)>,
}

impl Model {
    fn reserved_bytes(&self) -> usize {
        let mut blocks = BTreeSet::new();
        let bytes = self.held.iter().map(|grant| match grant {
            Grant::Bytes(bytes) => *bytes,
            Grant::Block(key) if blocks.insert(key.address) => 20 + 25 * key.address,
            Grant::Block(_) => 0,
        });
        bytes.sum()
    }

    fn fits(&self, demand: Demand) -> bool {
        let is_held = |key| self.held.contains(&Grant::Block(key));
        demand.block.is_some_and(is_held) || self.reserved_bytes() + demand.bytes <= LIMIT
    }

    fn take(&mut self, demand: Demand) -> Grant {
        let grant = demand.block.map_or(Grant::Bytes(demand.bytes), Grant::Block);
        self.held.push(grant);
        grant
    }

    fn grant(&mut self) -> Vec<(u32, Grant)> {
        let mut granted = Vec::new();
        while let Some((waiter, demand)) = self.queue.front().copied() {
            if !self.fits(demand) {
                break;
            }
            self.queue.pop_front();
            granted.push((waiter, self.take(demand)));
            let mut others = VecDeque::new();
            for (waiter, other) in std::mem::take(&mut self.queue) {
                match demand.block.is_some() && other.block == demand.block {
                    true => granted.push((waiter, self.take(demand))),
                    false => others.push_back((waiter, other)),
                }
            }
            self.queue = others;
        }
        granted
    }
}

// Invariant: Readers that send one version share one reservation, grants follow the queue, and the
// sum keeps the limit.
#[test]
fn random_lives_equal_the_model_within_the_limit() {
    for seed in 0..SEEDS {
        let mut random = SeededRandom::new(seed);
        let (mut budget, mut model) = (Budget::default(), Model::default());
        for step in 0..STEPS {
            match random.below(5) {
                0 | 1 => {
                    let (waiter, demand) = (step as u32, demand(&mut random));
                    let grant = budget.reserve(demand, LIMIT);
                    let fits = model.queue.is_empty() && model.fits(demand);
                    assert_eq!(grant.is_some(), fits, "seed {seed}, step {step}");
                    match grant {
                        Some(grant) => assert_eq!(model.take(demand), grant),
                        None => {
                            budget.wait(waiter, demand);
                            model.queue.push_back((waiter, demand));
                        }
                    }
                }
                2 if !model.queue.is_empty() => {
                    let at = random.below(model.queue.len() as u64) as usize;
                    let (gone, _) = model.queue.remove(at).unwrap();
                    budget.leave(|waiter| *waiter == gone);
                }
                _ if !model.held.is_empty() => {
                    let at = random.below(model.held.len() as u64) as usize;
                    budget.release(model.held.swap_remove(at));
                }
                _ => {}
            }
            let mut granted = Vec::new();
            budget.grant(LIMIT, LIMIT, |waiter, grant| granted.push((waiter, grant)));
            assert_eq!(granted, model.grant(), "seed {seed}, step {step}");
            assert_eq!(budget.reserved_bytes(), model.reserved_bytes(), "seed {seed}, step {step}");
            assert_eq!(budget.queued(), model.queue.len());
            assert!(budget.reserved_bytes() <= LIMIT, "seed {seed}, step {step}");
        }
        // When every holder leaves, every waiter is granted, and nothing stays reserved.
        while let Some(grant) = model.held.pop() {
            budget.release(grant);
            budget.grant(LIMIT, LIMIT, |_, grant| model.held.push(grant));
        }
        assert_eq!((budget.reserved_bytes(), budget.queued()), (0, 0), "seed {seed}");
    }
}

// Invariant: Readers that send one version share one reservation, grants follow the queue, and the
// sum keeps the limit.
#[test]
fn readers_of_one_block_do_not_starve_another() {
    let mut budget = Budget::default();
    let (first, second) = (block(1), block(2));
    let of = |key| Demand { bytes: 60, block: Some(key) };
    assert_eq!(budget.reserve(of(first), LIMIT), Some(Grant::Block(first)));
    assert_eq!(budget.reserve(of(first), LIMIT), Some(Grant::Block(first)), "it is shared");
    assert_eq!(budget.reserve(of(second), LIMIT), None);
    budget.wait('s', of(second));
    assert_eq!(budget.reserve(of(first), LIMIT), None, "another reader waits");
    budget.wait('f', of(first));
    budget.wait('t', of(second));
    let mut granted = Vec::new();
    budget.release(Grant::Block(first));
    budget.grant(LIMIT, LIMIT, |waiter, _| granted.push(waiter));
    assert!(granted.is_empty(), "a holder is left");
    budget.release(Grant::Block(first));
    budget.grant(LIMIT, LIMIT, |waiter, _| granted.push(waiter));
    assert_eq!(granted, ['s', 't']);
}
