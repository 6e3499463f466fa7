//! A writer that goes on whatever happens, and knows what it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use oribi_client::{Client, WriteOptions};
use oribi_types::DurabilityLevel;
use tokio::task::JoinHandle;

/// Documents, overwritten in turn.
const DOCUMENTS: u64 = 60;

/// What is known of one: the newest number that was acknowledged as persisted, and the newest that was sent.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    sent: u64,
}

pub struct Writer {
    stop: Arc<AtomicBool>,
    running: JoinHandle<BTreeMap<u64, Known>>,
}

/// What a writer was told.
pub struct Written(BTreeMap<u64, Known>);

fn key(document: u64) -> String {
    format!("counted-{document}")
}

impl Writer {
    pub fn start(client: Arc<Client>) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let running = tokio::spawn(async move {
            let durability = DurabilityLevel::PersistToMajority;
            let options = WriteOptions { durability, ..WriteOptions::default() };
            let mut known: BTreeMap<u64, Known> = BTreeMap::new();
            let mut number = 0;
            while !stopped.load(Ordering::Acquire) {
                number += 1;
                let document = number % DOCUMENTS;
                let of_document = known.entry(document).or_default();
                of_document.sent = number;
                let value = Bytes::from(number.to_string());
                let collection = client.default_collection();
                let key = key(document);
                // What became of a write that failed nobody knows.
                if client.upsert(collection, key.as_bytes(), value, &options).await.is_ok() {
                    of_document.acknowledged = number;
                }
            }
            known
        });
        Writer { stop, running }
    }

    pub async fn stop(self) -> Written {
        self.stop.store(true, Ordering::Release);
        Written(self.running.await.unwrap())
    }
}

impl Written {
    /// Every document is the newest that was acknowledged, or a later one that was sent.
    pub async fn check(&self, client: &Client) {
        assert!(self.0.values().any(|known| known.acknowledged > 0), "nothing was written");
        for (document, known) in &self.0 {
            let key = key(*document);
            let found = client.get(client.default_collection(), key.as_bytes()).await.unwrap();
            let number: u64 = found
                .map_or(0, |found| std::str::from_utf8(&found.value).unwrap().parse().unwrap());
            assert!(
                (known.acknowledged..=known.sent).contains(&number),
                "{key} is {number}, acknowledged {}, sent {}",
                known.acknowledged,
                known.sent
            );
        }
    }
}
