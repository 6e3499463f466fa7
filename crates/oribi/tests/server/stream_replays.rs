//! What consumers of change streams send, frame by frame, and what each of them needs.
//!
//! The sequences are those of the Kafka and Elasticsearch connectors (both over Couchbase's Java
//! client), of goxdcr and of gocbcore. A message that one of them cannot digest makes it disconnect
//! or wait for ever, so the order, the opaques, and the lengths are checked here.

use std::collections::BTreeMap;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::message::{self, Message};
use oribi_protocol::dcp::stream_request::{
    FailoverLog, StreamFlags, StreamRequestExtras, decode_rollback,
};
use oribi_protocol::dcp::vb_seqnos::VbSeqnos;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::{DEFAULT_VBUCKETS, DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, RawConnection, Request, Response, poll_until};
use oribi_types::{DurabilityLevel, Seqno, VbUuid, Vbid};

use crate::fixture::{Fixture, expect};

pub(crate) const JAVA_FEATURES: [Feature; 7] = [
    Feature::Xattr,
    Feature::XError,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Duplex,
    Feature::ClustermapChangeNotification,
    Feature::Collections,
];
const DOCUMENTS: usize = 200;
const ENDLESS: Seqno = Seqno(u64::MAX);

/// A client that matches answers with its requests in their order, as the Java client does, and
/// keeps what the server says in between.
pub(crate) struct Client {
    raw: RawConnection,
    next_opaque: u32,
    heard: Vec<Vec<u8>>,
}

impl Client {
    fn new(raw: RawConnection) -> Client {
        Client { raw, next_opaque: 0x8000_0000, heard: Vec::new() }
    }

    /// Logs in with features and opens a connection of this name.
    pub(crate) fn open(fixture: &Fixture, features: &[Feature], name: &str, flags: u32) -> Client {
        let mut raw = RawConnection::connect(fixture.server.port()).unwrap();
        let granted = raw.hello(features).unwrap();
        assert!(granted.iter().all(|feature| features.contains(feature)), "{granted:?}");
        let status = raw.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
        assert_eq!(status, Status::Success);
        assert_eq!(raw.select_bucket("default").unwrap(), Status::Success);
        let mut client = Client::new(raw);
        expect(client.call(&open_request(name, flags)), Status::Success);
        client
    }

    pub(crate) fn send(&mut self, request: &Request) -> u32 {
        let opaque = self.next_opaque;
        self.next_opaque = self.next_opaque.wrapping_add(1);
        self.raw.send_bytes(&self.raw.encode(request, opaque)).unwrap();
        opaque
    }

    /// The next answer, which has to be the one to the request with this opaque.
    fn answer(&mut self, opaque: u32) -> Response {
        loop {
            let bytes = self.raw.receive_frame().unwrap();
            let frame = Frame::whole(&bytes).unwrap();
            if frame.header.magic.is_request() {
                self.heard.push(bytes);
                continue;
            }
            assert_eq!(frame.header.magic, Magic::ClientResponse, "{:?}", frame.header);
            assert_eq!(frame.header.opaque, opaque, "answers come in the order of requests");
            return Response {
                opcode: frame.header.opcode,
                status_code: frame.header.vbucket_or_status,
                opaque,
                cas: oribi_types::Cas(frame.header.cas),
                datatype: frame.header.datatype,
                extras: frame.extras.to_vec(),
                key: frame.key.to_vec(),
                value: frame.value.to_vec(),
            };
        }
    }

    pub(crate) fn call(&mut self, request: &Request) -> Response {
        let opaque = self.send(request);
        self.answer(opaque)
    }

    fn control(&mut self, name: &str, value: &str) -> Status {
        self.call(&Request::new(Opcode::DcpControl).bare_key(name).value(value)).status()
    }

    #[track_caller]
    pub(crate) fn controls(&mut self, wanted: &[(&str, &str)]) {
        for (name, value) in wanted {
            assert_eq!(self.control(name, value), Status::Success, "{name}={value}");
        }
    }

