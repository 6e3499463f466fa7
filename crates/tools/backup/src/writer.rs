//! One backup while it is made.
//!
//! Records go into [`SegmentWriter`]s, which [`BackupWriter::cut`] makes durable now and then, with
//! the stream's token at that moment. Several streams, each with its own vbuckets, may fill
//! segments and cut them at the same time. Each cut gets the next number, and its footer a token
//! that covers exactly the segments up to that number: the newest cut positions of all vbuckets.
//!
//! After an interruption [`BackupWriter::resume`] continues after the last segment before which
//! none is missing. Nothing of the backup counts before [`BackupWriter::finish`] has written the
//! manifest, which it refuses while a segment is missing.
//!
//! A vbucket whose history was lost on the server begins anew: [`SegmentWriter::reset`] voids what
//! the archive has of it, parents included, in the same file that has the token to begin anew at.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oribi_protocol::change_token::{ChangeToken, Rest};

use crate::archive::{Archive, segment_name};
use crate::error::ArchiveError;
use crate::limits::SEGMENT_BYTES_MAX;
use crate::manifest::{self, BackupManifest, Begin, CollectionEvent, SegmentEntry};
use crate::segment::{ArchiveSegment, Footer, SegmentWriter};
use crate::store::Files;

/// See the module text.
pub struct BackupWriter {
    archive: Arc<Archive>,
    id: String,
    level: i32,
    state: Mutex<State>,
}

/// State that all cutters of segments share.
struct State {
    /// Its token and segments are filled in at the end.
    manifest: BackupManifest,
    /// By number; `None` for one that is being written.
    segments: Vec<Option<SegmentEntry>>,
    /// Where the streams are behind all segments so far.
    token: ChangeToken,
    events: Vec<CollectionEvent>,
}

