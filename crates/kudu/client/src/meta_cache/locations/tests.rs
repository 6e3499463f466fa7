//! The map of tablets against answers of a master: order, gaps, expiry, identity, and a model.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::meta_cache::tablet::tests::{range, replicas};

const LIMIT: usize = 10;

fn located(id: &str, start: &str, end: &str) -> LocatedTablet {
    LocatedTablet {
        id: id.to_owned(),
        partition: range(start.as_bytes(), end.as_bytes()),
        replicas: replicas(3, Some(0)),
    }
}

/// `+ID`, `gap` or `?`: the map's answer for a key.
fn said(locations: &TableLocations, key: &str, now: Instant) -> String {
    match locations.find(key.as_bytes(), now) {
        Location::Tablet(tablet) => format!("+{}", tablet.id()),
        Location::NonCovered => "gap".to_owned(),
        Location::Unknown => "?".to_owned(),
    }
}

fn later(now: Instant) -> Instant {
    now + Duration::from_secs(300)
}

#[test]
fn tablets_and_the_gaps_between_them_are_found() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    assert_eq!(said(&locations, "b", now), "?");
    locations.absorb(b"a", LIMIT, vec![located("1", "b", "d"), located("2", "f", "h")], later(now));
    let answers: Vec<String> = ["", "a", "b", "cz", "d", "e", "f", "h", "z"]
        .iter()
        .map(|key| said(&locations, key, now))
        .collect();
    assert_eq!(answers, ["gap", "gap", "+1", "+1", "gap", "gap", "+2", "gap", "gap"]);
    let ids: Vec<_> =
        locations.complete(now).unwrap().iter().map(|tablet| tablet.id().to_owned()).collect();
    assert_eq!(ids, ["1", "2"]);
}

#[test]
fn tablets_not_in_a_full_answer_stay_unknown() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    locations.absorb(b"c", 2, vec![located("1", "b", "d"), located("2", "d", "h")], later(now));
    assert_eq!(said(&locations, "a", now), "?");
    assert_eq!(said(&locations, "h", now), "?");
    assert_eq!(locations.complete(now).unwrap_err(), Bytes::new());
    locations.absorb(b"", 2, vec![located("0", "", "b"), located("1", "b", "d")], later(now));
    assert_eq!(locations.complete(now).unwrap_err(), Bytes::from_static(b"h"));
}

#[test]
fn a_table_without_tablets_is_one_gap() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    locations.absorb(b"q", LIMIT, Vec::new(), later(now));
    assert_eq!(said(&locations, "", now), "gap");
    assert!(locations.complete(now).unwrap().is_empty());
    locations.forget_gaps();
    assert_eq!(said(&locations, "", now), "?");
}

#[test]
fn an_expired_entry_is_unknown() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    locations.absorb(b"", LIMIT, vec![located("1", "", "")], later(now));
    assert_eq!(locations.complete(now).unwrap().len(), 1);
    assert_eq!(said(&locations, "k", later(now)), "?");
    assert_eq!(locations.complete(later(now)).unwrap_err(), Bytes::new());
}

#[test]
fn a_tablet_keeps_its_identity_and_gets_new_replicas() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    locations.absorb(b"", LIMIT, vec![located("1", "", "")], later(now));
    let held = locations.complete(now).unwrap()[0].clone();
    held.replicas().mark_failed(0);
    locations.absorb(b"", LIMIT, vec![located("1", "", "")], later(now));
    assert_eq!(held.replicas().leader(), Some(0));
    assert!(Arc::ptr_eq(&held, &locations.complete(now).unwrap()[0]));
}

#[test]
fn a_re_added_range_replaces_its_overlaps() {
    let now = Instant::now();
    let mut locations = TableLocations::default();
    locations.absorb(b"", LIMIT, vec![located("1", "b", "d"), located("2", "d", "h")], later(now));
    locations.absorb(b"c", LIMIT, vec![located("3", "c", "f")], later(now));
    let answers: Vec<String> =
        ["b", "c", "e", "f"].iter().map(|key| said(&locations, key, now)).collect();
    assert_eq!(answers, ["?", "+3", "+3", "gap"]);
    locations.forget_tablet("3");
    assert_eq!(said(&locations, "c", now), "?");
}

proptest! {
    /// A random walk over a master with tablets at some of the 26 letters. Whatever the map claims
    /// to know is what the master has. Asking for unknown keys always ends with a full list.
    #[test]
    fn the_map_never_contradicts_the_master(tablets in prop::collection::btree_set(0_u8..26, 0..12), asked in prop::collection::vec(0_u8..26, 0..20), limit in 2_usize..5) {
        let now = Instant::now();
        let key = |letter: u8| vec![b'a' + letter];
        let answer = |from: &[u8]| -> Vec<LocatedTablet> {
            let starts: Vec<u8> = tablets.iter().copied().collect();
            let first = starts.iter().rposition(|start| key(*start).as_slice() <= from).unwrap_or(0);
            starts[first.min(starts.len())..].iter().take(limit).map(|start| LocatedTablet {
                id: start.to_string(), partition: range(&key(*start), &key(*start + 1)), replicas: Vec::new(),
            }).collect()
        };
        let mut locations = TableLocations::default();
        for letter in asked {
            locations.absorb(&key(letter), limit, answer(&key(letter)), later(now));
            prop_assert!(!matches!(locations.find(&key(letter), now), Location::Unknown) || tablets.iter().all(|start| *start != letter));
            for letter in 0..26 {
                match locations.find(&key(letter), now) {
                    Location::Tablet(tablet) => prop_assert_eq!(tablet.id(), letter.to_string()),
                    Location::NonCovered => prop_assert!(!tablets.contains(&letter)),
                    Location::Unknown => {}
                }
            }
        }
        let mut questions = 0;
        let full = loop {
            match locations.complete(now) {
                Ok(full) => break full,
                Err(unknown) => locations.absorb(&unknown, limit, answer(&unknown), later(now)),
            }
            questions += 1;
            prop_assert!(questions < 60);
        };
        prop_assert_eq!(full.iter().map(|tablet| tablet.id().to_owned()).collect::<Vec<_>>(), tablets.iter().map(u8::to_string).collect::<Vec<_>>());
    }
}
