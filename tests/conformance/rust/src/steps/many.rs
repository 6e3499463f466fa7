//! 50,000 documents with a bounded number of requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use couchbase::collection::Collection;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Program;
use crate::checks::{Failure, Outcome, check, equal, within};

const DOCUMENTS: usize = 50_000;
const IN_FLIGHT_MAX: usize = 1_000;

impl Program {
    pub(super) async fn parallel_50000(&self) -> Outcome {
        let started = Instant::now();
        self.in_parallel(write).await?;
        let written = Instant::now();
        self.in_parallel(read).await?;
        let rate = |seconds: f64| DOCUMENTS as f64 / seconds;
        let writes = rate((written - started).as_secs_f64());
        Ok(format!("{writes:.0} writes/s, {:.0} reads/s", rate(written.elapsed().as_secs_f64())))
    }

    async fn in_parallel<F>(&self, operation: fn(Collection, usize) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..IN_FLIGHT_MAX {
            let (next, collection) = (next.clone(), self.collection.clone());
            tasks.spawn(async move {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        number if number < DOCUMENTS => {
                            operation(collection.clone(), number).await?
                        }
                        _ => return Ok::<(), Failure>(()),
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn write(collection: Collection, number: usize) -> Result<(), Failure> {
    let stored =
        within(collection.upsert(format!("parallel-{number}"), document(number), None)).await?;
    check(stored.mutation_token().is_some(), "a token")
}

async fn read(collection: Collection, number: usize) -> Result<(), Failure> {
    let got = within(collection.get(format!("parallel-{number}"), None)).await?;
    equal(got.content_as::<Value>()?, document(number))
}

fn document(number: usize) -> Value {
    json!({"number": number, "text": "x".repeat(100)})
}
