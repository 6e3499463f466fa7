//! Pauses between attempts: they double up to a limit, and are spread by chance.
//!
//! Owns no clock and waits for nothing; callers sleep. The spread keeps many clients that lost the
//! same server from coming back to it all in the same moment.

use std::time::Duration;

/// Pauses that double from a first one up to a largest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts with about `first`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, next: first }
    }

    /// The next pause: between half of the nominal one and all of it.
    pub fn pause(&mut self) -> Duration {
        // Without randomness all clients pause equally, which is a nuisance and no error.
        self.pause_by_chance(getrandom::u32().unwrap_or(u32::MAX))
    }

    fn pause_by_chance(&mut self, chance: u32) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(self.max);
        half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }

    /// Starts over with the first pause.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    //! Pauses grow, stop growing, and differ.

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn pauses_double_up_to_the_largest() {
        let mut backoff = Backoff::new(MS(10), MS(35));
        let longest: Vec<Duration> = (0..4).map(|_| backoff.pause_by_chance(u32::MAX)).collect();
        assert_eq!(longest, [MS(10), MS(20), MS(35), MS(35)]);
        backoff.reset();
        assert_eq!(backoff.pause_by_chance(0), MS(5));
        assert_eq!(backoff.pause_by_chance(0), MS(10));
    }

    #[test]
    fn chance_spreads_pauses() {
        let pauses: Vec<Duration> =
            (0..100).map(|_| Backoff::new(MS(10), MS(10)).pause()).collect();
        assert!(pauses.iter().all(|pause| (MS(5)..=MS(10)).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
