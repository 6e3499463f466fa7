//! The small files of an archive: what it is, what a backup began with, and what it has.
//!
//! Owns their fields. `archive.json` describes the archive. `begin.json` is written when a backup
//! begins and removed when it is finished; `manifest.json` is written last. All three are
//! [checked text](crate::checked_text). Unknown fields are ignored, so that a later version may add
//! some; one that changes the meaning of a field raises `version`.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Name of the format in `archive.json`.
pub const FORMAT: &str = "oribi-backup";

/// Version of the format. Version 1 was that of builds before the first release.
pub const VERSION: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    pub format: String,
    pub version: u32,
    /// Random id of the archive, hexadecimal.
    pub id: String,
    /// How the other files are encrypted, if they are.
    pub encryption: Option<Encryption>,
}

/// How the files of an archive are encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Encryption {
    /// `aes-256-gcm`, the only one so far.
    pub cipher: String,
    /// Salt that the archive's key is derived with, hexadecimal.
    pub salt: String,
    /// A text that only the right key opens, hexadecimal.
    pub check: String,
}

/// Whether a backup has everything, or what changed since its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    /// It needs no other backup.
    Full,
    /// It needs its parent.
    Incremental,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupCollection {
    /// Id in the bucket that was backed up, which records carry.
    pub id: u32,
    /// Name of its scope.
    pub scope: String,
    /// Name of the collection.
    pub collection: String,
    /// Longest life of a document in seconds, if it is limited.
    pub max_ttl_s: Option<u32>,
}

impl BackupCollection {
    pub fn path(&self) -> String {
        format!("{}.{}", self.scope, self.collection)
    }
}

/// A collection or scope that came or went while a backup was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectionEvent {
    /// Version of the bucket's list of collections with this change and all before it.
    pub manifest_uid: u64,
    #[serde(flatten)]
    pub change: CollectionChange,
}

/// Change of a collection or scope.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CollectionChange {
    /// A collection was created, or its limit changed.
    Created(BackupCollection),
    /// A collection was dropped, with its documents.
    Dropped { id: u32 },
    /// A scope was created.
    ScopeCreated { name: String },
    /// A scope was dropped.
    ScopeDropped { name: String },
}

/// `begin.json`: what a backup is of, and where it begins.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Id, also the name of the backup's directory. Ids sort by age.
    pub id: String,
    pub kind: BackupKind,
    /// Id of the backup that an incremental one builds on.
    pub parent: Option<String>,
    /// Name of the bucket.
    pub bucket: String,
    /// `host:port` of the server.
    pub source: String,
    /// Name and version of the program.
    pub tool: String,
    pub started_at: u64,
    /// Vbuckets of the bucket.
    pub vbuckets: u16,
    /// Paths of the only collections in the backup; empty for all.
    pub collections: Vec<String>,
    /// Regular expression that the keys in the backup match.
    pub key_pattern: Option<String>,
    /// Version of the bucket's list of collections.
    pub manifest_uid: u64,
    /// The collections that there were, with their ids.
    pub places: Vec<BackupCollection>,
    /// Names of the scopes that there were; scopes may be empty.
    pub scopes: Vec<String>,
    /// The bucket's settings as the admin HTTP shows them, if it could be asked.
    pub bucket_settings: Option<serde_json::Value>,
    /// The users of the server with their roles and the verifiers of their passwords, as its users
    /// file has them, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<serde_json::Value>,
    /// The definitions of indexes as rows of `system:indexes`; empty if they could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<serde_json::Value>,
    /// Token that the change stream began at; empty for the beginning.
    pub from: String,
}

/// A segment as the manifest names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// Bytes of the file, inside any encryption.
    pub bytes: u64,
    /// SHA-256 of its footer, hexadecimal. The footer has the checksums of the blocks.
    pub footer_sha256: String,
    pub records: u64,
    /// Vbuckets that begin anew after it: their records up to here are void.
    pub resets: Vec<u16>,
}

/// `manifest.json`: a finished backup.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BackupManifest {
    /// Its beginning; `places` and `scopes` are those at its end.
    #[serde(flatten)]
    pub begin: Begin,
    pub finished_at: u64,
    /// Segments in their order.
    pub segments: Vec<SegmentEntry>,
    /// Records that are documents.
    pub mutations: u64,
    /// Records that are removals.
    pub removals: u64,
    /// Bytes of all records before compression.
    pub plain_bytes: u64,
    /// Bytes of all segments.
    pub stored_bytes: u64,
    /// Token of the change stream at the end, where an incremental backup begins.
    pub token: String,
}

/// Follows collections through the events of all vbuckets, which come in any order. The same event
/// twice is the same as once.
pub(crate) fn apply(begin: &mut Begin, mut events: Vec<CollectionEvent>) {
    events.sort_by_key(|event| event.manifest_uid);
    // Events of one version, such as a scope and its collections, are different ones.
    let known = begin.manifest_uid;
    events.retain(|event| event.manifest_uid > known);
    for event in events {
        begin.manifest_uid = event.manifest_uid;
        match event.change {
            CollectionChange::Created(place) => {
                begin.places.retain(|known| known.id != place.id);
                add_scope(begin, &place.scope);
                begin.places.push(place);
                begin.places.sort_by_key(|place| place.id);
            }
            CollectionChange::Dropped { id } => begin.places.retain(|known| known.id != id),
            CollectionChange::ScopeCreated { name } => add_scope(begin, &name),
            CollectionChange::ScopeDropped { name } => {
                begin.scopes.retain(|known| *known != name);
                begin.places.retain(|place| place.scope != name);
            }
        }
    }
}

fn add_scope(begin: &mut Begin, name: &str) {
    if !begin.scopes.iter().any(|known| known == name) {
        begin.scopes.push(name.to_owned());
    }
}
