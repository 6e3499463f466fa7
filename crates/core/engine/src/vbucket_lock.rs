//! The lock of a vbucket's table and that of its queue: letting go of it is a plain store.
//!
//! Owns: the lock word and how threads wait for it. A write holds both locks for some dozen
//! instructions, and under them it stores to lines that other cores have. A lock of the usual kind
//! is released by an instruction that waits for all stores before it, so the writer would wait for
//! those lines although it needs nothing of them. Here the stores drain while the writer continues.
//!
//! The price: the releasing thread checks for sleepers before its store is visible, so it can miss
//! a thread that falls asleep at that moment. A thread therefore sleeps for [`SLEEP_MAX`] at most,
//! and then looks again. Apart from that the lock is like that of `parking_lot`: a waiter spins,
//! looking less and less often, then sleeps, and is given the lock from time to time if others
//! overtake it. To look more often takes the line from the holder: one hot key that is written gets
//! slower.
//!
//! Unsafe invariants, cited below by number:
//! 1. `is_held` is true from the moment a thread takes the lock to the moment it releases it; only
//!    a compare-exchange from false, or a hand-over, makes a thread the holder.
//! 2. Nothing is called under the parking lot's own locks that parks or panics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use parking_lot_core::{DEFAULT_PARK_TOKEN, ParkResult, SpinWait, UnparkResult, UnparkToken};

/// Longest sleep before a thread looks again.
const SLEEP_MAX: Duration = Duration::from_micros(200);

/// The woken thread may try to take the lock; other threads may as well.
const RELEASED: UnparkToken = UnparkToken(0);
/// The woken thread has the lock.
const HANDED_OVER: UnparkToken = UnparkToken(1);

/// The protected state, and the lock before it.
pub(crate) type VbucketLock<T> = lock_api::Mutex<RawVbucketLock, T>;
/// Access to the value that a [`VbucketLock`] protects.
pub(crate) type VbucketGuard<'a, T> = lock_api::MutexGuard<'a, RawVbucketLock, T>;

/// See the top of the file.
pub(crate) struct RawVbucketLock {
    is_held: AtomicBool,
    /// Threads may sleep. Cleared only under the parking lot's lock.
    has_sleepers: AtomicBool,
}

// SAFETY: (1) one thread at a time is the holder.
unsafe impl RawMutex for RawVbucketLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait's way to make a lock")]
    const INIT: RawVbucketLock =
        RawVbucketLock { is_held: AtomicBool::new(false), has_sleepers: AtomicBool::new(false) };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        debug_assert!(self.is_held.load(Ordering::Relaxed), "a lock is released by its holder (1)");
        if self.has_sleepers.load(Ordering::Relaxed) {
            self.unlock_contended();
        } else {
            self.is_held.store(false, Ordering::Release);
        }
    }
}

impl RawVbucketLock {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    fn lock_contended(&self) {
        let mut spin = SpinWait::new();
        loop {
            if !self.is_held.load(Ordering::Relaxed) {
                if self.try_lock() {
                    return;
                }
            } else if !spin.spin() {
                if self.sleep() {
                    return;
                }
                spin.reset();
            }
        }
    }

    /// Sleeps until the lock is free, or for a while. True: the lock was handed over to this
    /// thread.
    fn sleep(&self) -> bool {
        self.has_sleepers.store(true, Ordering::Relaxed);
        let is_to_sleep =
            || self.is_held.load(Ordering::Relaxed) && self.has_sleepers.load(Ordering::Relaxed);
        let timed_out = |_, was_last| {
            if was_last {
                self.has_sleepers.store(false, Ordering::Relaxed);
            }
        };
        let until = Instant::now() + SLEEP_MAX;
        // SAFETY: (2) the closures only load and store.
        let result = unsafe {
            parking_lot_core::park(
                self.address(),
                is_to_sleep,
                || {},
                timed_out,
                DEFAULT_PARK_TOKEN,
                Some(until),
            )
        };
        matches!(result, ParkResult::Unparked(HANDED_OVER))
    }

    #[cold]
    fn unlock_contended(&self) {
        let release = |result: UnparkResult| {
            debug_assert!(result.unparked_threads <= 1, "one thread is woken");
            if !result.have_more_threads {
                self.has_sleepers.store(false, Ordering::Relaxed);
            }
            if result.unparked_threads > 0 && result.be_fair {
                return HANDED_OVER;
            }
            self.is_held.store(false, Ordering::Release);
            RELEASED
        };
        // SAFETY: (2) the closure only loads and stores.
        unsafe { parking_lot_core::unpark_one(self.address(), release) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// The lock is held, and a thread that wants it sleeps or is about to.
    fn with_sleeper() -> (Arc<VbucketLock<u64>>, thread::JoinHandle<()>) {
        let lock = Arc::new(VbucketLock::new(0));
        std::mem::forget(lock.lock());
        let sleeper = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || *lock.lock() += 1)
        };
        // SAFETY: only the lock word is looked at.
        let raw = unsafe { lock.raw() };
        while !raw.has_sleepers.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        (lock, sleeper)
    }

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        const THREADS: u64 = 4;
        const TURNS: u64 = 20_000;
        let lock = VbucketLock::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 0..TURNS {
                        let mut counts = lock.lock();
                        counts.0 += 1;
                        // A holder that is away for long, so that others sleep.
                        if turn % 512 == 0 {
                            thread::yield_now();
                        }
                        counts.1 += 1;
                        assert_eq!(counts.0, counts.1, "two threads have the lock");
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * TURNS, THREADS * TURNS));
    }

    #[test]
    fn release_wakes_a_sleeping_waiter() {
        let (lock, sleeper) = with_sleeper();
        // SAFETY: the guard was forgotten above, so this thread has the lock.
        unsafe { lock.force_unlock() };
        sleeper.join().expect("it gets the lock");
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_sleeper_that_the_holder_has_missed_looks_again() {
        let (lock, sleeper) = with_sleeper();
        // SAFETY: only the lock word is changed, as by a holder that saw no sleeper.
        unsafe { lock.raw() }.is_held.store(false, Ordering::Release);
        sleeper.join().expect("it gets the lock");
        assert_eq!(*lock.lock(), 1);
    }
}
