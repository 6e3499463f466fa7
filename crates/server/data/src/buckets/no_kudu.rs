//! Replaces `kudu` in a build without that feature. Such a build creates no Kudu URL, so this code
//! is never called.

use std::sync::Arc;

use oribi_config::KuduUrl;
use oribi_storage::{KvStore, StoreError};

use super::store_place::StorePlace;

/// Opens or creates the table of a bucket.
pub(super) fn open(url: &KuduUrl, _place: &StorePlace<'_>) -> Result<Arc<dyn KvStore>, StoreError> {
    url.absurd()
}

/// Removes the table that a bucket's store has named by `id`.
pub(super) fn remove(url: &KuduUrl, _id: &str) -> Result<(), StoreError> {
    url.absurd()
}
