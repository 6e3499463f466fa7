//! The API of `oribi-admin`: what its handlers need in addition to the server's context.
//!
//! Contents: memory and rights of connections, the DCP feed, the registry of DCP producers,
//! counters, and the limits of both crates. Only `oribi-admin` uses it, and both change together.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

pub use crate::buckets::dcp_registry;
pub use crate::connection::{memory, rights, tls};
pub use crate::dcp::{StreamRejection, feed, may_stream};
pub use crate::diagnostics::{counters, cpu_times};
pub use crate::dispatch::fetched;
use crate::server_context::ServerContext;

/// Limits of the server that the admin HTTP keeps as well.
pub mod limits {
    pub use crate::limits::{
        ADMIN_CHANGES_PIECE_BYTES, DCP_IDLE_TIMEOUT_MS, HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS,
        READING_NICENESS,
    };
}

/// True when this build supports buckets in Kudu tables.
pub const HAS_KUDU: bool = cfg!(feature = "kudu");

/// The bound sockets of the admin HTTP.
pub struct AdminSockets {
    pub plain: TcpListener,
    /// With TLS, if it is enabled.
    pub tls: Option<TcpListener>,
    /// The port for queries, if there is one.
    pub query: Option<TcpListener>,
    /// The same with TLS.
    pub query_tls: Option<TcpListener>,
}

/// A running admin HTTP. It ends when it is dropped.
pub trait AdminService: Send + Sync {
    /// Stops accepting, and returns when the changes in progress are finished.
    fn stop(self: Box<Self>);
}

/// An admin HTTP that a server starts.
#[derive(Clone, Copy)]
pub struct AdminStart {
    /// The server calls it once, before it accepts clients.
    pub start: fn(AdminSockets, Arc<ServerContext>) -> io::Result<Box<dyn AdminService>>,
    /// It runs statements of SQL++, so the cluster map has its query ports.
    pub has_queries: bool,
}
