//! A request to continue a range scan, while it is answered page by page.
//!
//! Invariant: a scan whose request ends before its last page is cancelled, because the server
//! cannot know which of its pages were received.

use std::sync::Arc;

use oribi_types::Vbid;

use crate::buckets::BucketHandle;
use crate::buckets::range_scans::{ScanId, ScanSubject};
use crate::connection::request_id::RequestId;

/// The scan that a request continues.
pub(crate) struct ContinuedScan {
    /// The vbucket that it reads.
    pub vbid: Vbid,
    pub id: ScanId,
    pub subject: ScanSubject,
    /// The bucket that it reads from.
    pub bucket: Arc<BucketHandle>,
    pub request: RequestId,
    /// The request has its last answer.
    pub is_over: bool,
}

impl Drop for ContinuedScan {
    /// Runs when the connection ends or may not continue the scan.
    fn drop(&mut self) {
        if !self.is_over {
            self.bucket.range_scans().cancel(self.vbid, self.id);
        }
    }
}
