//! The progress of an import, kept next to the file so that a later import can continue.
//!
//! Invariants: every line before the recorded position was acknowledged (or skipped as requested).
//! The file is replaced atomically and is on disk before the next line counts. It belongs to one
//! input file, one collection and one bucket, and [`State::check`] refuses any other: lines before
//! the position were never written there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use oribi_client::{Client, ClientError, Collection, RejectionKind};
use oribi_system::data_file::write_atomically;
use serde::{Deserialize, Serialize};

use crate::doc::input::{FileIdentity, InputPosition};

const FORMAT: &str = "oribi-import 1";
/// Time between two records while the import runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The destination of an import.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Destination {
    bucket_uuid: String,
    collection: String,
    collection_id: u32,
}

/// Content of the state file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    format: String,
    file: FileIdentity,
    destination: Destination,
    /// Every line before it is complete.
    pub position: InputPosition,
}

impl Destination {
    /// Fetches the server's identity.
    pub async fn of(client: &Client, collection: &Collection) -> anyhow::Result<Destination> {
        let stats = match client.stats("uuid").await {
            Ok(stats) => stats,
            // Then any bucket counts as the same one.
            Err(ClientError::Rejected(
                RejectionKind::NotSupported | RejectionKind::NotFound | RejectionKind::AccessDenied,
            )) => Vec::new(),
            Err(error) => return Err(error).context("asking for the bucket's uuid"),
        };
        let uuid = stats.into_iter().find(|stat| stat.name == "uuid");
        Ok(Destination {
            bucket_uuid: uuid.map(|stat| stat.value).unwrap_or_default(),
            collection: collection.path().to_owned(),
            collection_id: collection.id().0,
        })
    }
}

impl State {
    /// Reads a state file; `None` when there is none.
    pub fn read(path: &Path) -> anyhow::Result<Option<State>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let state = serde_json::from_slice::<State>(&bytes).ok();
        match state.filter(|state| state.format == FORMAT) {
            Some(state) => Ok(Some(state)),
            None => bail!("{} is not the state of an import", path.display()),
        }
    }

    /// Refuses to continue in another destination.
    pub fn check(&self, destination: &Destination) -> anyhow::Result<()> {
        let (was, is) = (&self.destination, destination);
        if was.bucket_uuid != is.bucket_uuid {
            bail!("the import was into another bucket (uuid {})", was.bucket_uuid);
        }
        if was.collection != is.collection {
            bail!("the import was into {}, not {}", was.collection, is.collection);
        }
        if was.collection_id != is.collection_id {
            bail!("collection {} was removed and made again since", is.collection);
        }
        Ok(())
    }

    /// The file as it was.
    pub fn file(&self) -> FileIdentity {
        self.file
    }
}

/// Keeps the state file of a running import.
pub struct ImportStateFile {
    path: PathBuf,
    file: FileIdentity,
    destination: Destination,
    saved: Instant,
}

impl ImportStateFile {
    /// Records the start of the import, which also proves that the file is writable.
    pub fn begin(
        path: PathBuf,
        file: FileIdentity,
        destination: Destination,
        position: InputPosition,
    ) -> anyhow::Result<ImportStateFile> {
        let mut state = ImportStateFile { path, file, destination, saved: Instant::now() };
        state.save(position)?;
        Ok(state)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when the last record is old enough for another.
    pub fn is_due(&self) -> bool {
        self.saved.elapsed() >= INTERVAL
    }

    /// Records that every line before `position` is complete.
    pub fn save(&mut self, position: InputPosition) -> anyhow::Result<()> {
        let state = State {
            format: FORMAT.to_owned(),
            file: self.file,
            destination: self.destination.clone(),
            position,
        };
        let json = serde_json::to_vec_pretty(&state).context("the state of the import")?;
        write_atomically(&self.path, &json, 0o600)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Removes the file after a complete import.
    pub fn remove(self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.path)
            .with_context(|| format!("cannot remove {}", self.path.display()))
    }
}
