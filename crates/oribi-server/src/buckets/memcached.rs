//! The default bucket of clients that cannot select one, such as memcached clients.
//!
//! Owns: the rule. The connection knows which clients need it, and applies it when such a client
//! first accesses a document.

use std::sync::Arc;

use super::{BucketHandle, Buckets};
use crate::auth::Identity;

/// The fallback bucket.
const DEFAULT_BUCKET: &str = "default";

impl Buckets {
    /// The bucket that is set for the user; else the only one in which the user has rights; else
    /// `default`, if the user has rights there. A bucket that is set but unusable is not replaced
    /// by another.
    pub fn of_memcached_client(&self, user: &Identity) -> Option<Arc<BucketHandle>> {
        if let Some(name) = &user.bucket {
            return self.get(name).filter(|bucket| user.access.reaches(bucket.name()));
        }
        let mut usable = self.list();
        usable.retain(|bucket| user.access.reaches(bucket.name()));
        match usable.len() {
            1 => usable.pop(),
            _ => usable.into_iter().find(|bucket| bucket.name() == DEFAULT_BUCKET),
        }
    }
}
