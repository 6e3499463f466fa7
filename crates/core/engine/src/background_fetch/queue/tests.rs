//! Answers to the waiters of a fetch, by hand and with threads that sleep.

use std::time::Instant;

use oribi_testkit::PATIENCE;

use super::*;

#[derive(Default)]
struct RecordingSink(Mutex<Vec<(u64, FetchOutcome)>>);

impl FetchSink for RecordingSink {
    fn fetched(&self, token: u64, outcome: FetchOutcome) {
        self.0.lock().push((token, outcome));
    }
}

struct Fixture {
    queue: FetchQueue,
    told: Arc<RecordingSink>,
}

const READY: KeyOutcome = KeyOutcome::Over(FetchOutcome::Ready);

impl Fixture {
    fn new(fetchers: usize) -> Fixture {
        let fixture = Fixture { queue: FetchQueue::default(), told: Arc::default() };
        fixture.queue.share_among(fetchers);
        fixture
    }

    fn ask(&self, key: u16, token: u64) {
        let sink: Arc<dyn FetchSink> = Arc::clone(&self.told) as Arc<dyn FetchSink>;
        self.queue.ask(wanted(key), FetchWaiter::new(&sink, token));
    }

    fn take(&self) -> FetchBatch {
        self.queue.take().0
    }

    fn told(&self) -> Vec<(u64, FetchOutcome)> {
        std::mem::take(&mut *self.told.0.lock())
    }

    fn state(&self) -> (usize, usize, usize) {
        let state = self.queue.state.lock();
        (state.order.len() + state.large.len(), state.entries.len(), state.waiting)
    }
}

fn wanted(key: u16) -> FetchKey {
    FetchKey::new(Vbid(key), DocKey { collection: CollectionId::DEFAULT, key: &key.to_be_bytes() })
}

fn keys(batch: &FetchBatch) -> Vec<u16> {
    batch.wanted.iter().map(|wanted| wanted.vbid.0).collect()
}

#[test]
fn joins_a_read_in_progress() {
    let fixture = Fixture::new(2);
    fixture.ask(1, 10);
    let batch = fixture.take();
    fixture.ask(1, 11);
    assert!(fixture.queue.is_idle(), "it is being read");
    assert!(fixture.take().wanted.is_empty());
    assert_eq!(fixture.queue.finish(batch, &[READY]), 2);
    assert_eq!(fixture.told(), [(10, FetchOutcome::Ready), (11, FetchOutcome::Ready)]);
    assert_eq!(fixture.state(), (0, 0, 0));
    fixture.ask(1, 12);
    assert_eq!(keys(&fixture.take()), [1], "later ones need a read of their own");
}

#[test]
fn fetchers_share_what_is_queued() {
    let fixture = Fixture::new(4);
    (0..100).for_each(|key| fixture.ask(key, u64::from(key)));
    let lengths = || fixture.take().wanted.len();
    assert_eq!([lengths(), lengths(), lengths()], [25, 19, 14]);
    let rest: Vec<usize> = std::iter::repeat_with(lengths).take_while(|len| *len > 0).collect();
    assert_eq!(rest.iter().sum::<usize>(), 42);
    assert!(rest.iter().all(|len| *len <= 11), "{rest:?}");
    let fixture = Fixture::new(4);
    (0..8).for_each(|key| fixture.ask(key, 0));
    assert_eq!(fixture.take().wanted.len(), 8, "a few are not worth another fetcher");
}

#[test]
fn unread_documents_come_first_large_ones_alone() {
    let fixture = Fixture::new(1);
    (1..=5).for_each(|key| fixture.ask(key, u64::from(key)));
    let batch = fixture.take();
    fixture.ask(6, 6);
    let findings =
        [KeyOutcome::Large, READY, KeyOutcome::Unread, KeyOutcome::Large, KeyOutcome::Unread];
    assert_eq!(fixture.queue.finish(batch, &findings), 1);
    assert_eq!(fixture.told(), [(2, FetchOutcome::Ready)]);
    let large = fixture.take();
    assert!(large.is_large && large.wanted.len() == 1);
    let small = fixture.take();
    assert_eq!(keys(&small), [3, 5, 6]);
    assert!(!small.is_large && fixture.queue.is_idle(), "one large one at a time");
    fixture.queue.finish(small, &[READY; 3]);
    fixture.queue.finish(large, &[READY]);
    let large = fixture.take();
    assert!(large.is_large);
    fixture.queue.finish(large, &[READY]);
    assert_eq!(fixture.told().len(), 5);
    assert_eq!(fixture.state(), (0, 0, 0));
}

