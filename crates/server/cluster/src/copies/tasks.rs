//! What an agent keeps between two looks at the records of copies.

use std::collections::HashMap;

use tokio::task::JoinHandle;

/// Background work on copies, and what was seen so far.
#[derive(Default)]
pub(crate) struct CopyTasks {
    /// By uuid of the bucket.
    pub(crate) running: HashMap<String, JoinHandle<()>>,
    /// The last reports that were written in a session, by uuid.
    pub(crate) reported: HashMap<String, (u64, Vec<u8>)>,
    /// Highest revision of agreement.
    pub(crate) revision_seen: i64,
    /// Agreement has lost changes.
    pub(crate) is_stopped: bool,
}
