//! The rules on a table without sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use oribi_auth::{Access, Identity, Role};

use super::{ActiveRequest, AdmissionControl, ConnectionSlot, Network};
use crate::limits::{
    ADMIN_ANONYMOUS_PER_NETWORK_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_LOGINS_MAX,
    ADMIN_LOGINS_PER_NETWORK_MAX, ADMIN_STREAMS_PER_USER_MAX, ADMIN_USER_CONNECTIONS_MAX,
    ADMIN_USERS_CONNECTIONS_MAX,
};

fn address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number as u32))
}

fn user(name: &str, role: &str) -> Identity {
    let roles = vec![role.parse::<Role>().unwrap()];
    Identity { name: name.to_owned(), access: Access::new(roles), bucket: None, collection: None }
}

fn admin() -> Identity {
    user("root", "admin")
}

fn is_ended(place: &Arc<ConnectionSlot>) -> bool {
    !place.admission.table.lock().places.contains_key(&place.id)
}

/// The maximum of connections for the users of these names, each with a request in progress.
fn busy_users(
    admission: &Arc<AdmissionControl>,
    count: usize,
) -> Vec<(Arc<ConnectionSlot>, ActiveRequest)> {
    let mut held = Vec::new();
    for index in 0..count {
        let place = admission.enter(address(index)).unwrap();
        let identity = user(&format!("user-{}", index / ADMIN_USER_CONNECTIONS_MAX), "read-only:*");
        let Some(busy) = place.begin_request(&identity) else { break };
        held.push((place, busy));
    }
    held
}

#[test]
fn of_one_network_the_oldest_idle_connection_goes() {
    let admission = Arc::new(AdmissionControl::default());
    let held: Vec<_> = (0..ADMIN_ANONYMOUS_PER_NETWORK_MAX)
        .map(|_| admission.enter(address(1)).unwrap())
        .collect();
    let elsewhere = admission.enter(address(2)).unwrap();
    let next = admission.enter(address(1)).unwrap();
    assert!(is_ended(&held[0]) && !is_ended(&held[1]) && !is_ended(&elsewhere));
    assert!(!is_ended(&next));
    assert_eq!(admission.turnover().evicted, 1);
    drop((held, elsewhere, next));
    assert_eq!(admission.connections(), 0);
}

#[test]
fn idle_connections_leave_capacity_for_one_more() {
    let admission = Arc::new(AdmissionControl::default());
    let held: Vec<_> =
        (0..3 * ADMIN_CONNECTIONS_MAX).map(|n| admission.enter(address(n / 3)).unwrap()).collect();
    assert_eq!(admission.connections(), ADMIN_CONNECTIONS_MAX);
    assert!(!is_ended(held.last().unwrap()));
    let place = admission.enter(address(9999)).unwrap();
    let busy = place.begin_request(&admin()).unwrap();
    let flood: Vec<_> =
        (0..3 * ADMIN_CONNECTIONS_MAX).map(|n| admission.enter(address(n)).unwrap()).collect();
    assert!(!is_ended(&place), "a request under way is never interrupted");
    drop((busy, held, flood));
}

#[test]
fn an_idle_administrator_goes_last() {
    let admission = Arc::new(AdmissionControl::default());
    let place = admission.enter(address(0)).unwrap();
    drop(place.begin_request(&admin()).unwrap());
    let reader = admission.enter(address(1)).unwrap();
    drop(reader.begin_request(&user("reader", "read-only:*")).unwrap());
    let flood: Vec<_> =
        (2..2 * ADMIN_CONNECTIONS_MAX).map(|n| admission.enter(address(n)).unwrap()).collect();
    assert!(!is_ended(&place) && !is_ended(&reader));
    assert_eq!(admission.connections(), ADMIN_CONNECTIONS_MAX);
    drop(flood);
}

#[test]
fn users_leave_half_of_the_places() {
    let admission = Arc::new(AdmissionControl::default());
    let mut held = busy_users(&admission, ADMIN_CONNECTIONS_MAX);
    assert_eq!(held.len(), ADMIN_USERS_CONNECTIONS_MAX);
    let place = admission.enter(address(7)).unwrap();
    assert!(place.begin_request(&user("one more", "read-only:*")).is_none());
    assert!(place.begin_request(&admin()).is_some());
    // A finished request leaves an idle connection, which makes space.
    let (idle, busy) = held.remove(3);
    drop(busy);
    assert!(place.begin_request(&user("one more", "read-only:*")).is_some());
    assert!(is_ended(&idle));
}

#[test]
fn one_user_has_a_limit() {
    let admission = Arc::new(AdmissionControl::default());
    for identity in [admin(), user("reader", "read-only:*")] {
        let held: Vec<_> = (0..ADMIN_USER_CONNECTIONS_MAX)
            .map(|n| {
                let place = admission.enter(address(n)).unwrap();
                let busy = place.begin_request(&identity).unwrap();
                (place, busy)
            })
            .collect();
        let place = admission.enter(address(7)).unwrap();
        assert!(place.begin_request(&identity).is_none());
        assert!(place.begin_request(&user("another", "admin")).is_some());
        drop(held);
        assert!(place.begin_request(&identity).is_some());
    }
}

#[test]
fn passwords_being_checked_are_few() {
    let admission = Arc::new(AdmissionControl::default());
    let mut held = Vec::new();
    for number in 0..2 * ADMIN_LOGINS_MAX {
        let place = admission.enter(address(number / (2 * ADMIN_LOGINS_PER_NETWORK_MAX))).unwrap();
        if let Some(busy) = place.begin_login() {
            held.push((place, busy));
        }
    }
    assert_eq!(held.len(), ADMIN_LOGINS_MAX);
    assert!(admission.turnover().refused > 0);
    // Guessing clients leave all other places free.
    let healthz = admission.enter(address(0)).unwrap();
    assert!(healthz.begin_request(&admin()).is_some());
}

#[test]
fn streams_of_a_user_are_limited_and_given_back() {
    let admission = Arc::new(AdmissionControl::default());
    let reader = user("reader", "read-only:*");
    let stream = |n| {
        let place = admission.enter(address(n)).unwrap();
        place.begin_request(&reader).unwrap().into_stream(&reader)
    };
    let held: Vec<_> = (0..ADMIN_STREAMS_PER_USER_MAX).map(|n| stream(n).unwrap()).collect();
    assert!(stream(99).is_none());
    drop(held);
    assert!(stream(99).is_some());
    assert!(admission.table.lock().streams.is_empty() && admission.connections() == 0);
}

#[test]
fn a_network_is_an_address_or_a_64_bit_prefix() {
    let of = |text: &str| Network::of(text.parse().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
}
