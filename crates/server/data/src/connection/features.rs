//! HELLO features: those that a connection negotiates, and those that this server grants.

use oribi_protocol::feature::Feature;
use oribi_types::Datatype;

/// Features that are granted on request. The answer leaves out all others, such as TLS.
const GRANTED: [Feature; 27] = [
    Feature::TcpNoDelay,
    Feature::MutationSeqno,
    Feature::Xattr,
    Feature::XError,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::Duplex,
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
    Feature::SubdocReplicaRead,
    Feature::SubdocAllowsAccessOnMultipleXattrKeys,
    Feature::SubdocBinaryXattr,
    Feature::RangeScanIncludeXattr,
    Feature::GetClusterConfigWithKnownVersion,
    Feature::DedupeNotMyVbucketClustermap,
    Feature::ClustermapChangeNotification,
    Feature::ClustermapChangeNotificationBrief,
];

/// HELLO sets this bit, whatever the client asked for; no feature has this code.
const NEGOTIATED: u16 = 63;
const _: () = {
    let mut at = 0;
    while at < GRANTED.len() {
        assert!(GRANTED[at].code() < NEGOTIATED, "each feature has its bit");
        at += 1;
    }
};
const _: () = assert!((NEGOTIATED as u32) < u64::BITS, "the set has 64 bits");

/// A set of granted features, one bit for each code, and a bit for HELLO itself. All codes are
/// below 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u64);

impl Features {
    /// Grants the known codes among those asked for; unknown codes are skipped.
    pub fn granted(codes: impl Iterator<Item = u16>) -> Features {
        let offered = GRANTED.iter().fold(0, |bits, feature| bits | 1_u64 << feature.code());
        let asked =
            codes.filter(|code| *code < NEGOTIATED).fold(0, |bits, code| bits | 1_u64 << code);
        let mut granted = Features(asked & offered | 1 << NEGOTIATED);
        if !granted.has(Feature::Xattr) {
            // Without attributes there are no virtual attributes, and no attributes to include.
            granted.0 &= !(1 << Feature::VAttr.code() | 1 << Feature::RangeScanIncludeXattr.code());
        }
        granted
    }

    /// True when the client said HELLO. A client that never did speaks memcached's protocol, or a
    /// part of it.
    pub fn is_negotiated(self) -> bool {
        self.0 >> NEGOTIATED & 1 == 1
    }

    /// True when `feature` was granted.
    pub fn has(self, feature: Feature) -> bool {
        self.0 >> feature.code() & 1 == 1
    }

    /// True when the server pushes new cluster maps to the client.
    pub fn wants_cluster_maps(self) -> bool {
        self.has(Feature::ClustermapChangeNotification)
            || self.has(Feature::ClustermapChangeNotificationBrief)
    }

    /// The datatype bits of a stored document's body that this client may see.
    pub fn datatype_shown(self, datatype: Datatype) -> u8 {
        datatype.0 & (self.datatypes() & !Datatype::XATTR.0)
    }

    /// True when the client may set these datatype bits in a request.
    pub fn admits_datatype(self, bits: u8) -> bool {
        bits & !self.datatypes() == 0
    }

    /// The datatype bits that the client knows.
    fn datatypes(self) -> u8 {
        let known = |feature: Feature, bit: Datatype| bit.0 * u8::from(self.has(feature));
        known(Feature::Json, Datatype::JSON)
            | known(Feature::Snappy, Datatype::SNAPPY)
            | known(Feature::Xattr, Datatype::XATTR)
    }

    /// Granted codes in ascending order.
    pub fn codes(self) -> impl Iterator<Item = u16> {
        (0..NEGOTIATED).filter(move |code| self.0 >> code & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use oribi_protocol::feature::Feature;

    use super::Features;

    #[test]
    fn the_answer_is_sorted_and_has_granted_features_only() {
        let asked = [0x12, 0x0b, 0xffff, 0x06, 0x0a, 0x02, 0x12, 0x03];
        let features = Features::granted(asked.into_iter());
        assert_eq!(features.codes().collect::<Vec<_>>(), [0x03, 0x06, 0x0a, 0x0b, 0x12]);
        assert!(features.has(Feature::Collections));
        assert!(!features.has(Feature::Tls));
        assert!(features.is_negotiated() && !Features::default().is_negotiated());
        assert!(Features::granted([].into_iter()).is_negotiated());
    }

    #[test]
    fn every_code_fits_the_set() {
        assert!(Feature::all().iter().all(|feature| feature.code() < super::NEGOTIATED));
    }
}
