//! The default bucket and collection of clients that cannot select any, such as memcached clients.
//!
//! Owns: the rule. The connection knows which clients need it, and applies it when such a client
//! first accesses a document.

use std::sync::Arc;

use oribi_auth::Identity;
use oribi_config::CollectionPath;

use super::{BucketHandle, Buckets};

const DEFAULT_BUCKET: &str = "default";

/// The configured bucket and collection of such clients, for users without an own bucket and
/// collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemcachedPlace {
    /// The bucket, for users who have rights in it.
    pub bucket: Option<String>,
    /// The collection in the client's bucket.
    pub collection: Option<CollectionPath>,
}

impl MemcachedPlace {
    /// The collection of a user's clients; `None` for the default collection. A collection of the
    /// settings is not looked for in the bucket that an administrator chose for one user.
    pub fn collection_of<'a>(&'a self, user: &'a Identity) -> Option<&'a CollectionPath> {
        let of_all = self.collection.as_ref().filter(|_| user.bucket.is_none());
        user.collection.as_ref().or(of_all)
    }
}

impl Buckets {
    /// The bucket that is set for the user; else the one of the settings, if the user has rights
    /// there; else the only one in which the user has rights; else `default`, if the user has
    /// rights there. A bucket that is set but unusable is not replaced by another.
    pub fn of_memcached_client(
        &self,
        user: &Identity,
        place: &MemcachedPlace,
    ) -> Option<Arc<BucketHandle>> {
        if let Some(name) = &user.bucket {
            return self.get(name).filter(|bucket| user.access.reaches(bucket.name()));
        }
        if let Some(name) = place.bucket.as_ref().filter(|name| user.access.reaches(name)) {
            return self.get(name);
        }
        let mut usable = self.list();
        usable.retain(|bucket| user.access.reaches(bucket.name()));
        match usable.len() {
            1 => usable.pop(),
            _ => usable.into_iter().find(|bucket| bucket.name() == DEFAULT_BUCKET),
        }
    }
}
