//! Look-ups of the names of nodes.
//!
//! Owns: the threads that wait for name servers. A look-up cannot be cut short, so each name has a
//! thread while it is looked up: one that hangs delays no other. Links that ask for a name by then
//! get the result of the same look-up. Invariants: a name has one thread at most, there are at most
//! [`NAMES_MAX`] of them, and a link has one question at a time. Nothing waits for these threads at
//! the end: what they find out is dropped then.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::failure::LinkFailure;
use super::message::{LinkId, LinkMessage, LinkWorker};
use super::work::{LinkWorkResult, look_up};

/// Names that are looked up at the same time: more than a cluster has nodes that are gone.
pub(super) const NAMES_MAX: usize = 32;

type NodeName = (String, u16);
type LookUp = dyn Fn(&str, u16) -> Result<Vec<SocketAddr>, LinkFailure> + Send + Sync;

/// A link that waits for a name.
type Asker = (LinkId, Arc<dyn LinkWorker>);

/// See the module text.
pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    waiting: Arc<Mutex<BTreeMap<NodeName, Vec<Asker>>>>,
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver::with(Arc::new(look_up))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("names", &self.waiting.lock().len()).finish()
    }
}

impl Resolver {
    pub(super) fn with(look_up: Arc<LookUp>) -> Resolver {
        Resolver { look_up, waiting: Arc::default() }
    }

    /// Looks a name up for a link, which gets the result as work that is done. A link that gets
    /// none asks again.
    pub(super) fn resolve(&self, name: NodeName, (link, reply_to): Asker) {
        let mut waiting = self.waiting.lock();
        if let Some(askers) = waiting.get_mut(&name) {
            askers.retain(|(other, to)| other.slot != link.slot || !Arc::ptr_eq(to, &reply_to));
            askers.push((link, reply_to));
            return;
        }
        if waiting.len() >= NAMES_MAX {
            return;
        }
        waiting.insert(name.clone(), vec![(link, reply_to)]);
        assert!(waiting.len() <= NAMES_MAX, "look-ups are bounded");
        drop(waiting);
        let (look_up, waiting) = (Arc::clone(&self.look_up), Arc::clone(&self.waiting));
        let looked_up = name.clone();
        let started = oribi_supervisor::spawn("oribi-resolver", move || {
            let found = look_up(&looked_up.0, looked_up.1);
            let askers = waiting.lock().remove(&looked_up).unwrap_or_default();
            for (link, reply_to) in askers {
                let result = LinkWorkResult::Resolved(found.clone());
                reply_to.post_link(LinkMessage::WorkDone { link, result });
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread that looks up a node's name");
            self.waiting.lock().remove(&name);
        }
    }
}
