//! Nodes come and go, and what was acknowledged as persisted is read wherever its vbucket is now.

use std::collections::HashMap;
use std::env;
use std::sync::Mutex;

use couchbase::collection::Collection;
use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::options::kv_options::UpsertOptions;

use super::crash::control;
use super::replicas::replicas;
use super::{Program, bucket_name, open};
use crate::checks::{Failure, Outcome, equal, eventually, within};

const DOCUMENTS: usize = 64;

/// Documents that the steps so far have written.
#[derive(Default)]
pub struct ExpectedValues(Mutex<HashMap<String, String>>);

impl ExpectedValues {
    fn note(&self, key: String, value: &str) -> Result<(), Failure> {
        self.0.lock().map_err(|_| "a step panicked")?.insert(key, value.to_owned());
        Ok(())
    }

    fn all(&self) -> Result<HashMap<String, String>, Failure> {
        Ok(self.0.lock().map_err(|_| "a step panicked")?.clone())
    }
}

impl Program {
    /// Writes, asks for the change, reads everything back and writes again.
    pub(super) async fn change_nodes(&self, step: &str) -> Outcome {
        self.write_durably(&format!("before-{step}")).await?;
        control(step).await?;
        self.compare_written(&self.collection).await?;
        self.write_durably(&format!("after-{step}")).await?;
        Ok(String::new())
    }

    /// A client that begins while a node is away finds the others, and every document.
    pub(super) async fn new_client(&self) -> Outcome {
        let cluster = within(open(&env::var("ORIBI_PASSWORD")?)).await?;
        within(cluster.wait_until_ready(None)).await?;
        let bucket = cluster.bucket(bucket_name());
        within(bucket.wait_until_ready(None)).await?;
        self.compare_written(&bucket.default_collection()).await?;
        Ok(String::new())
    }

    /// Reads everything that was written.
    async fn compare_written(&self, collection: &Collection) -> Result<(), Failure> {
        for (key, value) in self.written.all()? {
            let found = eventually(|| collection.get(&key, None)).await?;
            equal(found.content_as::<String>()?, value)?;
        }
        Ok(())
    }

    /// Half of the documents are new ones, half those of other steps.
    async fn write_durably(&self, value: &str) -> Result<(), Failure> {
        for number in 0..DOCUMENTS {
            let key = match number % 2 {
                1 => format!("{value}-{number}"),
                _ => format!("shared-{number}"),
            };
            eventually(|| self.write_once(&key, value)).await?;
            self.written.note(key, value)?;
        }
        Ok(())
    }

    /// Writes durably; plainly while fewer copies than a majority follow: one of two is away, or
    /// another one is slow, too.
    async fn write_once(&self, key: &str, value: &str) -> couchbase::error::Result<()> {
        let durably = UpsertOptions::new().durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
        match self.collection.upsert(key, value, durably).await {
            Err(error) if *error.kind() == ErrorKind::DurabilityImpossible && replicas() > 0 => {
                self.collection.upsert(key, value, None).await.map(drop)
            }
            written => written.map(drop),
        }
    }
}
