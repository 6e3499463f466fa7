//! The codes by which Kudu's servers report failures.
//!
//! Four families: the RPC layer, the master, the tablet server, and the general status that the
//! last two carry next to their own code. The numbers are Kudu's wire numbers. A number that this
//! client does not know (a newer server) becomes the family's `Unknown`, so decoding a code cannot
//! fail.

/// Defines an enum of wire numbers: `from_wire` reads one, `as i32` gives it back.
macro_rules! wire_codes {
    ($(#[$about:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum $name {
            $($(#[$doc])* $variant = $number,)*
        }

        impl $name {
            /// The code with this wire number; `Unknown` for any other number.
            pub const fn from_wire(number: i32) -> $name {
                match number {
                    $($number => $name::$variant,)*
                    _ => $name::Unknown,
                }
            }
        }
    };
}

wire_codes! {
    /// Why the RPC layer of a server refused a call.
    #[non_exhaustive]
    pub enum RpcErrorCode {
        /// A failure without a more precise code; the server closes the connection.
        Unknown = 10,
        /// The called service failed with its own error.
        Application = 1,
        /// The service has no such method.
        NoSuchMethod = 2,
        /// The server has no such service.
        NoSuchService = 3,
        /// The server's queue is full, or the call waited in it past its deadline.
        ServerTooBusy = 4,
        /// The request does not parse, or needs a feature that the server lacks.
        InvalidRequest = 5,
        /// The server no longer remembers the outcome of this request id.
        RequestStale = 6,
        /// The service is not ready yet, or no longer.
        Unavailable = 7,
        /// The server is stopping; it closes the connection.
        ServerShuttingDown = 11,
        /// The header of the request does not parse.
        InvalidRpcHeader = 12,
        /// The request could not be deserialised.
        DeserializingRequest = 13,
        /// The server speaks another version of the protocol.
        VersionMismatch = 14,
        /// The connection lacks the required authentication.
        Unauthorized = 15,
        /// The authentication token is expired or not signed by this cluster.
        InvalidAuthenticationToken = 16,
        /// The authorization token is expired or not signed by this cluster.
        InvalidAuthorizationToken = 17,
        /// The JSON web token was not accepted.
        InvalidJwt = 18,
    }
}

wire_codes! {
    /// The general status next to a master's or a tablet server's own code, and of each failed row.
    #[non_exhaustive]
    pub enum StatusCode {
        /// A status without a more precise code.
        Unknown = 999,
        /// No error.
        Ok = 0,
        /// The row, table or tablet does not exist.
        NotFound = 1,
        /// Stored data is damaged.
        Corruption = 2,
        /// The server does not support this.
        NotSupported = 3,
        /// The request is not valid.
        InvalidArgument = 4,
        /// A disk of the server failed.
        IoError = 5,
        /// The row or table exists already.
        AlreadyPresent = 6,
        /// The server failed while it ran the request.
        RuntimeError = 7,
        /// The server could not reach another one.
        NetworkError = 8,
        /// The server or tablet is in the wrong state for this operation.
        IllegalState = 9,
        /// The user may not do this.
        NotAuthorized = 10,
        /// The server aborted the operation.
        Aborted = 11,
        /// Another server refused.
        RemoteError = 12,
        /// The server is overloaded; try again later.
        ServiceUnavailable = 13,
        /// The server did not finish in time.
        TimedOut = 14,
        /// Something is not started yet.
        Uninitialized = 15,
        /// The server is configured wrongly for this.
        ConfigurationError = 16,
        /// The operation is not complete.
        Incomplete = 17,
        /// Data ended early.
        EndOfFile = 18,
        /// The operation was cancelled.
        Cancelled = 19,
        /// The request changes an immutable column.
        Immutable = 20,
    }
}

wire_codes! {
    /// Why a master refused a request.
    #[non_exhaustive]
    pub enum MasterErrorCode {
        /// A failure without a more precise code; the status next to it says more.
        Unknown = 1,
        /// The schema of the request is not valid.
        InvalidSchema = 2,
        /// There is no such table.
        TableNotFound = 3,
        /// A table of this name exists.
        TableAlreadyPresent = 4,
        /// The table would have more tablets than allowed.
        TooManyTablets = 5,
        /// The master is the leader, but has not loaded its catalog yet.
        CatalogManagerNotInitialized = 6,
        /// Another master is the leader.
        NotTheLeader = 7,
        /// There are fewer live tablet servers than replicas asked for.
        ReplicationFactorTooHigh = 8,
        /// A tablet of the table is not running yet.
        TabletNotRunning = 9,
        /// The number of replicas is even.
        EvenReplicationFactor = 10,
        /// The number of replicas is not allowed.
        IllegalReplicationFactor = 11,
        /// Master and tablet server manage replicas in different ways.
        IncompatibleReplicaManagement = 12,
        /// The Hive Metastore failed.
        HiveMetastoreError = 13,
        /// The user may not do this.
        NotAuthorized = 14,
        /// The master to add is a member already.
        MasterAlreadyPresent = 15,
        /// The table is deleted, but can still be recalled.
        TableSoftDeleted = 16,
    }
}

wire_codes! {
    /// Why a tablet server refused a request.
    #[non_exhaustive]
    pub enum TabletServerErrorCode {
        /// A failure without a more precise code; the status next to it says more.
        Unknown = 1,
        /// The schema of the request is not valid.
        InvalidSchema = 2,
        /// The rows of the request do not parse.
        InvalidRowBlock = 3,
        /// A mutation of the request is not valid.
        InvalidMutation = 4,
        /// The schema of the request does not fit the tablet's.
        MismatchedSchema = 5,
        /// The server has no replica of this tablet.
        TabletNotFound = 6,
        /// The scanner has expired on the server.
        ScannerExpired = 7,
        /// The scan specification is not valid.
        InvalidScanSpec = 8,
        /// The requested configuration is not valid.
        InvalidConfig = 9,
        /// The tablet exists already.
        TabletAlreadyExists = 10,
        /// The tablet's schema is newer than the request's.
        TabletHasANewerSchema = 11,
        /// The replica is starting, stopping or failed.
        TabletNotRunning = 12,
        /// The snapshot time is not available.
        InvalidSnapshot = 13,
        /// The call of the scanner came out of sequence.
        InvalidScanCallSeqId = 14,
        /// This replica is not the leader.
        NotTheLeader = 15,
        /// Another server answers at this address.
        WrongServerUuid = 16,
        /// A compare-and-set of the configuration failed.
        CasFailed = 17,
        /// The same operation is already under way.
        AlreadyInProgress = 18,
        /// The server sheds load.
        Throttled = 19,
        /// The replica has failed for good.
        TabletFailed = 20,
        /// The user may not do this.
        NotAuthorized = 21,
        /// The transaction is in the wrong state for this operation.
        TxnIllegalState = 22,
        /// The operation of the transaction was applied before.
        TxnOpAlreadyApplied = 23,
        /// Another transaction holds the tablet; this one must abort.
        TxnLockedAbort = 24,
        /// Another transaction holds the tablet; the client may retry the write.
        TxnLockedRetryOp = 25,
    }
}
