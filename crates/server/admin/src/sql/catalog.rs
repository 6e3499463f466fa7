//! The tables that a user may name.
//!
//! Owns: their names. `BUCKET` has the documents of all collections that the user may read,
//! `BUCKET.SCOPE.COLLECTION` those of one; of the bucket that the request names, `SCOPE.COLLECTION`
//! is enough. Invariant: a bucket, scope or collection in which the user may read nothing looks as
//! if it did not exist.

use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_sql::catalog::Catalog;
use oribi_sql::documents::DocumentTable;
use oribi_sql::source::TableSource;
use oribi_types::CollectionId;

use super::control::StatementControl;
use super::documents::{BucketDocuments, READ};
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::{BucketHandle, Buckets};

/// See the module text.
pub(crate) struct BucketTables {
    buckets: Arc<Buckets>,
    /// The bucket whose name may be left out.
    near: Option<String>,
    control: Arc<StatementControl>,
}

impl BucketTables {
    pub fn new(
        buckets: Arc<Buckets>,
        near: Option<String>,
        control: Arc<StatementControl>,
    ) -> BucketTables {
        BucketTables { buckets, near, control }
    }

    /// Collections of a bucket that the user may read: the paths and ids.
    fn readable(&self, handle: &BucketHandle) -> Vec<(String, CollectionId)> {
        let mut rights = Rights::of(self.control.identity(), handle.name());
        let manifest = handle.bucket().manifest();
        let visible = rights.visible(Arc::clone(&manifest));
        let all = visible.scopes().iter().flat_map(|scope| {
            scope
                .collections
                .iter()
                .map(move |one| (format!("{}.{}", scope.name, one.name), one.id))
        });
        all.filter(|(_, id)| rights.within(*id, Arc::clone(&manifest)).holds(READ)).collect()
    }
}

impl Catalog for BucketTables {
    fn names(&self) -> Result<Vec<String>> {
        let (mut names, mut of_collections) = (Vec::new(), Vec::new());
        for handle in self.buckets.list() {
            let readable = self.readable(&handle);
            if readable.is_empty() {
                continue;
            }
            let bucket = handle.name();
            names.push(bucket.to_owned());
            of_collections.extend(readable.iter().map(|(path, _)| format!("{bucket}.{path}")));
            if self.near.as_deref() == Some(bucket) {
                of_collections.extend(readable.into_iter().map(|(path, _)| path));
            }
        }
        names.extend(of_collections);
        Ok(names)
    }

    fn table(&self, name: &str) -> Result<Arc<dyn TableSource>> {
        for handle in self.buckets.list() {
            let bucket = handle.name().to_owned();
            let readable = self.readable(&handle);
            let ids = if name == bucket {
                readable.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
            } else {
                let is_near = self.near.as_deref() == Some(bucket.as_str());
                let of_bucket = name.strip_prefix(&bucket).and_then(|rest| rest.strip_prefix('.'));
                let is_it = |path: &str| of_bucket == Some(path) || is_near && name == path;
                readable.into_iter().filter(|(path, _)| is_it(path)).map(|(_, id)| id).collect()
            };
            if !ids.is_empty() {
                let control = Arc::clone(&self.control);
                let documents = BucketDocuments::new(handle, name.to_owned(), ids, control);
                return Ok(Arc::new(DocumentTable::new(Arc::new(documents))));
            }
        }
        bail!("no such table: {name}")
    }
}
