//! `connections [number]`: one JSON document per connection, under its number.
//!
//! An administrator sees all connections. Any other user sees only the user's own: addresses and
//! names of other clients are private. The registry is read a few records at a time, so a
//! connection that opens or closes during the answer may or may not be in it.

use std::net::SocketAddr;
use std::sync::Arc;

use oribi_auth::Identity;
use oribi_protocol::feature::Feature;
use oribi_types::Timestamp;
use serde_json::{Value, json};

use crate::connection::registry::ConnectionRecord;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::StatWriter;
use crate::server_context::ServerContext;

/// Records of connections that one read of the registry returns at most.
const RECORDS_PER_READ: usize = 8;

/// Cost of describing one connection as JSON, in bytes of output: 10 µs are about 100 entries.
const DESCRIPTION_CHARGE: usize = 6 * 1024;

/// The producer of the group.
pub(super) struct ConnectionList {
    server: Arc<ServerContext>,
    /// The user whose connections are visible; `None` for a viewer who may see all.
    visible_user: Option<Arc<Identity>>,
    /// The last connection number that has been answered.
    after: u64,
    now: Timestamp,
}

impl ConnectionList {
    /// The connections that `viewer` may see.
    pub fn new(server: &Arc<ServerContext>, viewer: &Arc<Identity>, now: Timestamp) -> Self {
        let visible_user = (!viewer.access.is_admin()).then(|| Arc::clone(viewer));
        ConnectionList { server: Arc::clone(server), visible_user, after: 0, now }
    }

    /// The connection with this number, if `viewer` may see it.
    pub fn one(
        server: &Arc<ServerContext>,
        viewer: &Arc<Identity>,
        number: u64,
    ) -> Option<Arc<ConnectionRecord>> {
        let list = ConnectionList::new(server, viewer, Timestamp::default());
        server.connections.registry.get(number).filter(|record| list.shows(record))
    }

    fn shows(&self, record: &ConnectionRecord) -> bool {
        let Some(viewer) = &self.visible_user else { return true };
        record.agreement().user.is_some_and(|user| user.name == viewer.name)
    }
}

impl StatProducer for ConnectionList {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        while !writer.is_full() {
            let records = self.server.connections.registry.after(self.after, RECORDS_PER_READ);
            let Some(last) = records.last() else { return true };
            self.after = last.number;
            for record in records.iter().filter(|record| self.shows(record)) {
                write(writer, record, self.now);
                writer.charge(DESCRIPTION_CHARGE);
            }
        }
        false
    }
}

pub(super) fn write(writer: &mut StatWriter<'_>, record: &ConnectionRecord, now: Timestamp) {
    writer.display(itoa::Buffer::new().format(record.number), describe(record, now));
}

fn describe(record: &ConnectionRecord, now: Timestamp) -> Value {
    let agreement = record.agreement();
    let features: Vec<String> = agreement
        .features
        .codes()
        .filter_map(Feature::from_u16)
        .map(|feature| format!("{feature:?}"))
        .collect();
    let active_ns = record.active_unix_ns.get();
    json!({
        "socket": record.number,
        "protocol": "memcached",
        "ssl": agreement.tls.is_some(),
        "tls_version": agreement.tls.map_or("", |(version, _)| version),
        "tls_cipher": agreement.tls.map_or("", |(_, cipher)| cipher),
        "peername": record.peer().map(address),
        "thread": record.worker,
        "agent_name": agreement.agent.as_deref().unwrap_or(""),
        "username": agreement.user.as_ref().map_or("", |user| user.name.as_str()),
        "bucket": agreement.bucket.as_deref().unwrap_or(""),
        "features": features,
        "total_recv": record.bytes_received.get(),
        "total_send": record.bytes_sent.get(),
        "requests": record.requests.get(),
        "buffer_bytes": record.buffer_bytes.get(),
        "created_s": record.created.unix_s(),
        "age_s": now.unix_s().saturating_sub(record.created.unix_s()),
        "idle_ms": now.unix_ns.saturating_sub(active_ns) / 1_000_000,
    })
}

fn address(peer: SocketAddr) -> Value {
    json!({ "ip": peer.ip().to_string(), "port": peer.port() })
}
