//! Index definitions of all buckets.
//!
//! They are metadata: no statement needs an index. They live as long as the process.

use oribi_query::{IndexChange, IndexDefinition, KeyspaceName, QueryError, Result};
use parking_lot::Mutex;

/// Codes of a missing index, and of one that exists.
const NO_INDEX: u32 = 12016;
const INDEX_EXISTS: u32 = 4300;

/// See the module text.
#[derive(Default)]
pub(crate) struct IndexDefinitions {
    definitions: Mutex<Vec<IndexDefinition>>,
}

impl IndexDefinitions {
    pub(super) fn list(&self) -> Vec<IndexDefinition> {
        self.definitions.lock().clone()
    }

    /// Applies a change of a user who may make it.
    pub(super) fn apply(&self, change: IndexChange) -> Result<()> {
        let mut all = self.definitions.lock();
        let is = |one: &IndexDefinition, keyspace: &KeyspaceName, name: &str| {
            one.keyspace == *keyspace && one.name == name
        };
        let no_index =
            |name: &str| QueryError::datastore(NO_INDEX, format!("GSI index {name} not found."));
        match change {
            IndexChange::Create(new) => {
                if all.iter().any(|one| is(one, &new.keyspace, &new.name)) {
                    let msg = format!("The index {} already exists.", new.name);
                    return Err(QueryError::datastore(INDEX_EXISTS, msg));
                }
                all.push(new);
            }
            IndexChange::Drop { keyspace, name } => {
                let at = all.iter().position(|one| is(one, &keyspace, &name));
                all.remove(at.ok_or_else(|| no_index(&name))?);
            }
            IndexChange::Build { keyspace, names } => {
                for name in names {
                    let index = all.iter_mut().find(|one| is(one, &keyspace, &name));
                    index.ok_or_else(|| no_index(&name))?.state = "online".to_owned();
                }
            }
        }
        Ok(())
    }
}
