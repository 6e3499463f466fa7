//! Take-over of vbuckets from an earlier owner, with a fence against its late Writes.
//!
//! Owns: the change of epoch. The table has one column that is named after the epoch. A take-over
//! drops it and adds the next one in a single ALTER TABLE. From then on a tablet refuses, as a
//! whole, every Write that was encoded for the old table, however late the network delivers it:
//! clocks play no part.
//!
//! A tablet that applies the change takes no Writes, puts the new schema in force, and then writes
//! its memory out, which takes seconds after a bulk load. The fence needs the second step only. So
//! a take-over asks each tablet for the column of the new epoch, by a read, until it has one.
//! Then it reads the states. The first Write waits until every tablet is done. `take_over.rs` says
//! which vbuckets are served before that.
//!
//! An owner that meets the refusal reads the new schema first and only then checks which vbuckets
//! it still owns. The reverse order is unsafe: the owner could ask, be suspended while its lease
//! runs out and another owner takes over, and then read that owner's schema. The engine calls this
//! before it activates vbuckets, while this store has no commit in progress.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use oribi_kudu::{
    Error, MasterErrorCode, Predicate, Row, StatusCode, Table, TableAlterer, TabletServerErrorCode,
};
use oribi_storage::{Ownership, StoreError};
use oribi_types::{CollectionId, DocKey, Vbid};
use tokio::time::{Instant, timeout_at};

use crate::chunk_index::ChunkIndex;
use crate::epoch::Epoch;
use crate::failure::{of_cell, of_kudu, passes};
use crate::layout::{COLUMNS, column, epoch_column, epoch_name, epoch_of};
use crate::patience::Attempts;
use crate::pieces::corrupt;
use crate::reader::{LOOKUPS_AT_A_TIME, StoredState, state_key};
use crate::rows::rows_max;
use crate::scan::Bounds;
use crate::shared::StoreState;
use crate::writer::Writer;

/// Shortest pause between two questions whether tablets have the new epoch.
const FENCE_PAUSE: Duration = Duration::from_millis(20);
/// Longest time that fenced vbuckets wait for the answers about others.
const PART_TIME_MAX: Duration = Duration::from_millis(200);

/// Epochs that processes may begin before the master shows the first of them: one for each node
/// that takes vbuckets of a lost node over.
const EPOCHS_AT_ONCE: u64 = 16;

/// A take-over under way.
pub(crate) struct TakingOver {
    /// The epoch that this process has begun.
    epoch: u64,
    /// Vbuckets whose tablets may not have it yet.
    left: Vec<Vbid>,
    attempts: Attempts,
}

impl TakingOver {
    pub(crate) fn of(epoch: u64, vbids: &[Vbid]) -> TakingOver {
        TakingOver { epoch, left: vbids.to_vec(), attempts: Attempts::default() }
    }

    /// True when every vbucket is fenced.
    pub(crate) fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

/// Vbuckets whose earlier owners are fenced, and the states of those that were ever committed.
#[derive(Debug, Default)]
pub(crate) struct TakenPart {
    pub(crate) vbids: Vec<Vbid>,
    pub(crate) stored: Vec<(Vbid, StoredState)>,
}

impl StoreState {
    /// Begins a take-over: the master has the next epoch when this returns.
    pub(crate) async fn begin_take_over(
        &self,
        writer: &mut Writer,
        vbids: &[Vbid],
    ) -> Result<TakingOver, StoreError> {
        writer.may_start()?;
        writer.epoch = None;
        let epoch = self.next_epoch().await?;
        writer.taken.add(vbids);
        writer.was_taken_over = true;
        writer.unsettled = Some(epoch);
        Ok(TakingOver::of(epoch, vbids))
    }

    /// Waits until some of the vbuckets are fenced, and returns them with their states.
    pub(crate) async fn take_next(
        &self,
        writer: &mut Writer,
        taking: &mut TakingOver,
    ) -> Result<TakenPart, StoreError> {
        let vbids = loop {
            let fenced = self.fenced(taking).await?;
            if !fenced.is_empty() {
                break fenced;
            }
            // The master shows a change when every tablet has it.
            let shown = epoch_of(&self.newest_table(Attempts::default()).await?)?;
            if shown >= taking.epoch {
                break taking.left.clone();
            }
        };
        // The replica that led at this node's last write may have lost the lead, and may lack
        // writes of the earlier owner. The leader that the master names now has the new epoch in
        // its log, and so every write before it.
        self.table.locate_again();
        // Not before: a read that began earlier may lack the last write of the earlier owner.
        let stored = self.stored(&vbids, Attempts::default()).await?;
        // The table has every purge of an earlier owner.
        vbids.iter().for_each(|vbid| _ = writer.purged.remove(vbid));
        let purged = stored.iter().map(|(vbid, stored)| (*vbid, stored.state.purge_seqno));
        writer.purged.extend(purged.filter(|(_, seqno)| seqno.0 > 0));
        taking.left.retain(|vbid| !vbids.contains(vbid));
        if taking.is_complete() {
            tracing::info!(table = self.name, epoch = taking.epoch, "took vbuckets over");
        }
        Ok(TakenPart { vbids, stored })
    }

