//! Outcomes by their code on the wire.
//!
//! It owns the list of codes with a name and a short description each. All come from one table, so
//! they cannot disagree. The server decides which outcome of which operation has which status.

macro_rules! statuses {
    ($($name:ident = $code:literal, $description:literal;)*) => {
        /// Status of a response.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Status { $(#[doc = $description] $name = $code,)* }

        const ALL: &[Status] = &[$(Status::$name,)*];

        impl Status {
            /// The status with this code, if it is known.
            pub const fn from_u16(code: u16) -> Option<Status> {
                match code {
                    $($code => Some(Status::$name),)*
                    _ => None,
                }
            }

            /// Name, as in the error map.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Status::$name => stringify!($name),)*
                }
            }

            /// A description for people.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Status::$name => $description,)*
                }
            }
        }
    };
}

statuses! {
    Success = 0x0000, "done";
    KeyEnoent = 0x0001, "not found";
    KeyEexists = 0x0002, "exists already, or has another CAS";
    E2big = 0x0003, "too large";
    Einval = 0x0004, "malformed request";
    NotStored = 0x0005, "not stored";
    DeltaBadval = 0x0006, "not a decimal counter";
    NotMyVbucket = 0x0007, "the vbucket is not active on this node";
    NoBucket = 0x0008, "no bucket is selected";
    Locked = 0x0009, "the document is locked";
    DcpStreamNotFound = 0x000a, "no such DCP stream";
    OpaqueNoMatch = 0x000b, "the opaque belongs to no DCP stream";
    EWouldThrottle = 0x000c, "refused by a rate limit";
    EConfigOnly = 0x000d, "the bucket holds no documents on this node";
    NotLocked = 0x000e, "the document is not locked";
    CasValueInvalid = 0x000f, "the CAS value is not acceptable";
    AuthStale = 0x001f, "credentials have changed, authenticate again";
    AuthError = 0x0020, "authentication failed";
    AuthContinue = 0x0021, "authentication goes on";
    Erange = 0x0022, "out of range";
    Rollback = 0x0023, "the peer must roll back";
    Eaccess = 0x0024, "no permission";
    NotInitialized = 0x0025, "the node is not set up";
    EncryptionKeyNotAvailable = 0x0026, "an encryption key is missing";
    ChecksumMismatch = 0x0027, "a checksum does not match";
    ExpiryOverflow = 0x0028, "the expiry overflows";
    LockExpiryOverflow = 0x0029, "the lock time overflows";
    RateLimitedNetworkIngress = 0x0030, "too many bytes received";
    RateLimitedNetworkEgress = 0x0031, "too many bytes sent";
    RateLimitedMaxConnections = 0x0032, "too many connections";
    RateLimitedMaxCommands = 0x0033, "too many operations";
    BucketSizeLimitExceeded = 0x0035, "the bucket is over its size limit";
    BucketResidentRatioTooLow = 0x0036, "too little of the bucket is in memory";
    BucketDataSizeTooBig = 0x0037, "the bucket holds too much data";
    BucketDiskSpaceTooLow = 0x0038, "too little disk space is left";
    BucketPaused = 0x0050, "the bucket hibernates";
    Cancelled = 0x0051, "cancelled";
    UnknownFrameInfo = 0x0080, "unknown frame info";
    UnknownCommand = 0x0081, "unknown operation";
    Enomem = 0x0082, "out of memory";
    NotSupported = 0x0083, "not supported";
    Einternal = 0x0084, "internal error";
    Ebusy = 0x0085, "busy";
    Etmpfail = 0x0086, "temporary failure, try again";
    XattrEinval = 0x0087, "malformed extended attributes";
    UnknownCollection = 0x0088, "unknown collection";
    CannotApplyCollectionsManifest = 0x008a, "the collections manifest was refused";
    UnknownScope = 0x008c, "unknown scope";
    DcpStreamIdInvalid = 0x008d, "wrong use of a stream id";
    DurabilityInvalidLevel = 0x00a0, "no such durability level";
    DurabilityImpossible = 0x00a1, "too few replicas for this durability";
    SyncWriteInProgress = 0x00a2, "a durable write of this key is under way";
    SyncWriteAmbiguous = 0x00a3, "the outcome of the durable write is not known";
    SyncWriteReCommitInProgress = 0x00a4, "a durable write of this key is being recovered";
    RangeScanCancelled = 0x00a5, "the range scan was cancelled";
    RangeScanMore = 0x00a6, "the range scan has more";
    RangeScanComplete = 0x00a7, "the range scan is complete";
    VbUuidNotEqual = 0x00a8, "the vbucket has another history";
    SubdocPathEnoent = 0x00c0, "no such path";
    SubdocPathMismatch = 0x00c1, "the path does not fit the document";
    SubdocPathEinval = 0x00c2, "malformed path";
    SubdocPathE2big = 0x00c3, "the path is too long";
    SubdocDocE2deep = 0x00c4, "the document is nested too deeply";
    SubdocValueCantinsert = 0x00c5, "the value cannot be put there";
    SubdocDocNotJson = 0x00c6, "the document is not JSON";
    SubdocNumErange = 0x00c7, "the number at the path is out of range";
    SubdocDeltaEinval = 0x00c8, "the delta is not a usable number";
    SubdocPathEexists = 0x00c9, "the path exists already";
    SubdocValueEtoodeep = 0x00ca, "the value would nest too deeply";
    SubdocInvalidCombo = 0x00cb, "these operations do not go together";
    SubdocMultiPathFailure = 0x00cc, "at least one path failed";
    SubdocSuccessDeleted = 0x00cd, "done, on a tombstone";
    SubdocXattrInvalidFlagCombo = 0x00ce, "these attribute flags do not go together";
    SubdocXattrInvalidKeyCombo = 0x00cf, "too many attributes in one request";
    SubdocXattrUnknownMacro = 0x00d0, "unknown macro";
    SubdocXattrUnknownVattr = 0x00d1, "unknown virtual attribute";
    SubdocXattrCantModifyVattr = 0x00d2, "virtual attributes cannot be written";
    SubdocMultiPathFailureDeleted = 0x00d3, "at least one path failed, on a tombstone";
    SubdocInvalidXattrOrder = 0x00d4, "attributes must come before the body";
    SubdocXattrUnknownVattrMacro = 0x00d5, "unknown macro of a virtual attribute";
    SubdocCanOnlyReviveDeletedDocuments = 0x00d6, "only a tombstone can be revived";
    SubdocDeletedDocumentCantHaveValue = 0x00d7, "a tombstone cannot have a body";
    SubdocFieldNotBinaryValue = 0x00d8, "the attribute is not binary";
}

impl Status {
    /// Every known status in ascending order of its code.
    pub const fn all() -> &'static [Status] {
        ALL
    }

    /// The code on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

#[cfg(test)]
mod tests;
