//! Indexes: the order of documents by the values of expressions.
//!
//! [`document_index`] is the index of one keyspace, which the store feeds. [`encoded_keys`] makes
//! the entries of a document. `compile::index_access` chooses the part that a statement reads.

pub mod document_index;
pub mod encoded_keys;
