//! Grace periods over the real threads: what is retired is released once, and not before.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::{RETIRED_MAX, ReadSection, RetiredBlock, retire, settle};

struct Probe(AtomicUsize);

fn probe() -> Arc<Probe> {
    Arc::new(Probe(AtomicUsize::new(0)))
}

impl Probe {
    fn released(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// # Safety
/// The address is that of a leaked probe.
unsafe fn release(address: NonNull<u8>, _bytes: usize) {
    // SAFETY: the caller's promise.
    let probe = unsafe { Arc::from_raw(address.as_ptr().cast_const().cast::<Probe>()) };
    probe.0.fetch_add(1, Ordering::SeqCst);
}

fn retire_probe(probe: &Arc<Probe>, bytes: usize) {
    let address = NonNull::new(Arc::into_raw(Arc::clone(probe)).cast_mut().cast());
    let address = address.expect("an Arc is not null");
    // SAFETY: (1) the leaked count is given up.
    unsafe { retire(RetiredBlock { address, bytes, release }) }
}

/// Other tests of this process read as well, briefly.
fn settle_until(is_over: impl Fn() -> bool) {
    while !is_over() {
        settle();
        std::thread::yield_now();
    }
}

/// A thread that has a section open until the returned sender is dropped.
fn reader() -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let section = ReadSection::open();
        ready.send(()).expect("the test waits");
        let _ = stopped.recv();
        drop(section);
    });
    is_ready.recv().expect("the reader begins");
    (stop, thread)
}

#[test]
fn unread_memory_is_released_at_the_next_look() {
    let probe = probe();
    retire_probe(&probe, 1);
    settle_until(|| probe.released() == 1);
    settle();
    assert_eq!(probe.released(), 1);
}

#[test]
fn a_reading_thread_delays_reuse_of_retired_blocks() {
    let probe = probe();
    let (stop, thread) = reader();
    retire_probe(&probe, 1);
    for _ in 0..100 {
        settle();
    }
    assert_eq!(probe.released(), 0, "a reader may still have it");
    drop(stop);
    thread.join().expect("the reader ends");
    settle_until(|| probe.released() == 1);
}

#[test]
fn a_reader_that_began_later_keeps_nothing() {
    let probe = probe();
    let (first, first_thread) = reader();
    retire_probe(&probe, 1);
    settle();
    let (second, second_thread) = reader();
    drop(first);
    first_thread.join().expect("the reader ends");
    // Only readers of other tests may be in the way, and these end.
    settle_until(|| probe.released() == 1);
    drop(second);
    second_thread.join().expect("the reader ends");
}

#[test]
fn the_own_section_keeps_it_and_its_end_releases_it() {
    let probe = probe();
    let outer = ReadSection::open();
    let inner = ReadSection::open();
    retire_probe(&probe, 1);
    drop(inner);
    settle();
    assert_eq!(probe.released(), 0, "the outer section is open");
    drop(outer);
    settle_until(|| probe.released() == 1);
}

#[test]
fn much_that_waits_is_looked_at_without_being_asked() {
    let probe = probe();
    // its own thread: what it has retired is not looked at by others before it ends.
    let retiring = Arc::clone(&probe);
    std::thread::spawn(move || {
        while retiring.released() <= RETIRED_MAX {
            retire_probe(&retiring, 1);
        }
    })
    .join()
    .expect("it looks by itself");
}

#[test]
fn other_threads_release_an_ended_threads_blocks() {
    let probe = probe();
    let (stop, thread) = reader();
    let retiring = Arc::clone(&probe);
    std::thread::spawn(move || retire_probe(&retiring, 1)).join().expect("it only retires");
    assert_eq!(probe.released(), 0, "the reader may have it");
    drop(stop);
    thread.join().expect("the reader ends");
    settle_until(|| probe.released() == 1);
}

/// A destructor of a thread that runs when the state of this module is gone.
struct ThreadExitProbe(Cell<Option<Arc<Probe>>>);

impl Drop for ThreadExitProbe {
    fn drop(&mut self) {
        if let Some(probe) = self.0.take() {
            retire_probe(&probe, 1);
        }
    }
}

thread_local! {
    static LATE: ThreadExitProbe = const { ThreadExitProbe(Cell::new(None)) };
}

#[test]
fn destructors_of_threads_retire_as_well() {
    let probe = probe();
    let given = Arc::clone(&probe);
    std::thread::spawn(move || {
        // Made first, so destroyed last, or the other way round: both orders are fine.
        LATE.with(|late| late.0.set(Some(given)));
        drop(ReadSection::open());
    })
    .join()
    .expect("it ends");
    settle_until(|| probe.released() == 1);
}
