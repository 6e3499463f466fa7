//! Features that a client requests and a server grants with HELLO.
//!
//! It owns codes and names. The request and the reply are lists of big-endian 16-bit codes; reading
//! a list skips codes that are not listed here. The server decides which of them it grants.

/// One negotiable feature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum Feature {
    /// The connection speaks TLS; some clients request it, no server grants it.
    Tls = 0x02,
    /// Small packets are sent at once. Informational.
    TcpNoDelay = 0x03,
    /// Successful mutations answer with vbucket uuid and seqno as extras.
    MutationSeqno = 0x04,
    /// Extended attributes.
    Xattr = 0x06,
    /// Statuses beyond memcached's, and error documents.
    XError = 0x07,
    /// The connection will choose its bucket.
    SelectBucket = 0x08,
    /// Values may be compressed with Snappy.
    Snappy = 0x0a,
    /// The JSON datatype bit is meaningful.
    Json = 0x0b,
    /// The server may send its own requests.
    Duplex = 0x0c,
    /// Those requests include whole cluster maps.
    ClustermapChangeNotification = 0x0d,
    /// Responses may be out of order.
    UnorderedExecution = 0x0e,
    /// Responses carry the server's processing time.
    Tracing = 0x0f,
    /// Requests may carry framing extras.
    AltRequest = 0x10,
    /// The server understands durability frames.
    SyncReplication = 0x11,
    /// Keys are prefixed with a collection id, in both directions.
    Collections = 0x12,
    /// Any response may be compressed, not only documents.
    SnappyEverywhere = 0x13,
    /// A mutation may keep the document's expiry.
    PreserveTtl = 0x14,
    /// Virtual extended attributes.
    VAttr = 0x15,
    /// Sub-document writes may create a document as a tombstone.
    SubdocCreateAsDeleted = 0x17,
    /// Macros that expand to properties of the document.
    SubdocDocumentMacroSupport = 0x18,
    /// Replaces a body with one of its extended attributes.
    SubdocReplaceBodyWithXattr = 0x19,
    /// Responses carry read and write units.
    ReportUnitUsage = 0x1a,
    /// The server refuses throttled requests at once.
    NonBlockingThrottling = 0x1b,
    /// Sub-document lookups on a replica.
    SubdocReplicaRead = 0x1c,
    /// A request for the cluster map may name the client's version.
    GetClusterConfigWithKnownVersion = 0x1d,
    /// Not-my-vbucket responses omit a map that the connection already got.
    DedupeNotMyVbucketClustermap = 0x1e,
    /// Cluster map notifications without the map.
    ClustermapChangeNotificationBrief = 0x1f,
    /// One sub-document request may touch several extended attributes.
    SubdocAllowsAccessOnMultipleXattrKeys = 0x20,
    /// Extended attributes may hold bytes that are not JSON.
    SubdocBinaryXattr = 0x21,
    /// Range scans may return extended attributes.
    RangeScanIncludeXattr = 0x22,
    /// Replica lookups may read tombstones.
    SubdocAllowReplicaReadOnDeletedDocs = 0x23,
    /// A random document may come with its extended attributes.
    GetRandomKeyIncludeXattr = 0x24,
    /// The server has the mutate-with-meta command.
    MutateWithMeta = 0x25,
}

/// Every feature in ascending order of its code.
const ALL: [Feature; 33] = [
    Feature::Tls,
    Feature::TcpNoDelay,
    Feature::MutationSeqno,
    Feature::Xattr,
    Feature::XError,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::Duplex,
    Feature::ClustermapChangeNotification,
    Feature::UnorderedExecution,
    Feature::Tracing,
    Feature::AltRequest,
    Feature::SyncReplication,
    Feature::Collections,
    Feature::SnappyEverywhere,
    Feature::PreserveTtl,
    Feature::VAttr,
    Feature::SubdocCreateAsDeleted,
    Feature::SubdocDocumentMacroSupport,
    Feature::SubdocReplaceBodyWithXattr,
    Feature::ReportUnitUsage,
    Feature::NonBlockingThrottling,
    Feature::SubdocReplicaRead,
    Feature::GetClusterConfigWithKnownVersion,
    Feature::DedupeNotMyVbucketClustermap,
    Feature::ClustermapChangeNotificationBrief,
    Feature::SubdocAllowsAccessOnMultipleXattrKeys,
    Feature::SubdocBinaryXattr,
    Feature::RangeScanIncludeXattr,
    Feature::SubdocAllowReplicaReadOnDeletedDocs,
    Feature::GetRandomKeyIncludeXattr,
    Feature::MutateWithMeta,
];

impl Feature {
    /// The feature with this code, if it is known.
    pub fn from_u16(code: u16) -> Option<Feature> {
        ALL.iter().copied().find(|feature| feature.code() == code)
    }

    /// The code on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Every known feature in ascending order of its code.
    pub const fn all() -> &'static [Feature] {
        &ALL
    }
}

#[cfg(test)]
mod tests {
    //! The list is complete and ordered.

    use super::*;

    #[test]
    fn codes_agree() {
        let known = (0..=u16::MAX).filter_map(Feature::from_u16).count();
        assert_eq!(known, Feature::all().len());
        assert!(Feature::all().is_sorted());
        assert_eq!(Feature::from_u16(0x12), Some(Feature::Collections));
        assert_eq!(Feature::from_u16(0x01), None);
    }
}
