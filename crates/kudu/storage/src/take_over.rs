//! When a vbucket that is taken over is served: as soon as it is fenced, or before that.
//!
//! Owns: the order of states, fence and telling. Vbuckets whose tablets are fenced at once are
//! served then. Tablets that write their memory out can take many seconds. With leases the rest is
//! served early: from the state that was read before the fence, and the snapshot in which it was
//! read ([`crate::readable`]). After the fence the state is read again. Every Write to a vbucket's
//! documents changes the row of its state. So if both are equal, no earlier owner has written in
//! between. Otherwise the vbucket is given up and taken over again, as if this node had died: until
//! the fence nothing of its time is written.
//!
//! Without leases no vbucket is served early, because an earlier owner may still acknowledge
//! durable writes.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use oribi_storage::{PartVisitor, StoreError, VbucketState};
use oribi_types::{Seqno, Vbid};
use tokio::time::{Instant, timeout, timeout_at};

use crate::fence::{TakenPart, TakingOver};
use crate::layout::{COLUMNS, column};
use crate::reader::{LOOKUPS_AT_A_TIME, StoredState, stored};
use crate::scan::Bounds;
use crate::shared::StoreState;
use crate::writer::Writer;

/// Time for the fence before vbuckets are served early. Tablets with little in memory need less,
/// and owners that live stop writing when one of their tablets is fenced. Builds for tests do not
/// wait, so that every suite meets vbuckets that are served early.
const EARLY_AFTER: Duration = match cfg!(debug_assertions) {
    true => Duration::ZERO,
    false => Duration::from_millis(500),
};
/// Longest time that the early read keeps the fence from beginning.
const EARLY_READ_TIME_MAX: Duration = Duration::from_secs(1);

/// The state of a vbucket, if it has one, and the hybrid time at which it was read.
struct EarlyState {
    vbid: Vbid,
    stored: Option<StoredState>,
    snapshot: u64,
}

/// Result for the caller of a takeover.
struct TakeoverReport<'a, 'v> {
    ready: &'a mut PartVisitor<'v>,
    untold: Vec<Vbid>,
    /// Those that are served early.
    early: Vec<EarlyState>,
    overtaken: Vec<Vbid>,
}

impl TakeoverReport<'_, '_> {
    fn tell(&mut self, part: &[(Vbid, Option<StoredState>)]) {
        let vbids: Vec<Vbid> = part.iter().map(|(vbid, _)| *vbid).collect();
        let state = |(vbid, stored): &(Vbid, Option<StoredState>)| {
            Some((*vbid, stored.as_ref()?.state.clone()))
        };
        let states: Vec<(Vbid, VbucketState)> = part.iter().filter_map(state).collect();
        self.untold.retain(|vbid| !vbids.contains(vbid));
        (self.ready)(&vbids, states);
    }

    /// Serves those that are not fenced.
    fn early(&mut self, shared: &StoreState, mut early: Vec<EarlyState>) {
        early.retain(|early| self.untold.contains(&early.vbid));
        for EarlyState { vbid, stored, snapshot } in &early {
            let high_seqno = stored.as_ref().map_or(Seqno(0), |stored| stored.state.high_seqno);
            shared.readable.up_to(*vbid, high_seqno, *snapshot);
        }
        let part: Vec<_> = early.iter().map(|early| (early.vbid, early.stored.clone())).collect();
        self.early = early;
        if !part.is_empty() {
            self.tell(&part);
        }
    }

    /// Some vbuckets are fenced.
    fn fenced(&mut self, shared: &StoreState, part: TakenPart) {
        let mut untold = Vec::new();
        for vbid in part.vbids {
            let found = part.stored.iter().find(|(of, _)| *of == vbid);
            let stored = found.map(|(_, stored)| stored.clone());
            match self.early.iter().find(|early| early.vbid == vbid) {
                // Reads continue to show the snapshot until it is taken over again.
                Some(early) if early.stored != stored => self.overtaken.push(vbid),
                Some(_) => shared.readable.all(vbid),
                None => {
                    shared.readable.all(vbid);
                    untold.push((vbid, stored));
                }
            }
        }
        if !untold.is_empty() {
            self.tell(&untold);
        }
    }
}

impl StoreState {
    pub(crate) async fn take_over(
        &self,
        writer: &mut Writer,
        vbids: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        writer.may_start()?;
        let has_leases = self.ownership.read().is_some();
        let early = if has_leases { self.read_early(vbids).await } else { Vec::new() };
        let (untold, overtaken) = (vbids.to_vec(), Vec::new());
        let told = RefCell::new(TakeoverReport { ready, untold, early: Vec::new(), overtaken });
        {
            let fence = async {
                let mut taking: TakingOver = self.begin_take_over(writer, vbids).await?;
                while !taking.is_complete() {
                    let part = self.take_next(writer, &mut taking).await?;
                    told.borrow_mut().fenced(self, part);
                }
                Ok(())
            };
            let mut fence = std::pin::pin!(fence);
            let at_once = match has_leases && !EARLY_AFTER.is_zero() {
                true => timeout(EARLY_AFTER, fence.as_mut()).await.ok(),
                false => None,
            };
            match at_once {
                Some(fenced) => fenced?,
                None => {
                    told.borrow_mut().early(self, early);
                    fence.await?;
                }
            }
        }
        Ok(told.into_inner().overtaken)
    }

    /// The states as far as they come in time. The fence brings the others.
    async fn read_early(&self, vbids: &[Vbid]) -> Vec<EarlyState> {
        // A replica may have become the leader.
        self.table.locate_again();
        let read = async |vbid: Vbid| self.read_early_state(vbid).await;
        let states = stream::iter(vbids.to_vec()).map(read).buffer_unordered(LOOKUPS_AT_A_TIME);
        let mut states = std::pin::pin!(states);
        let (mut early, end) = (Vec::new(), Instant::now() + EARLY_READ_TIME_MAX);
        while let Ok(Some(read)) = timeout_at(end, states.next()).await {
            early.extend(read);
        }
        early
    }

    /// The state of a vbucket as of now. None when Kudu does not answer.
    async fn read_early_state(&self, vbid: Vbid) -> Option<EarlyState> {
        let columns = [COLUMNS[column::BODY], COLUMNS[column::CAS]];
        let mut scanner = self.scanner(&Bounds::state(vbid), &[], &columns).ok()?;
        let mut found = None;
        while let Some(batch) = scanner.next_batch().await.ok()? {
            for row in batch.rows() {
                found = Some(stored(row.get(0).ok()?, row.get(1).ok()?).ok()?);
            }
        }
        Some(EarlyState { vbid, stored: found, snapshot: scanner.snapshot()? })
    }
}
