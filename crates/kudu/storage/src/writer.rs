//! The only path for writes to the table: rounds of Writes, repeated until they are decided.
//!
//! Owns: dividing work into rounds, sending a round, and handling its failed parts. A round is
//! bounded, because its rows stay in memory until it is decided, and because the part of each
//! tablet has to fit one Write. Its tablets are written in parallel, one Write each. Invariants:
//! - a unit of a round is in one Write with all its rows;
//! - the next round begins when every unit of the last one is decided, so that versions arrive in
//!   their order;
//! - a failed Write is repeated with the same rows before anything newer is sent;
//! - nothing is sent for vbuckets that this process does not own in the epoch of the session.
//!
//! Callers: commits, which wait for as long as Kudu is unreachable; removals and local documents,
//! which have a limit. Each holds the writer until it ends. A Write that its caller stopped waiting
//! for is decided before the next one is sent.

use std::collections::{HashMap, HashSet};

use oribi_kudu::{Error, RowErrors, RowFailure, SessionError, Value};
use oribi_storage::StoreError;
use oribi_types::{Seqno, Vbid};
use tokio::time::Instant;

use crate::chunk_index::ChunkIndex;
use crate::epoch::{Epoch, TakenVbuckets};
use crate::failure::{of_kudu, of_session, passes};
use crate::patience::{Attempts, WaitResult};
use crate::rows::{ROUND_BYTES_MAX, Unit};
use crate::shared::StoreState;

/// Write state, used by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// None before the first take-over, and after another process has changed the table.
    pub(crate) epoch: Option<Epoch>,
    /// The epoch of a take-over after which nothing was written: tablets may not accept Writes yet,
    /// and `chunks` is older.
    pub(crate) unsettled: Option<u64>,
    pub(crate) was_taken_over: bool,
    pub(crate) taken: TakenVbuckets,
    pub(crate) chunks: ChunkIndex,
    /// Purge seqnos, for vbuckets where tombstones were, or may have been, removed.
    pub(crate) purged: HashMap<Vbid, Seqno>,
    /// The session has a Write in flight whose caller got "outcome unknown".
    has_undecided: bool,
    /// Why no further write is possible: another owner, or a Write whose outcome was not awaited.
    ended: Option<WriteEnd>,
}

#[derive(Debug)]
enum WriteEnd {
    Fenced(String),
    Abandoned,
}

/// The result of a round.
enum Outcome {
    /// All units are written.
    Written,
    /// The units of these vbuckets are not written, or their outcome is unknown.
    Failed { vbuckets: HashSet<i16>, cause: Cause },
}

enum Cause {
    Passing(Error),
    /// The table was changed.
    OtherEpoch,
    /// The caller's limit has passed. Writes in flight may still succeed.
    Undecided,
    /// The store is being closed. Writes in flight may still succeed, so no Write may follow them.
    Abandoned,
    Lasting(StoreError),
}

impl Writer {
    /// Fails when no further write is possible.
    pub(crate) fn may_start(&self) -> Result<(), StoreError> {
        match &self.ended {
            None => Ok(()),
            Some(WriteEnd::Fenced(why)) => Err(StoreError::Fenced(why.clone())),
            Some(WriteEnd::Abandoned) => {
                Err(StoreError::Poisoned("Kudu did not answer before the store was closed".into()))
            }
        }
    }

    /// Abandons Writes in flight. They may still succeed, so no Write may follow them.
    pub(crate) fn abandon(&mut self) -> StoreError {
        self.ended.get_or_insert(WriteEnd::Abandoned);
        StoreError::Poisoned("Kudu did not answer before the store was closed".into())
    }

    /// Another process owns the table, and this process has found no part that is still its own.
    pub(crate) fn fence(&mut self, epoch: u64) -> StoreError {
        self.epoch = None;
        let why = format!("the table is in epoch {epoch}, which another process has begun");
        self.ended = Some(WriteEnd::Fenced(why.clone()));
        StoreError::Fenced(why)
    }
}

