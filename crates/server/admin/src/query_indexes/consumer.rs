//! The thread that feeds a bucket's indexes.
//!
//! Owns: its life. It begins with the first index that has entries and ends with the last one, with
//! the bucket or with the server; so a bucket without indexes has neither a thread nor a cursor. It
//! runs at the priority of readers, below workers.
//!
//! After changes it sleeps for a millisecond at a time, during which workers wake nothing; after a
//! pause it sleeps until a change wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use oribi_server::admin_api::memory::ConnectionMemory;
use oribi_server::buckets::BucketHandle;
use parking_lot::Mutex;

use super::fed_index::FedIndex;
use super::feed_progress::FeedProgress;
use super::index_feed::{FeedTurn, IndexFeed};
use super::large_documents::LargeDocuments;
use super::sweep_reader::SweptCollection;
use crate::limits::READING_NICENESS;

/// How long the thread sleeps while changes come, and how long after the last one.
const SHORT_SLEEP: Duration = Duration::from_millis(1);
const SHORT_SLEEPS: Duration = Duration::from_millis(20);

/// Interval of looks at what wakes nothing: vbuckets that come, the end of the bucket.
const LONG_SLEEP: Duration = Duration::from_millis(250);
const _: () = assert!(SHORT_SLEEP.as_millis() < SHORT_SLEEPS.as_millis());
const _: () = assert!(SHORT_SLEEPS.as_millis() < LONG_SLEEP.as_millis(), "sleeps get longer");

/// Tests share their processors with others, and must not depend on how little these leave.
const FEED_NICENESS: i32 = if cfg!(test) { 0 } else { READING_NICENESS };

/// See the module text.
pub(super) struct FeedConsumer {
    handle: Arc<BucketHandle>,
    memory: Arc<ConnectionMemory>,
    pub progress: Arc<FeedProgress>,
    is_stopping: AtomicBool,
    state: Mutex<ConsumerState>,
}

#[derive(Default)]
struct ConsumerState {
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    added: Vec<Arc<FedIndex>>,
    removed: Vec<Arc<FedIndex>>,
}

impl FeedConsumer {
    pub fn new(handle: Arc<BucketHandle>, memory: Arc<ConnectionMemory>) -> Arc<FeedConsumer> {
        let progress = Arc::new(FeedProgress::new(Arc::clone(handle.bucket())));
        Arc::new(FeedConsumer {
            handle,
            memory,
            progress,
            is_stopping: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Builds an index, on a new thread if there is none.
    ///
    /// # Errors
    /// The operating system's, when it refuses a thread.
    pub fn add(self: &Arc<Self>, index: Arc<FedIndex>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_running {
            if let Some(ended) = state.thread.take() {
                // It has left its loop. A panic was logged.
                let _ = ended.join();
            }
            let consumer = Arc::clone(self);
            state.thread = Some(oribi_supervisor::spawn("oribi-index", move || consumer.run())?);
            state.is_running = true;
        }
        state.added.push(index);
        drop(state);
        self.progress.waker.wake();
        Ok(())
    }

    /// Feeds an index no longer.
    pub fn remove(&self, index: Arc<FedIndex>) {
        self.state.lock().removed.push(index);
        self.progress.waker.wake();
    }

    /// Whether the thread feeds indexes.
    pub fn is_feeding(&self) -> bool {
        self.state.lock().is_running
    }

    /// Ends the thread and waits for it.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.progress.waker.wake();
        let thread = self.state.lock().thread.take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(bucket = self.handle.name(), "the thread of the indexes panicked");
        }
    }

    fn run(&self) {
        let _ = rustix::process::nice(FEED_NICENESS);
        self.progress.waker.attach(Some(std::thread::current()));
        self.feed();
        self.progress.waker.attach(None);
    }

    fn feed(&self) {
        let documents: Arc<dyn LargeDocuments> = Arc::new(Arc::clone(&self.memory));
        let bucket = Arc::clone(self.handle.bucket());
        let reader = move |collection| {
            let bucket = Arc::clone(&bucket);
            Box::new(SweptCollection { bucket, collection }) as Box<dyn oribi_query::Keyspace>
        };
        let progress = Arc::clone(&self.progress);
        let bucket = Arc::clone(self.handle.bucket());
        let mut feed = IndexFeed::new(bucket, progress, documents, Box::new(reader));
        let mut last_change = Instant::now();
        let mut mutations = 0;
        loop {
            {
                let mut state = self.state.lock();
                state.added.drain(..).for_each(|index| feed.add(index));
                state.removed.drain(..).for_each(|index| feed.remove(&index));
                let has_ended =
                    self.is_stopping.load(Ordering::Acquire) || self.handle.is_deleted();
                if has_ended || feed.is_empty() {
                    state.is_running = false;
                    break;
                }
            }
            let now = Instant::now();
            let turn = feed.turn(now);
            let counted = self.progress.mutations.load(Ordering::Relaxed);
            if counted != mutations {
                (mutations, last_change) = (counted, now);
            }
            let FeedTurn::Idle(due) = turn else { continue };
            let is_long = now.duration_since(last_change) > SHORT_SLEEPS;
            let usual = if is_long { LONG_SLEEP } else { SHORT_SLEEP };
            let until_due = due.map(|due| due.saturating_duration_since(Instant::now()));
            let sleep = until_due.map_or(usual, |until_due| until_due.min(usual));
            let has_work = || due.is_none() && feed.has_work() && is_long;
            self.progress.waker.sleep(sleep, is_long, has_work);
        }
        // Whoever waits for the indexes finds that they have ended.
        self.progress.set_complete(None);
        drop(feed);
        self.progress.end_turn();
    }
}