// Invariant: A request that waits for an evicted document is completed once.
/// Whatever is being read when all give up, its waiters were told then, and those that come
/// afterwards are told by a later read.
#[test]
fn abandoned_fetch_is_answered_once() {
    for finding in [READY, KeyOutcome::Unread, KeyOutcome::Large] {
        let fixture = Fixture::new(2);
        (1..=3).for_each(|key| fixture.ask(key, u64::from(key)));
        let batch = fixture.take();
        fixture.ask(4, 4);
        assert_eq!(fixture.queue.give_up(), 4);
        assert!(fixture.told().iter().all(|(_, outcome)| *outcome == FetchOutcome::Failed));
        fixture.ask(2, 20);
        assert_eq!(fixture.queue.finish(batch, &[finding; 3]), 0);
        assert!(fixture.told().is_empty());
        let batch = fixture.take();
        assert_eq!(keys(&batch), [2]);
        fixture.queue.finish(batch, &[READY]);
        assert_eq!(fixture.told(), [(20, FetchOutcome::Ready)]);
        assert_eq!(fixture.state(), (0, 0, 0));
    }
}

#[test]
fn a_closed_queue_keeps_nobody() {
    for finding in [READY, KeyOutcome::Unread, KeyOutcome::Large] {
        let fixture = Fixture::new(2);
        fixture.ask(1, 1);
        let batch = fixture.take();
        fixture.ask(2, 2);
        fixture.queue.close();
        fixture.ask(3, 3);
        fixture.queue.finish(batch, &[finding]);
        let mut told = fixture.told();
        told.sort_by_key(|(token, _)| *token);
        assert_eq!(told, [1, 2, 3].map(|token| (token, FetchOutcome::Failed)));
        assert_eq!(fixture.state(), (0, 0, 0));
        assert!(fixture.queue.is_idle());
    }
}

#[test]
fn waiters_beyond_the_bound_get_busy() {
    let fixture = Fixture::new(1);
    fixture.ask(1, 0);
    let batch = fixture.take();
    (1..WAITING_MAX as u64).for_each(|token| fixture.ask(1, token));
    fixture.ask(2, 99_999);
    assert!(!fixture.queue.is_idle(), "somebody has to be told");
    let (next, told) = fixture.queue.take();
    assert_eq!((next.wanted.len(), told), (0, 1));
    assert_eq!(fixture.told(), [(99_999, FetchOutcome::Failed)], "at once");
    assert_eq!(fixture.queue.finish(batch, &[READY]), WAITING_MAX);
    assert_eq!(fixture.state(), (0, 0, 0));
}

/// Ends the threads that fetch, also when a check fails: the scope waits for them.
struct StopFetchers<'f>(&'f FetchQueue, &'f AtomicBool);

impl Drop for StopFetchers<'_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
        let asleep = std::mem::take(&mut self.0.state.lock().asleep);
        asleep.iter().for_each(Thread::unpark);
    }
}

/// A fetcher that is about to sleep when a key comes does not sleep.
#[test]
fn no_key_waits_for_a_fetcher_that_sleeps() {
    let (fixture, stop) = (Fixture::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stopped = StopFetchers(&fixture.queue, &stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let batch = fixture.take();
                    let findings = vec![READY; batch.wanted.len()];
                    if fixture.queue.finish(batch, &findings) == 0 {
                        fixture.queue.sleep(&stop);
                    }
                }
            });
        }
        for token in 0..20_000 {
            fixture.ask((token % 100) as u16, token);
            let deadline = Instant::now() + PATIENCE;
            while (token % 8 == 0 || token == 19_999) && fixture.state().2 > 0 {
                assert!(Instant::now() < deadline, "nobody wakes");
                std::hint::spin_loop();
            }
        }
    });
    assert_eq!(fixture.told().len(), 20_000);
}
