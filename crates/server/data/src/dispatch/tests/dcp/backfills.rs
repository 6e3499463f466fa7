//! Backfills that several consumers read: their messages are made once where they are the same.

use oribi_engine::BackfillPause;
use oribi_types::{Datatype, Timestamp};

use super::*;
use crate::dispatch::tests::about;

const PLAIN_CONSUMER: [u16; 6] = [6, 7, 8, 0x0b, 0x10, 0x12];

/// Documents of 600 bytes: several parts of a backfill.
const DOCUMENTS: usize = 400;
const LARGE_BYTES: usize = 100_000;

/// A consumer and what it got.
struct Reader {
    client: Client,
    opaque: u32,
    window: Option<u32>,
    unacknowledged: usize,
    output: Vec<u8>,
}

impl Reader {
    fn open(mut client: Client, opaque: u32, window: Option<u32>) -> Reader {
        if let Some(bytes) = window {
            client.choose("connection_buffer_size", &bytes.to_string());
        }
        let request = RequestParts {
            vbid: Vbid(0),
            opaque,
            extras: &EVERYTHING.encode(),
            ..RequestParts::new(Opcode::DcpStreamReq)
        };
        let all = client.receive(&bytes(&request));
        assert!(
            matches!(&all[..], [ServerFrame::Answer(reply)] if reply.status == Status::Success)
        );
        Reader { client, opaque, window, unacknowledged: 0, output: Vec::new() }
    }

    /// Takes what there is, within the window.
    fn read(&mut self) {
        let extras = u32::try_from(self.unacknowledged).unwrap().to_be_bytes();
        let opcode = Opcode::DcpBufferAcknowledgement;
        let acknowledge = RequestParts { extras: &extras, ..RequestParts::new(opcode) };
        let input = self.window.map(|_| bytes(&acknowledge)).unwrap_or_default();
        let output = self.client.harness.feed(&input);
        self.unacknowledged = output.len();
        let last = received(&output).last().map_or(0, |got| match got {
            ServerFrame::Message { frame_bytes, .. } => *frame_bytes,
            ServerFrame::Answer(reply) => panic!("{reply:?}"),
        });
        if let Some(window) = self.window {
            assert!(output.len() < window as usize + last, "one message more than the window");
        }
        self.output.extend(output);
    }

    /// Messages but for the opaque, which is the stream's in each.
    fn told(&self) -> Vec<DcpEvent> {
        let told = |got: ServerFrame| match got {
            ServerFrame::Message { opaque, told, .. } => {
                assert_eq!(opaque, self.opaque);
                told
            }
            ServerFrame::Answer(reply) => panic!("{reply:?}"),
        };
        received(&self.output).into_iter().map(told).collect()
    }
}

/// A client whose documents of vbucket 0 are in the store only, as far as streams can tell.
fn written() -> Client {
    let mut writer = Client::modern();
    let compressed = snap::raw::Encoder::new().compress_vec(&[b'c'; 600]).unwrap();
    let large = vec![b'l'; LARGE_BYTES];
    for number in 0..DOCUMENTS {
        let key = format!("key{number:03}");
        let (value, datatype) = match number {
            100 => (&large[..], 0),
            _ if number % 7 == 0 => (&compressed[..], Datatype::SNAPPY.0),
            _ => (&[b'v'; 600][..], 0),
        };
        let parts = RequestParts {
            vbid: Vbid(0),
            extras: &[0; 8],
            value,
            datatype,
            ..about(Opcode::Set, key.as_bytes())
        };
        assert_eq!(writer.ask(&parts).status, Status::Success);
    }
    for number in (0..DOCUMENTS).step_by(11) {
        let key = format!("key{number:03}");
        let parts = RequestParts { vbid: Vbid(0), ..about(Opcode::Delete, key.as_bytes()) };
        assert_eq!(writer.ask(&parts).status, Status::Success);
    }
    let bucket = writer.harness.bucket().bucket();
    bucket.flush_step().expect("a store in memory can be written");
    writer
}

fn values(told: &[DcpEvent]) -> Vec<(u64, &[u8], usize)> {
    let all = told.iter().filter_map(|told| match told {
        DcpEvent::Mutation { seqno, key, value, .. } => Some((*seqno, &key[..], value.len())),
        DcpEvent::Deletion { seqno, key, .. } => Some((*seqno, &key[..], 0)),
        _ => None,
    });
    all.collect()
}

