//! The position of a watch, kept in a file so that a later watch continues there.
//!
//! Invariants: the file is replaced atomically, and its changes were written out before. It belongs
//! to one bucket and one choice of collections, and is refused for any other: changes of further
//! collections before the position would be missing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use oribi_client::ChangeToken;
use oribi_system::data_file::write_atomically;
use serde::{Deserialize, Serialize};

const FORMAT: &str = "oribi-watch 1";
/// Time between two records while changes come.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchScope {
    bucket: String,
    /// Sorted; empty for all.
    collections: Vec<String>,
    scope: Option<String>,
}

impl WatchScope {
    /// Some collections of a bucket, or a scope, or all.
    pub fn new(bucket: &str, collections: &[String], scope: Option<&str>) -> WatchScope {
        let mut collections = collections.to_vec();
        collections.sort();
        WatchScope { bucket: bucket.to_owned(), collections, scope: scope.map(str::to_owned) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    format: String,
    watched: WatchScope,
    token: String,
}

/// See the module text.
#[derive(Debug)]
pub struct PositionFile {
    path: PathBuf,
    watched: WatchScope,
    /// As the file was found.
    token: Option<ChangeToken>,
    saved: Instant,
    is_at_snapshot_end: bool,
}

impl PositionFile {
    /// Reads the file, if it exists.
    pub fn open(path: PathBuf, watched: WatchScope) -> anyhow::Result<PositionFile> {
        let refused = || format!("cannot resume from {}", path.display());
        let token = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Its directory has to be there before anything is printed.
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                std::fs::metadata(directory.unwrap_or(Path::new("."))).with_context(refused)?;
                None
            }
            Err(error) => return Err(error).with_context(refused),
            Ok(json) => Some(parse(&json, &watched).with_context(refused)?),
        };
        let saved = Instant::now();
        Ok(PositionFile { path, watched, token, saved, is_at_snapshot_end: false })
    }

    /// Where to continue, if the file says so.
    pub fn token(&self) -> Option<&ChangeToken> {
        self.token.as_ref()
    }

    /// A snapshot is complete, so its position is recorded.
    pub fn note_snapshot_end(&mut self) {
        self.is_at_snapshot_end = true;
    }

    /// True when it is time for another record.
    pub fn is_due(&self) -> bool {
        self.is_at_snapshot_end && self.saved.elapsed() >= INTERVAL
    }

    pub fn save(&mut self, token: &ChangeToken) -> anyhow::Result<()> {
        let (format, watched) = (FORMAT.to_owned(), self.watched.clone());
        let state = State { format, watched, token: token.to_string() };
        let json = serde_json::to_vec_pretty(&state).context("the position of the watch")?;
        write_atomically(&self.path, &json, 0o600)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.saved = Instant::now();
        self.is_at_snapshot_end = false;
        Ok(())
    }
}

fn parse(json: &[u8], watched: &WatchScope) -> anyhow::Result<ChangeToken> {
    let state: State = serde_json::from_slice(json).context("it holds no position of a watch")?;
    if state.format != FORMAT {
        bail!("it has the format {:?}, this program reads {FORMAT:?}", state.format);
    }
    if state.watched.bucket != watched.bucket {
        bail!("it belongs to bucket \"{}\"", state.watched.bucket);
    }
    if state.watched != *watched {
        bail!("it belongs to other collections; use another file for these");
    }
    Ok(state.token.parse()?)
}

#[cfg(test)]
mod tests {
    //! A position comes back, for what it was of.

    use super::*;

    #[test]
    fn position_is_kept_for_the_same_collections_only() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("place");
        let collections = ["shop.orders".to_owned(), "shop.carts".to_owned()];
        let watched = WatchScope::new("default", &collections, None);
        let mut file = PositionFile::open(path.clone(), watched.clone()).unwrap();
        assert_eq!(file.token(), None);
        let token: ChangeToken = "manifest=1f,5:3fa2:1042".parse().unwrap();
        file.note_snapshot_end();
        file.save(&token).unwrap();
        assert!(!file.is_due());
        assert_eq!(PositionFile::open(path.clone(), watched).unwrap().token(), Some(&token));

        for (other, expected) in [
            (WatchScope::new("other", &collections, None), "bucket"),
            (WatchScope::new("default", &collections[..1], None), "collections"),
            (WatchScope::new("default", &[], Some("shop")), "collections"),
        ] {
            let error = PositionFile::open(path.clone(), other).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
        let nowhere = scratch.path().join("missing/place");
        PositionFile::open(nowhere, WatchScope::new("default", &[], None)).unwrap_err();
        std::fs::write(&path, "{}").unwrap();
        PositionFile::open(path, WatchScope::new("default", &[], None)).unwrap_err();
    }
}
