//! One keyspace `k` with fixed documents. Changes are refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use oribi_types::Datatype;

use crate::{
    Datastore, DocumentMutation, IndexChange, IndexDefinition, KeyRange, Keyspace, KeyspaceName,
    QueryDocument, QueryError, Result,
};

#[derive(Clone, Debug)]
pub struct FixedDocuments {
    documents: Arc<Vec<QueryDocument>>,
}

impl FixedDocuments {
    /// Documents by keys in order.
    pub fn new(documents: &[(&str, &str)]) -> FixedDocuments {
        let document = |(key, text): &(&str, &str)| {
            QueryDocument::of_body(key.as_bytes(), Datatype::JSON, text.as_bytes())
        };
        FixedDocuments { documents: Arc::new(documents.iter().map(document).collect()) }
    }
}

fn name() -> KeyspaceName {
    KeyspaceName { bucket: "k".to_owned(), collection: None }
}

impl Keyspace for FixedDocuments {
    fn name(&self) -> KeyspaceName {
        name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        Ok(self
            .documents
            .iter()
            .find(|document| document.key == Bytes::copy_from_slice(key))
            .cloned())
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        for document in self.documents.iter().filter(|document| range.contains(&document.key)) {
            if visit(document.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn count(&self) -> Option<u64> {
        Some(self.documents.len() as u64)
    }

    fn mutate(&self, _: DocumentMutation) -> Result<u64> {
        Err(QueryError::mutation(12033, "CAS mismatch"))
    }
}

impl Datastore for FixedDocuments {
    fn keyspace(&self, wanted: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
        match *wanted == name() {
            true => Ok(Arc::new(self.clone())),
            false => Err(QueryError::keyspace_missing(&wanted.bucket)),
        }
    }

    fn keyspaces(&self) -> Result<Vec<KeyspaceName>> {
        Ok(vec![name()])
    }

    fn indexes(&self) -> Result<Vec<IndexDefinition>> {
        Ok(Vec::new())
    }

    fn change_indexes(&self, _: IndexChange) -> Result<()> {
        Err(QueryError::datastore(12014, "fixed documents have no indexes"))
    }

    fn version(&self) -> u64 {
        0
    }
}
