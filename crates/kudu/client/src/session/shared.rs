//! The state that a session and its timer share: the rows in progress, and the follow-up after each
//! row.
//!
//! In the usual case there is no follow-up. Lock order: `filling`, then a lane's queue; other locks
//! are taken alone. Invariant: bytes leave `filling` and enter the account of [`Writing`] under the
//! lock of `filling`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::row_operation::RowOperation;

use super::error::SessionError;
use super::filling::{AddResult, Filling};
use super::options::FlushMode;
use super::writing::Writing;

/// The state of a session.
#[derive(Debug)]
pub(super) struct SessionShared {
    /// The writing side, which owns the rows that were sent.
    pub writing: Arc<Writing>,
    pub filling: Mutex<Filling>,
    /// Notified of the first row after there were none.
    pub timer: Notify,
}

/// The next step after the session took a row.
#[derive(Debug)]
pub(super) enum FollowUp {
    /// A task has a new batch and must get a chance to run.
    LetTaskRun,
    /// The buffer is full.
    WaitForRoom,
    /// The row is still open, because no known tablet covers it.
    WaitForAnswer,
    /// The row is still open, because no tablet is known for it.
    FindTablet(RowOperation),
}

impl SessionShared {
    /// Finishes the open row. In the usual case nothing remains to do.
    #[inline]
    pub(super) fn take(
        self: &Arc<Self>,
        mut filling: MutexGuard<'_, Filling>,
        operation: RowOperation,
    ) -> Result<Option<FollowUp>, SessionError> {
        let mode = self.writing.options.flush_mode;
        if mode == FlushMode::Manual {
            self.check_room(&mut filling)?;
        }
        let number = match filling.finish(operation)? {
            AddResult::NoTablet => return Ok(Some(FollowUp::FindTablet(operation))),
            AddResult::Buffered if mode != FlushMode::Sync => None,
            AddResult::Buffered => {
                return Ok(Some(self.send_all(filling, FollowUp::WaitForAnswer)));
            }
            AddResult::BatchReady(number) => Some(number),
        };
        match mode {
            FlushMode::Manual => Ok(None),
            FlushMode::Sync => Ok(Some(self.send_all(filling, FollowUp::WaitForAnswer))),
            FlushMode::Background => Ok(self.after_buffered(filling, number)),
        }
    }

    /// In the background mode: sends full batches, and returns whether the program has to wait.
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
            self.writing.send(sealed);
            return Some(FollowUp::LetTaskRun);
        }
        let used = filling.bytes() + self.writing.outstanding_bytes.load(Ordering::Relaxed);
        (used > self.writing.options.buffer_bytes_max).then_some(FollowUp::WaitForRoom)
    }

    fn send_all(
        self: &Arc<Self>,
        mut filling: MutexGuard<'_, Filling>,
        follow_up: FollowUp,
    ) -> FollowUp {
        let sealed = filling.seal_all();
        self.writing.send(sealed);
        follow_up
    }

    /// Refuses a row without room where only the program empties the buffer. One row always fits.
    fn check_room(&self, filling: &mut Filling) -> Result<(), SessionError> {
        let used = filling.bytes() + self.writing.outstanding_bytes.load(Ordering::Acquire);
        let buffer_bytes_max = self.writing.options.buffer_bytes_max;
        if used == 0 || used + filling.open_row_bytes() <= buffer_bytes_max {
            return Ok(());
        }
        filling.give_up();
        Err(SessionError::BufferFull { buffer_bytes_max })
    }

    /// Does what remains after a row.
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
                    self.writing.wait_until_idle().await;
                    self.renew_stale_view().await?;
                    return self.writing.check_errors();
                }
                FollowUp::FindTablet(operation) => self.find_tablet(operation).await?,
            };
        }
        Ok(())
    }

    /// Fetches the table's tablets and finishes the open row once one of them covers it.
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
        let view = self.writing.target.view(reload, Instant::now() + self.writing.timeout).await?;
        self.filling.lock().adopt(&view);
        Ok(())
    }

    /// Fetches the table's tablets again if one of them is gone.
    pub(super) async fn renew_stale_view(&self) -> Result<(), SessionError> {
        if self.writing.view_is_stale.swap(false, Ordering::AcqRel) {
            self.load_view(true).await?;
        }
        Ok(())
    }

    /// Waits for space for another row.
    async fn wait_for_room(self: &Arc<Self>) {
        loop {
            // Register before looking, so that no outcome in between is missed.
            let mut progress = std::pin::pin!(self.writing.progress.notified());
            progress.as_mut().enable();
            {
                let mut filling = self.filling.lock();
                let under_way = self.writing.outstanding_batches.load(Ordering::Acquire) != 0;
                let sealed = filling.seal_for_room(under_way);
                self.writing.send(sealed);
                let used = filling.bytes() + self.writing.outstanding_bytes.load(Ordering::Acquire);
                if used <= self.writing.options.buffer_bytes_max {
                    return;
                }
            }
            progress.await;
        }
    }
}
