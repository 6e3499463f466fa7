//! The part of every tablet server's reply that the executor reads.

use crate::proto::tserver as pb;

/// A reply of a tablet server.
pub(crate) trait TabletResponse: prost::Message + Default {
    /// The refusal, if the reply is one.
    fn error(&self) -> Option<&pb::TabletServerErrorPb>;

    /// The hybrid time at which the request took effect, if the reply has it.
    fn timestamp(&self) -> Option<u64>;
}

impl TabletResponse for pb::WriteResponsePb {
    fn error(&self) -> Option<&pb::TabletServerErrorPb> {
        self.error.as_ref()
    }

    fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }
}

impl TabletResponse for pb::ScanResponsePb {
    fn error(&self) -> Option<&pb::TabletServerErrorPb> {
        self.error.as_ref()
    }

    fn timestamp(&self) -> Option<u64> {
        self.propagated_timestamp.max(self.snap_timestamp)
    }
}

impl TabletResponse for pb::SplitKeyRangeResponsePb {
    fn error(&self) -> Option<&pb::TabletServerErrorPb> {
        self.error.as_ref()
    }

    fn timestamp(&self) -> Option<u64> {
        None
    }
}
