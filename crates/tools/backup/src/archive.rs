//! An archive as a whole: where its files are, which backups there are, and which one is meant.
//!
//! Layout: `archive.json`, and for each backup `backups/ID/` with `begin.json` while it is under
//! way, segments `00000.seg`, `00001.seg`, ..., and at last `manifest.json`.

use crate::checked_text;
use crate::error::ArchiveError;
use crate::limits::TEXT_BYTES_MAX;
use crate::manifest::{BackupKind, BackupManifest, Begin, Descriptor, FORMAT, VERSION};
use crate::sealed_store::{Key, SealedStore};
use crate::store::{ArchiveStore, Files};
use crate::time;

/// The file that makes a place an archive.
pub const DESCRIPTOR: &str = "archive.json";

/// Prefix of the names of all other files.
const BACKUPS: &str = "backups/";

const MANIFEST: &str = "manifest.json";
const BEGIN: &str = "begin.json";

/// See the module text.
pub struct Archive {
    store: Box<dyn ArchiveStore>,
    descriptor: Descriptor,
}

/// A backup in an archive.
#[derive(Debug)]
pub struct ArchiveEntry {
    pub id: String,
    /// State of the backup.
    pub state: EntryState,
}

/// State of a backup.
#[derive(Debug)]
pub enum EntryState {
    /// It can be restored.
    Finished(Box<BackupManifest>),
    /// It was interrupted, or is under way.
    Unfinished(Box<Begin>),
    /// Its manifest cannot be read.
    Damaged(ArchiveError),
}

impl ArchiveEntry {
    /// Its manifest, if it is finished.
    pub fn manifest(&self) -> Option<&BackupManifest> {
        match &self.state {
            EntryState::Finished(manifest) => Some(manifest),
            _ => None,
        }
    }
}

impl Archive {
    /// The archive that is there.
    ///
    /// # Errors
    /// When there is none, it is of a newer version, or it is not the key's.
    pub fn open(store: Box<dyn ArchiveStore>, key: Option<&Key>) -> Result<Archive, ArchiveError> {
        let bytes = store.read(DESCRIPTOR, TEXT_BYTES_MAX)?;
        let bytes = bytes.ok_or(ArchiveError::NoArchive(DESCRIPTOR))?;
        let descriptor: Descriptor = checked_text::read(DESCRIPTOR, &bytes)?;
        if descriptor.format != FORMAT || descriptor.version != VERSION {
            let Descriptor { format, version, .. } = &descriptor;
            let reason =
                format!("the archive is of format {format} {version}, not {FORMAT} {VERSION}");
            return Err(ArchiveError::Unusable(reason));
        }
        let store = match (&descriptor.encryption, key) {
            (None, None) => store,
            (Some(encryption), Some(key)) => Box::new(SealedStore::open(store, key, encryption)?),
            (Some(_), None) => {
                let reason = "the archive is encrypted: name its key file";
                return Err(ArchiveError::Unusable(reason.to_owned()));
            }
            (None, Some(_)) => {
                let reason = "the archive is not encrypted, but a key file was named";
                return Err(ArchiveError::Unusable(reason.to_owned()));
            }
        };
        Ok(Archive { store, descriptor })
    }

    /// The archive that is there, or a new one in an empty place.
    ///
    /// # Errors
    /// As [`Archive::open`], and when the place has other files.
    pub fn open_or_create(
        store: Box<dyn ArchiveStore>,
        key: Option<&Key>,
    ) -> Result<Archive, ArchiveError> {
        if store.read(DESCRIPTOR, TEXT_BYTES_MAX)?.is_none() {
            if let Some(file) = store.entries("")?.into_iter().next() {
                return Err(match file.name.starts_with(BACKUPS) {
                    // An archive whose descriptor was lost must not get another key.
                    true => ArchiveError::Missing { name: DESCRIPTOR.to_owned() },
                    false => ArchiveError::Foreign(file.name),
                });
            }
            let descriptor = Descriptor {
                format: FORMAT.to_owned(),
                version: VERSION,
                id: random_hex(16)?,
                encryption: key.map(Key::new_encryption).transpose()?,
            };
            match store.write(DESCRIPTOR, &text(DESCRIPTOR, &descriptor)?) {
                // Another program has just made it.
                Err(ArchiveError::Contended(_)) => {}
                written => written?,
            }
        }
        Archive::open(store, key)
    }

