//! What this machine charges for sharing.
//!
//! Owns: three figures. Two are the smallest of many short rounds, because whatever disturbs a
//! round makes it longer; a contended lock is cheapest when nobody contends, so that is the median.
//! What a hypervisor gives as two cores may be near each other at one moment and far at another, so
//! the caller measures several times.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

const ROUNDS: u64 = 200;
const STEPS: u64 = 5_000;

/// Nanoseconds, as of one moment.
pub struct Machine {
    /// A line moves from one core to another.
    pub transfer_ns: f64,
    /// A lock is taken and released, and no other core wants it.
    pub lock_ns: f64,
    /// The same while another core does so all the time.
    pub contended_lock_ns: f64,
}

/// A line of its own.
#[repr(align(128))]
struct Line<T>(T);

/// Measures for about a second.
pub fn measure() -> Machine {
    let lock = Line(Mutex::new(0_u64));
    let alone = shortest(|| add(&lock.0, STEPS));
    Machine {
        transfer_ns: transfer_ns(),
        lock_ns: alone / STEPS as f64,
        contended_lock_ns: contended_ns(&lock.0),
    }
}

/// Two threads answer each other over one line: a round trip moves it twice.
fn transfer_ns() -> f64 {
    let line = Line(AtomicU64::new(0));
    let wait_for = |value: u64| {
        while line.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..ROUNDS * STEPS {
                wait_for(step * 2 + 1);
                line.0.store(step * 2 + 2, Ordering::Release);
            }
        });
        let mut next = 0;
        let shortest = shortest(|| {
            for step in next..next + STEPS {
                line.0.store(step * 2 + 1, Ordering::Release);
                wait_for(step * 2 + 2);
            }
            next += STEPS;
        });
        shortest / (STEPS * 2) as f64
    })
}

fn contended_ns(lock: &Mutex<u64>) -> f64 {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let work = || {
            barrier.wait();
            // The middle one: in the shortest the other thread did not run.
            let rounds = rounds(&mut || add(lock, STEPS));
            rounds[rounds.len() / 2] / STEPS as f64
        };
        let other = scope.spawn(work);
        let ours = work();
        // The slower of the two had the other beside it all the time.
        other.join().map_or(ours, |theirs| ours.max(theirs))
    })
}

fn add(lock: &Mutex<u64>, steps: u64) {
    for _ in 0..steps {
        if let Ok(mut value) = lock.lock() {
            *value = std::hint::black_box(*value + 1);
        }
    }
}

/// Nanoseconds of the shortest of [`ROUNDS`] runs.
fn shortest(mut run: impl FnMut()) -> f64 {
    rounds(&mut run).first().copied().unwrap_or(f64::NAN)
}

/// Nanoseconds of each of [`ROUNDS`] runs, the shortest first.
fn rounds(run: &mut impl FnMut()) -> Vec<f64> {
    let timed = |_| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_nanos() as f64
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(timed).collect();
    rounds.sort_by(f64::total_cmp);
    rounds
}
