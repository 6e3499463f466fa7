//! Rates per second, as monitors of Couchbase Server read them.
//!
//! Owns: two readings of each set of counters. A rate is the difference of the two, so a monitor
//! that asks every ten seconds gets the averages of these ten. Invariants: the readings are at
//! least a second apart, so several monitors disturb each other little; the first reading is
//! compared with zero at the start of the server. Nothing runs while no monitor asks. Caller:
//! `monitoring`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Least time between two readings.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Counters by name. The names of a set never change.
pub(super) type OperationCounts = Vec<(&'static str, u64)>;

/// The rates of a set of counters.
#[derive(Default)]
pub(super) struct OperationRates {
    /// The time that they are averages of.
    pub(super) seconds: f64,
    by_name: Vec<(&'static str, f64)>,
}

/// The readings of all sets.
pub(super) struct RateMeter {
    started: Instant,
    sets: Mutex<HashMap<String, Readings>>,
}

struct Readings {
    earlier: Option<Reading>,
    latest: Reading,
}

struct Reading {
    at: Instant,
    counts: OperationCounts,
}

impl RateMeter {
    pub(super) fn new(started: Instant) -> RateMeter {
        RateMeter { started, sets: Mutex::default() }
    }

    /// Adds a reading of the set `name`, unless the last one is too young, and returns the rates.
    pub(super) fn read(&self, name: &str, at: Instant, counts: OperationCounts) -> OperationRates {
        let mut sets = self.sets.lock();
        let reading = Reading { at, counts };
        if !sets.contains_key(name) {
            sets.insert(name.to_owned(), Readings { earlier: None, latest: reading });
        } else if let Some(readings) = sets.get_mut(name)
            && at.saturating_duration_since(readings.latest.at) >= INTERVAL_MIN
        {
            readings.earlier = Some(std::mem::replace(&mut readings.latest, reading));
        }
        sets.get(name).map(|readings| readings.rates(self.started)).unwrap_or_default()
    }

    /// Forgets every set that is not among `names`.
    pub(super) fn retain(&self, names: &[&str]) {
        self.sets.lock().retain(|name, _| names.contains(&name.as_str()));
    }
}

impl Readings {
    fn rates(&self, started: Instant) -> OperationRates {
        let since = self.earlier.as_ref().map_or(started, |earlier| earlier.at);
        let seconds = self.latest.at.saturating_duration_since(since).as_secs_f64().max(0.001);
        debug_assert!(seconds > 0.0, "a rate is over a time");
        let earlier = self.earlier.as_ref().map_or(&[][..], |earlier| &earlier.counts);
        let before = |index: usize| earlier.get(index).map_or(0, |(_, count)| *count);
        let rate = |(index, (name, count)): (usize, &(&'static str, u64))| {
            debug_assert!(
                earlier.get(index).is_none_or(|(other, _)| other == name),
                "readings list the same counters"
            );
            // Counters are summed over threads, one after the other.
            (*name, count.saturating_sub(before(index)) as f64 / seconds)
        };
        OperationRates {
            seconds,
            by_name: self.latest.counts.iter().enumerate().map(rate).collect(),
        }
    }
}

impl OperationRates {
    /// The rate of one counter; 0 for one that the set does not have.
    pub(super) fn of(&self, name: &str) -> f64 {
        self.by_name.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, rate)| *rate)
    }

    pub(super) fn all(&self) -> &[(&'static str, f64)] {
        &self.by_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Compat (Figures for monitors): rates (`opsPerSec`, `interestingStats`, samples)
    #[test]
    fn a_rate_is_the_difference_of_two_readings() {
        let started = Instant::now();
        let at = |ms: u64| started + Duration::from_millis(ms);
        let meter = RateMeter::new(started);
        let read = |ms: u64, gets: u64| meter.read("b", at(ms), vec![("get", gets)]).of("get");
        assert_eq!(read(2_000, 10), 5.0, "the first is compared with the start");
        assert_eq!(read(2_500, 90), 5.0, "two readings are a second apart");
        assert_eq!(read(12_000, 110), 10.0);
        assert_eq!(read(13_000, 110), 0.0);
        assert_eq!(meter.read("other", at(500), vec![("get", 1)]).of("get"), 2.0);
    }

    #[test]
    fn sets_of_dropped_buckets_are_forgotten() {
        let started = Instant::now();
        let meter = RateMeter::new(started);
        for name in ["a", "b"] {
            meter.read(name, started + INTERVAL_MIN, vec![("get", 1)]);
        }
        meter.retain(&["b"]);
        assert_eq!(meter.sets.lock().keys().collect::<Vec<_>>(), ["b"]);
    }
}
