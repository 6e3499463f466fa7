//! What other threads say to the links of a worker.

use std::fmt;
use std::sync::Arc;

use oribi_engine::PersistOutcome;
use oribi_types::Vbid;

use super::followed_copy::FollowedCopy;
use super::work::LinkWorkResult;

/// Identifies an attempt of a link to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId {
    pub(crate) slot: usize,
    /// Distinguishes successive attempts, and links.
    pub(crate) attempt: u64,
}

/// See the module text.
pub enum LinkMessage {
    /// A copy that is to follow.
    Follow(Arc<FollowedCopy>),
    /// A copy has stopped to follow.
    Stopped,
    /// The store of a copy has what a link waits for, or failed.
    Stored { link: LinkId, vbid: Vbid, outcome: PersistOutcome },
    /// Work of a link is done.
    WorkDone { link: LinkId, result: LinkWorkResult },
}

/// A worker that drives links. Its mailbox implements this.
pub(crate) trait LinkWorker: Send + Sync {
    /// Hands the message over without waiting.
    fn post_link(&self, message: LinkMessage);
}

impl fmt::Debug for LinkMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkMessage::Follow(copy) => write!(f, "Follow({})", copy.vbid.0),
            LinkMessage::Stopped => f.write_str("Stopped"),
            LinkMessage::Stored { link, vbid, .. } => write!(f, "Stored({link:?}, {})", vbid.0),
            LinkMessage::WorkDone { link, .. } => write!(f, "WorkDone({link:?})"),
        }
    }
}
