//! The archive of `oribi backup`: what is in its files, and in which order they come to be.
//!
//! An archive holds backups of buckets. A backup is a directory of segments, each with the records
//! of many documents, and a manifest that names the segments with their checksums. The manifest is
//! written last, so a backup without one is unfinished and never restored. An incremental backup
//! names its parent; a [`chain`] is a full backup with the incrementals up to the wanted one.
//!
//! Invariants: a file is there as a whole or not at all, and durable before anything names it;
//! bytes of an archive never cause a panic, and every length is checked before memory is taken for
//! it; a damaged file is an error that names it. `docs/backup-format.md` has the layouts, and a
//! reader in Python that tests run.
//!
//! Caller: `oribi backup`. The crate knows no server and no clock: time is a parameter, and files
//! are behind [`store::ArchiveStore`].

#![forbid(unsafe_code)]

pub mod archive;
pub mod chain;
mod checked_text;
pub mod checker;
mod error;
pub mod limits;
pub mod manifest;
mod prune;
pub mod record;
pub mod sealed_store;
pub mod segment;
pub mod store;
#[cfg(test)]
mod testing;
pub mod time;
pub mod verify;
pub mod writer;

pub use archive::{Archive, ArchiveEntry, EntryState};
pub use error::ArchiveError;
pub use prune::Retention;
pub use record::{ArchiveRecord, RecordKind};
