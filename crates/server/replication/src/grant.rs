//! Grants: while grants of enough members run, no other copy can be promoted, so the active may
//! answer (R7).
//!
//! The active counts a grant from the moment at which it sent the beacon, the member from its
//! receipt. Clocks count time since boot and may run at rates of 0.9 to 1.1.

use std::collections::BTreeMap;

use crate::copies::{CopiesEpoch, CopyId};

/// How long the active uses a grant.
pub const GRANT_HELD_MS: u64 = 600;
/// How long a member gives it.
pub const GRANT_GIVEN_MS: u64 = 750;

// A member's clock at rate 1.1 against an active's at 0.9.
const _: () = assert!(GRANT_GIVEN_MS * 9 >= GRANT_HELD_MS * 11);

/// The grant that a member gave last.
#[derive(Clone, Copy, Debug)]
pub struct GivenGrant {
    until_ms: u64,
}

impl GivenGrant {
    /// A copy that starts does not know its grants, so it assumes one.
    pub fn at_start(now_ms: u64) -> GivenGrant {
        GivenGrant { until_ms: now_ms + GRANT_GIVEN_MS }
    }

    pub fn give(&mut self, now_ms: u64) {
        self.until_ms = self.until_ms.max(now_ms + GRANT_GIVEN_MS);
    }

    pub fn runs(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }
}

/// The grants that the active of an epoch holds.
#[derive(Clone, Debug, Default)]
pub struct HeldGrants {
    until_ms: BTreeMap<CopyId, u64>,
}

impl HeldGrants {
    /// A member granted the beacon that this copy sent at `sent_at_ms`.
    pub fn receive(&mut self, from: CopyId, sent_at_ms: u64) {
        let until_ms = self.until_ms.entry(from).or_default();
        *until_ms = (*until_ms).max(sent_at_ms + GRANT_HELD_MS);
    }

    pub fn runs(&self, member: CopyId, now_ms: u64) -> bool {
        self.until_ms.get(&member).is_some_and(|until_ms| now_ms < *until_ms)
    }
}

/// A grant counts only in its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServingGrant {
    pub epoch: CopiesEpoch,
    /// Of the beacon that it answers, by the active's clock.
    pub sent_at_ms: u64,
    /// The newest epoch whose record the member stores together with everything before it.
    pub stored_epoch: CopiesEpoch,
}
