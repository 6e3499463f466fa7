//! The links of one worker: connections that this node opens to others, to follow their changes.
//!
//! Owns: when a link connects, and when it tries again. A link has a turn when its socket is ready,
//! when work is done or when a timer is over; a turn moves a bounded number of bytes, so clients
//! of the worker wait for one such turn at most. Invariants: a link is closed when all its copies
//! have stopped; each change between up and down is logged once, with its reason.
//!
//! The worker calls this between the turns of its clients.

mod link;

use std::collections::BTreeMap;
use std::sync::Arc;

use mio::Registry;
use mio::event::Event;
use slab::Slab;

use crate::dispatch::environment::Environment;
use crate::replication::followed_copy::FollowedCopy;
use crate::replication::message::{LinkId, LinkMessage};
use crate::runtime::mailbox::Mailbox;
pub(super) use link::LINK_TOKENS;
use link::{LinkKey, LinkTurn, OutgoingLink};

/// See the module text.
#[derive(Default)]
pub(super) struct OutgoingLinks {
    links: Slab<OutgoingLink>,
    by_key: BTreeMap<LinkKey, usize>,
    /// Slots of links with something to do now, each once.
    ready: Vec<usize>,
    /// When the first other link has something to do, or earlier.
    due_ms: Option<u64>,
    next_attempt: u64,
}

impl OutgoingLinks {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// True when [`OutgoingLinks::run`] has something to do.
    pub(super) fn has_work(&self, now_ms: u64) -> bool {
        !self.ready.is_empty() || self.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// When it has at the latest.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    pub(super) fn on_event(&mut self, slot: usize, event: &Event) {
        if let Some(link) = self.links.get_mut(slot) {
            link.note_event(event);
            self.make_ready(slot);
        }
    }

    pub(super) fn receive(&mut self, message: LinkMessage, env: &Environment) {
        match message {
            LinkMessage::Follow(copy) => self.follow(copy, env),
            LinkMessage::Stopped => {
                self.links.iter_mut().for_each(|(_, link)| link.note_stopped());
                let slots: Vec<usize> = self.links.iter().map(|(slot, _)| slot).collect();
                slots.into_iter().for_each(|slot| self.make_ready(slot));
            }
            LinkMessage::Stored { link: LinkId { slot, attempt }, vbid, outcome } => {
                let link = self.links.get_mut(slot).filter(|link| link.attempt() == attempt);
                if let Some(link) = link {
                    link.note_stored(vbid, outcome, env.now_ms);
                    self.make_ready(slot);
                }
            }
            LinkMessage::WorkDone { link: LinkId { slot, attempt }, result } => {
                let link = self.links.get_mut(slot).filter(|link| link.attempt() == attempt);
                if let Some(link) = link {
                    link.work_done(result);
                    self.make_ready(slot);
                }
            }
        }
    }

    fn follow(&mut self, copy: Arc<FollowedCopy>, env: &Environment) {
        let Some((own, secret)) = env.server.cluster.links.identity() else { return };
        let key = LinkKey::of(&copy);
        let links = &mut self.links;
        let slot = *self.by_key.entry(key).or_insert_with_key(|key| {
            links.insert(OutgoingLink::new(key.clone(), (own, secret), &copy))
        });
        if let Some(link) = self.links.get_mut(slot) {
            link.follow(copy);
        }
        self.make_ready(slot);
    }

    fn make_ready(&mut self, slot: usize) {
        if !self.ready.contains(&slot) {
            self.ready.push(slot);
            debug_assert!(self.links.contains(slot), "a link that is ready exists");
        }
    }

    /// Gives links with something to do a turn.
    pub(super) fn run(
        &mut self,
        env: &mut Environment,
        registry: &Registry,
        mailbox: &Arc<Mailbox>,
    ) {
        if self.due_ms.is_some_and(|due_ms| due_ms <= env.now_ms) {
            let due: Vec<usize> = self.links.iter().map(|(slot, _)| slot).collect();
            due.into_iter().for_each(|slot| self.make_ready(slot));
        }
        for slot in std::mem::take(&mut self.ready) {
            let Some(link) = self.links.get_mut(slot) else { continue };
            self.next_attempt += 1;
            match link.turn((slot, self.next_attempt), env, registry, mailbox) {
                LinkTurn::Again => self.make_ready(slot),
                LinkTurn::Idle => {}
                LinkTurn::Over => {
                    self.by_key.remove(link.key());
                    debug_assert_eq!(
                        self.by_key.len() + 1,
                        self.links.len(),
                        "a link is found by its key"
                    );
                    self.links.remove(slot);
                }
            }
        }
        self.due_ms = self.links.iter().filter_map(|(_, link)| link.due_ms(env.now_ms)).min();
    }

    /// Ends all links, when the worker ends.
    pub(super) fn close_all(&mut self, env: &mut Environment) {
        self.links.drain().for_each(|mut link| link.close(env));
        self.by_key.clear();
        assert!(self.links.is_empty(), "a worker that ends has no link");
        self.ready.clear();
        self.due_ms = None;
    }
}