    /// Random id of the archive.
    pub fn id(&self) -> &str {
        &self.descriptor.id
    }

    /// A new id for a backup that begins at this time, after the ones there are: a number, and the
    /// time for people. So ids sort by age also when a clock was set back.
    pub fn new_id(entries: &[ArchiveEntry], unix_s: u64) -> String {
        let number =
            |entry: &ArchiveEntry| entry.id.split('-').next().and_then(|text| text.parse().ok());
        let last: u64 = entries.iter().filter_map(number).max().unwrap_or(0);
        format!("{:06}-{}", last + 1, time::compact(unix_s))
    }

    /// All backups, oldest first.
    ///
    /// # Errors
    /// When the store fails. A damaged backup is no error.
    pub fn entries(&self) -> Result<Vec<ArchiveEntry>, ArchiveError> {
        let mut ids: Vec<String> = Vec::new();
        for file in self.store.entries(BACKUPS)? {
            let id = file.name[BACKUPS.len()..].split('/').next().unwrap_or_default();
            if ids.last().is_none_or(|last| last != id) {
                ids.push(id.to_owned());
            }
        }
        ids.into_iter().map(|id| Ok(ArchiveEntry { state: self.state(&id)?, id })).collect()
    }

    fn state(&self, id: &str) -> Result<EntryState, ArchiveError> {
        let manifest = match self.manifest(id) {
            Ok(manifest) => return Ok(EntryState::Finished(Box::new(manifest))),
            Err(error @ ArchiveError::Store { .. }) => return Err(error),
            Err(error) => error,
        };
        if !matches!(manifest, ArchiveError::Unknown(_)) {
            return Ok(EntryState::Damaged(manifest));
        }
        match self.begin(id) {
            Ok(begin) => Ok(EntryState::Unfinished(Box::new(begin))),
            Err(error @ ArchiveError::Store { .. }) => Err(error),
            Err(ArchiveError::Unknown(_)) => {
                Ok(EntryState::Damaged(ArchiveError::Missing { name: path(id, MANIFEST) }))
            }
            Err(error) => Ok(EntryState::Damaged(error)),
        }
    }

    /// A finished backup.
    ///
    /// # Errors
    /// [`ArchiveError::Unknown`] when there is none with this id.
    pub fn manifest(&self, id: &str) -> Result<BackupManifest, ArchiveError> {
        let manifest: BackupManifest = self.text(id, MANIFEST)?;
        check_id(&path(id, MANIFEST), id, &manifest.begin)?;
        Ok(manifest)
    }

    pub(crate) fn begin(&self, id: &str) -> Result<Begin, ArchiveError> {
        let begin: Begin = self.text(id, BEGIN)?;
        check_id(&path(id, BEGIN), id, &begin)?;
        Ok(begin)
    }

    fn text<T: serde::de::DeserializeOwned>(
        &self,
        id: &str,
        name: &str,
    ) -> Result<T, ArchiveError> {
        if !is_valid_id(id) {
            return Err(ArchiveError::Unknown(id.to_owned()));
        }
        let name = path(id, name);
        let bytes = self.store.read(&name, TEXT_BYTES_MAX)?;
        checked_text::read(&name, &bytes.ok_or_else(|| ArchiveError::Unknown(id.to_owned()))?)
    }

    pub(crate) fn write_begin(&self, begin: &Begin) -> Result<(), ArchiveError> {
        let name = path(&begin.id, BEGIN);
        self.store.write(&name, &text(&name, begin)?)
    }

    pub(crate) fn write_manifest(&self, manifest: &BackupManifest) -> Result<(), ArchiveError> {
        let name = path(&manifest.begin.id, MANIFEST);
        self.store.write(&name, &text(&name, manifest)?)?;
        self.store.delete(&path(&manifest.begin.id, BEGIN))
    }

