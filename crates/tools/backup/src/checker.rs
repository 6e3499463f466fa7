//! The rules that a finished backup keeps. `verify` and a restore apply the same ones.
//!
//! [`Chain::check_segment`] checks the records of one segment by themselves and against its footer.
//! Several threads may do that at the same time. [`BackupChecker`] takes the footers in their order
//! and compares them with each other and with the manifest.
//!
//! [`Chain::check_segment`]: crate::chain::Chain::check_segment

use std::collections::HashMap;

use oribi_protocol::change_token::ChangeToken;
use oribi_types::Vbid;

use crate::archive::manifest_name;
use crate::error::ArchiveError;
use crate::manifest::BackupManifest;
use crate::segment::Footer;

/// See the module text.
pub struct BackupChecker<'a> {
    manifest: &'a BackupManifest,
    /// Last seqno of each vbucket.
    last: HashMap<u16, u64>,
    mutations: u64,
    removals: u64,
    /// A segment could not be read, so positions and sums are not known any more.
    has_gap: bool,
}

impl<'a> BackupChecker<'a> {
    /// A checker of the backup of this manifest, before its first segment.
    ///
    /// # Errors
    /// When the manifest does not say where the backup begins.
    pub fn new(manifest: &'a BackupManifest) -> Result<BackupChecker<'a>, ArchiveError> {
        let from = token(manifest, &manifest.begin.from)?;
        let last = from.positions().iter().map(|place| (place.vbid.0, place.seqno.0)).collect();
        Ok(BackupChecker { manifest, last, mutations: 0, removals: 0, has_gap: false })
    }

    /// Takes the footer of the next segment, whose records were checked.
    ///
    /// # Errors
    /// When the segment does not follow the ones before it.
    pub fn append(&mut self, name: &str, footer: &Footer) -> Result<(), ArchiveError> {
        for range in &footer.vbuckets {
            let last = self.last.insert(range.vbucket, range.last).unwrap_or_default();
            if range.first <= last && !self.has_gap {
                let (vbid, seqno) = (range.vbucket, range.first);
                let reason = format!("seqno {seqno} of vbucket {vbid} comes after {last}");
                return Err(ArchiveError::damaged(name, reason));
            }
        }
        self.mutations = self.mutations.saturating_add(footer.mutations);
        self.removals = self.removals.saturating_add(footer.removals);
        for vbid in &footer.resets {
            self.last.insert(*vbid, 0);
        }
        Ok(())
    }

    /// Leaves the next segment out, which is damaged or missing. Later segments are compared with
    /// their own records only.
    pub fn skip(&mut self) {
        self.has_gap = true;
    }

    /// Compares the segments with the manifest.
    ///
    /// # Errors
    /// When the manifest says something else.
    pub fn finish(self) -> Result<(), ArchiveError> {
        let manifest = self.manifest;
        let end = token(manifest, &manifest.token)?;
        if self.has_gap {
            return Ok(());
        }
        let damaged = |reason| ArchiveError::damaged(&manifest_name(&manifest.begin.id), reason);
        if (manifest.mutations, manifest.removals) != (self.mutations, self.removals) {
            let found = self.mutations.saturating_add(self.removals);
            let expected = manifest.mutations.saturating_add(manifest.removals);
            return Err(damaged(format!("the backup has {found} records, not {expected}")));
        }
        for (&vbid, &last) in &self.last {
            let end = end.position(Vbid(vbid)).map_or(0, |place| place.seqno.0);
            if last > end {
                let reason = format!("vbucket {vbid} ends at seqno {end}, but has {last}");
                return Err(damaged(reason));
            }
        }
        Ok(())
    }
}

fn token(manifest: &BackupManifest, text: &str) -> Result<ChangeToken, ArchiveError> {
    text.parse().map_err(|error: oribi_protocol::change_token::InvalidToken| {
        ArchiveError::damaged(&manifest_name(&manifest.begin.id), error.to_string())
    })
}

#[cfg(test)]
mod tests;
