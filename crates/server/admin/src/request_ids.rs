//! Numbers of statements' requests, by which logs and clients name them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of the request, in the form of a UUID. Numbers follow a random one, because entropy for
/// each costs a system call.
pub(crate) fn request_id() -> String {
    static SEED: LazyLock<[u64; 2]> = LazyLock::new(|| {
        let mut bytes = [0u8; 16];
        // Without entropy the numbers repeat after a restart, which only logs notice.
        let _ = getrandom::fill(&mut bytes);
        let number = u128::from_ne_bytes(bytes);
        [number as u64, (number >> 64) as u64]
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // An odd factor: no two counts have the same number.
    let count = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = u128::from(SEED[0].wrapping_add(count)) << 64 | u128::from(SEED[1] ^ count >> 7);
    let mut text = String::with_capacity(36);
    for (at, digit) in format!("{bits:032x}").chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    debug_assert_eq!(text.len(), 36, "an id has 32 digits in five groups");
    text
}

#[cfg(test)]
mod tests {
    //! The form of numbers.

    use super::*;

    #[test]
    fn request_numbers_differ_and_look_like_uuids() {
        let ids: Vec<String> = (0..1_000).map(|_| request_id()).collect();
        for id in &ids {
            let lengths: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert!(id.chars().all(|one| one == '-' || one.is_ascii_hexdigit()), "{id}");
        }
        let distinct: std::collections::HashSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
