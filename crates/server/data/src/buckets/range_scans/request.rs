//! A client's request for a scan, decoded from JSON.
//!
//! Owns: the decoding of that JSON, and which keys and documents a scan takes.
//!
//! Invariants:
//! - bounds and numbers are checked here, so a scan needs no further checks;
//! - a sample takes every document with the same probability;
//! - the same seed takes the same documents as long as the documents are the same.

use std::ops::Bound;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Seqno, VbUuid, Vbid};
use serde::Deserialize;

use crate::limits::RANGE_SCAN_LIFETIME;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanRequest {
    pub vbid: Vbid,
    pub collection: CollectionId,
    /// Which of its documents.
    pub selection: ScanSelection,
    /// Which of their parts.
    pub content: Content,
    /// The requirement on persistence before the scan begins.
    pub snapshot: Option<SnapshotRequirement>,
    /// Documents come in the order of their keys. Samples always do.
    pub is_in_order: bool,
}

/// The parts of each document that a scan shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Keys,
    /// Key, metadata and body.
    Documents,
    /// The same with the extended attributes before the body.
    WithAttributes,
}

/// Which documents of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanSelection {
    /// Documents between two keys.
    Range { start: Bound<Vec<u8>>, end: Bound<Vec<u8>> },
    /// A random sample of all documents.
    Sample {
        /// Seed of the choice.
        seed: u64,
        /// Size of the sample.
        samples: u64,
    },
}

/// A requirement on persistence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotRequirement {
    /// History in which the seqno counts.
    pub vb_uuid: VbUuid,
    pub seqno: Seqno,
    /// This very version must exist, not a newer one of the same document.
    pub must_exist: bool,
    /// How long to wait for the requirement.
    pub timeout: Duration,
}

/// The JSON of a request. Other members are ignored, because newer clients may send some.
#[derive(Deserialize)]
struct RangeScanJson {
    /// Hexadecimal; absent for the default collection.
    collection: Option<String>,
    #[serde(default)]
    key_only: bool,
    #[serde(default)]
    include_xattrs: bool,
    /// Oribi's own: the order of documents does not matter.
    #[serde(default)]
    unordered: bool,
    range: Option<WrittenRange>,
    sampling: Option<WrittenSampling>,
    snapshot_requirements: Option<WrittenSnapshot>,
}

/// Keys in base64, at most one of each pair.
#[derive(Deserialize)]
struct WrittenRange {
    start: Option<String>,
    excl_start: Option<String>,
    end: Option<String>,
    excl_end: Option<String>,
}

#[derive(Deserialize)]
struct WrittenSampling {
    #[serde(default)]
    seed: u64,
    samples: u64,
}

#[derive(Deserialize)]
struct WrittenSnapshot {
    vb_uuid: String,
    seqno: u64,
    #[serde(default)]
    seqno_exists: bool,
    #[serde(default)]
    timeout_ms: u64,
}

impl ScanRequest {
    /// Parses the JSON of a request about this vbucket.
    pub fn parse(vbid: Vbid, json: &[u8]) -> Result<ScanRequest, Status> {
        let written: RangeScanJson = serde_json::from_slice(json).map_err(|_| Status::Einval)?;
        let content = match (written.key_only, written.include_xattrs) {
            (true, _) => Content::Keys,
            (false, false) => Content::Documents,
            (false, true) => Content::WithAttributes,
        };
        let collection = match &written.collection {
            None => CollectionId::DEFAULT,
            Some(digits) => {
                CollectionId(u32::from_str_radix(digits, 16).map_err(|_| Status::Einval)?)
            }
        };
        let selection = match (written.range, written.sampling) {
            (Some(range), None) => ScanSelection::Range {
                start: bound(range.start.as_deref(), range.excl_start.as_deref())?,
                end: bound(range.end.as_deref(), range.excl_end.as_deref())?,
            },
            (None, Some(WrittenSampling { seed, samples: samples @ 1.. })) => {
                ScanSelection::Sample { seed, samples }
            }
            _ => return Err(Status::Einval),
        };
        let snapshot = written.snapshot_requirements.map(snapshot).transpose()?;
        let is_in_order = !written.unordered || matches!(selection, ScanSelection::Sample { .. });
        Ok(ScanRequest { vbid, collection, selection, content, snapshot, is_in_order })
    }

    /// True when the scan is a sample.
    pub fn is_sample(&self) -> bool {
        matches!(self.selection, ScanSelection::Sample { .. })
    }

    /// The key at which the scan starts. It takes none before this one.
    pub fn from(&self) -> DocKey<'_> {
        let key = match &self.selection {
            ScanSelection::Range { start: Bound::Included(key) | Bound::Excluded(key), .. } => key,
            _ => &[][..],
        };
        DocKey { collection: self.collection, key }
    }

    /// True when the scan takes neither this document nor a later one.
    pub fn is_behind(&self, key: DocKey<'_>) -> bool {
        let is_after_end = match &self.selection {
            ScanSelection::Range { end: Bound::Included(end), .. } => key.key > end.as_slice(),
            ScanSelection::Range { end: Bound::Excluded(end), .. } => key.key >= end.as_slice(),
            _ => false,
        };
        key.collection != self.collection || is_after_end
    }

    /// True when the scan takes this document.
    pub fn contains(&self, key: DocKey<'_>) -> bool {
        let is_from_start = match &self.selection {
            ScanSelection::Range { start: Bound::Included(start), .. } => {
                key.key >= start.as_slice()
            }
            ScanSelection::Range { start: Bound::Excluded(start), .. } => {
                key.key > start.as_slice()
            }
            _ => true,
        };
        is_from_start && !self.is_behind(key)
    }

    /// Chooses among `count` documents.
    pub fn picker(&self, count: u64) -> Picker {
        match self.selection {
            ScanSelection::Range { .. } => Picker::All,
            ScanSelection::Sample { seed, samples } => {
                Picker::Some { random: seed, wanted: samples, left: count }
            }
        }
    }
}