    /// The next message of the server's own accord.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        match self.heard.is_empty() {
            true => self.raw.receive_frame().unwrap(),
            false => self.heard.remove(0),
        }
    }

    /// Messages of the server that came before answers.
    pub(crate) fn take_heard(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.heard)
    }

    /// Failover log of a vbucket, newest history first.
    pub(crate) fn histories(&mut self, vbid: Vbid) -> Vec<(VbUuid, Seqno)> {
        let log = self.call(&Request::new(Opcode::DcpGetFailoverLog).vbucket(vbid));
        FailoverLog::decode(&expect(log, Status::Success).value).unwrap().entries().collect()
    }

    fn acknowledge(&mut self, bytes: usize) {
        let extras = (bytes as u32).to_be_bytes();
        self.send(&Request::new(Opcode::DcpBufferAcknowledgement).extras(&extras));
    }
}

fn open_request(name: &str, flags: u32) -> Request {
    let extras = [0u32.to_be_bytes(), flags.to_be_bytes()].concat();
    Request::new(Opcode::DcpOpen).bare_key(name).extras(&extras)
}

pub(crate) fn stream_request(vbid: Vbid, extras: StreamRequestExtras, value: &str) -> Request {
    Request::new(Opcode::DcpStreamReq).vbucket(vbid).extras(&extras.encode()).value(value)
}

pub(crate) fn from_zero() -> StreamRequestExtras {
    StreamRequestExtras { flags: StreamFlags::ACTIVE_ONLY, end: ENDLESS, ..Default::default() }
}

/// Writes documents, every fourth one durably; returns the last seqno of each vbucket.
pub(crate) fn write(fixture: &Fixture, prefix: &str) -> BTreeMap<Vbid, Seqno> {
    let mut raw = fixture.login();
    let mut seqnos = BTreeMap::new();
    for number in 0..DOCUMENTS {
        let key = format!("{prefix}-{number}");
        let request = Request::set(&key, "value");
        let request = match number % 4 {
            0 => request.durable(DurabilityLevel::MajorityAndPersistOnMaster),
            _ => request,
        };
        let written = expect(raw.call(&request).unwrap(), Status::Success).mutation().unwrap();
        let vbid = vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS);
        seqnos.insert(vbid, written.seqno);
    }
    seqnos
}

/// State and checks of a client with a stream for each vbucket.
#[derive(Default)]
pub(crate) struct Streams {
    /// Opaque of the stream request.
    opaques: BTreeMap<Vbid, u32>,
    pub(crate) markers: BTreeMap<Vbid, SnapshotMarker>,
    pub(crate) seqnos: BTreeMap<Vbid, Seqno>,
    pub(crate) ends: BTreeMap<Vbid, EndReason>,
    /// Bytes that the server counts.
    counted_bytes: usize,
}

impl Streams {
    /// Checks a message as the Java client and gocbcore do.
    #[track_caller]
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let frame = Frame::whole(bytes).unwrap();
        let (head, said) = message::decode(&frame).unwrap();
        assert_eq!(Some(&head.opaque), self.opaques.get(&head.vbid), "{said:?}");
        assert!(!self.ends.contains_key(&head.vbid), "{said:?} after the end");
        self.counted_bytes += bytes.len();
        let seqno = match said {
            Message::SnapshotMarker(marker) => {
                self.markers.insert(head.vbid, marker);
                return;
            }
            Message::StreamEnd(reason) => {
                self.ends.insert(head.vbid, reason);
                return;
            }
            Message::Mutation(it) => {
                assert_eq!(it.key[0], 0, "the id of the default collection is before the key");
                it.extras.by_seqno
            }
            Message::Deletion(it) | Message::Expiration(it) => it.extras.by_seqno,
            Message::SystemEvent(event) => event.by_seqno,
            Message::SeqnoAdvanced(seqno) => seqno,
            Message::Noop => panic!("a no-op has no stream"),
        };
        let marker = self.markers.get(&head.vbid).expect("a marker comes before the first item");
        assert!(marker.start <= seqno && seqno <= marker.end, "{seqno:?} outside of {marker:?}");
        let before = self.seqnos.insert(head.vbid, seqno);
        assert!(before.is_none_or(|before| before < seqno), "{seqno:?} after {before:?}");
    }

    /// True when each vbucket has come to its seqno and to the end of its snapshot.
    fn have(&self, wanted: &BTreeMap<Vbid, Seqno>) -> bool {
        wanted.iter().all(|(vbid, seqno)| self.seqnos.get(vbid).is_some_and(|it| it >= seqno))
            && self.seqnos.iter().all(|(vbid, seqno)| self.markers[vbid].end == *seqno)
    }
}

