//! A worker and an acceptor over real sockets on loopback, with an in-memory bucket.

mod pauses;
mod slices;
mod stale_entries;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use oribi_auth::UserStore;
use oribi_config::SlowThresholds;
use oribi_engine::collections::ManifestChange;
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::frame_info::encode_durability;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_storage::MemoryStore;
use oribi_types::DurabilityLevel;

use super::Worker;
use crate::connection::file_limit::FileLimits;
use crate::harness::{HARNESS_VBUCKETS, in_memory_server};
use crate::runtime::blocking_thread::BlockingThreads;
use crate::runtime::listener::Listener;
use crate::runtime::mailbox::WorkerMessage;
use crate::server_context::{ConnectionLimits, LockTimeouts, ServerContext};

const PATIENCE: Duration = Duration::from_secs(20);

const LIMITS: ConnectionLimits = ConnectionLimits {
    idle_timeout_ms: 0,
    send_queue_bytes_max: 1024 * 1024,
    connections_reserved: 0,
    files: FileLimits::NONE,
    slow: SlowThresholds::OFF,
    auth_deadline_ms: 60_000,
    frame_deadline_ms: 60_000,
    send_deadline_ms: 60_000,
    connections_max: 4,
    prefetch_keys: 16,
    lock_timeouts: LockTimeouts { default_s: 15, max_s: 30 },
};

/// One worker behind one listener.
struct Fixture {
    address: SocketAddr,
    server: Arc<ServerContext>,
    worker: Option<Worker>,
    listener: Option<Listener>,
    blocking: Option<BlockingThreads>,
}

impl Fixture {
    fn start(limits: ConnectionLimits) -> Fixture {
        let store = Arc::new(MemoryStore::new());
        let (server, bucket) =
            in_memory_server(UserStore::development().into(), store, limits, true, true);
        drop(bucket);
        let (blocking, queue) = BlockingThreads::start().unwrap();
        let worker = Worker::start(0, Arc::clone(&server), queue).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mailboxes = vec![Arc::clone(worker.mailbox())];
        let listener = Listener::start(socket, None, Arc::clone(&server), mailboxes).unwrap();
        Fixture {
            address,
            server,
            worker: Some(worker),
            listener: Some(listener),
            blocking: Some(blocking),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.listener.take().unwrap().stop();
        let worker = self.worker.take().unwrap();
        worker.mailbox().post(WorkerMessage::Stop);
        worker.join();
        self.blocking.take().unwrap().join();
        assert_eq!(self.server.connections.open(), 0, "every connection was counted out");
        self.server.buckets.stop_all().unwrap();
    }
}

pub(crate) fn request(parts: &RequestParts<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&mut bytes, parts);
    bytes
}

pub(crate) fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    request(&RequestParts { key, value, extras: &[0; 8], ..RequestParts::new(Opcode::Set) })
}

pub(crate) fn get(key: &[u8]) -> Vec<u8> {
    request(&RequestParts { key, ..RequestParts::new(Opcode::Get) })
}

/// Reads whole frames until there are `count`; returns their statuses and values.
pub(crate) fn read_frames(stream: &mut impl Read, count: usize) -> Vec<(u16, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut buffer = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let mut start = 0;
        while let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&buffer[start..]) {
            frames.push((frame.header.vbucket_or_status, frame.value.to_vec()));
            start += consumed;
            if frames.len() == count {
                return frames;
            }
        }
        buffer.drain(..start);
        let received = stream.read(&mut piece).unwrap();
        assert_ne!(received, 0, "closed after {} of {count} frames", frames.len());
        buffer.extend_from_slice(&piece[..received]);
    }
}

#[test]
fn stores_and_reads_over_a_socket() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    stream.write_all(&[set(b"k", b"v"), get(b"k")].concat()).unwrap();
    let frames = read_frames(&mut stream, 2);
    assert_eq!((frames[1].0, frames[1].1.as_slice()), (0, &b"v"[..]));
}

