//! Conformance suite of backends: named checks and random operations against a model.
//!
//! Owns: the meaning of the [`KvStore`](crate::KvStore) trait as executable checks. A backend
//! passes when [`run`] returns; a check that fails panics with its name and, for the random part,
//! the seed that repeats it. Invariant: the suite sees a backend through [`Medium`] and the trait
//! only, so that the log store, the store in memory and one behind a network are checked alike.
//! Callers: the tests of each backend, and canaries that prove that mutants are found. It does not
//! cover crashes in the middle of a commit; backends with files test those themselves.

mod checks;
mod commits;
pub(crate) mod fixture;
mod key_scans;
mod lookups;
mod medium;
pub(crate) mod model;
mod random;
mod seqno_scans;
#[cfg(test)]
mod tests;

use oribi_types::Vbid;

use crate::{SharedStore, StoreError, VbucketState};

pub use medium::Medium;
pub use random::run_random;

/// Seeds of the random part. Few, because a change in the suite should not make it slow; a backend
/// that wants more calls [`run_random`] itself.
const SEEDS: [u64; 3] = [1, 0x5eed, 0xdead_beef];

const OPERATIONS: usize = 120;

/// Takes vbuckets over and returns their states, for tests that do not serve in between.
///
/// # Errors
/// The store's; `Io` when an earlier owner has written since.
pub fn take_over(
    store: &dyn SharedStore,
    vbuckets: &[Vbid],
) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
    let mut taken = Vec::new();
    let overtaken = store.take_over(vbuckets, &mut |_, states| taken.extend(states))?;
    match overtaken.first() {
        None => Ok(taken),
        Some(vbid) => Err(StoreError::Io(format!("{vbid} was written by an earlier owner"))),
    }
}

/// Runs the whole suite. `make` gives a fresh empty medium for each check.
///
/// # Panics
/// When a check fails: that is its answer.
pub fn run(make: &dyn Fn() -> Box<dyn Medium>) {
    for (name, check) in checks::CHECKS {
        eprintln!("conformance: {name}");
        check(make().as_ref());
    }
    for seed in SEEDS {
        eprintln!("conformance: random operations, seed {seed:#x}");
        run_random(make().as_ref(), seed, OPERATIONS);
    }
}
