//! Why a store fails. The engine decides by the variant whether it retries.

/// Why an operation of a store failed. Each carries text for the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused: no space, I/O error, permission.
    #[error("storage I/O: {0}")]
    Io(String),
    /// A remote store does not answer any request. No fault of its data is known.
    #[error("storage away: {0}")]
    Away(String),
    /// Bytes on disk differ from those that this version writes.
    #[error("storage corrupt: {0}")]
    Corrupt(String),
    /// The data belongs to something else or to an unknown format version.
    #[error("storage not usable: {0}")]
    Foreign(String),
    /// An earlier failure left the store's memory in doubt, so it refuses work until it is
    /// reopened.
    #[error("storage poisoned by an earlier error: {0}")]
    Poisoned(String),
    /// Another owner has taken the data over: the operation has no effect, however often it is
    /// repeated.
    #[error("storage taken over by another owner: {0}")]
    Fenced(String),
}

impl StoreError {
    /// For a part of a load that another store has planned.
    pub fn foreign_part() -> StoreError {
        StoreError::Foreign("a part of another store's load".into())
    }
}