// Invariant: Readers of one backfill with equal options get equal messages from one encoding, each
// with its own opaque.
#[test]
fn backfill_readers_share_messages_not_opaques() {
    let writer = written();
    let reader = |name: &[u8], features: &[u16], flags, opaque, window| {
        let mut client = Client::consumer_of(writer.harness.beside(), features);
        assert_eq!(client.open_as(name, flags).status, Status::Success);
        client.choose("enable_noop", "true");
        Reader::open(client, opaque, window)
    };
    let mut readers = vec![
        reader(b"first", &CONSUMER, 1, 0x0101_0001, None),
        reader(b"equal", &CONSUMER, 1, 0x0101_0001, None),
        reader(b"other opaque", &CONSUMER, 1, 0xfefe_0002, Some(5_000)),
        reader(b"no Snappy", &PLAIN_CONSUMER, 1, 0x0101_0001, Some(30_000)),
        reader(b"no values", &CONSUMER, 0x09, 0x0101_0001, None),
    ];
    let bucket = std::sync::Arc::clone(writer.harness.bucket().bucket());
    let shared = std::cell::RefCell::new(&mut readers);
    let pace = |pause: BackfillPause| {
        shared.borrow_mut().iter_mut().for_each(Reader::read);
        pause.idle < 4
    };
    let report = bucket.backfill_step(&pace, &Timestamp::default).unwrap();
    assert_eq!((report.streams, bucket.backfill_stats().scans), (5, 1), "one scan for all");
    let held = || bucket.backfill_stats().held_bytes;
    let records = held();
    readers[0].read();
    let with_messages = held();
    assert!(with_messages > records + 500 * DOCUMENTS as u64, "the first one makes the messages");
    readers[1].read();
    assert_eq!(held(), with_messages, "once");
    for _ in 0..200 {
        readers.iter_mut().for_each(Reader::read);
    }
    let told: Vec<Vec<DcpEvent>> = readers.iter().map(Reader::told).collect();
    let documents = values(&told[0]);
    assert_eq!(documents.len(), DOCUMENTS);
    assert!(documents.iter().is_sorted());
    assert!(documents.iter().any(|(.., bytes)| *bytes == LARGE_BYTES), "the large document");
    assert!(told[0] == told[1] && told[0] == told[2], "equal options");
    let plain = values(&told[3]);
    assert_eq!(plain.len(), DOCUMENTS);
    for ((seqno, key, stored), (of_plain, its_key, bytes)) in documents.iter().zip(plain) {
        assert_eq!((*seqno, *key), (of_plain, its_key));
        assert!(bytes == if *stored == 0 { 0 } else { 600.max(*stored) }, "{bytes} bytes");
    }
    assert!(values(&told[4]).iter().all(|(.., bytes)| *bytes == 0), "no values");
}

/// Two streams share a scan, and one of them reads nothing of it.
#[test]
fn scans_and_streams_left_behind_are_statistics() {
    let mut writer = written();
    // Several times what an inbox takes.
    for number in 0..40 {
        let key = format!("more{number:02}");
        let value = vec![b'm'; LARGE_BYTES];
        let parts = RequestParts {
            vbid: Vbid(0),
            extras: &[0; 8],
            value: &value,
            ..about(Opcode::Set, key.as_bytes())
        };
        assert_eq!(writer.ask(&parts).status, Status::Success);
    }
    let bucket = std::sync::Arc::clone(writer.harness.bucket().bucket());
    bucket.flush_step().expect("a store in memory can be written");
    let open = |name: &[u8]| {
        let mut client = Client::consumer_of(writer.harness.beside(), &CONSUMER);
        assert_eq!(client.open_as(name, 1).status, Status::Success);
        client.choose("enable_noop", "true");
        Reader::open(client, 0x0101_0001, None)
    };
    let (mut reads, still) = (open(b"reads"), open(b"stands still"));
    let shared = std::cell::RefCell::new(&mut reads);
    let pace = |pause: BackfillPause| {
        shared.borrow_mut().read();
        pause.idle < 4
    };
    let report = bucket.backfill_step(&pace, &Timestamp::default).unwrap();
    assert_eq!(report.streams, 2);
    let stats = super::streaming::figures(&mut writer, "dcp");
    assert_eq!(stats["ep_dcp_backfill_scans"], "1");
    assert_eq!(stats["ep_dcp_backfill_scan_streams"], "2");
    assert_eq!(stats["ep_dcp_backfill_scan_failures"], "0");
    assert_eq!(stats["ep_dcp_backfill_left_behind"], "1");
    drop(still);
}

/// Large values are sent from the copy of the backfill, and a compressed one is inflated as it is
/// sent.
#[test]
fn large_records_of_a_backfill_come_whole() {
    let plain: Vec<u8> = (0..400_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let packed = snap::raw::Encoder::new().compress_vec(&[b'c'; 400_000]).unwrap();
    let mut writer = Client::modern();
    for (key, value, datatype) in [(b"plain", &plain, 0), (b"packd", &packed, Datatype::SNAPPY.0)] {
        let parts = RequestParts {
            vbid: Vbid(0),
            extras: &[0; 8],
            value,
            datatype,
            ..about(Opcode::Set, key)
        };
        assert_eq!(writer.ask(&parts).status, Status::Success);
    }
    let bucket = std::sync::Arc::clone(writer.harness.bucket().bucket());
    bucket.flush_step().expect("a store in memory can be written");
    let mut readers = [(&CONSUMER[..], &b"reads"[..]), (&PLAIN_CONSUMER[..], b"inflated")].map(
        |(features, name)| {
            let mut client = Client::consumer_of(writer.harness.beside(), features);
            assert_eq!(client.open_as(name, 1).status, Status::Success);
            client.choose("enable_noop", "true");
            Reader::open(client, 0x0101_0001, None)
        },
    );
    let shared = std::cell::RefCell::new(&mut readers);
    let pace = |pause: BackfillPause| {
        shared.borrow_mut().iter_mut().for_each(Reader::read);
        pause.idle < 4
    };
    bucket.backfill_step(&pace, &Timestamp::default).unwrap();
    for _ in 0..4 {
        readers.iter_mut().for_each(Reader::read);
    }
    for (reader, packed) in readers.iter().zip([&packed[..], &[b'c'; 400_000]]) {
        let told = reader.told();
        let values: Vec<&[u8]> = told
            .iter()
            .filter_map(|told| match told {
                DcpEvent::Mutation { value, .. } => Some(&value[..]),
                _ => None,
            })
            .collect();
        assert!(values == [&plain[..], packed], "{} values", values.len());
    }
    drop(readers);
    let memory = &writer.harness.server().connections.memory;
    assert_eq!(memory.stats().reserved_bytes, 0, "everything is returned");
}