impl StoreState {
    /// Writes all units, or returns why not. After `Fenced` the units of owned vbuckets are
    /// written; after the limit it is unknown whether they are, or will be.
    pub(crate) async fn write(
        &self,
        writer: &mut Writer,
        units: &[Unit<'_>],
        limit: Option<Instant>,
    ) -> Result<(), StoreError> {
        let mut fenced = None;
        let mut left = units;
        while !left.is_empty() {
            let (round, rest) = left.split_at(units_of_round(left));
            fenced = self.write_round(writer, round, limit).await?.or(fenced);
            left = rest;
        }
        fenced.map_or(Ok(()), Err)
    }

    /// Waits for Writes in flight whose callers got "outcome unknown".
    pub(crate) async fn settle_undecided(
        &self,
        writer: &mut Writer,
        limit: Option<Instant>,
    ) -> Result<(), StoreError> {
        if !std::mem::take(&mut writer.has_undecided) {
            return Ok(());
        }
        // Without an epoch the Write belonged to a dropped session, and Kudu refuses its Writes
        // from now on.
        let Some(epoch) = &mut writer.epoch else { return Ok(()) };
        let what = "an earlier Write is to be decided";
        match self.patience.wait(what, limit, epoch.session.flush()).await {
            // Its caller has stopped waiting for the outcome.
            WaitResult::Done(Ok(_)) => Ok(()),
            WaitResult::Done(Err(_)) => {
                epoch.renew_session();
                Ok(())
            }
            WaitResult::TimeIsUp => {
                writer.has_undecided = true;
                Err(StoreError::Io(format!("Kudu: {what}: no answer")))
            }
            WaitResult::Closed => {
                writer.ended = Some(WriteEnd::Abandoned);
                writer.may_start()
            }
        }
    }

    /// Returns the error for the units that this process may not write.
    async fn write_round(
        &self,
        writer: &mut Writer,
        round: &[Unit<'_>],
        limit: Option<Instant>,
    ) -> Result<Option<StoreError>, StoreError> {
        self.settle_undecided(writer, limit).await?;
        let mut left: Vec<&Unit<'_>> = round.iter().collect();
        let mut attempts = Attempts::until(limit);
        let mut fenced = None;
        while !left.is_empty() {
            self.ensure_epoch(writer, attempts).await?;
            let Some(epoch) = &writer.epoch else { continue };
            left.retain(|unit| {
                let owns = epoch.owns(unit.vbid());
                if !owns {
                    let whose =
                        unit.vbid().map_or("the bucket".to_owned(), |vbid| vbid.to_string());
                    fenced = Some(StoreError::Fenced(format!("{whose} has another owner")));
                }
                owns
            });
            let outcome = self.send(writer, &left, limit).await;
            let chunks = &mut writer.chunks;
            let cause = match outcome {
                Outcome::Written => {
                    left.iter().for_each(|unit| unit.settle(chunks));
                    self.patience.succeeded("commits are written");
                    break;
                }
                Outcome::Failed { vbuckets, cause } => {
                    left.retain(|unit| {
                        let failed = vbuckets.contains(&unit.vbucket_cell());
                        if !failed {
                            unit.settle(chunks);
                        }
                        failed
                    });
                    cause
                }
            };
            match cause {
                Cause::OtherEpoch => writer.epoch = None,
                Cause::Passing(error) => {
                    let paused =
                        self.patience.pause(&mut attempts, "rows are to be written", &error);
                    if let Err(error) = paused.await {
                        // A caller with a limit repeats nothing itself: the next write is newer.
                        writer.ended = limit.is_none().then_some(WriteEnd::Abandoned);
                        return Err(error);
                    }
                }
                Cause::Abandoned => {
                    writer.ended = Some(WriteEnd::Abandoned);
                    writer.may_start()?;
                }
                Cause::Undecided => {
                    writer.has_undecided = true;
                    let why = "Kudu: no answer in time; the write may or may not have happened";
                    return Err(StoreError::Io(why.into()));
                }
                Cause::Lasting(error) => return Err(error),
            }
        }
        Ok(fenced)
    }

    async fn ensure_epoch(
        &self,
        writer: &mut Writer,
        attempts: Attempts,
    ) -> Result<(), StoreError> {
        writer.may_start()?;
        self.settle_take_over(writer, attempts).await?;
        if writer.epoch.is_some() {
            return Ok(());
        }
        if !writer.was_taken_over {
            return Err(StoreError::Fenced("no vbucket was taken over".into()));
        }
        self.renew_epoch(writer, attempts).await
    }

    /// Encodes the units and waits until they are decided.
    async fn send(
        &self,
        writer: &mut Writer,
        units: &[&Unit<'_>],
        limit: Option<Instant>,
    ) -> Outcome {
        let all = || units.iter().map(|unit| unit.vbucket_cell()).collect::<HashSet<_>>();
        if let Err(cause) = self.fill(writer, units, limit).await {
            writer.epoch.iter_mut().for_each(Epoch::renew_session);
            return Outcome::Failed { vbuckets: all(), cause };
        }
        let Some(epoch) = &mut writer.epoch else {
            return Outcome::Failed { vbuckets: all(), cause: Cause::OtherEpoch };
        };
        let flush = epoch.session.flush();
        match self.patience.wait("rows are to be written", limit, flush).await {
            WaitResult::Done(Ok(_)) => Outcome::Written,
            WaitResult::Done(Err(SessionError::RowsFailed { .. })) => {
                judge(&epoch.session.take_errors(), all())
            }
            WaitResult::Done(Err(SessionError::Client(error))) if passes(&error) => {
                epoch.renew_session();
                Outcome::Failed { vbuckets: all(), cause: Cause::Passing(error) }
            }
            WaitResult::Done(Err(error)) => {
                Outcome::Failed { vbuckets: all(), cause: Cause::Lasting(of_session(&error)) }
            }
            WaitResult::TimeIsUp => Outcome::Failed { vbuckets: all(), cause: Cause::Undecided },
            WaitResult::Closed => Outcome::Failed { vbuckets: all(), cause: Cause::Abandoned },
        }
    }

    /// Hands the rows of the units to the session, which sends none of them yet. This waits while
    /// the locations of the tablets are unknown.
    async fn fill(
        &self,
        writer: &mut Writer,
        units: &[&Unit<'_>],
        limit: Option<Instant>,
    ) -> Result<(), Cause> {
        let Writer { epoch: Some(epoch), chunks, purged, .. } = writer else {
            return Err(Cause::OtherEpoch);
        };
        let put_all = async {
            for unit in units {
                // From here on the tombstones may be gone, whatever the answer will be.
                if let Some((vbid, seqno)) = unit.purges() {
                    let known = purged.entry(vbid).or_default();
                    *known = seqno.max(*known);
                }
                let purged = unit.vbid().and_then(|vbid| purged.get(&vbid)).copied();
                unit.put(&mut epoch.session, chunks, purged.unwrap_or_default()).await?;
            }
            Ok(())
        };
        let nothing_sent = |why: &str| Cause::Lasting(StoreError::Io(format!("Kudu: {why}")));
        match self.patience.wait("tablets are to be found", limit, put_all).await {
            WaitResult::Done(Ok(())) => Ok(()),
            WaitResult::Done(Err(SessionError::Client(error))) if passes(&error) => {
                Err(Cause::Passing(error))
            }
            WaitResult::Done(Err(error)) => Err(Cause::Lasting(of_session(&error))),
            WaitResult::TimeIsUp => Err(nothing_sent("no answer in time; nothing was sent")),
            WaitResult::Closed => Err(nothing_sent("no answer before the store was closed")),
        }
    }
}

/// How many of the first units, at least one, form a round.
fn units_of_round(units: &[Unit<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |unit: &&Unit<'_>| {
        bytes += unit.bytes();
        bytes <= ROUND_BYTES_MAX
    };
    units.iter().take_while(fits).count().max(1)
}

/// Derives the outcome of the round from the failed rows.
fn judge(errors: &RowErrors, all: HashSet<i16>) -> Outcome {
    let mut vbuckets = HashSet::new();
    let mut passing = None;
    let mut is_other_epoch = false;
    for row in errors.iter() {
        match row.cell(0) {
            Some(Value::Int16(vbucket)) => vbuckets.insert(vbucket),
            _ => continue,
        };
        match row.failure() {
            RowFailure::Batch(error) if error.is_schema_mismatch() => is_other_epoch = true,
            RowFailure::Batch(error) if passes(error) => {
                passing.get_or_insert_with(|| error.clone());
            }
            RowFailure::Batch(error) => {
                return Outcome::Failed { vbuckets: all, cause: Cause::Lasting(of_kudu(error)) };
            }
            refused => {
                let why = StoreError::Corrupt(format!("Kudu refuses a row: {refused}"));
                return Outcome::Failed { vbuckets: all, cause: Cause::Lasting(why) };
            }
        }
    }
    let vbuckets = if errors.lost() == 0 && !vbuckets.is_empty() { vbuckets } else { all };
    let cause = match (is_other_epoch, passing) {
        (true, _) => Cause::OtherEpoch,
        (false, Some(error)) => Cause::Passing(error),
        (false, None) => Cause::Lasting(StoreError::Io("Kudu: rows failed without a cause".into())),
    };
    Outcome::Failed { vbuckets, cause }
}
