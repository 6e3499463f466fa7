//! Linearizability of one register: all orders of its open operations that its answers allow.

use std::collections::{BTreeMap, BTreeSet};

/// More configurations than this are not followed; the register is not checked any longer.
const CONFIGURATIONS_MAX: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegisterCall {
    Read,
    /// Leaves a value behind: what was written, or 0 for a deletion.
    Write {
        value: u64,
    },
    /// Takes effect only where it finds the expected value.
    Swap {
        expected: u64,
        value: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Register {
    open: BTreeMap<u64, RegisterCall>,
    /// The value, and open operations that took effect, each with the value before.
    configurations: BTreeSet<(u64, BTreeMap<u64, u64>)>,
    pub(super) is_checked: bool,
}

impl Register {
    pub(super) fn new() -> Register {
        Register {
            open: BTreeMap::new(),
            configurations: BTreeSet::from([(0, BTreeMap::new())]),
            is_checked: true,
        }
    }

    pub(super) fn called(&mut self, id: u64, call: RegisterCall) {
        self.open.insert(id, call);
    }

    /// The operation did nothing.
    pub(super) fn rejected(&mut self, id: u64) {
        self.open.remove(&id);
        self.configurations.retain(|(_, applied)| !applied.contains_key(&id));
        assert!(!self.is_checked || !self.configurations.is_empty(), "a rejected write had effect");
    }

    /// The operation took effect between its call and now, and a read saw `value`.
    pub(super) fn returned(&mut self, id: u64, value: Option<u64>) {
        if !self.is_checked {
            return;
        }
        let mut reached: BTreeSet<_> = std::mem::take(&mut self.configurations);
        let mut frontier: Vec<_> = reached.iter().cloned().collect();
        while let Some((current, applied)) = frontier.pop() {
            if applied.contains_key(&id) {
                continue;
            }
            for (other, call) in &self.open {
                if applied.contains_key(other) {
                    continue;
                }
                let next = match *call {
                    RegisterCall::Read => current,
                    RegisterCall::Write { value } => value,
                    RegisterCall::Swap { expected, .. } if expected != current => continue,
                    RegisterCall::Swap { value, .. } => value,
                };
                let mut applied = applied.clone();
                applied.insert(*other, current);
                if reached.insert((next, applied.clone())) {
                    frontier.push((next, applied));
                }
            }
            if reached.len() > CONFIGURATIONS_MAX {
                self.is_checked = false;
                return;
            }
        }
        self.open.remove(&id);
        let with_it = reached.into_iter().filter_map(|(current, mut applied)| {
            let before = applied.remove(&id)?;
            let is_seen = value.is_none_or(|value| value == before);
            is_seen.then_some((current, applied))
        });
        self.configurations = with_it.collect();
        assert!(
            !self.configurations.is_empty(),
            "not linearizable: operation {id} returned {value:?}"
        );
    }
}

#[test]
fn a_stale_read_is_not_linearizable() {
    let run = |seen| {
        let mut register = Register::new();
        register.called(1, RegisterCall::Write { value: 1 });
        register.returned(1, None);
        register.called(2, RegisterCall::Write { value: 2 });
        register.returned(2, None);
        register.called(3, RegisterCall::Read);
        register.returned(3, Some(seen));
    };
    run(2);
    assert!(std::panic::catch_unwind(|| run(1)).is_err());
}

#[test]
fn a_write_without_answer_may_be_seen_or_not() {
    let mut register = Register::new();
    register.called(1, RegisterCall::Write { value: 1 });
    for (id, seen) in [(2, 0), (3, 1)] {
        register.called(id, RegisterCall::Read);
        register.returned(id, Some(seen));
    }
    register.called(4, RegisterCall::Read);
    assert!(std::panic::catch_unwind(move || register.returned(4, Some(0))).is_err());
}
