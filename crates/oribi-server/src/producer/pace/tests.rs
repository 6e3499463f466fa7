//! Pauses of a producer under light, growing and heavy load.

use super::*;

/// Counts a look that finds so many changes of so many bytes in each of so many streams.
fn find(pace: &mut Pace, streams: usize, changes: usize, bytes: usize) {
    for _ in 0..streams {
        pace.began_snapshot();
        (0..changes).for_each(|_| pace.sent(1, bytes));
    }
}

/// The pause after looks that all find the same.
fn settled_pause_ns(streams: usize, changes: usize, bytes: usize) -> u64 {
    let (mut pace, mut now_ns, mut pause_ns) = (Pace::default(), 1 << 40, 0);
    for _ in 0..20 {
        pace.release(now_ns);
        find(&mut pace, streams, changes, bytes);
        pause_ns = pace.announce(now_ns).map_or(0, |due_ns| due_ns - now_ns);
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
        assert_eq!(pace.announce(now_ns), None, "few changes are sent at once");
        find(&mut pace, 1, CHANGES_WITHOUT_PAUSE_MAX, 560);
    }
    find(&mut pace, 1, CHANGES_PER_SNAPSHOT_MIN, 560);
    let due_ns = now_ns + CHANGES_PAUSE_NS_MIN;
    assert_eq!(pace.announce(due_ns - 1), Some(due_ns));
    assert!(pace.is_held());
    pace.release(due_ns);
    assert!(!pace.is_held());
    find(&mut pace, 1, 2 * CHANGES_PER_SNAPSHOT_MIN, 560);
    let later_ns = due_ns + CHANGES_PAUSE_NS_MAX;
    assert_eq!(pace.announce(later_ns), None, "the pause is over by itself");
    assert!(!pace.is_held());
}

#[test]
fn thin_looks_lengthen_the_pause_to_its_bound_and_full_ones_do_not() {
    assert_eq!(settled_pause_ns(64, 6, 560), CHANGES_PAUSE_NS_MAX);
    assert_eq!(settled_pause_ns(64, CHANGES_PER_SNAPSHOT_MIN, 560), CHANGES_PAUSE_NS_MIN);
    assert_eq!(settled_pause_ns(1, CHANGES_WITHOUT_PAUSE_MAX, 560), 0, "light load has none");
}

#[test]
fn many_changes_and_many_bytes_shorten_the_pause() {
    for (changes, bytes) in [(5 * CHANGES_PER_SNAPSHOT_MIN, 50), (6, CHANGES_PAUSE_BYTES_MAX)] {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.release(1);
            find(&mut pace, 64, 6, 560);
        }
        assert_eq!(pace.announce(2), Some(1 + CHANGES_PAUSE_NS_MAX));
        for _ in 0..10 {
            pace.release(1);
            find(&mut pace, 64, changes, bytes);
        }
        assert_eq!(pace.announce(2), Some(1 + CHANGES_PAUSE_NS_MIN));
    }
}

#[test]
fn a_pause_is_short_again_after_light_load() {
    let mut pace = Pace::default();
    for _ in 0..10 {
        pace.release(1);
        find(&mut pace, 64, 6, 560);
    }
    pace.release(1);
    find(&mut pace, 1, 1, 560);
    pace.release(1);
    find(&mut pace, 64, CHANGES_PER_SNAPSHOT_MIN, 560);
    assert_eq!(pace.announce(2), Some(1 + CHANGES_PAUSE_NS_MIN));
}
