//! What a client wants to scan, as it says it in JSON.
//!
//! Owns: the reading of that JSON, and which keys and documents a scan takes. Invariants: bounds and numbers are
//! checked here, so that a scan needs no more checks; a sample takes every document with the same probability, and the
//! same ones for the same seed as long as the documents are the same.

use std::ops::Bound;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Seqno, VbUuid, Vbid};
use serde::Deserialize;

use crate::limits::RANGE_SCAN_LIFETIME;

/// A scan that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanRequest {
    /// The vbucket.
    pub vbid: Vbid,
    /// The collection.
    pub collection: CollectionId,
    /// Which of its documents.
    pub selection: Selection,
    /// What of them.
    pub content: Content,
    /// What has to be persisted before it begins.
    pub snapshot: Option<SnapshotRequirement>,
}

/// What a scan shows of each document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Its key.
    Keys,
    /// Key, metadata and body.
    Documents,
    /// The same with the extended attributes before the body.
    WithAttributes,
}

/// Which documents of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Those between two keys.
    Range {
        /// Where it begins.
        start: Bound<Vec<u8>>,
        /// Where it ends.
        end: Bound<Vec<u8>>,
    },
    /// Some of all.
    Sample {
        /// Which ones.
        seed: u64,
        /// How many.
        samples: u64,
    },
}

/// What has to be persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotRequirement {
    /// History in which the seqno counts.
    pub vb_uuid: VbUuid,
    /// Least persisted seqno.
    pub seqno: Seqno,
    /// The version with this seqno must be there, not a newer one of the same document.
    pub must_exist: bool,
    /// How long to wait for that.
    pub timeout: Duration,
}

/// The JSON of a request. Other members are ignored, as newer clients may send some.
#[derive(Deserialize)]
struct Written {
    /// Hexadecimal; the default collection without it.
    collection: Option<String>,
    #[serde(default)]
    key_only: bool,
    #[serde(default)]
    include_xattrs: bool,
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
    /// Decimal digits.
    vb_uuid: String,
    seqno: u64,
    #[serde(default)]
    seqno_exists: bool,
    #[serde(default)]
    timeout_ms: u64,
}

impl ScanRequest {
    /// Reads the JSON of a request about this vbucket.
    pub fn parse(vbid: Vbid, json: &[u8]) -> Result<ScanRequest, Status> {
        let written: Written = serde_json::from_slice(json).map_err(|_| Status::Einval)?;
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
            (Some(range), None) => Selection::Range {
                start: bound(range.start.as_deref(), range.excl_start.as_deref())?,
                end: bound(range.end.as_deref(), range.excl_end.as_deref())?,
            },
            (None, Some(WrittenSampling { seed, samples: samples @ 1.. })) => {
                Selection::Sample { seed, samples }
            }
            _ => return Err(Status::Einval),
        };
        let snapshot = written.snapshot_requirements.map(snapshot).transpose()?;
        Ok(ScanRequest { vbid, collection, selection, content, snapshot })
    }

    /// True when some of all documents are wanted.
    pub fn is_sample(&self) -> bool {
        matches!(self.selection, Selection::Sample { .. })
    }

    /// No document before this one is wanted.
    pub fn from(&self) -> DocKey<'_> {
        let key = match &self.selection {
            Selection::Range { start: Bound::Included(key) | Bound::Excluded(key), .. } => key,
            _ => &[][..],
        };
        DocKey { collection: self.collection, key }
    }

    /// True when neither this document nor any after it is wanted.
    pub fn is_behind(&self, key: DocKey<'_>) -> bool {
        let is_after_end = match &self.selection {
            Selection::Range { end: Bound::Included(end), .. } => key.key > end.as_slice(),
            Selection::Range { end: Bound::Excluded(end), .. } => key.key >= end.as_slice(),
            _ => false,
        };
        key.collection != self.collection || is_after_end
    }

    /// False for the first key of a range that begins behind it.
    pub fn contains(&self, key: DocKey<'_>) -> bool {
        !matches!(&self.selection, Selection::Range { start: Bound::Excluded(start), .. } if key.key == start)
    }

    /// Chooses among `count` documents.
    pub fn picker(&self, count: u64) -> Picker {
        match self.selection {
            Selection::Range { .. } => Picker::All,
            Selection::Sample { seed, samples } => {
                Picker::Some { random: seed, wanted: samples, left: count }
            }
        }
    }
}

/// The end of a range that one of two members may give.
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

/// Chooses documents one after the other.
#[derive(Debug)]
pub(crate) enum Picker {
    /// Each.
    All,
    /// As many as are wanted of those that are left, each with the same probability.
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
    /// Whether the next document is taken.
    pub fn takes(&mut self) -> bool {
        let Picker::Some { random, wanted, left } = self else { return true };
        // More may come than were counted, and nothing is known of those.
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
    //! Reading requests, and drawing samples.

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
    fn what_is_no_request_is_invalid() {
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
    fn a_sample_has_as_many_as_wanted_and_depends_on_the_seed() {
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
        // Not only from the beginning.
        assert!(sample(3, 10, 1000).iter().any(|picked| *picked > 500));
    }
}