    /// Takes a backup away, its manifest first: what is left of it is unfinished.
    pub(crate) fn remove(&self, id: &str) -> Result<(), ArchiveError> {
        self.store.delete(&path(id, MANIFEST))?;
        for file in self.store.entries(&path(id, ""))? {
            self.store.delete(&file.name)?;
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &dyn ArchiveStore {
        &*self.store
    }

    /// Names of all files of a backup, those that no manifest knows included.
    pub(crate) fn files(&self, id: &str) -> Result<Vec<String>, ArchiveError> {
        Ok(self.store.entries(&path(id, ""))?.into_iter().map(|file| file.name).collect())
    }

    /// The finished backup that is meant by an id, a time, or nothing: the last one of a bucket,
    /// finished at or before that time.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(
        &self,
        bucket: Option<&str>,
        at: Option<&str>,
    ) -> Result<BackupManifest, ArchiveError> {
        if let Some(id) = at.filter(|at| time::parse(at).is_none()) {
            return self.manifest(id);
        }
        let until = at.and_then(time::parse).unwrap_or(u64::MAX);
        let entries = self.entries()?;
        let manifests = entries.iter().filter_map(ArchiveEntry::manifest);
        let mut fitting = manifests.filter(|manifest| {
            manifest.finished_at <= until
                && bucket.is_none_or(|bucket| manifest.begin.bucket == bucket)
        });
        let wanted = || match bucket {
            Some(bucket) => format!("of bucket \"{bucket}\" up to then"),
            None => "up to then".to_owned(),
        };
        let last = fitting.next_back().cloned();
        last.ok_or_else(|| ArchiveError::Unknown(wanted()))
    }

    /// The backup that an incremental one of the same documents would build on: the last one.
    pub fn parent_for<'a>(
        &self,
        entries: &'a [ArchiveEntry],
        begin: &Begin,
    ) -> Option<&'a BackupManifest> {
        let mut fitting = entries.iter().filter_map(ArchiveEntry::manifest).filter(|manifest| {
            let other = &manifest.begin;
            other.bucket == begin.bucket
                && other.collections == begin.collections
                && other.key_pattern == begin.key_pattern
                && other.vbuckets == begin.vbuckets
        });
        // One whose own parents are gone would be a parent that cannot be restored.
        fitting.rfind(|manifest| self.chain(&manifest.begin.id).is_ok())
    }

    /// The interrupted backup that one of the same documents would continue: the last backup, if it
    /// is unfinished.
    pub fn unfinished_for<'a>(entries: &'a [ArchiveEntry], begin: &Begin) -> Option<&'a Begin> {
        let last = entries.iter().rev().find_map(|entry| match &entry.state {
            EntryState::Finished(manifest) => {
                (manifest.begin.bucket == begin.bucket).then_some(None)
            }
            EntryState::Unfinished(other) => {
                let is_same = other.bucket == begin.bucket
                    && other.collections == begin.collections
                    && other.key_pattern == begin.key_pattern
                    && other.vbuckets == begin.vbuckets;
                is_same.then_some(Some(&**other))
            }
            EntryState::Damaged(_) => None,
        });
        last.flatten()
    }
}

/// Name of a backup's segment.
pub(crate) fn segment_name(id: &str, number: usize) -> String {
    path(id, &format!("{number:05}.seg"))
}

pub(crate) fn path(id: &str, name: &str) -> String {
    format!("{BACKUPS}{id}/{name}")
}

/// Name of a backup's manifest.
pub(crate) fn manifest_name(id: &str) -> String {
    path(id, MANIFEST)
}

/// True for the manifest, and for what a kill just after its writing leaves.
pub(crate) fn is_text_of_finished(name: &str) -> bool {
    name.ends_with(&format!("/{MANIFEST}")) || name.ends_with(&format!("/{BEGIN}"))
}

fn is_valid_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !id.is_empty() && id.len() <= 64 && id.bytes().all(is_plain)
}

fn check_id(name: &str, id: &str, begin: &Begin) -> Result<(), ArchiveError> {
    if begin.id != id {
        return Err(ArchiveError::damaged(name, format!("it is of the backup {:?}", begin.id)));
    }
    let has_parent = begin.parent.is_some();
    match has_parent == (begin.kind == BackupKind::Incremental) {
        true => Ok(()),
        false => Err(ArchiveError::damaged(name, "only an incremental backup has a parent")),
    }
}

fn text(name: &str, value: &impl serde::Serialize) -> Result<Vec<u8>, ArchiveError> {
    checked_text::write(value).map_err(|error| ArchiveError::Store {
        action: "write",
        name: name.to_owned(),
        reason: error.into(),
    })
}

fn random_hex(bytes: usize) -> Result<String, ArchiveError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| ArchiveError::Unusable(format!("no randomness: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
