//! Ports for servers that must know each other's address before any of them runs.
//!
//! Masters and tablet servers get all masters on their command line, and a restarted server has to
//! keep its address. So this module chooses the ports, not the kernel. They lie below the kernel's
//! range for outgoing connections, so no connection takes them while a server is down.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

use anyhow::{Result, bail};

/// Range of ports to try: above what services use, below what the kernel hands out by itself.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Attempts before giving up; the range is hardly used at all.
const ATTEMPTS_MAX: u64 = 1000;

/// `count` free ports of the loopback interface.
pub(crate) fn free(count: usize) -> Result<Vec<u16>> {
    // Every `RandomState` has its own keys, which is enough randomness here.
    let chance = RandomState::new();
    // Held until all are found, so that no port is found twice.
    let mut found = Vec::new();
    for attempt in 0..ATTEMPTS_MAX {
        if found.len() == count {
            break;
        }
        let width = u64::from(RANGE.end - RANGE.start);
        let offset = u16::try_from(chance.hash_one(attempt) % width).expect("the width is a u16");
        let port = RANGE.start + offset;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            found.push((port, listener));
        }
    }
    if found.len() < count {
        bail!("only {} of {count} free ports found in {RANGE:?}", found.len());
    }
    Ok(found.into_iter().map(|(port, _)| port).collect())
}
