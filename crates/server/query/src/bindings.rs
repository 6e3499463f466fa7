//! The keyspaces and indexes that a plan names, and what one run finds under these names.
//!
//! A plan outlives its run if its statement is prepared. So it has numbers, and each run binds
//! them: keyspaces belong to the user and the end of one statement, and a plan must not keep the
//! entries of a dropped index.

use std::sync::Arc;

use crate::datastore::{Datastore, Keyspace, KeyspaceIndex, KeyspaceName};
use crate::error::Result;

/// A keyspace of a plan.
#[derive(Debug)]
pub struct KeyspaceReference {
    number: usize,
    pub name: KeyspaceName,
}

/// An index of a plan.
#[derive(Debug)]
pub struct IndexReference {
    number: usize,
    keyspace: usize,
    pub name: String,
    /// Names the definition: an index that was dropped and created again has another one.
    pub id: String,
}

/// All keyspaces and indexes of a plan.
#[derive(Debug, Default)]
pub struct PlanSources {
    keyspaces: Vec<Arc<KeyspaceReference>>,
    indexes: Vec<Arc<IndexReference>>,
}

/// The inputs of a run, by the numbers of its plan.
#[derive(Debug, Default)]
pub struct Bindings {
    keyspaces: Vec<Arc<dyn Keyspace>>,
    indexes: Vec<Arc<dyn KeyspaceIndex>>,
}

impl PlanSources {
    /// Finds all of them again. None if an index is not usable any more.
    pub fn bind(&self, store: &dyn Datastore) -> Result<Option<Bindings>> {
        let mut bound = Bindings::default();
        for keyspace in &self.keyspaces {
            bound.keyspaces.push(store.keyspace(&keyspace.name)?);
        }
        let mut usable = (usize::MAX, Vec::new());
        for index in &self.indexes {
            if usable.0 != index.keyspace {
                usable = (index.keyspace, bound.keyspaces[index.keyspace].indexes());
            }
            let Some(found) = usable.1.iter().find(|one| one.definition().id == index.id) else {
                return Ok(None);
            };
            bound.indexes.push(found.clone());
        }
        assert!(self.indexes.len() == bound.indexes.len(), "each index is bound");
        Ok(Some(bound))
    }

    /// The keyspace of a name, which is bound at its first use.
    pub fn use_keyspace(
        &mut self,
        name: KeyspaceName,
        store: &dyn Datastore,
        bound: &mut Bindings,
    ) -> Result<Arc<KeyspaceReference>> {
        if let Some(known) = self.keyspaces.iter().find(|known| known.name == name) {
            return Ok(known.clone());
        }
        bound.keyspaces.push(store.keyspace(&name)?);
        let reference = Arc::new(KeyspaceReference { number: self.keyspaces.len(), name });
        self.keyspaces.push(reference.clone());
        assert!(self.keyspaces.len() == bound.keyspaces.len(), "each keyspace is bound");
        Ok(reference)
    }

    /// An index that the planner of `keyspace` considers.
    pub fn use_index(
        &mut self,
        keyspace: &KeyspaceReference,
        index: Arc<dyn KeyspaceIndex>,
        bound: &mut Bindings,
    ) -> Arc<IndexReference> {
        let id = &index.definition().id;
        let is_known =
            |known: &&Arc<IndexReference>| known.keyspace == keyspace.number && known.id == *id;
        if let Some(known) = self.indexes.iter().find(is_known) {
            return known.clone();
        }
        let (name, id) = (index.definition().name.clone(), id.clone());
        let number = self.indexes.len();
        let reference = Arc::new(IndexReference { number, keyspace: keyspace.number, name, id });
        self.indexes.push(reference.clone());
        bound.indexes.push(index);
        assert!(self.indexes.len() == bound.indexes.len(), "each index is bound");
        reference
    }
}

impl Bindings {
    pub fn keyspace(&self, reference: &KeyspaceReference) -> Option<&Arc<dyn Keyspace>> {
        self.keyspaces.get(reference.number)
    }

    pub fn index(&self, reference: &IndexReference) -> Option<&Arc<dyn KeyspaceIndex>> {
        self.indexes.get(reference.number)
    }
}
