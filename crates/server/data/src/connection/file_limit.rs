//! Files that connections leave to the store.
//!
//! Owns: the share of the process's limit of open files that only the store uses, for segments and
//! the data directory, so that idle sockets never keep a write from its log. The system gives out
//! the lowest free descriptor. So a socket whose descriptor is above the share of its port shows
//! that all lower ones are in use, whatever holds them. It is closed before it is served.
//!
//! Callers: the acceptors of both ports.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, getrlimit};

/// A quarter of the limit is not for clients, and at most this much.
const RESERVED_PART: u64 = 4;
const RESERVED_MAX: u64 = 1024;

/// The descriptors that sockets may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Sockets of key-value clients are below this one.
    pub clients_end: u64,
    /// Sockets of the admin port are below this one, so administrators come in after clients fill
    /// their share.
    pub admin_end: u64,
}

impl FileLimits {
    pub const NONE: FileLimits = FileLimits { clients_end: u64::MAX, admin_end: u64::MAX };

    /// The limits by that of the process, which no longer changes.
    pub fn of_process() -> FileLimits {
        getrlimit(Resource::Nofile).current.map_or(FileLimits::NONE, FileLimits::within)
    }

    fn within(files: u64) -> FileLimits {
        let reserved = (files / RESERVED_PART).min(RESERVED_MAX);
        let limits = FileLimits { clients_end: files - reserved, admin_end: files - reserved / 2 };
        assert!(
            limits.clients_end <= limits.admin_end && limits.admin_end <= files,
            "clients leave files to administrators"
        );
        limits
    }

    /// True when a client's socket leaves enough files to the store.
    pub(crate) fn admits_client(self, socket: &impl AsRawFd) -> bool {
        number(socket.as_raw_fd()) < self.clients_end
    }

    /// True when a socket of the admin port leaves enough files to the store.
    pub fn admits_admin(self, socket: &impl AsRawFd) -> bool {
        number(socket.as_raw_fd()) < self.admin_end
    }
}

fn number(descriptor: RawFd) -> u64 {
    u64::try_from(descriptor).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::FileLimits;

    #[test]
    fn the_store_keeps_a_share_of_the_files() {
        for (files, clients_end, admin_end) in [
            (256, 192, 224),
            (1024, 768, 896),
            (1 << 20, (1 << 20) - 1024, (1 << 20) - 512),
            (0, 0, 0),
        ] {
            assert_eq!(FileLimits::within(files), FileLimits { clients_end, admin_end }, "{files}");
        }
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(FileLimits::NONE.admits_client(&socket) && FileLimits::NONE.admits_admin(&socket));
        assert!(!FileLimits::within(0).admits_client(&socket));
        assert!(!FileLimits::within(0).admits_admin(&socket));
    }
}
