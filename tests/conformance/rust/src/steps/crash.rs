//! The server is killed under the client: whatever was acknowledged as
//! persisted must survive, also what was acknowledged last.

use std::collections::HashMap;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use couchbase::collection::Collection;
use couchbase::durability_level::DurabilityLevel;
use couchbase::options::kv_options::InsertOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Program;
use crate::checks::{Failure, Outcome, check, equal, eventually, within};

const WRITERS: usize = 64;
const WRITES_MIN: usize = 1_000;

/// Keys and the CAS that the acknowledgement carried.
type Acknowledged = Arc<Mutex<HashMap<String, u64>>>;

impl Program {
    pub(super) async fn kill_restart(&self) -> Outcome {
        let acknowledged = Acknowledged::default();
        let stopping = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(
                self.collection.clone(),
                writer,
                acknowledged.clone(),
                stopping.clone(),
            ));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while count(&acknowledged)? < WRITES_MIN && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
        }
        let enough = count(&acknowledged)? >= WRITES_MIN;
        let killed = control("kill-restart").await;
        stopping.store(true, Ordering::Relaxed);
        while let Some(ended) = writers.join_next().await {
            ended??;
        }
        check(enough, "1,000 durable writes")?;
        killed?;
        self.compare(&acknowledged).await
    }

    async fn compare(&self, acknowledged: &Acknowledged) -> Outcome {
        let acknowledged = acknowledged.lock().map_err(|_| "a writer panicked")?.clone();
        let Some((some_key, some_cas)) = acknowledged.iter().next() else {
            return Err("nothing was acknowledged".into());
        };
        let restarted = Instant::now();
        eventually(|| self.collection.get(some_key, None)).await?;
        let reconnected = restarted.elapsed();
        for (key, cas) in &acknowledged {
            let got = within(self.collection.get(key, None)).await?;
            equal((&got.content_as::<String>()?, got.cas()), (key, *cas))?;
        }
        let newer = within(self.collection.upsert(some_key, "newer", None)).await?;
        check(newer.cas() > *some_cas, "CAS values grow across a crash")?;
        // The cluster object is the one that existed before the crash.
        within(self.cluster.ping(None)).await?;
        let seconds = reconnected.as_secs_f64();
        Ok(format!("{} survived, reconnected after {seconds:.2} s", acknowledged.len()))
    }
}

async fn write(
    collection: Collection,
    writer: usize,
    acknowledged: Acknowledged,
    stopping: Arc<AtomicBool>,
) -> Result<(), Failure> {
    for number in 0.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("crash-{writer}-{number}");
        let options = InsertOptions::new().durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
        // A failed write was not acknowledged, so nothing is promised about it.
        if let Ok(stored) = within(collection.insert(&key, &key, options)).await {
            acknowledged.lock().map_err(|_| "a writer panicked")?.insert(key, stored.cas());
        }
    }
    Ok(())
}

fn count(acknowledged: &Acknowledged) -> Result<usize, Failure> {
    Ok(acknowledged.lock().map_err(|_| "a writer panicked")?.len())
}

/// Asks for a crash, or another change of the servers, and waits until it is done. One HTTP request
/// by hand: not worth a dependency.
pub(super) async fn control(action: &str) -> Result<(), Failure> {
    let url = env::var("ORIBI_CONTROL")?;
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("POST /{action} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    check(answer.lines().next().is_some_and(|line| line.contains(" 200 ")), "it is done")
}
