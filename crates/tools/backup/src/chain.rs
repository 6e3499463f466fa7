//! A full backup with the incremental ones up to the wanted one: what a restore reads.
//!
//! Records come in the order in which they were backed up, so that of each key the newest version
//! comes last. Left out are records that a vbucket's new beginning voids, and those of collections
//! that are not in the wanted backup.

use std::ops::Range;

use crate::archive::{Archive, manifest_name, segment_name};
use crate::error::ArchiveError;
use crate::limits::SEGMENT_BYTES_MAX;
use crate::manifest::{BackupKind, BackupManifest, SegmentEntry};
use crate::record::ArchiveRecord;
use crate::segment::{ArchiveSegment, Footer};
use crate::store::Files;

/// Longest chain; a longer one names a backup twice.
const LENGTH_MAX: usize = 100_000;

/// See the module text.
#[derive(Debug)]
pub struct Chain {
    /// The full one first.
    manifests: Vec<BackupManifest>,
    segments: Vec<Position>,
    /// Per vbucket, how many of the first segments are void for it.
    void: Vec<usize>,
    collections: Vec<u32>,
}

/// A segment of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Position {
    name: String,
    entry: SegmentEntry,
}

/// A backup of a chain.
#[derive(Clone, Debug)]
pub struct Backup<'a> {
    pub manifest: &'a BackupManifest,
    /// Which of the chain's segments are its own.
    pub segments: Range<usize>,
}

impl Archive {
    /// The backups that restoring `id` reads.
    ///
    /// # Errors
    /// When one of them is missing, unfinished or damaged.
    pub fn chain(&self, id: &str) -> Result<Chain, ArchiveError> {
        let mut manifests = vec![self.manifest(id)?];
        while let Some(child) = manifests.last()
            && child.begin.kind == BackupKind::Incremental
            && let Some(parent) = &child.begin.parent
        {
            let name = manifest_name(&child.begin.id);
            let parent = self.manifest(parent)?;
            if parent.token != child.begin.from
                || parent.begin.bucket != child.begin.bucket
                || parent.begin.vbuckets != child.begin.vbuckets
            {
                return Err(ArchiveError::damaged(
                    &name,
                    "it does not begin where its parent ends",
                ));
            }
            if manifests.len() >= LENGTH_MAX {
                return Err(ArchiveError::damaged(&name, "it is its own ancestor"));
            }
            manifests.push(parent);
        }
        manifests.reverse();
        Ok(Chain::new(manifests))
    }
}

impl Chain {
    fn new(manifests: Vec<BackupManifest>) -> Chain {
        let mut segments = Vec::new();
        let mut void = Vec::new();
        for manifest in &manifests {
            for (number, entry) in manifest.segments.iter().enumerate() {
                let name = segment_name(&manifest.begin.id, number);
                segments.push(Position { name, entry: entry.clone() });
                for &vbucket in &entry.resets {
                    let vbucket = usize::from(vbucket);
                    if void.len() <= vbucket {
                        void.resize(vbucket + 1, 0);
                    }
                    void[vbucket] = segments.len();
                }
            }
        }
        let last = manifests.last().map(|manifest| &manifest.begin.places);
        let ids = last.into_iter().flatten().map(|place| place.id);
        let mut collections: Vec<u32> = ids.collect();
        collections.sort_unstable();
        Chain { manifests, segments, void, collections }
    }

    /// The backups, the full one first.
    pub fn manifests(&self) -> &[BackupManifest] {
        &self.manifests
    }

    /// The backups with their segments, the full one first.
    pub fn backups(&self) -> impl Iterator<Item = Backup<'_>> {
        self.manifests.iter().scan(0, |end, manifest| {
            let segments = *end..*end + manifest.segments.len();
            *end = segments.end;
            Some(Backup { manifest, segments })
        })
    }

    /// The backup that is wanted.
    pub fn wanted(&self) -> &BackupManifest {
        self.manifests.last().expect("a chain has the backup that it was asked for")
    }

    /// Name of a segment's file.
    pub fn name(&self, segment: usize) -> &str {
        &self.segments[segment].name
    }

    /// Segments of all its backups.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Records of all its segments, void ones included.
    pub fn records(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| segment.entry.records.saturating_add(sum))
    }

    /// Reads a segment's file, into `memory` where the store can.
    ///
    /// # Errors
    /// When it is missing, or longer than the manifest says.
    pub fn read(
        &self,
        archive: &Archive,
        segment: usize,
        memory: Vec<u8>,
    ) -> Result<Vec<u8>, ArchiveError> {
        let Position { name, entry } = &self.segments[segment];
        let bytes_max = SEGMENT_BYTES_MAX.min(usize::try_from(entry.bytes).unwrap_or(usize::MAX));
        let bytes = archive.store().read_into(name, bytes_max, memory)?;
        bytes.ok_or_else(|| ArchiveError::Missing { name: name.clone() })
    }

    /// Opens a segment whose file was read: it is the one that the manifest means, and its blocks
    /// have checksums.
    ///
    /// # Errors
    /// When it is damaged, or another one.
    pub fn open<'a>(
        &'a self,
        segment: usize,
        bytes: &'a [u8],
    ) -> Result<ArchiveSegment<'a>, ArchiveError> {
        let Position { name, entry } = &self.segments[segment];
        if bytes.len() as u64 != entry.bytes {
            let reason = format!("it has {} bytes, not {}", bytes.len(), entry.bytes);
            return Err(ArchiveError::damaged(name, reason));
        }
        let opened = ArchiveSegment::open(name, bytes)?;
        match opened.entry() == *entry {
            true => Ok(opened),
            false => Err(ArchiveError::damaged(name, "it is not the one that its manifest names")),
        }
    }

    /// Opens a segment whose file was read, and checks every record of it.
    ///
    /// # Errors
    /// When it is damaged, or another one.
    pub fn check_segment(&self, segment: usize, bytes: &[u8]) -> Result<Footer, ArchiveError> {
        let opened = self.open(segment, bytes)?;
        // All backups of a chain have the same number.
        opened.check_records(self.wanted().begin.vbuckets)?;
        Ok(opened.into_footer())
    }

    /// False for a record of a segment that a vbucket's new beginning voids, and for one of a
    /// collection that is not in the wanted backup.
    pub fn counts(&self, segment: usize, record: &ArchiveRecord<'_>) -> bool {
        let void = self.void.get(usize::from(record.vbid.0)).copied().unwrap_or_default();
        segment >= void && self.collections.binary_search(&record.collection.0).is_ok()
    }
}
