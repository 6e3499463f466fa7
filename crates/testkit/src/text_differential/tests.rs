//! The generator against two real memcached, and the comparison itself.

use super::*;
use crate::MemcachedServer;

fn compared(ports: [u16; 2], commands: u64) -> TextReport {
    let run = TextDifferential {
        ports,
        seed: 1,
        first_case: 0,
        commands,
        kinds: Commands::Both,
        differences_max: 3,
    };
    run.run(&mut |_| ()).expect("both servers can be reached")
}

/// The generator asks nothing whose answer depends on time or chance.
#[test]
fn two_real_memcached_give_equal_answers() {
    let Some(first) = MemcachedServer::start_for_test(&[]) else { return };
    let second = MemcachedServer::start(&[]).expect("memcached starts");
    let report = compared([first.port(), second.port()], 20_000);
    assert!(report.differences.is_empty(), "{}", report.differences.join("\n"));
    assert!(report.commands >= 20_000);
}

/// A memcached without CAS, and one that refuses `flush_all`, must not go unnoticed.
#[test]
fn a_server_that_answers_otherwise_is_noticed() {
    for argument in ["-C", "-F"] {
        let Some(first) = MemcachedServer::start_for_test(&[argument]) else { return };
        let second = MemcachedServer::start(&[]).expect("memcached starts");
        let report = compared([first.port(), second.port()], 20_000);
        assert!(!report.differences.is_empty(), "{argument} made no difference");
    }
}

#[test]
fn values_are_not_taken_for_answers() {
    let mut seen = answer::CasValues::new(false);
    let received = b"VALUE a 0 10 77\r\nVALUE b 99\r\nHD c77 t99 l3\r\nVA 4 c5 Oc7\r\nc5 x\r\n";
    let comparable = answer::comparable(received, &mut seen);
    let expected = b"VALUE a 0 10 #0\r\nVALUE b 99\r\nHD c# t100 l0\r\nVA 4 c# Oc7\r\nc5 x\r\n";
    assert_eq!(shown(&comparable), shown(expected));
    assert_eq!(seen.of(b"a"), [77]);
}
