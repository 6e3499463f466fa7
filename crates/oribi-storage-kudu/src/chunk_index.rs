//! Which documents have more than one row, and how many.
//!
//! A document that gets shorter has to lose its last rows in the Write that makes it shorter, or a reader would find
//! them. Nearly all documents have one row, so only the others are known here. Invariant: the number known is never
//! less than the number of rows in the table, whatever became of a Write whose answer is missing; a row that is deleted
//! and was not there costs little.

use std::collections::HashMap;

use oribi_types::{CollectionId, DocKey, Vbid};

/// The documents of one vbucket that have more than one row, and how many rows each.
type ChunkedDocuments = HashMap<(CollectionId, Box<[u8]>), u16>;

/// Rows of documents with more than one.
#[derive(Debug, Default)]
pub(crate) struct ChunkIndex {
    vbuckets: HashMap<Vbid, ChunkedDocuments>,
}

impl ChunkIndex {
    /// How many rows a document has at most.
    pub(crate) fn rows(&self, vbid: Vbid, key: DocKey<'_>) -> u16 {
        let Some(vbucket) = self.vbuckets.get(&vbid).filter(|known| !known.is_empty()) else {
            return 1;
        };
        vbucket.get(&(key.collection, key.key.into())).copied().unwrap_or(1)
    }

    /// A document may have this many rows from now on, or as many as before.
    pub(crate) fn at_least(&mut self, vbid: Vbid, key: DocKey<'_>, rows: u16) {
        if rows > self.rows(vbid, key) {
            let vbucket = self.vbuckets.entry(vbid).or_default();
            vbucket.insert((key.collection, key.key.into()), rows);
        }
    }

    /// A document has this many rows, for sure.
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

    /// Nothing is left of a vbucket.
    pub(crate) fn forget_vbucket(&mut self, vbid: Vbid) {
        self.vbuckets.remove(&vbid);
    }

    /// Nothing is left of a collection of a vbucket.
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
