//! When a [`super::FaultStore`] fails, and how.
//!
//! Owns: the count of commits and the faults assigned to them. Invariant: a plan made from the same
//! seed, asked in the same order, gives the same faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{SeededRandom, StoreError};

/// How one commit fails. In each case the caller gets an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFault {
    /// Nothing of it reaches the inner store.
    BeforeCommit,
    /// All of it is in the inner store: the error came after the data.
    AfterCommit,
    /// Nothing of it reaches the inner store, because the disk is full.
    NoSpace,
    /// The inner store has all but the last `dropped` batches of the group.
    Torn {
        /// How many batches are missing.
        dropped: usize,
    },
}

/// Called with the commit's number before the commit; it may block for as long as a test wants.
type Hook = Arc<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
struct PlanState {
    memory_bytes: u64,
    commits: u64,
    injected: u64,
    at: BTreeMap<u64, StoreFault>,
    from: Option<(u64, StoreFault)>,
    failing_group: Option<usize>,
    random: Option<(SeededRandom, u32)>,
    fails_other_writes: bool,
    is_away: bool,
    gets: u64,
    fails_gets: bool,
    fails_loads: bool,
    /// Records that scans by seqno may still show, when they are to fail.
    scan_credit: Option<u64>,
    hook: Option<Hook>,
}

/// Faults to come. Commits are counted from 1, over all stores that share the plan.
#[derive(Default)]
pub struct FaultPlan {
    state: Mutex<PlanState>,
}

impl FaultPlan {
    /// A plan without faults, to add some to.
    pub fn none() -> Arc<FaultPlan> {
        Arc::default()
    }

    /// A plan in which each commit fails with a probability of `per_mille` in 1000, in a way that
    /// `seed` decides.
    pub fn seeded(seed: u64, per_mille: u32) -> Arc<FaultPlan> {
        let random = Some((SeededRandom::new(seed), per_mille));
        assert!(per_mille <= 1000, "a probability is in 1000");
        Arc::new(FaultPlan { state: Mutex::new(PlanState { random, ..PlanState::default() }) })
    }

    /// The store's need of memory.
    pub fn need_memory(&self, bytes: u64) {
        self.state.lock().memory_bytes = bytes;
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.state.lock().memory_bytes
    }

    /// Makes commit `number` fail.
    pub fn fail_commit(&self, number: u64, fault: StoreFault) {
        assert!(number > 0, "commits are counted from 1");
        self.state.lock().at.insert(number, fault);
    }

    /// Makes commit `number` and all later ones fail.
    pub fn fail_from(&self, number: u64, fault: StoreFault) {
        assert!(number > 0, "commits are counted from 1");
        self.state.lock().from = Some((number, fault));
    }

    /// Makes every commit that begins with a vbucket of this group fail, or lets them pass again.
    pub fn fail_group(&self, group: Option<usize>) {
        self.state.lock().failing_group = group;
    }

    /// Makes every write that is not a commit fail, or lets them pass again.
    pub fn fail_other_writes(&self, fails: bool) {
        self.state.lock().fails_other_writes = fails;
    }

    /// Makes every look-up by key fail, or lets them pass again.
    pub fn fail_gets(&self, fails: bool) {
        self.state.lock().fails_gets = fails;
    }

    /// Makes every load of a part fail, or lets them pass again.
    pub fn fail_loads(&self, fails: bool) {
        self.state.lock().fails_loads = fails;
    }

    pub(super) fn check_load(&self) -> Result<(), StoreError> {
        match self.state.lock().fails_loads {
            true => Err(StoreError::Io("injected: load_part".to_owned())),
            false => Ok(()),
        }
    }

    /// Makes scans by seqno fail once they have shown so many more records between them, or lets
    /// them pass again.
    pub fn fail_scans_after(&self, records: Option<u64>) {
        self.state.lock().scan_credit = records;
    }

    /// Makes every look-up fail as one of a store that does not answer does, or none.
    pub fn be_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    /// Look-ups so far; one of many documents counts once.
    pub fn gets(&self) -> u64 {
        self.state.lock().gets
    }

    /// Calls `hook` before each commit, to hold it back or to look at it.
    pub fn before_commits(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        self.state.lock().hook = Some(Arc::new(hook));
    }

    /// Forgets all faults and the hook; the count continues.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        let (commits, injected) = (state.commits, state.injected);
        *state = PlanState { commits, injected, ..PlanState::default() };
    }

    /// Commits so far, failed ones included.
    pub fn commits(&self) -> u64 {
        self.state.lock().commits
    }

    /// Commits that failed by plan.
    pub fn injected_failures(&self) -> u64 {
        self.state.lock().injected
    }

    /// Counts a commit that begins with a vbucket of `group`, runs the hook and decides its fate.
    pub(super) fn next_commit(&self, group: Option<usize>) -> (u64, Option<StoreFault>) {
        let (number, hook) = {
            let mut state = self.state.lock();
            state.commits += 1;
            (state.commits, state.hook.clone())
        };
        // Outside the lock: a hook that holds a commit back must not stop the test from healing.
        if let Some(hook) = hook {
            hook(number);
        }
        let mut state = self.state.lock();
        let is_of_failing = group.is_some() && group == state.failing_group;
        let of_group = is_of_failing.then_some(StoreFault::BeforeCommit);
        let fault = of_group.or_else(|| state.fault_of(number));
        state.injected += u64::from(fault.is_some());
        assert!(state.injected <= state.commits, "a commit fails once");
        (number, fault)
    }

    pub(super) fn check_get(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.gets += 1;
        match (state.is_away, state.fails_gets) {
            (true, _) => Err(StoreError::Away("injected: no answer".to_owned())),
            (false, true) => Err(StoreError::Io("injected: I/O error at get".to_owned())),
            (false, false) => Ok(()),
        }
    }

    /// Fails when scans may show nothing more; else takes `records` of what they may.
    pub(super) fn check_scan(&self, records: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(credit) = &mut state.scan_credit else { return Ok(()) };
        if *credit == 0 {
            return Err(StoreError::Io("injected: I/O error at a scan".to_owned()));
        }
        *credit -= records;
        Ok(())
    }

    pub(super) fn check_other_write(&self, what: &str) -> Result<(), StoreError> {
        match self.state.lock().fails_other_writes {
            true => Err(StoreError::Io(format!("injected: I/O error at {what}"))),
            false => Ok(()),
        }
    }
}

impl PlanState {
    fn fault_of(&mut self, number: u64) -> Option<StoreFault> {
        let planned = self.at.get(&number).copied();
        let lasting = self.from.filter(|(from, _)| number >= *from).map(|(_, fault)| fault);
        planned.or(lasting).or_else(|| self.random_fault())
    }

    fn random_fault(&mut self) -> Option<StoreFault> {
        let (random, per_mille) = self.random.as_mut()?;
        if random.below(1000) >= u64::from(*per_mille) {
            return None;
        }
        Some(match random.below(4) {
            0 => StoreFault::BeforeCommit,
            1 => StoreFault::AfterCommit,
            2 => StoreFault::NoSpace,
            _ => StoreFault::Torn { dropped: 1 + random.below(3) as usize },
        })
    }
}
