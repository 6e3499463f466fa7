//! The documents of one table, read from the engine.
//!
//! Owns: the privileges that a user needs, and the choice between look-ups and scans.

use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_auth::{Privilege, PrivilegeSet};
use oribi_sql::document_cells::Attributes;
use oribi_sql::documents::{DocumentScan, DocumentSource, DocumentStream};
use oribi_types::CollectionId;

use super::control::StatementControl;
use super::lookup::DocumentLookup;
use super::reader::DocumentReader;
use super::snapshot_scans::SnapshotScans;
use oribi_server::buckets::BucketHandle;

/// What a user needs to see documents.
pub(super) const READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read]);

/// What a scan needs besides.
const RANGE_SCAN: PrivilegeSet = PrivilegeSet::of(&[Privilege::RangeScan]);

/// What attributes of the system need besides.
const SYSTEM_XATTR_READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::SystemXattrRead]);

/// Keys that are looked up one by one. More are found by a scan.
const LOOK_UPS_MAX: usize = 1024;

/// See the module text.
pub(crate) struct BucketDocuments {
    reader: Arc<DocumentReader>,
}

impl BucketDocuments {
    /// The documents of these collections, each of which the user may read.
    pub fn new(
        handle: Arc<BucketHandle>,
        name: String,
        collections: Vec<CollectionId>,
        control: Arc<StatementControl>,
    ) -> BucketDocuments {
        BucketDocuments {
            reader: Arc::new(DocumentReader::new(handle, name, collections, control)),
        }
    }
}

impl DocumentSource for BucketDocuments {
    fn documents(&self) -> u64 {
        self.reader.handle.bucket().stats().items as u64
    }

    fn attributes(&self) -> Attributes {
        match self.reader.lacking(SYSTEM_XATTR_READ) {
            None => Attributes::All,
            Some(_) => Attributes::OfUsers,
        }
    }

    fn scan(&self, scan: DocumentScan) -> Result<Box<dyn DocumentStream>> {
        let reader = Arc::clone(&self.reader);
        reader.control.check()?;
        let collections = reader.existing(scan.collections.as_ref())?;
        match scan.keys.points() {
            Some(keys) if keys.len() <= LOOK_UPS_MAX => {
                let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
                Ok(Box::new(DocumentLookup::new(reader, keys, collections, scan.vbuckets)))
            }
            _ => {
                if let Some(id) = reader.lacking(RANGE_SCAN) {
                    bail!(
                        "the user may read single documents of {}, but not scan it (privilege \
                         range-scan in collection {}); name keys: where id = '...'",
                        reader.name(),
                        id.0
                    );
                }
                Ok(Box::new(SnapshotScans::begin(reader, scan, collections)?))
            }
        }
    }
}
