//! A writer that continues whatever happens and knows what it was told, and a reader that holds
//! everybody to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use oribi_client::{Client, ClientError, WriteOptions};
use oribi_testkit::{PATIENCE, poll_until};
use oribi_types::DurabilityLevel;
use tokio::task::JoinHandle;

/// Documents, overwritten in turn.
const DOCUMENTS: u64 = 60;

/// Knowledge of one document: the newest number that was acknowledged as persisted, and the newest
/// that was sent.
#[derive(Clone, Copy, Default)]
struct ExpectedValue {
    acknowledged: u64,
    sent: u64,
}

type Notes = Arc<Mutex<BTreeMap<u64, ExpectedValue>>>;

pub struct Writer {
    stop: Arc<AtomicBool>,
    writing: JoinHandle<()>,
    reading: JoinHandle<()>,
    read: Arc<AtomicU64>,
    notes: Notes,
}

/// Outcome of a write.
pub struct WrittenKeys(BTreeMap<u64, ExpectedValue>);

fn key(document: u64) -> String {
    format!("counted-{document}")
}

impl Writer {
    /// Returns when documents were written and read, so that whatever happens from then on happens
    /// to both.
    pub async fn start(client: Arc<Client>) -> Writer {
        let (stop, notes) = (Arc::new(AtomicBool::new(false)), Notes::default());
        let read = Arc::<AtomicU64>::default();
        let writing = tokio::spawn(write(Arc::clone(&client), Arc::clone(&notes), stop.clone()));
        let reading = tokio::spawn(compare(client, notes.clone(), stop.clone(), read.clone()));
        let (written, seen) = (Arc::clone(&notes), Arc::clone(&read));
        let is_under_way = move || {
            let some = written.lock().unwrap().values().any(|known| known.acknowledged > 0);
            (some && seen.load(Ordering::Relaxed) > 0).then_some(())
        };
        let waited = tokio::task::spawn_blocking(|| poll_until(PATIENCE, is_under_way)).await;
        waited.unwrap().expect("nothing is written or read");
        Writer { stop, writing, reading, read, notes }
    }

    pub async fn stop(self) -> WrittenKeys {
        self.stop.store(true, Ordering::Release);
        self.writing.await.unwrap();
        self.reading.await.expect("nobody read anything stale");
        assert!(self.read.load(Ordering::Relaxed) > 0, "nothing was read");
        WrittenKeys(std::mem::take(&mut self.notes.lock().unwrap()))
    }
}

async fn write(client: Arc<Client>, notes: Notes, stop: Arc<AtomicBool>) {
    let durability = DurabilityLevel::PersistToMajority;
    let options = WriteOptions::new().durability(durability);
    let (mut number, mut resting) = (0, BTreeSet::new());
    while !stop.load(Ordering::Acquire) {
        number += 1;
        let document = number % DOCUMENTS;
        if resting.contains(&document) {
            tokio::task::yield_now().await;
            continue;
        }
        notes.lock().unwrap().entry(document).or_default().sent = number;
        let value = Bytes::from(number.to_string());
        let collection = client.default_collection();
        let written = client.upsert(collection, key(document).as_bytes(), value, &options).await;
        if written.is_ok() {
            notes.lock().unwrap().entry(document).or_default().acknowledged = number;
        } else {
            // Its outcome is unknown, and it may still be on its way: nothing is written
            // that it could overwrite.
            resting.insert(document);
        }
    }
}

/// Reads that begin after a write was acknowledged do not find anything older, whoever answers
/// them. Counts them in `read`.
async fn compare(client: Arc<Client>, notes: Notes, stop: Arc<AtomicBool>, read: Arc<AtomicU64>) {
    let mut turn = 0;
    while !stop.load(Ordering::Acquire) {
        // Not in the writer's order.
        turn += 7;
        let document = turn % DOCUMENTS;
        let floor = notes.lock().unwrap().get(&document).map_or(0, |known| known.acknowledged);
        let Ok(number) = number(&client, document).await else { continue };
        let sent = notes.lock().unwrap().get(&document).map_or(0, |known| known.sent);
        let key = key(document);
        assert!((floor..=sent).contains(&number), "{key} is {number}, not {floor} to {sent}");
        read.fetch_add(1, Ordering::Relaxed);
    }
}

async fn number(client: &Client, document: u64) -> Result<u64, ClientError> {
    let found = client.get(client.default_collection(), key(document).as_bytes()).await?;
    let number = |value: &[u8]| std::str::from_utf8(value).unwrap().parse().unwrap();
    Ok(found.map_or(0, |found| number(&found.value)))
}

impl WrittenKeys {
    /// Every document is the newest that was acknowledged, or a later one that was sent.
    pub async fn check(&self, client: &Client) {
        assert!(self.0.values().any(|known| known.acknowledged > 0), "nothing was written");
        for (document, known) in &self.0 {
            let (key, number) = (key(*document), number(client, *document).await.unwrap());
            assert!(
                (known.acknowledged..=known.sent).contains(&number),
                "{key} is {number}, acknowledged {}, sent {}",
                known.acknowledged,
                known.sent
            );
        }
    }
}
