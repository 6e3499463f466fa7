//! Ports of servers that have to know their port before they run, or to keep it over a restart.
//!
//! A port that the kernel chose may be another socket's while its server is down. So these lie
//! below the range from which the kernel chooses, and an abstract Unix socket keeps each from all
//! other tests of the network namespace, for as long as the [`ReservedPort`] lives. The kernel
//! removes that socket however its process ends.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result};

/// Above what services use, below what the kernel chooses by itself.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Attempts before giving up; the range is hardly used at all.
const ATTEMPTS_MAX: u64 = 1000;

/// A port of the loopback interface that no other test gets while this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _reservation: UnixListener,
}

impl ReservedPort {
    /// A port on which nothing listens.
    ///
    /// # Errors
    /// When none is found.
    pub fn new() -> Result<ReservedPort> {
        // Every `RandomState` has its own keys, which is enough randomness here.
        let chance = RandomState::new();
        let width = u64::from(RANGE.end - RANGE.start);
        let candidates = (0..ATTEMPTS_MAX).map(|attempt| {
            let offset = chance.hash_one(attempt) % width;
            RANGE.start + u16::try_from(offset).expect("the width is a u16")
        });
        let found = candidates.filter_map(ReservedPort::try_number).next();
        found.with_context(|| format!("no free port in {RANGE:?}"))
    }

    /// As many of them.
    ///
    /// # Errors
    /// As [`ReservedPort::new`].
    pub fn several(count: usize) -> Result<Vec<ReservedPort>> {
        (0..count).map(|_| ReservedPort::new()).collect()
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    fn try_number(number: u16) -> Option<ReservedPort> {
        let name = SocketAddr::from_abstract_name(format!("oribi-test-port-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        // Programs other than tests reserve nothing.
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        Some(ReservedPort { number, _reservation: reservation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_once() {
        let port = ReservedPort::new().unwrap();
        assert!(RANGE.contains(&port.number()));
        assert!(ReservedPort::try_number(port.number()).is_none(), "although nothing listens");
        let number = port.number();
        drop(port);
        let listener = TcpListener::bind(("127.0.0.1", number)).unwrap();
        assert!(ReservedPort::try_number(number).is_none(), "it is in use");
        drop(listener);
        assert!(ReservedPort::try_number(number).is_some());
    }
}
