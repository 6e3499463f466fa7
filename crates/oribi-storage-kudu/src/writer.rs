//! The one way into the table: rounds of Writes that are repeated until they are decided.
//!
//! Owns: dividing work into rounds, sending a round, and what is done about the parts of it that failed. A round
//! is bounded so that whatever falls to one tablet fits one Write; its tablets are written in parallel, one Write
//! each. Invariants: a unit of a round is in one Write with all its rows; the next round begins when every unit of the
//! last one is decided, so that versions arrive in their order; a failed Write is repeated with the same rows before
//! anything newer is sent; nothing is sent for vbuckets that this process does not own in the epoch of the session.
//! Callers: commits, removals, local documents, each of which holds the writer meanwhile.

use std::collections::HashSet;

use oribi_kudu::{Error, RowErrors, RowFailure, SessionError, Value};
use oribi_storage::StoreError;

use crate::chunk_index::ChunkIndex;
use crate::epoch::{Epoch, TakenVbuckets};
use crate::failure::{of_kudu, of_session, passes};
use crate::patience::Attempts;
use crate::rows::{Unit, WRITE_BYTES_MAX};
use crate::store::Shared;

/// What one thread at a time may use.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// None until vbuckets are taken over, and when the table was changed by somebody else.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) was_taken_over: bool,
    pub(crate) taken: TakenVbuckets,
    pub(crate) chunks: ChunkIndex,
    /// Why nothing is ever written again: another owner, or a Write whose outcome was not waited for.
    ended: Option<Ended>,
}

#[derive(Debug)]
enum Ended {
    Fenced(String),
    Abandoned,
}

/// What has to be done about a round.
enum Outcome {
    /// Everything is written.
    Written,
    /// The units of these vbuckets are not, or perhaps not.
    Failed { vbuckets: HashSet<i16>, cause: Cause },
}

enum Cause {
    /// Time will mend it.
    Passing(Error),
    /// The table was changed.
    OtherEpoch,
    Lasting(StoreError),
}

impl Writer {
    /// Fails when nothing is to be written any more.
    pub(crate) fn may_start(&self) -> Result<(), StoreError> {
        match &self.ended {
            None => Ok(()),
            Some(Ended::Fenced(why)) => Err(StoreError::Fenced(why.clone())),
            Some(Ended::Abandoned) => {
                Err(StoreError::Poisoned("Kudu did not answer before the store was closed".into()))
            }
        }
    }

    /// Somebody else owns the table, and nobody says that anything of it is still this process's.
    pub(crate) fn fence(&mut self, epoch: u64) -> StoreError {
        self.epoch = None;
        let why = format!("the table is in epoch {epoch}, which another process has begun");
        self.ended = Some(Ended::Fenced(why.clone()));
        StoreError::Fenced(why)
    }
}

impl Shared {
    /// Writes all units, or says why not. After `Fenced` those of owned vbuckets are written.
    pub(crate) async fn write(
        &self,
        writer: &mut Writer,
        units: &[Unit<'_>],
    ) -> Result<(), StoreError> {
        let mut fenced = None;
        let mut left = units;
        while !left.is_empty() {
            let (round, rest) = left.split_at(units_of_round(left));
            fenced = self.write_round(writer, round).await?.or(fenced);
            left = rest;
        }
        fenced.map_or(Ok(()), Err)
    }

    /// Returns the error for those units that are not this process's to write.
    async fn write_round(
        &self,
        writer: &mut Writer,
        round: &[Unit<'_>],
    ) -> Result<Option<StoreError>, StoreError> {
        let mut left: Vec<&Unit<'_>> = round.iter().collect();
        let mut attempts = Attempts::default();
        let mut fenced = None;
        while !left.is_empty() {
            self.ensure_epoch(writer).await?;
            let Writer { epoch: Some(epoch), chunks, .. } = writer else { continue };
            left.retain(|unit| {
                let owns = epoch.owns(unit.vbid());
                if !owns {
                    let whose =
                        unit.vbid().map_or("the bucket".to_owned(), |vbid| vbid.to_string());
                    fenced = Some(StoreError::Fenced(format!("{whose} has another owner")));
                }
                owns
            });
            let cause = match self.send(epoch, chunks, &left).await? {
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
                        writer.ended = Some(Ended::Abandoned);
                        return Err(error);
                    }
                }
                Cause::Lasting(StoreError::Poisoned(_)) => {
                    writer.ended = Some(Ended::Abandoned);
                    writer.may_start()?;
                }
                Cause::Lasting(error) => return Err(error),
            }
        }
        Ok(fenced)
    }

    async fn ensure_epoch(&self, writer: &mut Writer) -> Result<(), StoreError> {
        writer.may_start()?;
        if writer.epoch.is_some() {
            return Ok(());
        }
        if !writer.was_taken_over {
            return Err(StoreError::Fenced("no vbucket was taken over".into()));
        }
        self.renew_epoch(writer).await
    }

    /// Encodes the units and waits until they are decided.
    async fn send(
        &self,
        epoch: &mut Epoch,
        chunks: &mut ChunkIndex,
        units: &[&Unit<'_>],
    ) -> Result<Outcome, StoreError> {
        let all = || units.iter().map(|unit| unit.vbucket_cell()).collect::<HashSet<_>>();
        for unit in units {
            if let Err(error) = unit.put(&mut epoch.session, chunks).await {
                epoch.renew_session();
                let cause = match error {
                    SessionError::Client(error) if passes(&error) => Cause::Passing(error),
                    error => Cause::Lasting(of_session(&error)),
                };
                return Ok(Outcome::Failed { vbuckets: all(), cause });
            }
        }
        let flushed = self.patience.wait("rows are to be written", epoch.session.flush()).await;
        let Some(flushed) = flushed else {
            // What is under way may still be written, so nothing may be sent after it.
            let why = StoreError::Poisoned("abandoned".into());
            return Ok(Outcome::Failed { vbuckets: all(), cause: Cause::Lasting(why) });
        };
        Ok(match flushed {
            Ok(_) => Outcome::Written,
            Err(SessionError::RowsFailed { .. }) => judge(&epoch.session.take_errors(), all()),
            Err(SessionError::Client(error)) if passes(&error) => {
                epoch.renew_session();
                Outcome::Failed { vbuckets: all(), cause: Cause::Passing(error) }
            }
            Err(error) => {
                Outcome::Failed { vbuckets: all(), cause: Cause::Lasting(of_session(&error)) }
            }
        })
    }
}

/// How many of the first units, at least one, are a round.
fn units_of_round(units: &[Unit<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |unit: &&Unit<'_>| {
        bytes += unit.bytes();
        bytes <= WRITE_BYTES_MAX
    };
    units.iter().take_while(fits).count().max(1)
}

/// What the rows that failed say about the round.
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
