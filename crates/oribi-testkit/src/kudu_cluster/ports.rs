//! Ports for servers that must know each other's address before any of them runs.
//!
//! Masters and tablet servers are told all masters on their command line, and a restarted server has to
//! come back where it was, so ports are chosen here and not by the kernel. They lie below the range the
//! kernel gives to outgoing connections: nothing takes them while a server is down.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

use anyhow::{Result, bail};

/// Where ports are looked for: above what services use, below what the kernel hands out by itself.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// How many places are tried before giving up; the range is hardly used at all.
const ATTEMPTS_MAX: u64 = 1000;

/// `count` ports of the loopback interface that nobody uses now.
pub(crate) fn free(count: usize) -> Result<Vec<u16>> {
    // Every `RandomState` has keys of its own, which is all the chance that is needed here.
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
