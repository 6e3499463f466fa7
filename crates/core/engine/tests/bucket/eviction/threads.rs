//! Clients and background work in separate threads, each client with separate keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use oribi_engine::EvictionPolicy;
use oribi_storage::MemoryMedium;
use oribi_testkit::StopOnDrop;
use oribi_types::Timestamp;

use super::{BEGIN_S, Client, KEYS, Memory, Random, open};

#[test]
fn clients_and_background_work_at_the_same_time() {
    for policy in [EvictionPolicy::Value, EvictionPolicy::Full] {
        run_threads(policy);
    }
}

fn run_threads(policy: EvictionPolicy) {
    let disk = Arc::new(MemoryMedium::default());
    let bucket = open(policy, &disk);
    let stop = AtomicBool::new(false);
    let clock = || Timestamp::from_unix_s(BEGIN_S);
    let until_stopped = |step: &dyn Fn()| {
        while !stop.load(Ordering::Acquire) {
            step();
            std::thread::yield_now();
        }
    };
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let stopped = StopOnDrop(&stop);
        let flusher = scope.spawn(|| {
            until_stopped(&|| {
                bucket.flush_step().expect("the store works");
            })
        });
        let pager = scope.spawn(|| {
            until_stopped(&|| {
                bucket.page_items_step(&clock);
            })
        });
        let fetchers = [(); 3].map(|()| {
            scope.spawn(|| {
                until_stopped(&|| {
                    bucket.fetch_step();
                })
            })
        });
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let bucket = Arc::clone(&bucket);
                scope.spawn(move || {
                    let mut client = Client {
                        memory: Memory::Tiny,
                        bucket,
                        documents: BTreeMap::new(),
                        random: Random(number * 7919 + 17),
                        now_s: BEGIN_S,
                        first_key: number * KEYS,
                        evictions: 0,
                        drives: false,
                    };
                    for _ in 0..3000 {
                        client.operate();
                    }
                    client.check();
                    client
                })
            })
            .collect();
        let join =
            |thread: ScopedJoinHandle<'_, Client>| thread.join().expect("no assertion fails");
        let clients = threads.into_iter().map(join).collect();
        drop(stopped);
        // A thread sanitizer does not see that the scope waits.
        for background in [flusher, pager].into_iter().chain(fetchers) {
            background.join().expect("no assertion fails");
        }
        clients
    });
    let documents: usize = clients.iter().map(|client| client.documents.len()).sum();
    assert_eq!(bucket.stats().items, documents);
    assert!(bucket.stats().memory.evictions > 50);
}
