//! The common part of all replies of a master: an error in field 1.

use crate::proto::master as pb;

/// A reply of a master.
pub(crate) trait MasterResponse: prost::Message + Default {
    /// The refusal, if the reply is one.
    fn error(&self) -> Option<&pb::MasterErrorPb>;
}

impl MasterResponse for pb::ConnectToMasterResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::CreateTableResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::IsCreateTableDoneResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::GetTableSchemaResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::AlterTableResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::IsAlterTableDoneResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::DeleteTableResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::RecallDeletedTableResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::ListTablesResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::ListTabletServersResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::GetTableStatisticsResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}

impl MasterResponse for pb::GetTableLocationsResponsePb {
    fn error(&self) -> Option<&pb::MasterErrorPb> {
        self.error.as_ref()
    }
}
