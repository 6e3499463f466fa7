//! What a session, its timer and the tasks of its tablets share.
//!
//! Owns: what happens when a row was taken (nothing, usually), the account of bytes that are on their way,
//! and waiting for room or for the end. Lock order: `filling`, then a lane's queue; the others are taken alone.
//! Tasks of tablets never take `filling`: the program may hold it, in a row that it describes, for as long as
//! it likes. Invariant: bytes leave `filling` and enter `outstanding_bytes` under the lock of `filling`, and
//! leave that when their batch is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::row_operation::{RowLayout, RowOperation};

use super::filling::{Filling, SealedBatch, Taken};
use super::row_errors::RowErrors;
use super::sent_schema::SentSchema;
use super::write_target::WriteTarget;
use super::writing::run_lane;
use super::{FlushMode, SessionError, SessionOptions, SessionStatistics};

/// The state of a session.
#[derive(Debug)]
pub(super) struct SessionShared {
    pub options: SessionOptions,
    /// The layout of the rows as the program describes them.
    pub layout: Arc<RowLayout>,
    pub target: Arc<dyn WriteTarget>,
    pub timeout: Duration,
    pub runtime: Handle,
    pub filling: Mutex<Filling>,
    /// Bytes of batches that are queued or under way.
    pub outstanding_bytes: AtomicUsize,
    /// Batches that are queued or under way.
    pub outstanding_batches: AtomicUsize,
    /// Told whenever a batch is decided.
    pub progress: Notify,
    /// Told when rows come after there were none.
    pub timer: Notify,
    pub errors: Mutex<RowErrors>,
    pub statistics: Mutex<SessionStatistics>,
    /// The schema by which servers decode, which is another one after the table was altered.
    pub sent_schema: Mutex<Arc<SentSchema>>,
    /// A tablet was gone: the next one who can ask for the table's tablets again should.
    pub view_is_stale: AtomicBool,
}

/// What is left to do, or to wait for, after a row was taken.
#[derive(Debug)]
pub(super) enum FollowUp {
    /// A batch was handed to its task, which must get a chance to run.
    LetTaskRun,
    /// The buffer is full.
    WaitForRoom,
    /// The mode wants the answer.
    WaitForAnswer,
    /// The row is still open, because no tablet is known for it.
    FindTablet(RowOperation),
}

impl SessionShared {
    /// Takes the open row over. In the usual case there is nothing left to do.
    #[inline]
    pub(super) fn take(
        self: &Arc<Self>,
        mut filling: MutexGuard<'_, Filling>,
        operation: RowOperation,
    ) -> Result<Option<FollowUp>, SessionError> {
        let mode = self.options.flush_mode;
        if mode == FlushMode::Manual {
            self.check_room(&mut filling)?;
        }
        let number = match filling.finish(operation)? {
            Taken::NoTablet => return Ok(Some(FollowUp::FindTablet(operation))),
            Taken::Buffered if mode != FlushMode::Sync => None,
            Taken::Buffered => return Ok(Some(self.send_all(filling, FollowUp::WaitForAnswer))),
            Taken::BatchReady(number) => Some(number),
        };
        match mode {
            FlushMode::Manual => Ok(None),
            FlushMode::Sync => Ok(Some(self.send_all(filling, FollowUp::WaitForAnswer))),
            FlushMode::Background => Ok(self.after_buffered(filling, number)),
        }
    }

    /// In the background: sends what is worth it, and says whether the program has to wait.
    #[inline]
    fn after_buffered(
        self: &Arc<Self>,
        mut filling: MutexGuard<'_, Filling>,
        ready: Option<usize>,
    ) -> Option<FollowUp> {
        if filling.take_timer_is_due() {
            self.timer.notify_one();
        }
        if let Some(number) = ready
            && !filling.is_lane_busy(number)
        {
            let mut sealed = Vec::new();
            filling.seal(number, &mut sealed);
            self.send(sealed);
            return Some(FollowUp::LetTaskRun);
        }
        let used = filling.bytes() + self.outstanding_bytes.load(Ordering::Relaxed);
        (used > self.options.buffer_bytes_max).then_some(FollowUp::WaitForRoom)
    }

    fn send_all(
        self: &Arc<Self>,
        mut filling: MutexGuard<'_, Filling>,
        follow_up: FollowUp,
    ) -> FollowUp {
        let sealed = filling.seal_all();
        self.send(sealed);
        follow_up
    }

