//! State shared by the reads, writes and waits of one store: the table, and its cached facts.
//!
//! Owns: the figures that the store requests from Kudu periodically. `writer`, `reader`, `scan`,
//! `removal` and `fence` do the work, as methods of [`StoreState`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use oribi_kudu::{Client, Table};
use oribi_storage::Ownership;
use parking_lot::RwLock;
use tokio::runtime::Handle;

use crate::lookups::Lookups;
use crate::patience::Patience;
use crate::readable::Readable;

/// Interval of requests for the table's size.
const SIZE_INTERVAL: Duration = Duration::from_secs(10);

/// State shared by reads, writes and waits.
pub(crate) struct StoreState {
    pub(crate) client: Client,
    pub(crate) name: String,
    /// The table as of the store's opening. Its documents' columns never change.
    pub(crate) table: Table,
    pub(crate) lookups: Lookups,
    pub(crate) vbuckets: u16,
    pub(crate) patience: Arc<Patience>,
    pub(crate) readable: Readable,
    pub(crate) ownership: RwLock<Option<Arc<dyn Ownership>>>,
    pub(crate) runtime: Handle,
    /// Last size reported by Kudu, 0 for none.
    pub(crate) disk_bytes: AtomicU64,
    pub(crate) rows: AtomicU64,
}

/// Requests the table's size periodically, until the store is gone.
pub(crate) async fn watch_size(shared: Weak<StoreState>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        // Figures may lag, so a missing answer is ignored.
        if let Ok(statistics) = now.client.table_statistics(&now.name).await {
            now.disk_bytes.store(statistics.on_disk_bytes.unwrap_or(0), Ordering::Relaxed);
            now.rows.store(statistics.live_row_count.unwrap_or(0), Ordering::Relaxed);
        }
        drop(now);
        tokio::time::sleep(SIZE_INTERVAL).await;
    }
}