    /// Those of the remaining vbuckets whose tablets have the epoch, possibly none. A tablet has it
    /// when it accepts a read that names the epoch's column: by the same schema it checks Writes.
    pub(crate) async fn fenced(&self, taking: &mut TakingOver) -> Result<Vec<Vbid>, StoreError> {
        let lookup = self.table.point_lookup().columns::<&str>([]);
        let lookup = lookup.added_column(epoch_column(taking.epoch)).build();
        let lookup = lookup.map_err(|error| of_kudu(&error))?;
        let look_up = async |vbid: Vbid| (vbid, lookup.get(&state_key(vbid)).await);
        let begun = Instant::now();
        let lookups = stream::iter(taking.left.clone()).map(look_up);
        let mut answers = std::pin::pin!(lookups.buffer_unordered(LOOKUPS_AT_A_TIME));
        let (mut fenced, mut failed) = (Vec::new(), None);
        loop {
            // Clients of the vbuckets that are ready do not wait for a server that is not.
            let answer = match fenced.is_empty() {
                true => answers.next().await,
                false => timeout_at(begun + PART_TIME_MAX, answers.next()).await.unwrap_or(None),
            };
            match answer {
                None => break,
                Some((vbid, Ok(_))) => fenced.push(vbid),
                Some((_, Err(error))) if lacks_column(&error) => {}
                Some((_, Err(error))) if passes(&error) => failed = Some(error),
                Some((_, Err(error))) => return Err(of_kudu(&error)),
            }
        }
        match failed {
            _ if !fenced.is_empty() => {}
            Some(error) => {
                let what = "tablets are to learn of the new owner";
                self.patience.pause(&mut taking.attempts, what, &error).await?;
            }
            // Asking takes at most a fifth of the tablet servers' time, however many there are.
            None => tokio::time::sleep(FENCE_PAUSE.max(begun.elapsed() * 4)).await,
        }
        Ok(fenced)
    }

    /// Before the first Write after a take-over: waits until every tablet has the epoch and accepts
    /// Writes, however slow one of them is, and opens the epoch. Another epoch would not arrive
    /// faster, and would make every other owner encode its Writes again.
    pub(crate) async fn settle_take_over(
        &self,
        writer: &mut Writer,
        attempts: Attempts,
    ) -> Result<(), StoreError> {
        let Some(begun) = writer.unsettled else { return Ok(()) };
        // Before the ownership is checked: see the module text.
        let table = self.altered_table(attempts).await?;
        let now = epoch_of(&table)?;
        // Earlier owners may have made documents longer.
        writer.chunks = self.chunked_documents(attempts).await?;
        let given = self.ownership.read().clone();
        let ownership: &dyn Ownership = match &given {
            // The schema was read before this call, so it does not matter whose epoch it is.
            Some(ownership) => &**ownership,
            None if now == begun => &writer.taken,
            None => return Err(writer.fence(now)),
        };
        writer.epoch = Some(Epoch::of(table, self.vbuckets, ownership));
        writer.unsettled = None;
        Ok(())
    }