#[test]
fn a_write_only_client_is_paused_and_loses_nothing() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    stream.write_all(&set(b"big", &vec![b'x'; 300_000])).unwrap();
    read_frames(&mut stream, 1);
    let count = 200;
    let mut writer = stream.try_clone().unwrap();
    let requests = get(b"big").repeat(count);
    let sender = std::thread::spawn(move || writer.write_all(&requests));
    // Another client is served concurrently.
    let mut other = fixture.connect();
    other.write_all(&set(b"k", b"v")).unwrap();
    assert_eq!(read_frames(&mut other, 1)[0].0, 0);
    let frames = read_frames(&mut stream, count);
    assert!(frames.iter().all(|(status, value)| *status == 0 && value.len() == 300_000));
    sender.join().unwrap().unwrap();
}

// Invariant: Some large value moves in every turn of a worker, however busy other connections are.
#[test]
fn a_large_value_moves_despite_a_busy_client() {
    const LARGE_BYTES: usize = 8 << 20;
    let fixture = Fixture::start(LIMITS);
    let mut large = fixture.connect();
    large.write_all(&set(b"large", &vec![b'x'; LARGE_BYTES])).unwrap();
    assert_eq!(read_frames(&mut large, 1)[0].0, 0);
    let busy = fixture.connect();
    let (mut sender, mut receiver) = (busy.try_clone().unwrap(), busy.try_clone().unwrap());
    let requests = get(b"small").repeat(10_000);
    let sends = std::thread::spawn(move || while sender.write_all(&requests).is_ok() {});
    let mut block = vec![0; 1 << 20];
    receiver.read_exact(&mut block).unwrap();
    let receives =
        std::thread::spawn(move || while receiver.read(&mut block).is_ok_and(|it| it > 0) {});
    large.write_all(&get(b"large")).unwrap();
    let frames = read_frames(&mut large, 1);
    assert_eq!((frames[0].0, frames[0].1.len()), (0, LARGE_BYTES));
    busy.shutdown(Shutdown::Both).unwrap();
    sends.join().unwrap();
    receives.join().unwrap();
}