impl BackupWriter {
    /// Begins a backup. `level` is zstd's: 1 to 19, below 0 for its fast ones, 0 for none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin(
        archive: Arc<Archive>,
        begin: Begin,
        level: i32,
    ) -> Result<BackupWriter, ArchiveError> {
        archive.write_begin(&begin)?;
        BackupWriter::new(archive, begin, level)
    }

    /// Continues an interrupted backup after its last whole segment; [`BackupWriter::token`] says
    /// where that is.
    ///
    /// # Errors
    /// When the store fails.
    pub fn resume(
        archive: Arc<Archive>,
        begin: Begin,
        level: i32,
    ) -> Result<BackupWriter, ArchiveError> {
        let writer = BackupWriter::new(archive, begin, level)?;
        let (archive, id) = (&writer.archive, &writer.id);
        // What another program writes concurrently is not in this list, and so not removed.
        let files = archive.files(id)?;
        let mut state = writer.state();
        loop {
            let number = state.segments.len();
            let name = segment_name(id, number);
            let bytes = match archive.store().read(&name, SEGMENT_BYTES_MAX) {
                Err(ArchiveError::Damaged { .. }) | Ok(None) => break,
                bytes => bytes?.unwrap_or_default(),
            };
            let Ok(segment) = ArchiveSegment::open(&name, &bytes) else { break };
            let footer = segment.footer();
            if footer.backup != *id || footer.number as usize != number {
                break;
            }
            let Ok(token) = footer.token.parse() else { break };
            if segment.check().is_err() {
                break;
            }
            let (entry, footer) = (segment.entry(), segment.into_footer());
            state.token = token;
            state.events.extend(footer.events.iter().cloned());
            state.segments.push(None);
            state.add(entry, &footer);
        }
        // A resumed backup may have had more segments, from a damaged or missing one on.
        let kept: Vec<String> =
            (0..state.segments.len()).map(|number| segment_name(id, number)).collect();
        drop(state);
        for name in files.iter().filter(|name| name.ends_with(".seg") && !kept.contains(name)) {
            archive.store().delete(name)?;
        }
        Ok(writer)
    }

    fn new(archive: Arc<Archive>, begin: Begin, level: i32) -> Result<BackupWriter, ArchiveError> {
        let token = match begin.from.as_str() {
            "" => ChangeToken::new(Rest::Beginning),
            from => from.parse().map_err(|error| {
                ArchiveError::damaged(&begin.id, format!("the token that it begins at: {error}"))
            })?,
        };
        let id = begin.id.clone();
        let manifest = BackupManifest {
            begin,
            finished_at: 0,
            segments: Vec::new(),
            mutations: 0,
            removals: 0,
            plain_bytes: 0,
            stored_bytes: 0,
            token: String::new(),
        };
        let state = State { manifest, segments: Vec::new(), token, events: Vec::new() };
        Ok(BackupWriter { archive, id, level, state: Mutex::new(state) })
    }

    /// Token of the change stream after the last segment.
    pub fn token(&self) -> ChangeToken {
        self.state().token.clone()
    }

    /// An empty segment, to be filled and cut.
    ///
    /// # Errors
    /// When zstd cannot be set up.
    pub fn segment(&self) -> Result<SegmentWriter, ArchiveError> {
        SegmentWriter::new(self.level)
            .map_err(|error| ArchiveError::Unusable(format!("zstd cannot be set up: {error}")))
    }

    /// Makes a segment durable, and empties it for the next one. `token` has the positions behind
    /// it of the vbuckets that it may have; other vbuckets are where they were.
    ///
    /// The segments of a vbucket are cut one after the other, in its order.
    ///
    /// # Errors
    /// When the store fails. The backup can be resumed, and not finished.
    pub fn cut(
        &self,
        segment: &mut SegmentWriter,
        token: &ChangeToken,
    ) -> Result<(), ArchiveError> {
        if !segment.has_news() {
            return Ok(());
        }
        segment.close();
        let (number, token) = {
            let mut state = self.state();
            for position in token.positions() {
                state.token.set(*position);
            }
            state.token.manifest_uid = state.token.manifest_uid.max(token.manifest_uid);
            let known = state.manifest.begin.manifest_uid;
            let news = segment.events().iter().filter(|event| event.manifest_uid > known);
            state.events.extend(news.cloned());
            state.segments.push(None);
            (state.segments.len() - 1, state.token.to_string())
        };
        let name = segment_name(&self.id, number);
        // There are far fewer than 2^32.
        let finished = segment.finish(&self.id, number as u32, token);
        let (bytes, entry, footer) = finished.map_err(|error| ArchiveError::Store {
            action: "write",
            name: name.clone(),
            reason: error.into(),
        })?;
        self.archive.store().write(&name, bytes)?;
        self.state().add(entry, &footer);
        segment.next();
        Ok(())
    }

    /// Writes the manifest, and with it the backup counts. `token` has the positions at the end.
    ///
    /// # Errors
    /// When the store fails, now or before; the backup can be resumed.
    pub fn finish(&self, token: &ChangeToken, unix_s: u64) -> Result<BackupManifest, ArchiveError> {
        let state = self.state();
        let mut manifest = state.manifest.clone();
        for (number, entry) in state.segments.iter().enumerate() {
            let missing = || ArchiveError::Missing { name: segment_name(&self.id, number) };
            manifest.segments.push(entry.clone().ok_or_else(missing)?);
        }
        manifest::apply(&mut manifest.begin, state.events.clone());
        drop(state);
        manifest.token = token.to_string();
        manifest.finished_at = unix_s;
        self.archive.write_manifest(&manifest)?;
        Ok(manifest)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Enters a segment that is durable.
    fn add(&mut self, entry: SegmentEntry, footer: &Footer) {
        let manifest = &mut self.manifest;
        // A resumed backup has sums of its archive.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut manifest.mutations, footer.mutations);
        add(&mut manifest.removals, footer.removals);
        add(&mut manifest.plain_bytes, footer.plain_bytes);
        add(&mut manifest.stored_bytes, entry.bytes);
        self.segments[footer.number as usize] = Some(entry);
    }
}

#[cfg(test)]
mod tests;
