//! Take-over of vbuckets from an earlier owner, with a fence against its late Writes.
//!
//! Owns: the change of epoch. The table has one column that is named after the epoch. A take-over
//! drops it and adds the next one in a single ALTER TABLE, and waits until every tablet has it.
//! From then on a tablet refuses, as a whole, every Write that was encoded for the old table,
//! however late the network delivers it: clocks play no part.
//!
//! An owner that meets the refusal reads the new schema first and only then asks which vbuckets it
//! still owns. The reverse order is unsafe: the owner could ask, be suspended while its lease runs
//! out and another owner takes over, and then read that owner's schema. The engine calls this
//! before it activates vbuckets, while this store has no commit in progress.

use std::sync::Arc;

use oribi_kudu::{Error, MasterErrorCode, Predicate, Row, StatusCode, Table, TableAlterer};
use oribi_storage::{Ownership, StoreError, VbucketState};
use oribi_types::{CollectionId, DocKey, Vbid};

use crate::chunk_index::ChunkIndex;
use crate::epoch::Epoch;
use crate::failure::{of_cell, of_kudu, passes};
use crate::layout::{COLUMNS, column, epoch_column, epoch_name, epoch_of};
use crate::patience::Attempts;
use crate::pieces::corrupt;
use crate::rows::rows_max;
use crate::scan::Bounds;
use crate::shared::Shared;
use crate::writer::Writer;

impl Shared {
    /// See [`oribi_storage::KvStore::take_over`].
    pub(crate) async fn take_over(
        &self,
        writer: &mut Writer,
        vbids: &[Vbid],
    ) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        writer.may_start()?;
        writer.epoch = None;
        let epoch = self.next_epoch().await?;
        let table = self.newest_table(Attempts::default()).await?;
        // The replica that led at this node's last write may have lost the lead, and may lack
        // writes of the earlier owner. The leader that the master names now has the new epoch in
        // its log, and so every write before it.
        table.locate_again();
        let now = epoch_of(&table)?;
        let given = self.ownership.read().clone();
        writer.taken.add(vbids);
        let ownership: &dyn Ownership = match &given {
            // The schema was read before this call, so it does not matter whose epoch it is.
            Some(ownership) => &**ownership,
            None if now == epoch => &writer.taken,
            None => return Err(writer.fence(now)),
        };
        let owner = Epoch::of(table, self.vbuckets, ownership);
        tracing::info!(
            table = self.name,
            epoch = now,
            vbuckets = vbids.len(),
            "took vbuckets over"
        );
        writer.epoch = Some(owner);
        writer.was_taken_over = true;
        // Earlier owners may have made documents longer.
        writer.chunks = self.chunked_documents().await?;
        let states = self.states(vbids, Attempts::default()).await?;
        // The table has every purge of an earlier owner.
        vbids.iter().for_each(|vbid| _ = writer.purged.remove(vbid));
        let purged = states.iter().map(|(vbid, state)| (*vbid, state.purge_seqno));
        writer.purged.extend(purged.filter(|(_, seqno)| seqno.0 > 0));
        Ok(states)
    }

    /// Makes the next epoch and waits until every tablet has it. Returns its number. Only an
    /// attempt with an unknown outcome at the master is followed by a further epoch.
    async fn next_epoch(&self) -> Result<u64, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let table = self.newest_table(Attempts::default()).await?;
            let next = epoch_of(&table)? + 1;
            let error = match self.alter_epoch(&table, next).await {
                Ok(()) => {
                    self.wait_for_epoch(&table).await?;
                    return Ok(next);
                }
                Err(error) => error,
            };
            // Another process was faster; the next attempt starts from its epoch.
            let is_lost_race = matches!(
                &error,
                Error::Master { code: MasterErrorCode::InvalidSchema, .. }
                    | Error::Master {
                        status: StatusCode::NotFound | StatusCode::AlreadyPresent,
                        ..
                    }
            );
            if !passes(&error) && !is_lost_race {
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

    /// Waits until every tablet has the epoch, however slow one of them is. Another epoch would not
    /// arrive faster, and would make every other owner encode its Writes again.
    async fn wait_for_epoch(&self, table: &Table) -> Result<(), StoreError> {
        let mut attempts = Attempts::default();
        loop {
            match self.client.wait_until_altered(table).await {
                Ok(()) => return Ok(()),
                Err(error) if passes(&error) => {
                    let what = "tablets are to learn of the new owner";
                    self.patience.pause(&mut attempts, what, &error).await?;
                }
                Err(error) => return Err(of_kudu(&error)),
            }
        }
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

    /// Handles a change of the table by another process: determines what this process may still
    /// write.
    pub(crate) async fn renew_epoch(
        &self,
        writer: &mut Writer,
        attempts: Attempts,
    ) -> Result<(), StoreError> {
        // Before the ownership is checked: see the module text.
        let table = self.newest_table(attempts).await?;
        let epoch = epoch_of(&table)?;
        let given: Option<Arc<dyn Ownership>> = self.ownership.read().clone();
        let Some(ownership) = given else { return Err(writer.fence(epoch)) };
        writer.epoch = Some(Epoch::of(table, self.vbuckets, &*ownership));
        tracing::info!(table = self.name, epoch, "another owner has taken vbuckets over");
        Ok(())
    }

    /// Documents with more than one row: each has a second one.
    async fn chunked_documents(&self) -> Result<ChunkIndex, StoreError> {
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
            self.scan_rows(&all, &second, &columns, (usize::MAX, Attempts::default()), read).await?
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