/// The bound of a range, which either of two members may give.
fn bound(included: Option<&str>, excluded: Option<&str>) -> Result<Bound<Vec<u8>>, Status> {
    let decoded = |text: &str| STANDARD.decode(text).map_err(|_| Status::Einval);
    match (included, excluded) {
        (None, None) => Ok(Bound::Unbounded),
        (Some(key), None) => decoded(key).map(Bound::Included),
        (None, Some(key)) => decoded(key).map(Bound::Excluded),
        (Some(_), Some(_)) => Err(Status::Einval),
    }
}

fn snapshot(written: WrittenSnapshot) -> Result<SnapshotRequirement, Status> {
    Ok(SnapshotRequirement {
        vb_uuid: VbUuid(written.vb_uuid.parse().map_err(|_| Status::Einval)?),
        seqno: Seqno(written.seqno),
        must_exist: written.seqno_exists,
        timeout: Duration::from_millis(written.timeout_ms).min(RANGE_SCAN_LIFETIME),
    })
}

/// Chooses documents one by one.
#[derive(Debug)]
pub(crate) enum Picker {
    All,
    /// Picks the missing number of the remaining documents, each with the same probability.
    Some {
        /// State of the generator.
        random: u64,
        /// Documents still to be taken.
        wanted: u64,
        /// Documents still to come.
        left: u64,
    },
}

impl Picker {
    /// Decides whether the next document is taken.
    pub fn takes(&mut self) -> bool {
        let Picker::Some { random, wanted, left } = self else { return true };
        // More documents may follow than were counted; they are not taken.
        let takes = *left > 0 && next_random(random) % *left < *wanted;
        *left = left.saturating_sub(1);
        *wanted -= u64::from(takes);
        takes
    }
}

/// SplitMix64: a step and a mix, good enough to draw lots.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    //! Decodes requests and draws samples.

    use super::*;

    fn parse(json: &str) -> Result<ScanRequest, Status> {
        ScanRequest::parse(Vbid(3), json.as_bytes())
    }

    #[test]
    fn a_range_has_two_ends_and_a_collection() {
        let json = r#"{"collection":"1f","key_only":true,"range":{"start":"YQ==","excl_end":"Yg=="},
                       "snapshot_requirements":{"vb_uuid":"18446744073709551615","seqno":7,"timeout_ms":5}}"#;
        let request = parse(json).unwrap();
        assert_eq!((request.collection, request.content), (CollectionId(0x1f), Content::Keys));
        let key = |key| DocKey { collection: CollectionId(0x1f), key };
        assert_eq!(request.from(), key(b"a"));
        assert!(!request.is_behind(key(b"a\xff")) && request.is_behind(key(b"b")));
        assert!(request.is_behind(DocKey { collection: CollectionId(0x20), key: b"a" }));
        let snapshot = request.snapshot.unwrap();
        assert_eq!(
            (snapshot.vb_uuid.0, snapshot.seqno.0, snapshot.must_exist),
            (u64::MAX, 7, false)
        );
        let open = parse(r#"{"range":{"excl_start":"YQ=="}}"#).unwrap();
        let key = |key| DocKey { collection: CollectionId::DEFAULT, key };
        assert!(
            !open.contains(key(b"a"))
                && open.contains(key(b"aa"))
                && !open.is_behind(key(b"\xff\xff"))
        );
    }

    #[test]
    fn malformed_requests_are_invalid() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"range":{},"sampling":{"samples":1}}"#,
            r#"{"range":{"start":"YQ==","excl_start":"YQ=="}}"#,
            r#"{"range":{"start":"%"}}"#,
            r#"{"collection":"xyz","range":{}}"#,
            r#"{"sampling":{"samples":0}}"#,
            r#"{"sampling":{"samples":-1}}"#,
            r#"{"range":{},"snapshot_requirements":{"vb_uuid":"x","seqno":1}}"#,
        ] {
            assert_eq!(parse(json), Err(Status::Einval), "{json}");
        }
        for (json, content) in [
            (r#"{"range":{}}"#, Content::Documents),
            (r#"{"include_xattrs":true,"range":{}}"#, Content::WithAttributes),
            (r#"{"include_xattrs":true,"key_only":true,"range":{}}"#, Content::Keys),
        ] {
            assert_eq!(parse(json).unwrap().content, content, "{json}");
        }
    }

    #[test]
    fn a_sample_has_the_size_and_follows_the_seed() {
        let sample = |seed, samples, count: u64| {
            let request =
                parse(&format!(r#"{{"sampling":{{"seed":{seed},"samples":{samples}}}}}"#));
            let mut picker = request.unwrap().picker(count);
            (0..count).filter(|_| picker.takes()).collect::<Vec<_>>()
        };
        assert_eq!(sample(1, 10, 1000).len(), 10);
        assert_eq!(sample(1, 10, 4), [0, 1, 2, 3]);
        assert_eq!(sample(7, 10, 1000), sample(7, 10, 1000));
        assert_ne!(sample(1, 10, 1000), sample(2, 10, 1000));
        // Samples are not only taken from the beginning.
        assert!(sample(3, 10, 1000).iter().any(|picked| *picked > 500));
    }
}
