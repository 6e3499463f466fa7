//! The documents that have more than one row, and their number of rows.
//!
//! The Write that shortens a document must also delete its last rows, or a reader would find them.
//! Nearly all documents have one row, so the index holds only the others. Invariant: the number in
//! the index is never less than the number of rows in the table, whatever the outcome of a Write
//! whose answer is missing. Deleting a row that does not exist costs little.

use std::collections::HashMap;

use oribi_types::{CollectionId, DocKey, Vbid};

/// The documents of one vbucket that have more than one row, with their number of rows.
type ChunkedDocuments = HashMap<(CollectionId, Box<[u8]>), u16>;

/// Numbers of rows, for documents with more than one.
#[derive(Debug, Default)]
pub(crate) struct ChunkIndex {
    vbuckets: HashMap<Vbid, ChunkedDocuments>,
}

impl ChunkIndex {
    /// Maximum number of rows of a document.
    pub(crate) fn rows(&self, vbid: Vbid, key: DocKey<'_>) -> u16 {
        let Some(vbucket) = self.vbuckets.get(&vbid).filter(|known| !known.is_empty()) else {
            return 1;
        };
        vbucket.get(&(key.collection, key.key.into())).copied().unwrap_or(1)
    }

    /// Notes that a document may have this many rows from now on, or as many as before.
    pub(crate) fn at_least(&mut self, vbid: Vbid, key: DocKey<'_>, rows: u16) {
        if rows > self.rows(vbid, key) {
            let vbucket = self.vbuckets.entry(vbid).or_default();
            vbucket.insert((key.collection, key.key.into()), rows);
        }
    }

    /// Notes that a document has exactly this many rows.
    pub(crate) fn settle(&mut self, vbid: Vbid, key: DocKey<'_>, rows: u16) {
        let Some(vbucket) = self.vbuckets.get_mut(&vbid).filter(|known| !known.is_empty()) else {
            return self.at_least(vbid, key, rows);
        };
        let key = (key.collection, key.key.into());
        if rows > 1 {
            vbucket.insert(key, rows);
        } else {
            vbucket.remove(&key);
        }
    }

    /// Removes the entries of a vbucket that has no rows left.
    pub(crate) fn forget_vbucket(&mut self, vbid: Vbid) {
        self.vbuckets.remove(&vbid);
    }

    /// Removes the entries of a collection of a vbucket that has no rows left.
    pub(crate) fn forget_collection(&mut self, vbid: Vbid, collection: CollectionId) {
        if let Some(vbucket) = self.vbuckets.get_mut(&vbid) {
            vbucket.retain(|(of, _), _| *of != collection);
        }
    }

    /// Documents with more than one row.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.vbuckets.values().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_never_falls_before_it_is_settled() {
        let key = DocKey { collection: CollectionId(8), key: b"k" };
        let mut index = ChunkIndex::default();
        assert_eq!(index.rows(Vbid(1), key), 1);
        index.settle(Vbid(1), key, 1);
        assert_eq!(index.len(), 0);
        index.at_least(Vbid(1), key, 5);
        index.at_least(Vbid(1), key, 2);
        assert_eq!((index.rows(Vbid(1), key), index.rows(Vbid(2), key)), (5, 1));
        index.settle(Vbid(1), key, 2);
        assert_eq!(index.rows(Vbid(1), key), 2);
        index.forget_collection(Vbid(1), CollectionId(9));
        assert_eq!(index.len(), 1);
        index.forget_collection(Vbid(1), CollectionId(8));
        assert_eq!((index.rows(Vbid(1), key), index.len()), (1, 0));
        index.settle(Vbid(1), key, 3);
        index.settle(Vbid(1), key, 1);
        assert_eq!(index.len(), 0);
        index.settle(Vbid(1), key, 3);
        index.forget_vbucket(Vbid(1));
        assert_eq!(index.len(), 0);
    }
}
