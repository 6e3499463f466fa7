//! Idle consumers of change streams: what a hundred of them with a stream of every vbucket cost in
//! memory.

use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras, StreamValue};
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::stream_connection::{MessageKind, StreamConnection};
use oribi_testkit::{PATIENCE, poll_until};
use oribi_types::{Seqno, Vbid};

use crate::fixture::Fixture;

/// Connections that are measured, each with a stream of every vbucket.
const CONNECTIONS: usize = 100;

/// Memory that they may cost the server.
const BYTES_MAX: u64 = 10 << 20;

/// A window as connectors choose it.
const WINDOW_BYTES: u32 = 20 << 20;

/// Opens a connection with endless streams of all vbuckets, which have nothing to send.
fn idle_consumer(port: u16, number: usize) -> StreamConnection {
    let name = format!("idle:{number}");
    let mut connection = StreamConnection::open(port, &name, WINDOW_BYTES).unwrap();
    let everything = StreamRequestExtras {
        flags: StreamFlags::ACTIVE_ONLY,
        end: Seqno(u64::MAX),
        ..StreamRequestExtras::default()
    };
    for vbid in (0..DEFAULT_VBUCKETS).map(Vbid) {
        connection.request(vbid, &everything, &StreamValue::default()).unwrap();
    }
    for _ in 0..DEFAULT_VBUCKETS {
        let heard = connection.hear().unwrap();
        assert!(matches!(heard.what, MessageKind::Opened(_)), "{heard:?}");
    }
    connection
}

fn open_streams(fixture: &Fixture) -> u64 {
    let stats = fixture.login().stat("dcpagg :").unwrap();
    let count = stats.iter().find(|(name, _)| name == ":total:activestream_count");
    count.map_or(0, |(_, count)| count.parse().unwrap())
}

#[test]
fn a_hundred_idle_consumers_cost_little_memory() {
    let fixture = Fixture::start();
    let port = fixture.server.port();
    // The first ones grow tables that the server keeps anyway.
    let first: Vec<StreamConnection> = (0..2).map(|number| idle_consumer(port, number)).collect();
    let before = fixture.server.resident_bytes().unwrap();
    let others: Vec<StreamConnection> =
        (0..CONNECTIONS).map(|number| idle_consumer(port, number + first.len())).collect();
    // The figures of all of them are published, which takes memory, too.
    let streams = (first.len() + others.len()) as u64 * u64::from(DEFAULT_VBUCKETS);
    let published = poll_until(PATIENCE, || (open_streams(&fixture) == streams).then_some(()));
    assert!(published.is_some(), "{} of {streams} streams", open_streams(&fixture));
    let grown = fixture.server.resident_bytes().unwrap().saturating_sub(before);
    println!("{grown} bytes for {CONNECTIONS} connections of {DEFAULT_VBUCKETS} streams");
    assert!(grown <= BYTES_MAX, "{grown} bytes");
    drop((first, others));
    fixture.finish(&[]);
}
