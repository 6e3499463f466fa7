//! Operations by their code on the wire.
//!
//! It owns the list of opcodes. The list is complete for requests of clients, including withdrawn
//! codes, because a server answers a known but unimplemented opcode differently from an unknown
//! one. The enum, the list of all and the names come from one table, so they cannot disagree.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// One operation.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        const ALL: &[(Opcode, &str)] = &[$((Opcode::$name, stringify!($name)),)*];
    };
}

opcodes! {
    /// Reads a document.
    Get = 0x00,
    /// Writes a document whether it is there or not.
    Set = 0x01,
    /// Writes a document that must not exist.
    Add = 0x02,
    /// Writes a document that must exist.
    Replace = 0x03,
    /// Removes a document.
    Delete = 0x04,
    /// Adds to a decimal counter.
    Increment = 0x05,
    /// Subtracts from a decimal counter, stopping at zero.
    Decrement = 0x06,
    /// Closes the connection once it is answered.
    Quit = 0x07,
    /// Removes everything, as memcached's flush_all.
    Flush = 0x08,
    /// `Get` without an answer on a miss.
    Getq = 0x09,
    /// Is answered, and does nothing else.
    Noop = 0x0a,
    /// Names the server and its version.
    Version = 0x0b,
    /// `Get` that answers with the key.
    Getk = 0x0c,
    /// `Getk` without an answer on a miss.
    Getkq = 0x0d,
    /// Adds bytes at the end of a value.
    Append = 0x0e,
    /// Adds bytes at the start of a value.
    Prepend = 0x0f,
    /// Streams statistics as one answer per entry.
    Stat = 0x10,
    /// `Set` without an answer on success.
    Setq = 0x11,
    /// `Add` without an answer on success.
    Addq = 0x12,
    /// `Replace` without an answer on success.
    Replaceq = 0x13,
    /// `Delete` without an answer on success.
    Deleteq = 0x14,
    /// `Increment` without an answer on success.
    Incrementq = 0x15,
    /// `Decrement` without an answer on success.
    Decrementq = 0x16,
    /// `Quit` without an answer.
    Quitq = 0x17,
    /// `Flush` without an answer on success.
    Flushq = 0x18,
    /// `Append` without an answer on success.
    Appendq = 0x19,
    /// `Prepend` without an answer on success.
    Prependq = 0x1a,
    /// Sets how much the server logs.
    Verbosity = 0x1b,
    /// Sets a document's expiry.
    Touch = 0x1c,
    /// Reads a document and sets its expiry.
    Gat = 0x1d,
    /// `Gat` without an answer on a miss.
    Gatq = 0x1e,
    /// Negotiates features.
    Hello = 0x1f,
    /// Lists authentication mechanisms.
    SaslListMechs = 0x20,
    /// Starts authentication.
    SaslAuth = 0x21,
    /// Continues authentication.
    SaslStep = 0x22,
    /// Reads a property of the server.
    IoctlGet = 0x23,
    /// Writes a property of the server.
    IoctlSet = 0x24,
    /// Checks a configuration file.
    ConfigValidate = 0x25,
    /// Reads the configuration file again.
    ConfigReload = 0x26,
    /// Adds an audit record.
    AuditPut = 0x27,
    /// Reads the audit configuration again.
    AuditConfigReload = 0x28,
    /// Stops the server.
    Shutdown = 0x29,
    /// Sets a bucket's rate limits.
    SetBucketThrottleProperties = 0x2a,
    /// Marks a bucket as full.
    SetBucketDataLimitExceeded = 0x2b,
    /// Withdrawn: rate limits of a node.
    SetNodeThrottleProperties = 0x2c,
    /// Sets keys for encryption at rest.
    SetActiveEncryptionKeys = 0x2d,
    /// Forgets unused encryption keys.
    PruneEncryptionKeys = 0x2e,
    /// Registers a token to act for a user.
    RegisterAuthToken = 0x2f,
    /// Withdrawn: range read.
    Rget = 0x30,
    /// Withdrawn: range write.
    Rset = 0x31,
    /// Withdrawn: quiet range write.
    Rsetq = 0x32,
    /// Withdrawn: range append.
    Rappend = 0x33,
    /// Withdrawn: quiet range append.
    Rappendq = 0x34,
    /// Withdrawn: range prepend.
    Rprepend = 0x35,
    /// Withdrawn: quiet range prepend.
    Rprependq = 0x36,
    /// Withdrawn: range delete.
    Rdelete = 0x37,
    /// Withdrawn: quiet range delete.
    Rdeleteq = 0x38,
    /// Withdrawn: range increment.
    Rincr = 0x39,
    /// Withdrawn: quiet range increment.
    Rincrq = 0x3a,
    /// Withdrawn: range decrement.
    Rdecr = 0x3b,
    /// Withdrawn: quiet range decrement.
    Rdecrq = 0x3c,
    /// Creates a vbucket or sets its state.
    SetVbucket = 0x3d,
    /// Reads a vbucket's state.
    GetVbucket = 0x3e,
    /// Removes a vbucket.
    DelVbucket = 0x3f,
    /// Withdrawn: TAP.
    TapConnect = 0x40,
    /// Withdrawn: TAP.
    TapMutation = 0x41,
    /// Withdrawn: TAP.
    TapDelete = 0x42,
    /// Withdrawn: TAP.
    TapFlush = 0x43,
    /// Withdrawn: TAP.
    TapOpaque = 0x44,
    /// Withdrawn: TAP.
    TapVbucketSet = 0x45,
    /// Withdrawn: TAP.
    TapCheckpointStart = 0x46,
    /// Withdrawn: TAP.
    TapCheckpointEnd = 0x47,
    /// Reads the high seqno of every vbucket.
    GetAllVbSeqnos = 0x48,
    /// Reads a document with its extended attributes.
    GetEx = 0x49,
    /// `GetEx` on a replica.
    GetExReplica = 0x4a,
    /// Writes with metadata given as JSON.
    MutateWithMeta = 0x4b,
    /// Turns the connection into a DCP one.
    DcpOpen = 0x50,
    /// Asks a consumer to open a stream.
    DcpAddStream = 0x51,
    /// Ends a stream.
    DcpCloseStream = 0x52,
    /// Opens a stream.
    DcpStreamReq = 0x53,
    /// Reads a vbucket's failover table over DCP.
    DcpGetFailoverLog = 0x54,
    /// Says that a stream ended, and why.
    DcpStreamEnd = 0x55,
    /// Announces a range of seqnos.
    DcpSnapshotMarker = 0x56,
    /// Carries a written document.
    DcpMutation = 0x57,
    /// Carries a removed document.
    DcpDeletion = 0x58,
    /// Carries an expired document.
    DcpExpiration = 0x59,
    /// Withdrawn: flush over DCP.
    DcpFlush = 0x5a,
    /// Hands a vbucket over.
    DcpSetVbucketState = 0x5b,
    /// Shows that a DCP peer lives.
    DcpNoop = 0x5c,
    /// Returns flow-control credit.
    DcpBufferAcknowledgement = 0x5d,
    /// Sets an option of the DCP connection.
    DcpControl = 0x5e,
    /// Carries a change of collections.
    DcpSystemEvent = 0x5f,
    /// Carries an undecided durable write.
    DcpPrepare = 0x60,
    /// Says up to where a replica has prepared.
    DcpSeqnoAcknowledged = 0x61,
    /// Decides a durable write.
    DcpCommit = 0x62,
    /// Gives a durable write up.
    DcpAbort = 0x63,
    /// Moves the seqno on without a document.
    DcpSeqnoAdvanced = 0x64,
    /// Brackets a range sent in key order.
    DcpOsoSnapshot = 0x65,
    /// Carries cached documents.
    DcpCacheTransfer = 0x66,
    /// Ends a cache transfer.
    DcpCacheTransferEnd = 0x67,
    /// Cloud storage administration.
    GetFusionStorageSnapshot = 0x70,
    /// Cloud storage administration.
    ReleaseFusionStorageSnapshot = 0x71,
    /// Cloud storage administration.
    MountFusionVbucket = 0x72,
    /// Cloud storage administration.
    UnmountFusionVbucket = 0x73,
    /// Cloud storage administration.
    SyncFusionLogstore = 0x74,
    /// Cloud storage administration.
    StartFusionUploader = 0x75,
    /// Cloud storage administration.
    StopFusionUploader = 0x76,
    /// Cloud storage administration.
    DeleteFusionNamespace = 0x77,
    /// Cloud storage administration.
    GetFusionNamespaces = 0x78,
    /// Cloud storage administration.
    CreateFusionNamespace = 0x79,
    /// Halts the flusher.
    StopPersistence = 0x80,
    /// Lets the flusher continue.
    StartPersistence = 0x81,
    /// Sets a tuning parameter.
    SetParam = 0x82,
    /// Reads a document from a replica.
    GetReplica = 0x83,
    /// Sets a token for cloud storage.
    SetChronicleAuthToken = 0x84,
    /// Creates a bucket.
    CreateBucket = 0x85,
    /// Removes a bucket.
    DeleteBucket = 0x86,
    /// Names the buckets that the user can see.
    ListBuckets = 0x87,
    /// Binds the connection to a bucket.
    SelectBucket = 0x89,
    /// Makes a bucket hibernate.
    PauseBucket = 0x8a,
    /// Wakes a bucket.
    ResumeBucket = 0x8b,
    /// Checks a bucket's configuration.
    ValidateBucketConfig = 0x8c,
    /// Reads how far a vbucket has persisted.
    ObserveSeqno = 0x91,
    /// Reads how far given keys have persisted.
    Observe = 0x92,
    /// Drops a document from memory.
    EvictKey = 0x93,
    /// Reads a document and locks it.
    GetLocked = 0x94,
    /// Unlocks a document.
    UnlockKey = 0x95,
    /// Reads a vbucket's failover table.
    GetFailoverLog = 0x96,
    /// Withdrawn.
    LastClosedCheckpoint = 0x97,
    /// Withdrawn: TAP.
    DeregisterTapClient = 0x9e,
    /// Withdrawn.
    ResetReplicationChain = 0x9f,
    /// Reads a document's metadata, tombstones included.
    GetMeta = 0xa0,
    /// `GetMeta` without an answer on a miss.
    GetqMeta = 0xa1,
    /// Writes a document with given metadata.
    SetWithMeta = 0xa2,
    /// `SetWithMeta` without an answer on success.
    SetqWithMeta = 0xa3,
    /// Adds a document with given metadata.
    AddWithMeta = 0xa4,
    /// `AddWithMeta` without an answer on success.
    AddqWithMeta = 0xa5,
    /// Withdrawn.
    SnapshotVbStates = 0xa6,
    /// Withdrawn.
    VbucketBatchCount = 0xa7,
    /// Removes a document with given metadata.
    DelWithMeta = 0xa8,
    /// `DelWithMeta` without an answer on success.
    DelqWithMeta = 0xa9,
    /// Withdrawn.
    CreateCheckpoint = 0xaa,
    /// Withdrawn.
    NotifyVbucketUpdate = 0xac,
    /// Lets clients in.
    EnableTraffic = 0xad,
    /// Keeps clients out.
    DisableTraffic = 0xae,
    /// Manages network interfaces.
    Ifconfig = 0xaf,
    /// Withdrawn: TAP.
    ChangeVbFilter = 0xb0,
    /// Withdrawn.
    CheckpointPersistence = 0xb1,
    /// Writes and answers with the metadata.
    ReturnMeta = 0xb2,
    /// Compacts a vbucket's file.
    CompactDb = 0xb3,
    /// Installs a cluster map.
    SetClusterConfig = 0xb4,
    /// Reads the cluster map.
    GetClusterConfig = 0xb5,
    /// Reads some document.
    GetRandomKey = 0xb6,
    /// Waits until a seqno has persisted.
    SeqnoPersistence = 0xb7,
    /// Lists keys from a given one.
    GetKeys = 0xb8,
    /// Installs a collections manifest.
    CollectionsSetManifest = 0xb9,
    /// Reads the collections manifest.
    CollectionsGetManifest = 0xba,
    /// Finds a collection's id by its path.
    CollectionsGetId = 0xbb,
    /// Finds a scope's id by its name.
    CollectionsGetScopeId = 0xbc,
    /// Withdrawn.
    SetDriftCounterState = 0xc1,
    /// Withdrawn.
    GetAdjustedTime = 0xc2,
    /// Reads a path of a JSON document.
    SubdocGet = 0xc5,
    /// Checks whether a path exists.
    SubdocExists = 0xc6,
    /// Adds an object member.
    SubdocDictAdd = 0xc7,
    /// Writes an object member.
    SubdocDictUpsert = 0xc8,
    /// Removes a path.
    SubdocDelete = 0xc9,
    /// Replaces the value at a path.
    SubdocReplace = 0xca,
    /// Adds at an array's end.
    SubdocArrayPushLast = 0xcb,
    /// Adds at an array's start.
    SubdocArrayPushFirst = 0xcc,
    /// Adds inside an array.
    SubdocArrayInsert = 0xcd,
    /// Adds a value to an array that does not contain it.
    SubdocArrayAddUnique = 0xce,
    /// Adds to a number at a path.
    SubdocCounter = 0xcf,
    /// Reads several paths.
    SubdocMultiLookup = 0xd0,
    /// Changes several paths.
    SubdocMultiMutation = 0xd1,
    /// Counts the elements at a path.
    SubdocGetCount = 0xd2,
    /// Makes an extended attribute the body.
    SubdocReplaceBodyWithXattr = 0xd3,
    /// Opens a range scan.
    RangeScanCreate = 0xda,
    /// Reads on in a range scan.
    RangeScanContinue = 0xdb,
    /// Closes a range scan.
    RangeScanCancel = 0xdc,
    /// Makes a vbucket's files ready to copy.
    PrepareSnapshot = 0xe0,
    /// Lets those files go.
    ReleaseSnapshot = 0xe1,
    /// Fetches such files from another node.
    DownloadSnapshot = 0xe2,
    /// Reads a piece of such a file.
    GetFileFragment = 0xe3,
    /// Withdrawn.
    Scrub = 0xf0,
    /// Reads the password file again.
    IsaslRefresh = 0xf1,
    /// Withdrawn.
    SslCertsRefresh = 0xf2,
    /// Reads an opcode's latency histogram.
    GetCmdTimer = 0xf3,
    /// Sets the cluster manager's token.
    SetCtrlToken = 0xf4,
    /// Reads the cluster manager's token.
    GetCtrlToken = 0xf5,
    /// Sets the rights of an external user.
    UpdateExternalUserPermissions = 0xf6,
    /// Reads the rights of all users again.
    RbacRefresh = 0xf7,
    /// Offers to authenticate external users.
    AuthProvider = 0xf8,
    /// Drops one of the connection's privileges.
    DropPrivilege = 0xfb,
    /// Moves the clock, in tests.
    AdjustTimeofday = 0xfc,
    /// Plants failures, in tests.
    EwouldblockCtl = 0xfd,
    /// Reads the names of all statuses.
    GetErrorMap = 0xfe,
}

