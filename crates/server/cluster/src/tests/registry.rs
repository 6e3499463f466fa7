//! Buckets in memory for tests of the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_config::BucketStorage;
use oribi_engine::{Bucket, BucketConfig, BucketThreads};
use oribi_storage::{SharedMemoryStore, StoreError};
use oribi_system::random::random_bytes;
use parking_lot::Mutex;

use crate::buckets::{BucketFailure, ClusterBuckets, SharedBucket};

/// A registry whose buckets all are shared.
#[derive(Default)]
pub(crate) struct MemoryBuckets {
    open: Mutex<Vec<Arc<MemoryBucket>>>,
    /// The settings that were put in force last.
    settings: Mutex<Vec<u8>>,
    /// A word that settings here cannot have.
    pub(crate) impossible: Mutex<Option<&'static str>>,
}

pub(crate) struct MemoryBucket {
    bucket: Arc<Bucket>,
    threads: Mutex<Option<BucketThreads>>,
    is_deleted: AtomicBool,
}

impl MemoryBuckets {
    pub(crate) fn open_over(&self, config: BucketConfig, store: Arc<SharedMemoryStore>) {
        let entropy = Box::new(|| u64::from_ne_bytes(random_bytes()));
        let bucket = Bucket::open(config, store, entropy, false).unwrap();
        let threads = Mutex::new(Some(BucketThreads::start(Arc::clone(&bucket)).unwrap()));
        let is_deleted = AtomicBool::new(false);
        self.open.lock().push(Arc::new(MemoryBucket { bucket, threads, is_deleted }));
    }

    pub(crate) fn settings(&self) -> String {
        String::from_utf8(self.settings.lock().clone()).unwrap()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<MemoryBucket>> {
        self.open.lock().iter().find(|bucket| bucket.name() == name).cloned()
    }
}

impl SharedBucket for MemoryBucket {
    fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    fn storage(&self) -> &BucketStorage {
        &BucketStorage::Log
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }
}

impl ClusterBuckets for MemoryBuckets {
    fn shared(&self) -> Vec<Arc<dyn SharedBucket>> {
        let open = self.open.lock();
        open.iter().map(|bucket| Arc::clone(bucket) as Arc<dyn SharedBucket>).collect()
    }

    fn is_open(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn settings_text(&self, name: &str) -> Result<Vec<u8>, BucketFailure> {
        let bucket = self.get(name).ok_or("no such bucket")?;
        let config = bucket.bucket.config();
        Ok(format!(r#"{{"uuid":"{}","vbuckets":{}}}"#, config.uuid, config.vbuckets).into_bytes())
    }

    fn open(&self, name: &str, _settings: &[u8]) -> Result<(), BucketFailure> {
        Err(format!("no test opens {name} on another node").into())
    }

    fn apply_settings(&self, name: &str, settings: &[u8]) -> Result<bool, BucketFailure> {
        assert!(self.is_open(name), "only an open bucket has settings");
        let text = String::from_utf8(settings.to_vec())?;
        if self.impossible.lock().is_some_and(|word| text.contains(word)) {
            return Err("no node of this test can have that".into());
        }
        let before = std::mem::replace(&mut *self.settings.lock(), settings.to_vec());
        Ok(before != settings)
    }

    fn store_settings(&self, name: &str, _settings: &[u8]) -> Result<(), BucketFailure> {
        assert!(self.is_open(name), "only an open bucket has settings");
        Ok(())
    }

    fn close(&self, uuid: &str) -> Result<(), BucketFailure> {
        let mut open = self.open.lock();
        let Some(place) = open.iter().position(|bucket| bucket.uuid() == uuid) else {
            return Ok(());
        };
        let bucket = open.remove(place);
        drop(open);
        bucket.is_deleted.store(true, Ordering::Release);
        if let Some(threads) = bucket.threads.lock().take() {
            threads.stop()?;
        }
        Ok(())
    }

    fn remove_data(&self, _storage: &BucketStorage, _id: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Drop for MemoryBuckets {
    fn drop(&mut self) {
        for bucket in self.open.get_mut() {
            if let Some(threads) = bucket.threads.lock().take() {
                let _ = threads.stop();
            }
        }
    }
}