#[test]
fn half_closed_client_gets_its_answers() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    stream.write_all(&set(b"k", &[b'v'; 50_000])).unwrap();
    stream.write_all(&get(b"k").repeat(100)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_frames(&mut stream, 101).len(), 101);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn error_is_readable_before_the_connection_closes() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    // A frame over the limit, with a good part of its body: a reset must not discard the answer.
    let mut frame = vec![0; 24];
    (frame[0], frame[1], frame[3], frame[4], frame[8]) = (0x80, 0x01, 1, 8, 0x7f);
    frame.resize(1_000_000, b'x');
    // The server may close during this write.
    let _ = stream.write_all(&frame);
    assert_eq!(read_frames(&mut stream, 1)[0].0, 4);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn connections_leave_files_to_the_store() {
    let files = FileLimits { clients_end: 3, ..FileLimits::NONE };
    let fixture = Fixture::start(ConnectionLimits { files, ..LIMITS });
    for refused in 1..=3 {
        let closed = match fixture.connect().read(&mut [0; 1]) {
            Ok(received) => received == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(closed);
        assert_eq!(fixture.server.connections.rejected(), refused);
    }
    assert_eq!(fixture.server.connections.open(), 0);
}

#[test]
fn connections_beyond_the_cap_are_closed() {
    let fixture = Fixture::start(LIMITS);
    let noop = request(&RequestParts::new(Opcode::Noop));
    let mut streams: Vec<TcpStream> = (0..4).map(|_| fixture.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&noop).unwrap();
        read_frames(stream, 1);
    }
    let mut refused = fixture.connect();
    let closed = match refused.read(&mut [0; 1]) {
        Ok(received) => received == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(closed);
    drop(streams.pop());
    let begun = std::time::Instant::now();
    loop {
        let mut stream = fixture.connect();
        let answered = stream.write_all(&noop).is_ok()
            && stream.read(&mut [0; 24]).is_ok_and(|received| received == 24);
        if answered {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the place never came back");
    }
}

#[test]
fn durable_write_is_answered_by_the_flusher_thread() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    let features = [0, 4, 0, 7, 0, 0x0b, 0, 0x10, 0, 0x11];
    let hello = RequestParts { value: &features, ..RequestParts::new(Opcode::Hello) };
    let plain = RequestParts {
        key: b"PLAIN",
        value: b"\0Administrator\0password",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    let mut framing = Vec::new();
    encode_durability(DurabilityLevel::PersistToMajority, None, &mut framing);
    let write = RequestParts {
        framing: &framing,
        key: b"k",
        value: b"v",
        extras: &[0; 8],
        ..RequestParts::new(Opcode::Set)
    };
    let all: Vec<u8> = [hello, plain, select, write].iter().flat_map(request).collect();
    stream.write_all(&all).unwrap();
    let frames = read_frames(&mut stream, 4);
    assert!(frames.iter().all(|(status, _)| *status == 0), "{frames:?}");
}

#[test]
fn a_never_reading_client_is_closed_at_the_deadline() {
    let fixture = Fixture::start(ConnectionLimits { send_deadline_ms: 1_000, ..LIMITS });
    let mut stream = fixture.connect();
    stream.write_all(&set(b"big", &vec![b'x'; 1_000_000])).unwrap();
    stream.write_all(&get(b"big").repeat(100)).unwrap();
    let begun = std::time::Instant::now();
    while fixture.server.connections.open() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the connection was not closed");
        std::thread::yield_now();
    }
}

#[test]
fn long_stats_are_complete_and_block_no_client() {
    let fixture = Fixture::start(LIMITS);
    let bucket = fixture.server.buckets.get("default").unwrap();
    for index in 0..100 {
        let (scope, name) = ("_default".to_owned(), format!("collection-{index}"));
        let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        bucket.bucket().update_manifest(&change).unwrap();
    }
    let mut stream = fixture.connect();
    let group = RequestParts { key: b"collections-details", ..RequestParts::new(Opcode::Stat) };
    // About ten megabytes, more than any socket buffer accepts at once.
    let stats = 50;
    stream.write_all(&request(&group).repeat(stats)).unwrap();
    let mut other = fixture.connect();
    other.write_all(&[set(b"k", b"v"), get(b"k")].concat()).unwrap();
    assert_eq!(read_frames(&mut other, 2)[1].1, b"v");
    let entries = 1 + 2 * 101 + usize::from(HARNESS_VBUCKETS) * (4 + 9 * 101);
    let frames = read_frames(&mut stream, stats * (entries + 1));
    let ends = frames.iter().enumerate().filter(|(_, (_, value))| value.is_empty());
    assert!(ends.map(|(index, _)| index).eq((1..=stats).map(|stat| stat * (entries + 1) - 1)));
    assert!(frames.iter().all(|(status, _)| *status == 0));
}

#[test]
fn bucket_stats_run_on_the_blocking_thread() {
    let fixture = Fixture::start(LIMITS);
    let mut stream = fixture.connect();
    let general = RequestParts { key: b"", ..RequestParts::new(Opcode::Stat) };
    let noop = RequestParts::new(Opcode::Noop);
    stream.write_all(&[set(b"k", b"v"), request(&general), request(&noop)].concat()).unwrap();
    let (mut answered, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    // The answer to the last request is a header without a body.
    while answered.last_chunk::<24>().is_none_or(|last| last[..2] != [0x81, Opcode::Noop as u8]) {
        let received = stream.read(&mut piece).unwrap();
        assert_ne!(received, 0);
        answered.extend_from_slice(&piece[..received]);
    }
    let (mut frames, mut rest) = (0, &answered[..]);
    while let Ok(DecodedFrame::Complete { frame, consumed }) = decode(rest) {
        assert_eq!(frame.header.vbucket_or_status, 0);
        (frames, rest) = (frames + 1, &rest[consumed..]);
    }
    assert!(frames > 50, "one frame for each figure: {frames}");
}