/// Position in [`ALL`] by code, plus one; 0 where no opcode has the code.
const POSITIONS: [u8; 256] = positions();

const fn positions() -> [u8; 256] {
    let mut positions = [0; 256];
    let mut index = 0;
    while index < ALL.len() {
        positions[ALL[index].0 as usize] = index as u8 + 1;
        index += 1;
    }
    positions
}

const _: () = assert!(ALL.len() < 255);

impl Opcode {
    /// The opcode with this code, if there is one.
    pub const fn from_u8(code: u8) -> Option<Opcode> {
        match POSITIONS[code as usize] {
            0 => None,
            position => Some(ALL[position as usize - 1].0),
        }
    }

    /// Name for logs and statistics.
    pub const fn name(self) -> &'static str {
        ALL[POSITIONS[self as usize] as usize - 1].1
    }

    /// Every opcode in ascending order of its code.
    pub fn all() -> impl Iterator<Item = Opcode> {
        ALL.iter().map(|(opcode, _)| *opcode)
    }

    /// True for requests of memcached's binary protocol, whose clients know no other requests
    /// except SASL's.
    pub const fn is_of_memcached(self) -> bool {
        self as u8 <= Opcode::Gatq as u8
    }

    /// True for operations that omit the usual response: reads on a miss, the rest on success.
    pub const fn is_quiet(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            Getq | Getkq
                | Gatq
                | GetqMeta
                | Setq
                | Addq
                | Replaceq
                | Deleteq
                | Incrementq
                | Decrementq
                | Quitq
                | Flushq
                | Appendq
                | Prependq
                | SetqWithMeta
                | AddqWithMeta
                | DelqWithMeta
                | Rsetq
                | Rappendq
                | Rprependq
                | Rdeleteq
                | Rincrq
                | Rdecrq
        )
    }
}

#[cfg(test)]
mod tests;