    /// A buffer that nobody but the program empties must not be overfilled. One row always fits.
    fn check_room(&self, filling: &mut Filling) -> Result<(), SessionError> {
        let used = filling.bytes() + self.outstanding_bytes.load(Ordering::Acquire);
        let buffer_bytes_max = self.options.buffer_bytes_max;
        if used == 0 || used + filling.open_row_bytes() <= buffer_bytes_max {
            return Ok(());
        }
        filling.give_up();
        Err(SessionError::BufferFull { buffer_bytes_max })
    }

    /// Does what a row left to do.
    pub(super) async fn follow_up(self: &Arc<Self>, first: FollowUp) -> Result<(), SessionError> {
        let mut next = Some(first);
        while let Some(follow_up) = next {
            next = match follow_up {
                FollowUp::LetTaskRun => {
                    self.renew_stale_view().await?;
                    tokio::task::yield_now().await;
                    None
                }
                FollowUp::WaitForRoom => {
                    self.wait_for_room().await;
                    None
                }
                FollowUp::WaitForAnswer => {
                    self.wait_until_idle().await;
                    self.renew_stale_view().await?;
                    return self.check_errors();
                }
                FollowUp::FindTablet(operation) => self.find_tablet(operation).await?,
            };
        }
        Ok(())
    }

    /// Asks for the table's tablets and takes the row that is still open once one is known for it.
    async fn find_tablet(
        self: &Arc<Self>,
        operation: RowOperation,
    ) -> Result<Option<FollowUp>, SessionError> {
        let mut is_second_look = self.filling.lock().has_view;
        loop {
            if let Err(error) = self.load_view(is_second_look).await {
                self.filling.lock().give_up();
                return Err(error);
            }
            let mut filling = self.filling.lock();
            filling.relocate();
            match self.take(filling, operation)? {
                Some(FollowUp::FindTablet(_)) if is_second_look => {
                    self.filling.lock().give_up();
                    return Err(SessionError::NonCoveredKey);
                }
                Some(FollowUp::FindTablet(_)) => is_second_look = true,
                other => return Ok(other),
            }
        }
    }

    /// Asks for the table's tablets.
    pub(super) async fn load_view(&self, reload: bool) -> Result<(), SessionError> {
        let view = self.target.view(reload, Instant::now() + self.timeout).await?;
        self.filling.lock().adopt(&view);
        Ok(())
    }

    /// Asks for the table's tablets again if one of them was gone.
    pub(super) async fn renew_stale_view(&self) -> Result<(), SessionError> {
        if self.view_is_stale.swap(false, Ordering::AcqRel) {
            self.load_view(true).await?;
        }
        Ok(())
    }

    /// Hands batches to the tasks of their tablets.
    pub(super) fn send(self: &Arc<Self>, sealed: Vec<SealedBatch>) {
        for SealedBatch { lane, buffers } in sealed {
            self.outstanding_bytes.fetch_add(buffers.bytes(), Ordering::AcqRel);
            self.outstanding_batches.fetch_add(1, Ordering::AcqRel);
            if lane.push(buffers) {
                self.runtime.spawn(run_lane(self.clone(), lane));
            }
        }
    }

    /// Takes a decided batch off the account.
    pub(super) fn release(&self, bytes: usize) {
        self.outstanding_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.outstanding_batches.fetch_sub(1, Ordering::AcqRel);
        self.progress.notify_waiters();
    }

    /// Ends when there is room for another row.
    async fn wait_for_room(self: &Arc<Self>) {
        loop {
            // Registered before looking, so that a batch that is decided in between is not missed.
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let mut filling = self.filling.lock();
                let under_way = self.outstanding_batches.load(Ordering::Acquire) != 0;
                let sealed = filling.seal_for_room(under_way);
                self.send(sealed);
                let used = filling.bytes() + self.outstanding_bytes.load(Ordering::Acquire);
                if used <= self.options.buffer_bytes_max {
                    return;
                }
            }
            progress.await;
        }
    }

    /// Ends when every batch is decided that was sent.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.outstanding_batches.load(Ordering::Acquire) == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Fails when there are failed rows that nobody took.
    pub(super) fn check_errors(&self) -> Result<(), SessionError> {
        let errors = self.errors.lock();
        if errors.is_empty() {
            return Ok(());
        }
        Err(SessionError::RowsFailed { failed_rows: errors.len(), first: errors.first_message() })
    }
}
