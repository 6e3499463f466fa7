//! Load on several nodes, and the oracle that checks what is left of it.
//!
//! Each document has one writer. What became of a write without an answer is not known, and bytes
//! of it may lie anywhere for any time, so its document is given up for another one. When
//! everything has come to rest the failover tables say what continued (`ack_log`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use oribi_client::{Client, ClientError, MutationToken, RejectionKind, WriteOptions, WriteReply};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::ack_log::{Acknowledgement, Tally};
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::{AckLog, PATIENCE, Random, RawConnection, Request, ServerProcess, poll_until};
use oribi_types::{DurabilityLevel, Seqno, VbUuid, Vbid};
use tokio::task::JoinHandle;

const WRITERS: u64 = 4;
const DOCUMENTS_PER_WRITER: u64 = 40;

type Tables = BTreeMap<Vbid, Vec<(VbUuid, Seqno)>>;

/// The record over all rounds.
pub struct Chaos {
    log: Arc<Mutex<AckLog>>,
    generations: Generations,
    random: Random,
}

/// How often each document was given up.
type Generations = Arc<Vec<AtomicU64>>;

pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<()>>,
}

impl Chaos {
    /// Nothing was written yet; the nodes are at rest.
    pub fn new(seed: u64, nodes: &[&ServerProcess]) -> Chaos {
        let mut log = AckLog::of_cluster();
        log.settled(&tables(nodes));
        let generations = (0..WRITERS * DOCUMENTS_PER_WRITER).map(|_| AtomicU64::new(0));
        Chaos {
            log: Arc::new(Mutex::new(log)),
            generations: Arc::new(generations.collect()),
            random: Random::new(seed),
        }
    }

    pub fn start(&mut self, client: &Arc<Client>) -> Load {
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let writer = |number| Writer {
            documents: number * DOCUMENTS_PER_WRITER..(number + 1) * DOCUMENTS_PER_WRITER,
            generations: Arc::clone(&self.generations),
            client: Arc::clone(client),
            log: Arc::clone(&self.log),
            random: self.random.fork(),
            stop: Arc::clone(&stop),
            acknowledged: Arc::clone(&acknowledged),
        };
        let writers: Vec<Writer> = (0..WRITERS).map(writer).collect();
        let writers = writers.into_iter().map(|writer| tokio::spawn(writer.run())).collect();
        Load { stop, acknowledged, writers }
    }

    /// All nodes are there again: what they have is compared with what was acknowledged.
    pub async fn judge(&mut self, nodes: &[&ServerProcess], client: &Client) {
        let tables = tables(nodes);
        self.log.lock().unwrap().settled(&tables);
        for document in 0..WRITERS * DOCUMENTS_PER_WRITER {
            let key = key(&self.generations, document);
            let found = client.get(client.default_collection(), key.as_bytes()).await.unwrap();
            let found = found.map(|found| (found.value.to_vec(), found.cas));
            self.log.lock().unwrap().read(vbid(&key), key.as_bytes(), &found);
        }
        let violations = self.log.lock().unwrap().take_violations();
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} promises were broken:\n{}", lines.len(), lines.join("\n"));
    }

    pub fn tally(&self) -> Tally {
        self.log.lock().unwrap().tally()
    }
}

impl Load {
    /// Waits until so many more writes were acknowledged.
    pub async fn wait_for(&self, more: u64) {
        let enough = self.acknowledged.load(Ordering::Relaxed) + more;
        let acknowledged = Arc::clone(&self.acknowledged);
        let is_enough = move || {
            poll_until(PATIENCE, || (acknowledged.load(Ordering::Relaxed) >= enough).then_some(()))
        };
        let waited = tokio::task::spawn_blocking(is_enough).await.unwrap();
        assert!(waited.is_some(), "the writers do not get on");
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for writer in self.writers {
            writer.await.unwrap();
        }
    }
}

fn key(generations: &Generations, document: u64) -> String {
    let generation = generations[document as usize].load(Ordering::Relaxed);
    format!("chaos-{document}-{generation}")
}

fn vbid(key: &str) -> Vbid {
    vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS)
}

struct Writer {
    documents: std::ops::Range<u64>,
    generations: Generations,
    client: Arc<Client>,
    log: Arc<Mutex<AckLog>>,
    random: Random,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    async fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let document = self.documents.start + self.random.below(DOCUMENTS_PER_WRITER);
            if !self.write(document).await {
                self.generations[document as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Writes or deletes a document. False when no client knows what came of it.
    async fn write(&mut self, document: u64) -> bool {
        let key = key(&self.generations, document);
        let durability = match self.random.one_in(2) {
            true => DurabilityLevel::PersistToMajority,
            false => DurabilityLevel::None,
        };
        let options = WriteOptions::new().durability(durability);
        let value = format!("{key} {:x}", self.random.below(1 << 50));
        let value = (!self.random.one_in(6)).then_some(value);
        let attempt = {
            let value = value.as_deref().map(str::as_bytes);
            self.log.lock().unwrap().attempt(vbid(&key), key.as_bytes(), value)
        };
        let collection = self.client.default_collection();
        let done = match value {
            Some(value) => {
                self.client.upsert(collection, key.as_bytes(), Bytes::from(value), &options).await
            }
            None => self.client.delete(collection, key.as_bytes(), &options).await,
        };
        match done {
            Ok(WriteReply { cas, mutation, .. }) => {
                let MutationToken { vb_uuid, seqno, .. } =
                    mutation.expect("the client asks for it");
                let persisted = durability != DurabilityLevel::None;
                let ack = Acknowledgement { cas, seqno, vb_uuid, persisted };
                self.log.lock().unwrap().acknowledged(&attempt, ack);
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(error) if changed_nothing(&error) => {
                self.log.lock().unwrap().refused(&attempt);
                true
            }
            Err(_) => false,
        }
    }
}

fn changed_nothing(error: &ClientError) -> bool {
    let refused = error.rejection();
    error.was_not_sent()
        || refused
            .is_some_and(|refused| refused.is_transient() || refused == RejectionKind::NotFound)
}

/// The failover table of every vbucket, each from the node that serves it, when there is one for
/// each.
#[track_caller]
fn tables(nodes: &[&ServerProcess]) -> Tables {
    let all = || {
        let mut tables = Tables::new();
        for node in nodes {
            tables.extend(tables_of(node)?);
        }
        (tables.len() == usize::from(DEFAULT_VBUCKETS)).then_some(tables)
    };
    poll_until(PATIENCE, all).expect("every vbucket is served")
}

fn tables_of(node: &ServerProcess) -> Option<Tables> {
    let mut connection = RawConnection::login_to(node.host(), node.port()).ok()?;
    let mut tables = Tables::new();
    for vbid in (0..DEFAULT_VBUCKETS).map(Vbid) {
        let request = Request::new(Opcode::GetFailoverLog).vbucket(vbid);
        let answer = connection.call(&request).ok()?;
        if answer.status() == Status::Success {
            let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes);
            let entry = |entry: &[u8]| {
                Some((VbUuid(number(&entry[..8]).ok()?), Seqno(number(&entry[8..]).ok()?)))
            };
            let table: Option<Vec<_>> = answer.value.chunks_exact(16).map(entry).collect();
            tables.insert(vbid, table?);
        }
    }
    Some(tables)
}
