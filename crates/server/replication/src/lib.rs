//! The rules of a vbucket's copies: which copy serves, which writes are committed, and which copy
//! is promoted. All of it is state machines without I/O, clock or thread.
//!
//! | File | Owns | Rules |
//! |---|---|---|
//! | `copies` | the record of a vbucket's copies in agreement, and its quorums | R4, R5, R7 |
//! | `history` | failover tables, and where a stream resumes or rolls back | R2 |
//! | `change` | kinds of changes, de-duplication, rewinding a key | R2 |
//! | `high_prepared` | what a replica may acknowledge | R3 |
//! | `monitor` | what the active may commit | R4, R6 |
//! | `election` | how promises decide a promotion | R5 |
//! | `grant` | grants of members, and grants that the active holds | R7 |
//! | `state` | control state that is stored with a copy's records | R8 |
//! | `machine` | one copy: role, promise, stream, serving | R1, R2, R5 to R8 |
//!
//! # Rules
//!
//! M are the members of the record of an epoch, w is the majority of the configured copies or |M|.
//! Another number of configured copies comes by a joint record, in which it counts the joining set.
//! - **R1** Only the active of epoch e appends in e, after it read the record of e and began an
//!   entry of its history: a new history, or the one that it continues as the active of e - 1.
//! - **R2** A copy accepts a stream of e only if its promise is at most e, and it promises e first,
//!   durably. It rolls back to the common point, and records e once it holds all up to the seqno at
//!   which e began.
//! - **R3** A copy acknowledges s only when it recorded e and holds everything up to s, at the end
//!   of a snapshot; persisted, together with the record of e, if the level demands it.
//! - **R4** A prepare is committed when w members, the active included, acknowledged it in e. While
//!   the record is joint, in both sets.
//! - **R5** A candidate asks M for a promise of e + 1. A member rejects it while its grant runs.
//!   |M| - w + 1 promises of intact members decide, or the promises of all. The greatest (epoch,
//!   seqno) wins by compare-and-set. M does not change, but of two members only the winner remains.
//! - **R6** The winner begins an entry. Open prepares lose their time limit, and reads of their
//!   keys are rejected until they are committed in the new epoch.
//! - **R7** The active answers only while the grants of a write quorum run.
//! - **R8** After an unclean stop a copy is not intact until it caught up with an active. A copy
//!   that rewinds is not intact either. An active that restarts begins a new epoch, also when its
//!   epoch was handed over and is not stored yet.
//!
//! The simulation (`simulation.rs`) drives all of it. The server uses `copies` and `election`; its
//! grants are between nodes, for all their copies (`grants` of the cluster's crate).
//!
//! # Mutants
//!
//! - `mutants.toml` has the mutants 1 to 12, 14, 15, 17 and 21 of the list of promotion's mutants,
//!   and three of another number of copies; 300 seeds find each.
//! - The simulation of clusters (`oribi-server`) finds 13, 16 and 18 to 20: a lease counted from
//!   its receipt, a backfill without deletions, a promotion that drops members although three
//!   exist, prepares that are not stored, and outcomes ahead of their batch.

pub mod change;
pub mod copies;
pub mod election;
pub mod grant;
pub mod high_prepared;
pub mod history;
pub mod machine;
pub mod monitor;
pub mod state;

#[cfg(test)]
mod simulation;
