//! State that the threads of a run share: the server, their counts, and the first failure.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use oribi_protocol::feature::Feature;
use oribi_protocol::status::Status;

use crate::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER, RawConnection};
use crate::{PATIENCE, ServerProcess, poll_until};

/// State that the threads of a run share.
pub(super) struct SoakShared<'a> {
    pub(super) server: &'a ServerProcess,
    /// The program under test, for its client commands.
    pub(super) program: &'a Path,
    pub(super) is_over: AtomicBool,
    pub(super) answered: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Readers that read all documents at least once.
    pub(super) passes: AtomicU64,
    pub(super) hostile_opened: AtomicU64,
    pub(super) hostile_ended: AtomicU64,
    pub(super) failure: Mutex<Option<anyhow::Error>>,
}

impl SoakShared<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the run; the first reason counts.
    pub(super) fn fail(&self, error: anyhow::Error) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}

/// A connection to a bucket, once the bucket serves.
pub(super) fn connect(port: u16, bucket: &str) -> Result<RawConnection> {
    let mut connection = RawConnection::connect(port)?;
    let features = [Feature::SelectBucket, Feature::XError, Feature::Collections, Feature::Json];
    connection.hello(&features)?;
    let status = connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)?;
    if status != Status::Success {
        bail!("authentication: {status:?}");
    }
    poll_until(PATIENCE, || {
        (connection.select_bucket(bucket).ok()? == Status::Success).then_some(())
    })
    .with_context(|| format!("bucket {bucket} is never there"))?;
    Ok(connection)
}
