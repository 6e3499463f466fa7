//! Which backups are kept, and the removal of the others.
//!
//! Invariant: what a kept backup builds on is kept as well. A backup loses its manifest before its
//! segments, and a child goes before its parent, so an interruption leaves no backup that seems
//! whole and is not.

use std::collections::HashSet;

use crate::archive::{Archive, ArchiveEntry, EntryState};
use crate::error::ArchiveError;
use crate::manifest::{BackupManifest, Begin};

/// Which backups of each bucket are kept: those that any of the rules names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// As many of the newest.
    pub last: Option<usize>,
    /// Those that were finished at this UNIX time or later.
    pub since: Option<u64>,
}

impl Archive {
    /// Ids of the backups that would be removed, newest first. Whatever the rules, the newest
    /// finished backup of a bucket is not among them, and what it builds on. Unfinished backups
    /// that are older than the newest finished one of the bucket are among them.
    ///
    /// # Errors
    /// When the store fails.
    pub fn superfluous(&self, retention: Retention) -> Result<Vec<String>, ArchiveError> {
        let entries = self.entries()?;
        let kept = kept(&entries, retention);
        let is_superfluous = |entry: &&ArchiveEntry| match &entry.state {
            EntryState::Finished(_) => !kept.contains(entry.id.as_str()),
            EntryState::Unfinished(begin) => is_outdated(&entries, begin),
            // An operator should look at it first.
            EntryState::Damaged(_) => false,
        };
        Ok(entries.iter().filter(is_superfluous).map(|entry| entry.id.clone()).rev().collect())
    }

    /// Removes one of [`Archive::superfluous`].
    ///
    /// # Errors
    /// When the store fails.
    pub fn remove_backup(&self, id: &str) -> Result<(), ArchiveError> {
        self.remove(id)
    }
}

/// Of each bucket, whatever the rules. So the ids of an archive rise for ever, too.
const NEWEST_KEPT: usize = 1;

/// True for an unfinished backup that will not be resumed: a newer one is finished.
fn is_outdated(entries: &[ArchiveEntry], begin: &Begin) -> bool {
    let mut finished = entries.iter().filter_map(ArchiveEntry::manifest);
    finished.any(|other| other.begin.bucket == begin.bucket && other.begin.id > begin.id)
}

fn kept(entries: &[ArchiveEntry], retention: Retention) -> HashSet<&str> {
    let manifests: Vec<&BackupManifest> =
        entries.iter().filter_map(ArchiveEntry::manifest).collect();
    let mut kept = HashSet::new();
    for (index, manifest) in manifests.iter().enumerate() {
        let bucket = &manifest.begin.bucket;
        let newer = manifests[index + 1..].iter().filter(|other| other.begin.bucket == *bucket);
        let by_count = newer.count() < retention.last.unwrap_or(0).max(NEWEST_KEPT);
        let by_age = retention.since.is_some_and(|since| manifest.finished_at >= since);
        if by_count || by_age {
            keep(&manifests, Some(&manifest.begin.id), &mut kept);
        }
    }
    for entry in entries {
        // It may still be resumed.
        if let EntryState::Unfinished(begin) = &entry.state
            && !is_outdated(entries, begin)
        {
            keep(&manifests, begin.parent.as_deref(), &mut kept);
        }
    }
    kept
}

/// Keeps a backup and what it builds on.
fn keep<'m>(manifests: &[&'m BackupManifest], id: Option<&str>, kept: &mut HashSet<&'m str>) {
    let mut wanted = id;
    while let Some(manifest) =
        manifests.iter().find(|other| Some(other.begin.id.as_str()) == wanted)
    {
        // Its ancestors are kept already.
        if !kept.insert(manifest.begin.id.as_str()) {
            break;
        }
        wanted = manifest.begin.parent.as_deref();
    }
}

#[cfg(test)]
mod tests {
    //! What is kept can be restored.

    use std::sync::Arc;

    use oribi_protocol::change_token::ChangeToken;

    use super::*;
    use crate::store::MemoryArchiveStore;
    use crate::testing::{archive_of, begin};
    use crate::writer::BackupWriter;

    // Compat (Backup and restore): Incremental backups are not merged; a kept one keeps what it
    // builds on
    #[test]
    fn bases_of_kept_backups_are_kept() {
        let store = MemoryArchiveStore::default();
        let archive = Arc::new(archive_of(&store));
        let parents =
            [("1", None), ("2", Some("1")), ("3", None), ("4", Some("3")), ("5", Some("4"))];
        for (id, parent) in parents {
            let number: u64 = id.parse().unwrap();
            BackupWriter::begin(archive.clone(), begin(id, parent, ""), 1)
                .unwrap()
                .finish(&ChangeToken::default(), number)
                .unwrap();
        }
        BackupWriter::begin(archive.clone(), begin("25", None, ""), 1).unwrap();
        let superfluous = |last, since| archive.superfluous(Retention { last, since }).unwrap();
        assert_eq!(superfluous(Some(1), None), ["25", "2", "1"]);
        assert_eq!(superfluous(Some(4), None), ["25"]);
        assert_eq!(superfluous(Some(0), Some(4)), ["25", "2", "1"]);
        assert_eq!(superfluous(Some(1), Some(2)), ["25"]);
        for rule in [(Some(0), None), (None, Some(100)), (None, None)] {
            assert_eq!(superfluous(rule.0, rule.1), ["25", "2", "1"], "the newest stays");
        }
        BackupWriter::begin(archive.clone(), begin("6", Some("2"), ""), 1).unwrap();
        assert_eq!(superfluous(None, Some(100)), ["25"], "6 may be resumed");
        for id in superfluous(Some(1), None) {
            archive.remove_backup(&id).unwrap();
        }
        let ids: Vec<String> =
            archive.entries().unwrap().into_iter().map(|entry| entry.id).collect();
        assert_eq!(ids, ["1", "2", "3", "4", "5", "6"]);
        archive.chain("5").unwrap();
    }
}
