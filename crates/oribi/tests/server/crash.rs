//! SIGKILL under load, again and again on one directory, judged by the oracle of the test kit.
//!
//! Four writers with keys of their own mix plain and durable writes and deletions. The server is killed
//! after a random number of acknowledgements, so no clock decides what is tested. The seed is
//! printed and can be set with the variable `ORIBI_TEST_SEED`.

use std::sync::{Arc, Mutex};
use std::thread;

use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::ack_log::{Acknowledgement, Ending};
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::{AckLog, PATIENCE, RawConnection, Request, poll_until};
use oribi_types::{DurabilityLevel, Vbid};

use crate::fixture::{Fixture, Random, call_when_warm, seed};

const WRITERS: u64 = 4;
const KEYS_PER_WRITER: u64 = 50;
const KILLS: u64 = 15;

/// Writes until the server is gone. Every write is noted before it is sent.
fn write_until_killed(port: u16, writer: u64, mut random: Random, log: &Mutex<AckLog>) {
    let Ok(mut connection) = RawConnection::login(port) else { return };
    for count in 0.. {
        let key = format!("writer-{writer}-key-{}", random.below(KEYS_PER_WRITER));
        let vbid = vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS);
        let persisted = random.below(4) == 0;
        let size = random.below(2000) as usize;
        let value = format!(
            "writer {writer} salt {} count {count} {}",
            random.below(1 << 30),
            "x".repeat(size)
        );
        let deletes = random.below(10) == 0;
        let mut request = if deletes { Request::delete(&key) } else { Request::set(&key, &value) };
        if persisted {
            request = request.durable(DurabilityLevel::PersistToMajority);
        }
        let written = (!deletes).then_some(value.as_bytes());
        let attempt = log.lock().unwrap().attempt(vbid, key.as_bytes(), written);
        let Ok(response) = connection.call(&request) else { return };
        let mut log = log.lock().unwrap();
        match response.status() {
            Status::Success => {
                let mutation = response.mutation().unwrap();
                let (cas, seqno, vb_uuid) = (mutation.cas, mutation.seqno, mutation.vb_uuid);
                log.acknowledged(&attempt, Acknowledgement { cas, seqno, vb_uuid, persisted });
            }
            Status::KeyEnoent | Status::Etmpfail => log.refused(&attempt),
            other => panic!("a write was answered {other:?}"),
        }
    }
}

/// Reads every key back and lets the oracle judge.
fn verify(port: u16, ending: Ending, log: &Mutex<AckLog>, life: u64) {
    let mut connection = RawConnection::login(port).unwrap();
    let read = |_: Vbid, key: &[u8]| {
        let response = call_when_warm(&mut connection, &Request::get(key));
        match response.status() {
            Status::Success => Some((response.value, response.cas)),
            Status::KeyEnoent => None,
            other => panic!("a read was answered {other:?}"),
        }
    };
    match log.lock().unwrap().verify(ending, read) {
        Ok(verified) => {
            println!("life {life} after {ending:?}: {verified:?}");
            assert!(verified.keys > 0 && verified.bound > 0, "nothing was checked: {verified:?}");
        }
        Err(violations) => {
            let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!("life {life} after {ending:?}:\n{}", lines.join("\n"));
        }
    }
}

/// One life: four writers run until `enough` writes are acknowledged, then `end` ends the server.
fn live(
    fixture: &mut Fixture,
    log: &Arc<Mutex<AckLog>>,
    random: &mut Random,
    end: impl FnOnce(&mut Fixture),
) {
    let port = fixture.server.port();
    let enough = 50 + random.below(1500) as usize;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let random = random.fork();
            scope.spawn(move || write_until_killed(port, writer, random, log));
        }
        poll_until(PATIENCE, || {
            (log.lock().unwrap().acknowledged_in_this_life() >= enough).then_some(())
        })
        .expect("the writers make progress");
        end(fixture);
    });
}

#[test]
fn no_acknowledged_write_is_lost_over_fifteen_kills() {
    let mut random = Random::new(seed());
    let log = Arc::new(Mutex::new(AckLog::new()));
    let mut fixture = Fixture::start();
    for life in 0..KILLS {
        live(&mut fixture, &log, &mut random, |fixture| fixture.server.kill().unwrap());
        fixture.server.restart().unwrap();
        verify(fixture.server.port(), Ending::Crash, &log, life);
    }
    fixture.finish(&[]);
}

#[test]
fn nothing_acknowledged_is_lost_over_orderly_stops_under_load() {
    let mut random = Random::new(seed());
    let log = Arc::new(Mutex::new(AckLog::new()));
    let mut fixture = Fixture::start();
    for life in 0..3 {
        live(&mut fixture, &log, &mut random, Fixture::stop);
        fixture.server.restart().unwrap();
        verify(fixture.server.port(), Ending::CleanStop, &log, life);
    }
    fixture.finish(&[]);
}

#[test]
fn kills_and_orderly_stops_may_alternate() {
    let mut random = Random::new(seed());
    let log = Arc::new(Mutex::new(AckLog::new()));
    let mut fixture = Fixture::start();
    for life in 0..4 {
        let ending = if life % 2 == 0 { Ending::Crash } else { Ending::CleanStop };
        live(&mut fixture, &log, &mut random, |fixture| match ending {
            Ending::Crash => fixture.server.kill().unwrap(),
            Ending::CleanStop => fixture.stop(),
        });
        fixture.server.restart().unwrap();
        verify(fixture.server.port(), ending, &log, life);
    }
    fixture.finish(&[]);
}
