//! Nodes come and go, and what was acknowledged as persisted is read wherever its vbucket is now.

use std::collections::HashMap;
use std::sync::Mutex;

use couchbase::durability_level::DurabilityLevel;
use couchbase::options::kv_options::UpsertOptions;

use super::Program;
use super::crash::control;
use crate::checks::{Failure, Outcome, equal, eventually};

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
        for (key, value) in self.written.all()? {
            let found = eventually(|| self.collection.get(&key, None)).await?;
            equal(found.content_as::<String>()?, value)?;
        }
        self.write_durably(&format!("after-{step}")).await?;
        Ok(String::new())
    }

    /// Half of the documents are new ones, half those of other steps.
    async fn write_durably(&self, value: &str) -> Result<(), Failure> {
        for number in 0..DOCUMENTS {
            let key = match number % 2 {
                1 => format!("{value}-{number}"),
                _ => format!("shared-{number}"),
            };
            let durably =
                UpsertOptions::new().durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
            eventually(|| self.collection.upsert(&key, value, durably.clone())).await?;
            self.written.note(key, value)?;
        }
        Ok(())
    }
}