    /// Makes the next epoch. Returns its number. Only an attempt with an unknown outcome at the
    /// master is followed by a further epoch.
    async fn next_epoch(&self) -> Result<u64, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let table = self.newest_table(Attempts::default()).await?;
            let shown = epoch_of(&table)?;
            let mut failed = None;
            // The master shows a change when every tablet has it, so other processes may have begun
            // later epochs. It accepts the change that follows the last one, and no other.
            for next in shown + 1..=shown + EPOCHS_AT_ONCE {
                let error = match self.alter_epoch(&table, next).await {
                    Ok(()) => return Ok(next),
                    Err(error) => error,
                };
                let is_next = is_lost_race(&error);
                failed = Some(error);
                if !is_next {
                    break;
                }
            }
            let error = failed.expect("at least one epoch was tried");
            if !passes(&error) && !is_lost_race(&error) {
                return Err(of_kudu(&error));
            }
            self.patience.pause(&mut attempts, "vbuckets are to be taken over", &error).await?;
        }
    }

    /// When this returns, the master has the change, and announces it to the tablets.
    async fn alter_epoch(&self, table: &Table, next: u64) -> Result<(), Error> {
        let alterer = TableAlterer::new(table)
            .drop_column(epoch_name(next - 1))
            .add_column(epoch_column(next))?;
        self.client.alter_table(alterer.without_waiting()).await
    }

    /// The table in its current state. While Kudu is unreachable it waits like `attempts`.
    async fn newest_table(&self, mut attempts: Attempts) -> Result<Table, StoreError> {
        loop {
            match self.client.open_table_by_id(self.table.id()).await {
                Ok(table) => return Ok(table),
                Err(error) if passes(&error) => {
                    let what = "the table is to be opened again";
                    self.patience.pause(&mut attempts, what, &error).await?;
                }
                Err(error) => return Err(of_kudu(&error)),
            }
        }
    }

    /// The table after its last change has reached every tablet. Before, the master shows it as it
    /// was, so that Writes would be encoded without success.
    async fn altered_table(&self, mut attempts: Attempts) -> Result<Table, StoreError> {
        loop {
            match self.client.wait_until_altered(&self.table).await {
                Ok(()) => return self.newest_table(attempts).await,
                Err(error) if passes(&error) => {
                    let what = "tablets are to accept writes after a take-over";
                    self.patience.pause(&mut attempts, what, &error).await?;
                }
                Err(error) => return Err(of_kudu(&error)),
            }
        }
    }

    /// Handles a change of the table by another process: determines what this process may still
    /// write.
    pub(crate) async fn renew_epoch(
        &self,
        writer: &mut Writer,
        attempts: Attempts,
    ) -> Result<(), StoreError> {
        // Before the ownership is checked: see the module text.
        let table = self.altered_table(attempts).await?;
        let epoch = epoch_of(&table)?;
        let given: Option<Arc<dyn Ownership>> = self.ownership.read().clone();
        let Some(ownership) = given else { return Err(writer.fence(epoch)) };
        writer.epoch = Some(Epoch::of(table, self.vbuckets, &*ownership));
        tracing::info!(table = self.name, epoch, "another owner has taken vbuckets over");
        Ok(())
    }

    /// Documents with more than one row: each has a second one.
    async fn chunked_documents(&self, attempts: Attempts) -> Result<ChunkIndex, StoreError> {
        let all = Bounds::new(vec![0_i16.into()], vec![i16::MAX.into()]);
        let places = [column::VBUCKET, column::COLLECTION, column::KEY, column::BODY_BYTES];
        let columns = places.map(|place| COLUMNS[place]);
        let second = [Predicate::equal(COLUMNS[column::CHUNK], 1_i16)];
        let read = |row: &Row<'_>| {
            let vbucket: i16 = row.get(0).map_err(of_cell)?;
            let collection: i64 = row.get(1).map_err(of_cell)?;
            let key: &[u8] = row.get(2).map_err(of_cell)?;
            let body_bytes: i64 = row.get(3).map_err(of_cell)?;
            Ok((vbucket, collection, key.to_vec(), body_bytes))
        };
        let mut chunks = ChunkIndex::default();
        for (vbucket, collection, key, body_bytes) in
            self.scan_rows(&all, &second, &columns, (usize::MAX, attempts), read).await?
        {
            let (Ok(vbucket), Ok(collection), Ok(body_bytes)) =
                (u16::try_from(vbucket), u32::try_from(collection), usize::try_from(body_bytes))
            else {
                return Err(corrupt("a second row of what is no document"));
            };
            let key = DocKey { collection: CollectionId(collection), key: &key };
            chunks.at_least(Vbid(vbucket), key, rows_max(body_bytes));
        }
        Ok(chunks)
    }
}

/// Whether the master refused a change of the epoch because another process was faster.
fn is_lost_race(error: &Error) -> bool {
    matches!(
        error,
        Error::Master { code: MasterErrorCode::InvalidSchema, .. }
            | Error::Master { status: StatusCode::NotFound | StatusCode::AlreadyPresent, .. }
    )
}

/// Whether a tablet does not have a column that a read names.
fn lacks_column(error: &Error) -> bool {
    use TabletServerErrorCode::{InvalidSchema, MismatchedSchema};
    matches!(error, Error::TabletServer { code: InvalidSchema | MismatchedSchema, .. })
}
