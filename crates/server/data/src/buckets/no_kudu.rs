//! Stands in for `kudu` in a build without that feature.
//!
//! Owns: the error that such a build gives for a `kudu://` URL. No URL is ever made, so the rest is
//! never called.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use oribi_storage::{KvStore, StoreError};

use super::store_place::StorePlace;

/// The place of a bucket's table, of which this build has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KuduUrl(Infallible);

impl KuduUrl {
    /// True for a text that is intended as such a URL, valid or not.
    pub(super) fn is_meant_by(text: &str) -> bool {
        text.starts_with("kudu:")
    }
}

impl FromStr for KuduUrl {
    type Err = &'static str;

    fn from_str(_text: &str) -> Result<KuduUrl, &'static str> {
        Err("this build has no Kudu; build it with --features kudu")
    }
}

impl fmt::Display for KuduUrl {
    fn fmt(&self, _formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

/// Opens or creates the table of a bucket.
pub(super) fn open(url: &KuduUrl, _place: &StorePlace<'_>) -> Result<Arc<dyn KvStore>, StoreError> {
    match url.0 {}
}

/// Removes the table that a bucket's store has named by `id`.
pub(super) fn remove(url: &KuduUrl, _id: &str) -> Result<(), StoreError> {
    match url.0 {}
}
