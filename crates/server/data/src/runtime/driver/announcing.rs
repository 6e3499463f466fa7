//! Pushes a new cluster map to clients that asked for such notices.
//!
//! Owns: the choice of clients and form.
//!
//! Invariants:
//! - only a connection that requested it in HELLO is notified;
//! - the connection gets each version once, between two frames;
//! - a client that requested both forms gets the brief one;
//! - a client with too much unread output is notified once it has read some of it.
//!
//! The worker calls this after a change.

use oribi_protocol::feature::Feature;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::response::{write_clustermap_head, write_clustermap_notification};
use oribi_types::Datatype;

use super::ConnectionDriver;
use crate::connection::send_buffer::PinnedValue;
use crate::server_context::ServerContext;

impl ConnectionDriver {
    /// Sends the client the newest map of its selection; false when there is nothing to send now.
    pub fn announce_cluster_map(&mut self, server: &ServerContext) -> bool {
        let features = self.state.features();
        self.owes_cluster_map = false;
        if !features.wants_cluster_maps() || self.state.closing().is_some() {
            return false;
        }
        if !self.may_queue_map() {
            self.owes_cluster_map = true;
            return false;
        }
        let bucket = self.state.bucket().filter(|bucket| !bucket.is_deleted());
        let (name, document) = match bucket {
            Some(bucket) => (bucket.name().as_bytes(), server.cluster.bucket_document(bucket)),
            None if !self.state.user.is_known() => return false,
            None => (&[][..], server.cluster.config.global_document()),
        };
        if document.version <= self.state.selection.config_pushed() {
            return false;
        }
        let version = document.version.to_wire();
        if features.has(Feature::ClustermapChangeNotificationBrief) {
            write_clustermap_notification(self.writer.tail(), name, version, &[], 0);
        } else {
            let datatype = features.datatype_shown(Datatype::JSON);
            let json = &document.json;
            if json.len() >= GATHER_VALUE_BYTES_MIN {
                write_clustermap_head(self.writer.tail(), name, version, json.len(), datatype);
                self.writer.pin(PinnedValue::Document(json.clone()));
            } else {
                let out = self.writer.tail();
                write_clustermap_notification(out, name, version, json.as_bytes(), datatype);
            }
        }
        self.state.selection.note_config_pushed(document.version);
        true
    }

    /// True when a map that had to wait can be sent.
    pub fn has_room_for_map(&self) -> bool {
        self.owes_cluster_map && self.may_queue_map()
    }

    fn may_queue_map(&self) -> bool {
        self.writer.pending_bytes() < self.send_queue_bytes_max
    }
}
