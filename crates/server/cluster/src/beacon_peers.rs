//! Where the beacons of this node go.
//!
//! Owns: the addresses of the other nodes, from their records. A node keeps its place when its
//! record is gone: it may live, and lack the agreement alone. Names are resolved in the background,
//! and again while a node is silent; one resolution of a name is under way at a time. Called by the
//! agent at each tick.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::beacons::BeaconPeers;
use crate::records::NodeRecord;

/// The nodes that get beacons, and the places that the agent has given the thread of beacons.
#[derive(Clone, Default)]
pub(crate) struct PeersCell {
    pub(crate) peers: Arc<BeaconPeers>,
    /// Where this node receives beacons.
    pub(crate) own: Option<SocketAddr>,
    places: Arc<Mutex<BTreeMap<String, BeaconPlace>>>,
}

/// The place of one node.
#[derive(Default)]
struct BeaconPlace {
    host: String,
    port: u16,
    is_known: bool,
    is_resolving: bool,
}

impl PeersCell {
    /// Takes note of the other nodes' records; names of nodes that are silent are resolved again.
    pub(crate) fn note<'n>(
        &self,
        others: impl Iterator<Item = (&'n String, &'n NodeRecord)>,
        silent: &BTreeSet<String>,
    ) {
        let Some(own) = self.own else { return };
        others.for_each(|(name, record)| self.note_one(own, (name, record), silent.contains(name)));
    }

    fn note_one(&self, own: SocketAddr, (name, record): (&str, &NodeRecord), is_silent: bool) {
        // Without a disk for copies it has none to grant for.
        let (Some(beacons), Some(_)) = (record.beacons, &record.disk) else { return };
        self.peers.know(name, beacons.process);
        let mut places = self.places.lock();
        let place = places.entry(name.to_owned()).or_default();
        let is_same = place.host == record.host && place.port == beacons.port;
        if place.is_resolving || (is_same && place.is_known && !is_silent) {
            return;
        }
        (place.host, place.port) = (record.host.clone(), beacons.port);
        match record.host.parse::<IpAddr>() {
            Ok(ip) => {
                place.is_known = true;
                self.peers.set_address(name, SocketAddr::new(ip, beacons.port));
            }
            Err(_) => {
                place.is_resolving = true;
                self.resolve(name.to_owned(), (record.host.clone(), beacons.port), own.is_ipv4());
            }
        }
    }

    fn resolve(&self, name: String, place: (String, u16), is_ipv4: bool) {
        let cell = self.clone();
        tokio::spawn(async move {
            let found = tokio::net::lookup_host(place.clone()).await;
            let address = found.ok().and_then(|mut found| found.find(|it| it.is_ipv4() == is_ipv4));
            match address {
                Some(address) => cell.peers.set_address(&name, address),
                None => tracing::debug!(node = name, host = place.0, "the name is not resolved"),
            }
            let mut places = cell.places.lock();
            let place = places.get_mut(&name).expect("a place stays");
            assert!(place.is_resolving, "one resolution of a name is under way");
            place.is_resolving = false;
            place.is_known |= address.is_some();
        });
    }
}
