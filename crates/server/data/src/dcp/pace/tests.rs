//! Pauses of a producer under light, growing and heavy load.

use super::*;

/// Counts a look that finds so many changes of so many bytes in each of so many streams.
fn find(pace: &mut Pace, streams: usize, changes: usize, bytes: usize) {
    pace.begins_look();
    for _ in 0..streams {
        pace.began_snapshot();
        (0..changes).for_each(|_| pace.sent(1, bytes));
    }
}

/// A moment at which the worker has received nothing.
fn at(ns: u64) -> Moment {
    Moment { ns, received: 0 }
}

/// When a producer of 64 streams that is announced looks, if not now.
fn due_ns(pace: &mut Pace, now_ns: u64) -> Option<u64> {
    pace.announce(at(now_ns), 64).map(|due| due.ns)
}

/// The pause after looks that all find the same.
fn settled_pause_ns(streams: usize, changes: usize, bytes: usize) -> u64 {
    let (mut pace, mut now_ns, mut pause_ns) = (Pace::default(), 1 << 40, 0);
    for _ in 0..20 {
        pace.release(at(now_ns));
        find(&mut pace, streams, changes, bytes);
        pause_ns = due_ns(&mut pace, now_ns).map_or(0, |due_ns| due_ns - now_ns);
        assert!(pause_ns <= CHANGES_PAUSE_NS_MAX, "nothing waits longer");
        now_ns += pause_ns;
    }
    pause_ns
}

#[test]
fn only_a_busy_producer_pauses_and_not_for_long() {
    let mut pace = Pace::default();
    let mut now_ns = 10 * CHANGES_PAUSE_NS_MAX;
    for _ in 0..100 {
        now_ns += 1;
        assert_eq!(due_ns(&mut pace, now_ns), None, "few changes are sent at once");
        find(&mut pace, 1, CHANGES_WITHOUT_PAUSE_MAX, 560);
    }
    find(&mut pace, 1, CHANGES_PER_SNAPSHOT_MIN, 560);
    let end_ns = now_ns + CHANGES_PAUSE_NS_MIN;
    assert_eq!(due_ns(&mut pace, end_ns - 1), Some(end_ns));
    assert!(pace.is_held());
    pace.release(at(end_ns));
    assert!(!pace.is_held());
    find(&mut pace, 1, 2 * CHANGES_PER_SNAPSHOT_MIN, 560);
    let later_ns = end_ns + CHANGES_PAUSE_NS_MAX;
    assert_eq!(due_ns(&mut pace, later_ns), None, "the pause is over by itself");
    assert!(!pace.is_held());
}

#[test]
fn sparse_polls_lengthen_the_pause_to_its_bound() {
    assert_eq!(settled_pause_ns(64, 6, 560), CHANGES_PAUSE_NS_MAX);
    assert_eq!(settled_pause_ns(64, CHANGES_PER_SNAPSHOT_MIN, 560), CHANGES_PAUSE_NS_MIN);
    assert_eq!(settled_pause_ns(1, CHANGES_WITHOUT_PAUSE_MAX, 560), 0, "light load has none");
}

#[test]
fn many_changes_and_many_bytes_shorten_the_pause() {
    for (changes, bytes) in [(5 * CHANGES_PER_SNAPSHOT_MIN, 50), (6, CHANGES_PAUSE_BYTES_MAX)] {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.release(at(1));
            find(&mut pace, 64, 6, 560);
        }
        assert_eq!(due_ns(&mut pace, 2), Some(1 + CHANGES_PAUSE_NS_MAX));
        for _ in 0..10 {
            pace.release(at(1));
            find(&mut pace, 64, changes, bytes);
        }
        assert_eq!(due_ns(&mut pace, 2), Some(1 + CHANGES_PAUSE_NS_MIN));
    }
}

#[test]
fn a_pause_is_short_again_after_light_load() {
    let mut pace = Pace::default();
    for _ in 0..10 {
        pace.release(at(1));
        find(&mut pace, 64, 6, 560);
    }
    pace.release(at(1));
    find(&mut pace, 1, 1, 560);
    pace.release(at(1));
    find(&mut pace, 64, CHANGES_PER_SNAPSHOT_MIN, 560);
    assert_eq!(due_ns(&mut pace, 2), Some(1 + CHANGES_PAUSE_NS_MIN));
}

#[test]
fn a_pause_ends_when_enough_was_received() {
    let look = CHANGES_LOOK_BYTES as u64;
    for (streams, bytes) in [(1, look), (1024, 1024 * CHANGES_LOOK_BYTES_PER_STREAM as u64)] {
        let mut pace = Pace::default();
        pace.release(Moment { ns: 1, received: 1000 });
        find(&mut pace, 64, CHANGES_PER_SNAPSHOT_MIN, 560);
        let due = Moment { ns: 1 + CHANGES_PAUSE_NS_MIN, received: 1000 + bytes };
        assert_eq!(pace.announce(Moment { ns: 2, received: due.received - 1 }, streams), Some(due));
        assert!(pace.is_held());
        assert_eq!(pace.announce(Moment { ns: 2, received: due.received }, streams), None);
        assert!(!pace.is_held());
    }
}

#[test]
fn a_look_begins_once_and_is_announced_once() {
    let mut pace = Pace::default();
    assert!(!pace.begins_look(), "nothing was announced");
    assert_eq!(due_ns(&mut pace, 1), None);
    find(&mut pace, 1, CHANGES_WITHOUT_PAUSE_MAX + 1, 560);
    assert!(pace.is_busy() && !pace.begins_look());
    pace.release(at(2));
    assert!(!pace.is_busy());
    // It is announced again before its turn: that is no other look.
    assert_eq!(due_ns(&mut pace, 3), None);
    assert!(pace.begins_look());
    assert!(!pace.begins_look());
}
