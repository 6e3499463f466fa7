//! One backup while it is made.
//!
//! The caller pushes records in the order of the change stream, and cuts a segment now and then,
//! with the stream's token at that moment. What was cut is durable. After an interruption
//! [`BackupWriter::resume`] continues behind the last segment that is whole: its footer has the
//! token. Nothing of the backup counts before [`BackupWriter::finish`] has written the manifest.
//!
//! A vbucket whose history was lost on the server begins anew: [`BackupWriter::reset`] voids what
//! the archive has of it, parents included, in the same file that has the token to begin anew at.

use oribi_types::Vbid;

use crate::archive::{Archive, segment_name};
use crate::checked_text::sha256;
use crate::error::ArchiveError;
use crate::limits::{SEGMENT_BYTES, SEGMENT_BYTES_MAX};
use crate::manifest::{self, Begin, CollectionEvent, Manifest, SegmentEntry};
use crate::record::Record;
use crate::segment::{Footer, Segment, SegmentWriter};
use crate::store::Files;

/// See the module text.
pub struct BackupWriter<'a> {
    archive: &'a Archive,
    level: i32,
    segment: SegmentWriter,
    manifest: Manifest,
    events: Vec<CollectionEvent>,
}

impl<'a> BackupWriter<'a> {
    /// Begins a backup. `level` is zstd's, 1 to 19.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin(
        archive: &'a Archive,
        begin: Begin,
        level: i32,
    ) -> Result<BackupWriter<'a>, ArchiveError> {
        archive.write_begin(&begin)?;
        BackupWriter::new(archive, begin, level)
    }

    /// Continues an interrupted backup behind its last whole segment; [`BackupWriter::token`] says
    /// where that is.
    ///
    /// # Errors
    /// When the store fails.
    pub fn resume(
        archive: &'a Archive,
        begin: Begin,
        level: i32,
    ) -> Result<BackupWriter<'a>, ArchiveError> {
        let mut writer = BackupWriter::new(archive, begin, level)?;
        // What another program writes meanwhile is not in this list, and so not removed.
        let files = archive.files(&writer.manifest.begin.id)?;
        loop {
            let number = writer.manifest.segments.len();
            let name = segment_name(&writer.manifest.begin.id, number);
            let bytes = match archive.store().read(&name, SEGMENT_BYTES_MAX) {
                Err(ArchiveError::Damaged { .. }) | Ok(None) => break,
                bytes => bytes?.unwrap_or_default(),
            };
            let Ok(segment) = Segment::open(&name, &bytes) else { break };
            let footer = segment.footer();
            if footer.backup != writer.manifest.begin.id || footer.number as usize != number {
                break;
            }
            if segment.for_each(|_| Ok::<(), ArchiveError>(())).is_err() {
                break;
            }
            let footer = segment.into_footer();
            writer.events.extend(footer.events.iter().cloned());
            writer.add(&bytes, &footer);
        }
        writer.remove_leftovers(&files)?;
        Ok(writer)
    }

    fn new(
        archive: &'a Archive,
        begin: Begin,
        level: i32,
    ) -> Result<BackupWriter<'a>, ArchiveError> {
        let token = begin.from.clone();
        let manifest = Manifest {
            begin,
            finished_at: 0,
            segments: Vec::new(),
            mutations: 0,
            removals: 0,
            plain_bytes: 0,
            stored_bytes: 0,
            token,
        };
        let segment = new_segment(level)?;
        Ok(BackupWriter { archive, level, segment, manifest, events: Vec::new() })
    }

    /// Token of the change stream behind the last segment.
    pub fn token(&self) -> &str {
        &self.manifest.token
    }

    /// What the backup is of.
    pub fn begun(&self) -> &Begin {
        &self.manifest.begin
    }

    /// Segments that are durable.
    pub fn segments(&self) -> usize {
        self.manifest.segments.len()
    }

    /// True when a segment is to be cut.
    pub fn is_due(&self) -> bool {
        self.segment.plain_bytes() >= SEGMENT_BYTES
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When it is longer than any server's.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), ArchiveError> {
        let id = &self.manifest.begin.id;
        self.segment.push(record).map_err(|error| {
            let (vbid, seqno) = (record.vbid, record.seqno.0);
            ArchiveError::damaged(id, format!("{vbid}, seqno {seqno}: {error}"))
        })
    }

    /// Adds a collection that came or went.
    pub fn event(&mut self, event: CollectionEvent) {
        // Every vbucket tells it.
        let is_news = event.manifest_uid > self.manifest.begin.manifest_uid;
        if is_news && !self.events.contains(&event) {
            self.events.push(event.clone());
            self.segment.event(event);
        }
    }

    /// Makes what was added durable; `token` is the stream's behind it.
    ///
    /// # Errors
    /// When the store fails. The backup can be resumed behind the segment before.
    pub fn cut(&mut self, token: &str) -> Result<(), ArchiveError> {
        if !self.segment.has_news() {
            return Ok(());
        }
        let number = self.manifest.segments.len();
        let segment = std::mem::replace(&mut self.segment, new_segment(self.level)?);
        let id = self.manifest.begin.id.clone();
        let name = segment_name(&id, number);
        // There are far fewer than 2^32.
        let finished = segment.finish(&id, number as u32, token.to_owned());
        let (bytes, footer) = finished.map_err(|error| ArchiveError::Store {
            action: "write",
            name: name.clone(),
            reason: error.into(),
        })?;
        self.archive.store().write(&name, &bytes)?;
        self.add(&bytes, &footer);
        Ok(())
    }

    /// Voids what the vbucket has had so far, parents included. `token` is the stream's, with the
    /// vbucket at its beginning.
    ///
    /// # Errors
    /// As [`BackupWriter::cut`].
    pub fn reset(&mut self, vbid: Vbid, token: &str) -> Result<(), ArchiveError> {
        self.segment.reset(vbid);
        self.cut(token)
    }

    fn add(&mut self, bytes: &[u8], footer: &Footer) {
        let manifest = &mut self.manifest;
        manifest.mutations += footer.mutations;
        manifest.removals += footer.removals;
        manifest.plain_bytes += footer.plain_bytes;
        manifest.stored_bytes += bytes.len() as u64;
        manifest.token = footer.token.clone();
        manifest.segments.push(SegmentEntry {
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            records: footer.mutations + footer.removals,
            resets: footer.resets.clone(),
        });
    }

    /// Writes the manifest, and with it the backup counts.
    ///
    /// # Errors
    /// When the store fails; the backup can be resumed.
    pub fn finish(mut self, token: &str, unix_s: u64) -> Result<Manifest, ArchiveError> {
        self.cut(token)?;
        manifest::apply(&mut self.manifest.begin, std::mem::take(&mut self.events));
        self.manifest.token = token.to_owned();
        self.manifest.finished_at = unix_s;
        self.archive.write_manifest(&self.manifest)?;
        Ok(self.manifest)
    }

    /// A resumed backup may have had more segments, from a damaged one on.
    fn remove_leftovers(&self, files: &[String]) -> Result<(), ArchiveError> {
        let id = &self.manifest.begin.id;
        let names: Vec<String> =
            (0..self.manifest.segments.len()).map(|number| segment_name(id, number)).collect();
        for name in files {
            if name.ends_with(".seg") && !names.contains(name) {
                self.archive.store().delete(name)?;
            }
        }
        Ok(())
    }
}

fn new_segment(level: i32) -> Result<SegmentWriter, ArchiveError> {
    SegmentWriter::new(level)
        .map_err(|error| ArchiveError::Unusable(format!("zstd cannot be set up: {error}")))
}

#[cfg(test)]
mod tests;
