//! Reasons to fetch the cluster map, gathered for the one task that does it.
//!
//! Connections report what servers announce, pipelines report refusals, and links report nodes that
//! they cannot reach. Each leaves a note and never waits. Owns no map.

use oribi_protocol::request::ConfigVersion;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// See the module text.
#[derive(Default)]
pub(crate) struct ConfigWatch {
    note: Mutex<Note>,
    wakeup: Notify,
}

#[derive(Default)]
struct Note {
    announced: ConfigVersion,
    was_refused: bool,
}

impl ConfigWatch {
    /// A server has a map of this version.
    pub fn announce(&self, version: ConfigVersion) {
        let mut note = self.note.lock();
        if version > note.announced {
            note.announced = version;
            self.wakeup.notify_one();
        }
    }

    /// A node refused an operation for a vbucket that it does not serve, or cannot be reached.
    pub fn report_refusal(&self) {
        let was_refused = std::mem::replace(&mut self.note.lock().was_refused, true);
        if !was_refused {
            self.wakeup.notify_one();
        }
    }

    /// Wakes the fetching task without a reason.
    pub fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Waits until something may have happened.
    pub async fn changed(&self) {
        self.wakeup.notified().await;
    }

    /// True when a holder of `present` should fetch the map; forgets the reason.
    pub fn take_reason(&self, present: ConfigVersion) -> bool {
        let mut note = self.note.lock();
        std::mem::take(&mut note.was_refused) || note.announced > present
    }
}

#[cfg(test)]
mod tests {
    //! What counts as a reason.

    use super::*;

    #[test]
    fn only_newer_maps_and_refusals_are_reasons() {
        let version = |revision| ConfigVersion { epoch: 1, revision };
        let watch = ConfigWatch::default();
        assert!(!watch.take_reason(version(0)));
        watch.announce(version(5));
        watch.announce(version(4));
        assert!(watch.take_reason(version(4)));
        assert!(!watch.take_reason(version(5)));
        watch.report_refusal();
        assert!(watch.take_reason(version(5)));
        assert!(!watch.take_reason(version(5)));
    }
}
