//! Replacement of certificates while clients are connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use oribi_tls::testing::Owner;

use super::{Client, Fixture, PATIENCE, ask, connect, get, set};

/// The certificate that the server presents.
fn certificate(client: &Client) -> Vec<u8> {
    client.conn.peer_certificates().unwrap()[0].to_vec()
}

impl Fixture {
    fn replace(&self, owner: &Owner) {
        self.authority.issue(owner).write(&self.path("server.pem"), &self.path("server.key"));
    }
}

#[test]
fn new_certificates_apply_bad_ones_never() {
    let fixture = Fixture::start(|_| {});
    let mut old = fixture.connect();
    let first = certificate(&old);
    let tls = fixture.server().context().access.tls.as_ref().unwrap();

    fixture.replace(&Owner::server("db.test"));
    tls.reload().unwrap();
    let second = certificate(&fixture.connect());
    assert_ne!(first, second);
    assert_eq!(ask(&mut old, &set(b"k", b"v")).0, 0, "what is connected stays");

    fixture.replace(&Owner::server("db.test").expired());
    let refused = tls.reload().unwrap_err().to_string();
    assert!(refused.contains("expired"), "{refused}");
    std::fs::write(fixture.path("server.pem"), "nothing").unwrap();
    let refused = tls.reload().unwrap_err().to_string();
    assert!(refused.contains("no certificate"), "{refused}");
    assert_eq!(certificate(&fixture.connect()), second);

    fixture.replace(&Owner::server("db.test"));
    tls.reload().unwrap();
    assert_ne!(certificate(&fixture.connect()), second);
}

#[test]
fn files_are_watched_while_clients_come_and_go() {
    let fixture = Fixture::start(|_| {});
    let mut client = fixture.connect();
    let first = certificate(&client);
    let (address, config) = (fixture.address(), fixture.config(None));
    let done = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let traffic = {
        let (done, served) = (Arc::clone(&done), Arc::clone(&served));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let mut client = connect(address, config.clone()).expect("connections go on");
                assert_eq!(ask(&mut client, &set(b"k", &[7; 5000])).0, 0);
                served.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    fixture.replace(&Owner::server("db.test"));
    let begun = Instant::now();
    while certificate(&fixture.connect()) == first {
        assert!(begun.elapsed() < PATIENCE, "the change was not seen");
        assert_eq!(ask(&mut client, &get(b"none")).0, 1);
    }
    let before = served.load(Ordering::Relaxed);
    while served.load(Ordering::Relaxed) < before + 5 {
        assert!(begun.elapsed() < PATIENCE, "connections do not go on");
        std::thread::yield_now();
    }
    done.store(true, Ordering::Relaxed);
    traffic.join().unwrap();
}
