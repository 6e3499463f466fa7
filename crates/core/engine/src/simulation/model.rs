//! The model: each document, its state at each seqno, and the writes that must survive.
//!
//! Owns: the exact history of each vbucket in this life. It is simple on purpose: every mutation is
//! one entry, and what a crash may leave is the state at one seqno, which is found by replaying
//! entries.

use std::collections::BTreeMap;

use oribi_storage::FailoverEntry;
use oribi_types::{Cas, CollectionId, DocKey, Seqno, VbUuid, Vbid};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelKey {
    pub(super) vbid: Vbid,
    pub(super) collection: CollectionId,
    pub(super) name: Vec<u8>,
}

impl std::fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        write!(f, "{}/{}/{name}", self.vbid, self.collection.0)
    }
}

impl ModelKey {
    pub(super) fn doc_key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.name }
    }
}

/// Bytes of a value, shown in short.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ModelValue(pub(super) Vec<u8>);

impl std::fmt::Debug for ModelValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = String::from_utf8_lossy(&self.0[..self.0.len().min(20)]);
        write!(f, "{shown:?} of {} bytes", self.0.len())
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ModelDocument {
    pub(super) value: ModelValue,
    pub(super) flags: u32,
    pub(super) expiry: u32,
}

/// One version; no document is a tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ModelVersion {
    pub(super) seqno: Seqno,
    /// Unknown for a tombstone that the engine made of an expired document.
    pub(super) cas: Option<Cas>,
    pub(super) document: Option<ModelDocument>,
}

impl ModelVersion {
    /// The document, unless it is gone or has expired.
    pub(super) fn live(&self, now_s: u32) -> Option<&ModelDocument> {
        self.document.as_ref().filter(|document| document.expiry == 0 || document.expiry > now_s)
    }
}

#[derive(Default)]
pub(super) struct VbucketModel {
    /// Newest visible versions, tombstones included.
    pub(super) current: BTreeMap<ModelKey, ModelVersion>,
    /// Versions that are not visible before the store has them, at most one of a key.
    pub(super) pending: BTreeMap<ModelKey, ModelVersion>,
    /// State at the beginning of this life.
    base: BTreeMap<ModelKey, ModelVersion>,
    /// Everything since, in order of seqno.
    history: Vec<(ModelKey, ModelVersion)>,
    /// Everything ever written that survived.
    log: Vec<(ModelKey, ModelVersion)>,
    pub(super) high: Seqno,
    /// Every CAS up to the base is at or below this one.
    pub(super) max_cas: Cas,
    cas_of_base: Cas,
    /// Promised to be durable.
    pub(super) promised: Seqno,
    pub(super) failover_table: Vec<FailoverEntry>,
    /// Tombstones up to here may be gone from the store.
    pub(super) purged: Seqno,
}

impl VbucketModel {
    /// A version that is visible from now on.
    pub(super) fn write(&mut self, key: &ModelKey, version: ModelVersion) {
        self.queue(key, &version);
        self.current.insert(key.clone(), version);
    }

    /// A version that becomes visible when the store has it.
    pub(super) fn hold(&mut self, key: &ModelKey, version: ModelVersion) {
        self.queue(key, &version);
        let before = self.pending.insert(key.clone(), version);
        assert_eq!(before, None, "{key:?} has two pending writes");
    }

    /// The pending version of a key is visible from now on, and survives whatever comes.
    pub(super) fn commit(&mut self, key: &ModelKey) {
        let version = self.pending.remove(key).expect("the caller has seen it");
        let before = self.current.insert(key.clone(), version.clone());
        assert!(before.is_none_or(|before| before.seqno < version.seqno), "{key:?}: {version:?}");
    }

    fn queue(&mut self, key: &ModelKey, version: &ModelVersion) {
        assert_eq!(version.seqno.0, self.high.0 + 1, "seqnos follow each other: {version:?}");
        self.high = version.seqno;
        if let Some(cas) = version.cas {
            assert!(cas > self.max_cas, "CAS {cas:?} is not above {:?}", self.max_cas);
            self.max_cas = cas;
        }
        self.history.push((key.clone(), version.clone()));
        self.log.push((key.clone(), version.clone()));
    }

    /// The write with this seqno.
    pub(super) fn written_at(&self, seqno: Seqno) -> Option<(&ModelKey, &ModelVersion)> {
        let at = self.log.binary_search_by_key(&seqno, |(_, version)| version.seqno).ok()?;
        let (key, version) = &self.log[at];
        Some((key, version))
    }

    /// The documents at a seqno, expired ones included.
    pub(super) fn documents_at(&self, seqno: Seqno) -> BTreeMap<&ModelKey, &ModelDocument> {
        let mut documents = BTreeMap::new();
        for (key, version) in self.log.iter().take_while(|(_, found)| found.seqno <= seqno) {
            match &version.document {
                Some(document) => documents.insert(key, document),
                None => documents.remove(key),
            };
        }
        documents
    }

    /// True unless the newest version of the default collection up to `seqno` is a tombstone.
    pub(super) fn default_ends_with_a_document(&self, seqno: Seqno) -> bool {
        let is_of_default = |key: &ModelKey| key.collection == CollectionId::DEFAULT;
        let mut newest = self.log.iter().rev().filter(|(_, version)| version.seqno <= seqno);
        let newest = newest.find(|(key, _)| is_of_default(key));
        newest.is_none_or(|(_, version)| version.document.is_some())
    }

    pub(super) fn promise(&mut self, seqno: Seqno) {
        assert!(seqno <= self.high, "{seqno:?} was never given, high seqno {:?}", self.high);
        self.promised = self.promised.max(seqno);
    }

    pub(super) fn uuid(&self) -> Option<VbUuid> {
        self.failover_table.first().map(|entry| entry.uuid)
    }

    /// The bucket was opened again and came back up to `high`.
    pub(super) fn recovered(&mut self, high: Seqno, table: &[FailoverEntry], is_clean: bool) {
        let floor = if is_clean { self.high } else { self.promised };
        assert!(high >= floor, "came back up to {high:?}, promised was {floor:?}");
        assert!(high <= self.high, "came back up to {high:?}, given was {:?}", self.high);
        self.check_histories(high, table, is_clean);
        let kept = self.history.iter().take_while(|(_, version)| version.seqno <= high);
        for (key, version) in kept {
            self.cas_of_base = self.cas_of_base.max(version.cas.unwrap_or_default());
            self.base.insert(key.clone(), version.clone());
        }
        self.history.clear();
        self.log.retain(|(_, version)| version.seqno <= high);
        self.current = self.base.clone();
        self.pending.clear();
        (self.high, self.promised) = (high, high);
        self.max_cas = self.cas_of_base;
        self.failover_table = table.to_vec();
    }

    fn check_histories(&self, high: Seqno, table: &[FailoverEntry], is_clean: bool) {
        let before = &self.failover_table;
        if is_clean {
            assert_eq!(table, before, "the failover table after an orderly stop");
            return;
        }
        let newest = table.first().expect("there is always a history");
        assert_eq!(newest.seqno, high, "a new history begins where the old one ended: {table:?}");
        // A crash during the opening may have left a history that no client saw.
        let known = before.iter().any(|entry| entry.uuid == newest.uuid);
        assert!(!known, "the vbucket uuid is the same after a crash: {table:?}");
        if let Some(last_seen) = before.first() {
            let at = table.iter().position(|entry| entry.uuid == last_seen.uuid);
            let at = at.expect("the history before is still in the table");
            let kept = &table[at..];
            assert_eq!(kept, &before[..kept.len()], "histories before the crash");
        }
    }
}
