//! Checks a master's answer about tablet locations; see the crate's `harness`.

use tokio::time::{Duration, Instant};

use super::decode::located_tablets;
use super::locations::{Location, TableLocations};
use crate::proto::master::GetTableLocationsResponsePb;

/// Takes an answer to a question about a key into an empty cache, and looks up the key.
///
/// # Panics
/// When the key is found in a tablet that does not hold it.
pub(crate) fn check(answer: GetTableLocationsResponsePb, key: &[u8]) {
    let Ok(tablets) = located_tablets(answer) else { return };
    let now = Instant::now();
    let limit = tablets.len() + key.len() % 2;
    let mut locations = TableLocations::default();
    locations.absorb(key, limit, tablets, now + Duration::from_secs(1));
    if let Location::Tablet(tablet) = locations.find(key, now) {
        assert!(tablet.contains(key), "a key is sent to a tablet that holds it");
    }
    let _ = locations.complete(now);
}
