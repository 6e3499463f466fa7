//! Versions of cluster configuration documents.

/// Generation of the revision numbers of a node that is alone.
pub const REV_EPOCH: i64 = 1;

/// Version of a document. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ConfigDocumentVersion {
    /// Generation of the revisions.
    pub epoch: i64,
    /// Revision within the epoch.
    pub rev: u64,
}

impl ConfigDocumentVersion {
    /// The version in its wire form.
    pub fn to_wire(self) -> oribi_protocol::request::ConfigVersion {
        let revision = i64::try_from(self.rev).unwrap_or(i64::MAX);
        oribi_protocol::request::ConfigVersion { epoch: self.epoch, revision }
    }
}
