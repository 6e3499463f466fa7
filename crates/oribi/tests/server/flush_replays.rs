//! A bucket is emptied while the Kafka connector follows it.
//!
//! The connector's client (`com.couchbase.client:dcp-client` 0.56.0, persistence polling every
//! 100 ms) holds changes back until OBSERVE_SEQNO shows their seqnos as persisted. It looks a
//! vbucket's history up when a configuration comes, and then polls that one. It reopens a stream
//! 50 ms after its end, from the position that it last released, and begins anew after a rollback.
//! Every status of OBSERVE_SEQNO but Success and "temporary failure" makes it drop the connection,
//! also while it reopens streams.

use std::collections::BTreeMap;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::stream_request::{StreamRequestExtras, decode_rollback};
use oribi_protocol::frame::Frame;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::SERVER_CLUSTERMAP_CHANGE;
use oribi_protocol::status::Status;
use oribi_testkit::Request;
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_types::{Seqno, VbUuid, Vbid};

use crate::fixture::{Fixture, expect};
use crate::stream_replays::{
    Client, JAVA_FEATURES, Streams, await_persistence, follow, from_zero, stream_all,
    stream_request, write,
};

const FLUSH: &str = "/pools/default/buckets/default/controller/doFlush";
/// Flushes of the test. Each meets the client in another state.
const FLUSHES: usize = 3;

/// The histories that the client polls.
type Histories = BTreeMap<Vbid, VbUuid>;

fn histories(client: &mut Client) -> Histories {
    let vbids = (0..DEFAULT_VBUCKETS).map(Vbid);
    vbids.map(|vbid| (vbid, client.histories(vbid)[0].0)).collect()
}

fn revision(config: &[u8]) -> u64 {
    let config: serde_json::Value = serde_json::from_slice(config).unwrap();
    assert_eq!(config["nodeLocator"], "vbucket", "a configuration of the bucket");
    config["rev"].as_u64().unwrap()
}

/// Polls the histories until the end of each stream and a newer configuration have come.
fn poll_through_flush(
    client: &mut Client,
    polled: &Histories,
    streams: &mut Streams,
    known: u64,
) -> u64 {
    let mut announced = None;
    while announced.is_none() || streams.ends.len() < polled.len() {
        for (vbid, uuid) in polled {
            let observe = Request::new(Opcode::ObserveSeqno).vbucket(*vbid);
            let status = client.call(&observe.value(uuid.0.to_be_bytes())).status();
            let keeps = [Status::Success, Status::Etmpfail].contains(&status);
            assert!(keeps, "{vbid}: {status:?} makes the client drop its connection");
        }
        for bytes in client.take_heard() {
            let frame = Frame::whole(&bytes).unwrap();
            if frame.header.magic != Magic::ServerRequest {
                streams.take(&bytes);
                continue;
            }
            assert_eq!(frame.header.opcode, SERVER_CLUSTERMAP_CHANGE);
            assert_eq!((frame.key, frame.extras.len()), (&b"default"[..], 16));
            let revision = revision(frame.value);
            assert!(revision > known && announced.is_none(), "{revision} after {known}");
            announced = Some(revision);
        }
    }
    assert!(streams.ends.values().all(|reason| *reason == EndReason::StateChanged));
    announced.expect("the loop ends with it")
}

/// Asks for each stream where the client was, and begins anew as the answer demands.
fn reopen(client: &mut Client, polled: &Histories, streams: &Streams) -> Streams {
    let manifest = client.call(&Request::new(Opcode::CollectionsGetManifest));
    let manifest: serde_json::Value = serde_json::from_slice(&manifest.value).unwrap();
    let value = format!(r#"{{"uid":{}}}"#, manifest["uid"]);
    for (vbid, seqno) in &streams.seqnos {
        let (start, vb_uuid) = (*seqno, polled[vbid]);
        let snapshot_end = streams.markers[vbid].end;
        let extras = StreamRequestExtras {
            start,
            snapshot_start: start,
            snapshot_end,
            vb_uuid,
            ..from_zero()
        };
        let answer = expect(client.call(&stream_request(*vbid, extras, &value)), Status::Rollback);
        assert_eq!(decode_rollback(&answer.value), Some(Seqno(0)), "{vbid}");
    }
    stream_all(client, &value, &BTreeMap::new())
}

// Compat (Change streams): Flush
#[test]
fn kafka_follows_through_flushes() {
    let fixture = Fixture::start_with(|options| options.argument("--flush-enabled"));
    let before = write(&fixture, "before");
    let mut client = Client::open(&fixture, &JAVA_FEATURES, "connector", 0x01);
    let config = expect(client.call(&Request::new(Opcode::GetClusterConfig)), Status::Success);
    let mut known = revision(&config.value);
    client.controls(&[("enable_noop", "true"), ("set_noop_interval", "120")]);
    let mut polled = histories(&mut client);
    let mut streams = stream_all(&mut client, r#"{"uid":"0"}"#, &before);
    await_persistence(&mut client, &before);
    for number in 0..FLUSHES {
        let emptied = fixture.admin().post_form(FLUSH, &[]).unwrap();
        assert_eq!(emptied.status, 200, "{}", emptied.text());
        known = poll_through_flush(&mut client, &polled, &mut streams, known);
        let old = std::mem::replace(&mut polled, histories(&mut client));
        assert!(polled.iter().all(|(vbid, uuid)| old[vbid] != *uuid), "new histories");
        // Changes that come before a stream is open again belong to the new history, too.
        let early = write(&fixture, &format!("early-{number}"));
        streams = reopen(&mut client, &old, &streams);
        let mut wanted = early;
        wanted.extend(write(&fixture, &format!("late-{number}")));
        streams = follow(&mut client, streams, &wanted);
        await_persistence(&mut client, &wanted);
    }
    fixture.finish(&[]);
}