#[test]
fn a_kafka_connector_streams_from_the_beginning() {
    let fixture = Fixture::start();
    let before = write(&fixture, "before");
    let mut raw = RawConnection::connect(fixture.server.port()).unwrap();
    let mechanisms =
        expect(raw.call(&Request::new(Opcode::SaslListMechs)).unwrap(), Status::Success);
    assert!(mechanisms.text().contains("SCRAM-SHA512"), "without TLS it demands SCRAM");
    let version = raw.call(&Request::new(Opcode::Version)).unwrap().text();
    let (major, _) = version.split_once('.').unwrap();
    assert!(major.parse::<u32>().unwrap() >= 6, "{version} switches compression off");
    drop(raw);

    let name = r#"connector-{"a":"java-dcp-client/0.56.0 (kafka)","i":"0011223344556677/1"}"#;
    let mut client = Client::open(&fixture, &JAVA_FEATURES, name, 0x01);
    let config = expect(client.call(&Request::new(Opcode::GetClusterConfig)), Status::Success);
    let config: serde_json::Value = serde_json::from_slice(&config.value).unwrap();
    assert_eq!(config["nodeLocator"], "vbucket");
    assert!(config["rev"].is_u64());
    let capabilities = config["bucketCapabilities"].as_array().unwrap();
    assert!(capabilities.iter().any(|capability| capability == "dcp"), "{capabilities:?}");
    client.controls(&[
        ("enable_noop", "true"),
        ("set_noop_interval", "120"),
        ("connection_buffer_size", "16777216"),
        ("enable_expiry_opcode", "true"),
    ]);
    // Optional: these may be refused, but not with another status and not by closing.
    let refusals = [Status::Einval, Status::NotSupported];
    assert!(refusals.contains(&client.control("change_streams", "true")));
    assert_eq!(client.control("no_such_control", "true"), Status::Einval);

    let manifest = client.call(&Request::new(Opcode::CollectionsGetManifest));
    let manifest: serde_json::Value = serde_json::from_slice(&manifest.value).unwrap();
    let value = format!(r#"{{"uid":{}}}"#, manifest["uid"]);
    let seqnos = Request::new(Opcode::GetAllVbSeqnos).extras(&1u32.to_be_bytes());
    let seqnos = expect(client.call(&seqnos), Status::Success);
    let seqnos: BTreeMap<Vbid, Seqno> =
        VbSeqnos::decode(&seqnos.value).unwrap().entries().collect();
    assert_eq!(seqnos.len(), usize::from(DEFAULT_VBUCKETS), "a missing one is asked for again");
    assert!(before.iter().all(|(vbid, seqno)| seqnos[vbid] >= *seqno));
    for vbid in (0..DEFAULT_VBUCKETS).map(Vbid) {
        let histories = client.histories(vbid);
        assert!(histories.iter().all(|(uuid, _)| (1..1 << 53).contains(&uuid.0)), "{histories:?}");
    }

    let streams = stream_all(&mut client, &value, &before);
    let persisted = write(&fixture, "after");
    let streams = follow(&mut client, streams, &persisted);
    // Success is silent, so the next answer is the one to the next request.
    client.acknowledge(streams.counted_bytes);
    expect(client.call(&Request::new(Opcode::Noop)), Status::Success);
    await_persistence(&mut client, &persisted);
    fixture.finish(&[]);
}

/// Opens a stream for every vbucket, all requests at once, and hears up to the seqnos.
pub(crate) fn stream_all(
    client: &mut Client,
    value: &str,
    wanted: &BTreeMap<Vbid, Seqno>,
) -> Streams {
    let mut streams = Streams::default();
    let vbids: Vec<Vbid> = (0..DEFAULT_VBUCKETS).map(Vbid).collect();
    for vbid in &vbids {
        let opaque = client.send(&stream_request(*vbid, from_zero(), value));
        streams.opaques.insert(*vbid, opaque);
    }
    let mut open = Vec::new();
    for vbid in vbids {
        let answer = expect(client.answer(streams.opaques[&vbid]), Status::Success);
        assert!(FailoverLog::decode(&answer.value).unwrap().entries().count() > 0);
        for bytes in std::mem::take(&mut client.heard) {
            let (head, _) = message::decode(&Frame::whole(&bytes).unwrap()).unwrap();
            assert!(open.contains(&head.vbid), "{} speaks before its answer", head.vbid);
            streams.take(&bytes);
        }
        open.push(vbid);
    }
    follow(client, streams, wanted)
}

pub(crate) fn follow(
    client: &mut Client,
    mut streams: Streams,
    wanted: &BTreeMap<Vbid, Seqno>,
) -> Streams {
    while !streams.have(wanted) {
        let bytes = client.next();
        streams.take(&bytes);
    }
    streams
}

/// Rollback mitigation: the client waits until OBSERVE_SEQNO shows everything as persisted.
pub(crate) fn await_persistence(client: &mut Client, wanted: &BTreeMap<Vbid, Seqno>) {
    for (vbid, seqno) in wanted {
        let (uuid, _) = client.histories(*vbid)[0];
        let observe = Request::new(Opcode::ObserveSeqno).vbucket(*vbid);
        let observe = observe.value(uuid.0.to_be_bytes());
        let shown = poll_until(PATIENCE, || {
            let answer = expect(client.call(&observe), Status::Success).value;
            assert_eq!(answer[0], 0, "format without a failover");
            let persisted = u64::from_be_bytes(answer[11..19].try_into().unwrap());
            (persisted >= seqno.0).then_some(())
        });
        assert!(shown.is_some(), "{vbid} does not show seqno {} as persisted", seqno.0);
    }
}

#[test]
fn an_elasticsearch_connector_resumes() {
    let mut fixture = Fixture::start();
    let written = write(&fixture, "before");
    let (vbid, seqno) = written.first_key_value().map(|(vbid, seqno)| (*vbid, *seqno)).unwrap();
    let mut client = Client::open(&fixture, &JAVA_FEATURES, "elastic:1", 0x01);
    client.controls(&[("enable_noop", "true"), ("set_noop_interval", "20")]);
    let (uuid, _) = client.histories(vbid)[0];
    let at = |seqno: Seqno, vb_uuid: VbUuid| StreamRequestExtras {
        start: seqno,
        snapshot_start: seqno,
        snapshot_end: seqno,
        vb_uuid,
        ..from_zero()
    };
    // A checkpoint of another cluster: everything has to be forgotten.
    let refused = client.call(&stream_request(vbid, at(seqno, VbUuid(1)), r#"{"uid":"0"}"#));
    assert_eq!(decode_rollback(&expect(refused, Status::Rollback).value), Some(Seqno(0)));
    // One that is ahead of the server: back to what there is.
    let ahead = at(Seqno(seqno.0 + 100), uuid);
    let refused = expect(client.call(&stream_request(vbid, ahead, "")), Status::Rollback);
    assert_eq!((refused.extras.len(), refused.value.len()), (0, 8));
    assert_eq!(decode_rollback(&refused.value), Some(seqno));
    // From there the stream opens, and only once.
    let opaque = client.send(&stream_request(vbid, at(seqno, uuid), r#"{"uid":"0"}"#));
    expect(client.answer(opaque), Status::Success);
    let again = client.call(&stream_request(vbid, at(seqno, uuid), r#"{"uid":"0"}"#));
    expect(again, Status::KeyEexists);
    assert_eq!(client.heard, Vec::<Vec<u8>>::new(), "nothing new, and no end of the other stream");
    // Requests that make no sense.
    let backwards = StreamRequestExtras { end: Seqno(0), ..at(seqno, uuid) };
    let other = *written.last_key_value().unwrap().0;
    expect(client.call(&stream_request(other, backwards, "")), Status::Erange);
    let elsewhere = client.call(&stream_request(Vbid(1000), from_zero(), ""));
    let elsewhere = expect(elsewhere, Status::NotMyVbucket).value;
    assert!(elsewhere.is_empty() || elsewhere.starts_with(b"{"), "a configuration or nothing");
    // The checkpoint is worth the same after a restart in order.
    drop(client);
    fixture.restart();
    let mut client = Client::open(&fixture, &JAVA_FEATURES, "elastic:1", 0x01);
    client.controls(&[("enable_noop", "true"), ("set_noop_interval", "20")]);
    let opened = poll_until(PATIENCE, || {
        let answer = client.call(&stream_request(vbid, at(seqno, uuid), ""));
        (answer.status() != Status::Etmpfail).then_some(answer)
    });
    expect(opened.expect("warmup ends"), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn goxdcr_streams_and_closes() {
    let fixture = Fixture::start();
    let written = write(&fixture, "before");
    let features = [Feature::TcpNoDelay, Feature::Snappy, Feature::Collections];
    let mut client = Client::open(&fixture, &features, "xdcr:backup-1", 0x25);
    client.controls(&[
        ("connection_buffer_size", "1048576"),
        ("enable_noop", "true"),
        ("set_noop_interval", "120"),
        ("set_priority", "medium"),
        ("enable_expiry_opcode", "true"),
        ("enable_out_of_order_snapshots", "true"),
        ("send_stream_end_on_client_close_stream", "true"),
    ]);
    for group in ["vbucket-seqno", "vbucket-details"] {
        // A list of answers, of which this client takes the opaque, too.
        let opaque = client.send(&Request::new(Opcode::Stat).bare_key(group));
        while !client.answer(opaque).key.is_empty() {}
    }
    // The vbucket is in the opaque.
    let mut streams = Streams::default();
    for vbid in written.keys() {
        client.next_opaque = 1 << 16 | u32::from(vbid.0);
        let opaque = client.send(&stream_request(
            *vbid,
            StreamRequestExtras { end: ENDLESS, ..Default::default() },
            "",
        ));
        streams.opaques.insert(*vbid, opaque);
        expect(client.answer(opaque), Status::Success);
    }
    let mut raw = fixture.login();
    let gone = Request::delete("before-0");
    let gone = expect(raw.call(&gone).unwrap(), Status::Success).mutation().unwrap();
    let mut wanted = written.clone();
    let vbid = vbucket_of(b"before-0", DEFAULT_VBUCKETS);
    wanted.insert(vbid, gone.seqno);
    let mut deletions = 0;
    while !streams.have(&wanted) {
        let bytes = client.next();
        let frame = Frame::whole(&bytes).unwrap();
        if frame.header.opcode == Opcode::DcpDeletion as u8 {
            assert_eq!(frame.extras.len(), 21, "with a time of deletion");
            deletions += 1;
        }
        streams.take(&bytes);
    }
    assert_eq!(deletions, 1);
    // The end comes after the answer, once.
    client.next_opaque = 7;
    expect(client.call(&Request::new(Opcode::DcpCloseStream).vbucket(vbid)), Status::Success);
    let bytes = client.next();
    streams.take(&bytes);
    assert_eq!(streams.ends, BTreeMap::from([(vbid, EndReason::Closed)]));
    let again = client.call(&Request::new(Opcode::DcpCloseStream).vbucket(vbid));
    expect(again, Status::KeyEnoent);
    assert_eq!(client.heard, Vec::<Vec<u8>>::new());
    fixture.finish(&[]);
}

#[test]
fn gocbcore_reads_up_to_a_seqno() {
    let mut fixture = Fixture::start();
    let written = write(&fixture, "before");
    // From disk, because the memory of the queue is gone.
    fixture.restart();
    let features = [
        Feature::Xattr,
        Feature::SelectBucket,
        Feature::XError,
        Feature::Json,
        Feature::Collections,
    ];
    let mut client = Client::open(&fixture, &features, "test-stream", 0x21);
    client.controls(&[
        ("enable_noop", "true"),
        ("set_noop_interval", "180"),
        ("set_priority", "high"),
        ("enable_expiry_opcode", "true"),
        ("backfill_order", "round-robin"),
        ("connection_buffer_size", "20971520"),
        ("max_marker_version", "2.2"),
        ("send_stream_end_on_client_close_stream", "true"),
    ]);
    let mut streams = Streams::default();
    for (vbid, end) in &written {
        // It takes the oldest history for the beginning.
        let (vb_uuid, _) = *client.histories(*vbid).last().unwrap();
        let extras = StreamRequestExtras { end: *end, vb_uuid, ..from_zero() };
        let answer = poll_until(PATIENCE, || {
            let opaque = client.send(&stream_request(*vbid, extras, ""));
            streams.opaques.insert(*vbid, opaque);
            let answer = client.answer(opaque);
            (answer.status() != Status::Etmpfail).then_some(answer)
        });
        expect(answer.expect("warmup ends"), Status::Success);
    }
    while streams.ends.len() < written.len() {
        let bytes = client.next();
        streams.take(&bytes);
    }
    assert!(streams.have(&written));
    for (vbid, marker) in &streams.markers {
        assert!(marker.flags.has(MarkerFlags::DISK), "{vbid}: {marker:?}");
        assert_eq!(marker.purge_seqno, Some(Seqno(0)), "a marker of version 2.2 has it");
    }
    assert!(streams.ends.values().all(|reason| *reason == EndReason::Ok), "{:?}", streams.ends);
    // A stream of nothing ends at once.
    let (vbid, end) = written.first_key_value().map(|(vbid, end)| (*vbid, *end)).unwrap();
    let (vb_uuid, _) = client.histories(vbid)[0];
    let nothing = StreamRequestExtras {
        start: end,
        end,
        snapshot_start: end,
        snapshot_end: end,
        vb_uuid,
        ..from_zero()
    };
    streams.ends.clear();
    let opaque = client.send(&stream_request(vbid, nothing, ""));
    streams.opaques.insert(vbid, opaque);
    expect(client.answer(opaque), Status::Success);
    let bytes = client.next();
    streams.take(&bytes);
    assert_eq!(streams.ends, BTreeMap::from([(vbid, EndReason::Ok)]));
    fixture.finish(&[]);
}

#[test]
fn no_ops_come_while_the_window_is_full() {
    let fixture = Fixture::start();
    write(&fixture, "before");
    let mut client = Client::open(&fixture, &JAVA_FEATURES, "slow", 0x01);
    client.controls(&[
        ("enable_noop", "true"),
        ("set_noop_interval", "1"),
        ("connection_buffer_size", "100"),
    ]);
    let vbid = vbucket_of(b"before-0", DEFAULT_VBUCKETS);
    let opened = client.call(&stream_request(vbid, from_zero(), r#"{"uid":"0"}"#));
    expect(opened, Status::Success);
    let (mut noops, mut counted) = (0, 0);
    while noops < 3 {
        let bytes = client.next();
        let frame = Frame::whole(&bytes).unwrap();
        if frame.header.opcode != Opcode::DcpNoop as u8 {
            counted += bytes.len();
            continue;
        }
        noops += 1;
        let answer = Header { magic: Magic::ClientResponse, vbucket_or_status: 0, ..frame.header };
        client.raw.send_bytes(&answer.encode()).unwrap();
    }
    // The window is exceeded by at most the last message.
    assert!((100..300).contains(&counted), "{counted} bytes in a window of 100");
    client.acknowledge(counted);
    loop {
        let bytes = client.next();
        if Frame::whole(&bytes).unwrap().header.opcode != Opcode::DcpNoop as u8 {
            break;
        }
    }
    fixture.finish(&[]);
}

#[test]
fn requests_out_of_order_are_rejected() {
    let fixture = Fixture::start();
    // Before the connection is opened.
    let mut raw = fixture.login();
    let early = stream_request(Vbid(0), from_zero(), "");
    expect(raw.call(&early).unwrap(), Status::Einval);
    expect(raw.call(&open_request("twice", 0x01)).unwrap(), Status::Success);
    expect(raw.call(&open_request("twice", 0x01)).unwrap(), Status::Einval);
    // Without no-ops a client with collections is refused.
    expect(raw.call(&early).unwrap(), Status::NotSupported);
    // Answers out of order would break every client.
    let mut unordered = fixture.login();
    let features = [Feature::UnorderedExecution, Feature::Collections, Feature::XError];
    let granted = unordered.hello(&features).unwrap();
    if granted.contains(&Feature::UnorderedExecution) {
        let refused = unordered.call(&open_request("unordered", 0x01)).unwrap();
        expect(refused, Status::NotSupported);
    }
    // A new connection of the same name ends the old one and continues.
    let mut newer = fixture.login();
    expect(newer.call(&open_request("twice", 0x01)).unwrap(), Status::Success);
    assert_eq!(raw.read_until_closed().unwrap(), []);
    let noop = Request::new(Opcode::DcpControl).bare_key("enable_noop").value("true");
    expect(newer.call(&noop).unwrap(), Status::Success);
    expect(newer.call(&early).unwrap(), Status::Success);
    fixture.finish(&[]);
}
