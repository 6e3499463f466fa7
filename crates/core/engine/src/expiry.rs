//! The protocol's rule for expiry times.

use oribi_types::Timestamp;

use crate::limits::RELATIVE_EXPIRY_MAX_S;

/// Turns an expiry as sent by a client into UNIX seconds: 0 stays "none", up to 30 days counts from
/// now, anything longer already is a UNIX time (possibly in the past: expired at once).
pub fn absolute(wire: u32, now: Timestamp) -> u32 {
    match wire {
        0 => 0,
        1..=RELATIVE_EXPIRY_MAX_S => now.unix_s().saturating_add(wire),
        _ => wire,
    }
}

/// An absolute expiry, held below the longest life that is allowed (0: any).
pub fn limited(expiry: u32, max_ttl_s: u32, now: Timestamp) -> u32 {
    match max_ttl_s {
        0 => expiry,
        max_ttl_s => {
            let latest = now.unix_s().saturating_add(max_ttl_s);
            debug_assert!(latest >= now.unix_s(), "a longest life ends in the future");
            if expiry == 0 { latest } else { expiry.min(latest) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RELATIVE_EXPIRY_MAX_S, Timestamp, absolute, limited};

    #[test]
    fn a_longest_life_limits_an_expiry() {
        let now = Timestamp::from_unix_s(1000);
        assert_eq!(limited(0, 0, now), 0);
        assert_eq!(limited(0, 60, now), 1060);
        assert_eq!(limited(1010, 60, now), 1010);
        assert_eq!(limited(1100, 60, now), 1060);
        assert_eq!(limited(1, 60, now), 1, "what has expired stays so");
    }

    #[test]
    fn the_thirty_day_rule() {
        let now = Timestamp::from_unix_s(1_000_000_000);
        assert_eq!(absolute(0, now), 0);
        assert_eq!(absolute(1, now), 1_000_000_001);
        assert_eq!(absolute(RELATIVE_EXPIRY_MAX_S, now), 1_000_000_000 + RELATIVE_EXPIRY_MAX_S);
        assert_eq!(absolute(RELATIVE_EXPIRY_MAX_S + 1, now), RELATIVE_EXPIRY_MAX_S + 1);
        assert_eq!(absolute(u32::MAX, Timestamp::from_unix_s(u32::MAX)), u32::MAX);
    }
}
