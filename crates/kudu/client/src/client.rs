//! The client of one cluster.
//!
//! It owns what all tables, sessions and scanners of a client share: connections, the leading
//! master, the cache of tablets, the identities of writes and the newest timestamp. Invariant: the
//! timestamp only grows, and every write and scan carries it. Everything that this client has seen
//! therefore happened before its next operation. A [`Client`] is cheap to clone, and every clone is
//! the same client. The operations on tables are in `table/`.

mod builder;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub use builder::ClientBuilder;

use crate::master::Masters;
use crate::meta_cache::MetaCache;
use crate::request_tracker::RequestTracker;
use crate::rpc::Messenger;

/// A connection to a Kudu cluster; cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::ClientBuilder;
///
/// let client = ClientBuilder::from_addresses("master-1:7051,master-2:7051,master-3:7051")?.build().await?;
/// for table in client.list_tables("").await? {
///     println!("{} has {:?} rows", table.name, table.live_row_count);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<ClientShared>,
}

/// The state that everything of one client shares.
#[derive(Debug)]
pub(crate) struct ClientShared {
    messenger: Messenger,
    masters: Masters,
    meta_cache: MetaCache,
    requests: RequestTracker,
    /// A hybrid time: microseconds since 1970-01-01T00:00:00Z shifted left by 12 bits, and a
    /// counter. 0 is none.
    last_observed_timestamp: AtomicU64,
    rpc_timeout: Duration,
    admin_timeout: Duration,
}

impl Client {
    pub(crate) fn from_shared(shared: Arc<ClientShared>) -> Client {
        Client { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<ClientShared> {
        &self.shared
    }

    /// The id of the cluster, 32 hexadecimal digits; empty before Kudu 1.12.
    pub fn cluster_id(&self) -> String {
        self.shared
            .masters
            .known_leader()
            .map(|leader| leader.cluster_id.clone())
            .unwrap_or_default()
    }

    /// The newest hybrid time that this client has seen in an answer, or 0: microseconds since
    /// 1970-01-01T00:00:00Z shifted left by 12 bits, plus a counter.
    pub fn last_observed_timestamp(&self) -> u64 {
        self.shared.last_observed_timestamp()
    }

    /// Makes this client see everything that another client has seen up to this hybrid time. Its
    /// "read your writes" reads then include the writes of the other client.
    pub fn observe(&self, timestamp: u64) {
        self.shared.observe(timestamp);
    }

    /// The default timeout of a write or a read.
    pub fn rpc_timeout(&self) -> Duration {
        self.shared.rpc_timeout
    }
}

impl ClientShared {
    pub(crate) fn messenger(&self) -> &Messenger {
        &self.messenger
    }

    pub(crate) fn masters(&self) -> &Masters {
        &self.masters
    }

    pub(crate) fn meta_cache(&self) -> &MetaCache {
        &self.meta_cache
    }

    /// The identities of this client's writes.
    pub(crate) fn requests(&self) -> &RequestTracker {
        &self.requests
    }

    /// See [`Client::last_observed_timestamp`].
    pub(crate) fn last_observed_timestamp(&self) -> u64 {
        self.last_observed_timestamp.load(Ordering::Acquire)
    }

    /// See [`Client::observe`].
    pub(crate) fn observe(&self, timestamp: u64) {
        self.last_observed_timestamp.fetch_max(timestamp, Ordering::AcqRel);
    }

    /// The deadline of a table change that starts now.
    pub(crate) fn admin_deadline(&self) -> Instant {
        Instant::now() + self.admin_timeout
    }

    /// See [`Client::rpc_timeout`].
    pub(crate) fn rpc_timeout(&self) -> Duration {
        self.rpc_timeout
    }
}
