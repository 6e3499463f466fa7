//! Admission of connections: their limits, records and memory, and how many are open.
//!
//! Invariant: every admitted connection is released once, so the count never falls below zero.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_config::{SlowThresholds, Subnet};

use crate::connection::file_limit::FileLimits;
use crate::connection::memory::ConnectionMemory;
use crate::connection::registry::ConnectionRegistry;

/// Limits of connections, from the settings.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub auth_deadline_ms: u64,
    /// Time to complete a frame, plus one second for each 64 KiB received of a large one.
    pub frame_deadline_ms: u64,
    /// Time for a client to read answers, plus one second for each 64 KiB read.
    pub send_deadline_ms: u64,
    /// Time without a request after which a connection is closed; 0 for never.
    pub idle_timeout_ms: u64,
    /// Unsent answers, in bytes, from which on a connection's requests wait.
    pub send_queue_bytes_max: usize,
    pub connections_max: usize,
    /// Of these, connections that only administrators may use.
    pub connections_reserved: usize,
    /// Files that connections leave to the store.
    pub files: FileLimits,
    /// Thresholds of the log of slow operations.
    pub slow: SlowThresholds,
    /// Keys that a connection announces ahead, at most `limits::PREFETCH_KEYS_MAX`.
    pub prefetch_keys: usize,
    /// Durations of document locks.
    pub lock_timeouts: LockTimeouts,
}

/// How long get-and-lock locks a document.
#[derive(Debug, Clone, Copy)]
pub struct LockTimeouts {
    /// When the client specifies no time.
    pub default_s: u32,
    /// Longest time; a client that requests more gets the default.
    pub max_s: u32,
}

/// See the module text.
pub struct ServerConnections {
    pub limits: ConnectionLimits,
    /// Memory budget of the connections.
    pub memory: Arc<ConnectionMemory>,
    pub(crate) registry: ConnectionRegistry,
    /// Balancers whose connections begin with the PROXY protocol; then no other address may
    /// connect to the ports of clients. Empty: clients connect themselves.
    pub(crate) proxies: Vec<Subnet>,
    open: AtomicUsize,
    rejected: AtomicUsize,
}

impl ServerConnections {
    pub fn new(limits: ConnectionLimits, memory: Arc<ConnectionMemory>) -> ServerConnections {
        assert!(
            limits.connections_reserved <= limits.connections_max,
            "connections for administrators are part of all connections"
        );
        ServerConnections {
            limits,
            memory,
            registry: ConnectionRegistry::default(),
            proxies: Vec::new(),
            open: AtomicUsize::new(0),
            rejected: AtomicUsize::new(0),
        }
    }

    /// True when connections from this address are served. Counts a rejection.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        let is_admitted =
            self.proxies.is_empty() || self.proxies.iter().any(|proxy| proxy.contains(address));
        self.counted(is_admitted)
    }

    /// True when a client's socket leaves enough files to the store. Counts a rejection.
    pub fn leaves_files(&self, socket: &impl AsRawFd) -> bool {
        self.counted(self.limits.files.admits_client(socket))
    }

    /// Counts a new connection; false, without counting it, when there are too many.
    pub fn admit(&self) -> bool {
        let is_admitted = self.open.fetch_add(1, Ordering::AcqRel) < self.limits.connections_max;
        if !is_admitted {
            self.open.fetch_sub(1, Ordering::AcqRel);
        }
        self.counted(is_admitted)
    }

    /// True when a connection, counted already, may be used by a user with or without the role
    /// `admin`. Counts a rejection.
    pub fn admit_user(&self, is_admin: bool) -> bool {
        let ConnectionLimits { connections_max, connections_reserved, .. } = self.limits;
        debug_assert!(connections_reserved <= connections_max, "reserved ones are part of all");
        self.counted(is_admin || self.open() + connections_reserved <= connections_max)
    }

    fn counted(&self, is_admitted: bool) -> bool {
        if !is_admitted {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Counts the end of a connection.
    pub fn release(&self) {
        let before = self.open.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "each admitted connection is released once");
    }

    /// Bytes of the buffers of all connections.
    pub fn buffer_bytes(&self) -> u64 {
        self.registry.buffer_bytes()
    }

    /// Current number of connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Connections rejected because of either limit, the one for users or the one for all, because
    /// the remaining files are the store's, or because they did not come from a balancer.
    pub fn rejected(&self) -> usize {
        self.rejected.load(Ordering::Relaxed)
    }
}
