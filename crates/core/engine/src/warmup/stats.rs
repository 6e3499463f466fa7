//! Figures of loading a bucket.

/// The phase of warmup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WarmupState {
    /// Loads documents with their values.
    #[default]
    Values,
    /// Memory has reached the low watermark: loads keys and metadata.
    Metadata,
    /// Nothing is left to load.
    Done,
}

/// Progress of loading documents from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WarmupStats {
    pub state: WarmupState,
    /// Vbuckets that had documents to load.
    pub vbuckets: usize,
    /// Of these, loaded. Stores that load all vbuckets together end with all of them.
    pub vbuckets_done: usize,
    /// Documents and tombstones that the store has; an estimate, and 0 when the store has none.
    pub items_estimate: u64,
    pub items: u64,
    /// Of these, loaded with their values.
    pub values: u64,
    /// Tombstones seen in the store; they stay there.
    pub tombstones: u64,
    /// Documents of which memory already had this version or a newer one.
    pub overtaken: u64,
    /// Vbuckets whose load failed; they stay in temporary failure.
    pub failed: usize,
    /// True when nothing is left to load.
    pub done: bool,
    /// Wall time from the first step to the last so far, in microseconds.
    pub elapsed_us: u64,
}
