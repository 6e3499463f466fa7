//! The store against a real Kudu.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests do")]

mod store {
    mod conformance;
    mod fence;
    mod metadata;
    mod removal;
    mod replicas;
    mod sizes;
}

use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_storage::StoreError;
use oribi_storage::conformance::take_over;
use oribi_storage_kudu::{KuduStore, KuduUrl};
use oribi_testkit::{KuduCluster, SharedKuduCluster};
use oribi_types::Vbid;

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// Most vbuckets of a bucket.
const VBUCKETS: u16 = 1024;

/// A bucket's place in a cluster.
struct Place {
    url: KuduUrl,
    bucket: String,
}

impl Place {
    /// A place where nothing is yet.
    fn new(cluster: &KuduCluster) -> Place {
        Place::in_table(cluster, "tablets=3&replicas=1")
    }

    /// The same, of a table that is made like this.
    fn in_table(cluster: &KuduCluster, table: &str) -> Place {
        let url = format!("kudu://{}/tests?{table}", cluster.master_addresses());
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        Place { url: url.parse().unwrap(), bucket: format!("bucket{number}") }
    }

    fn open(&self) -> Result<KuduStore, StoreError> {
        KuduStore::open(&self.url, &self.bucket, VBUCKETS, &|| true)
    }

    /// Opens it and takes everything over.
    fn open_owned(&self) -> Result<KuduStore, StoreError> {
        let store = self.open()?;
        take_over(&store, &(0..VBUCKETS).map(Vbid).collect::<Vec<_>>())?;
        Ok(store)
    }
}
