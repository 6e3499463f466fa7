//! The records of copies in agreement, as text.
//!
//! Owns: `copies/BUCKET/UUID/VBUCKET` ([`CopiesRecord`]), `reports/UUID/NODE` (the copies of a node
//! that lives) and `c/failover` (a request to fail a node over). Each has a version; a record of
//! another version is an error, never a guess. Invariant: a record that is read is consistent: its
//! members are distinct, the active is one of them, and no list is longer than the limits allow.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_replication::election::PromiseReport;
use oribi_types::{Seqno, Vbid};
use serde::{Deserialize, Serialize};

use super::{LocalCopy, REPLICAS_MAX};
use crate::agreement::{RecordChange, RecordComparison};

/// A compare-and-set of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordStep {
    pub(crate) comparisons: Vec<RecordComparison>,
    pub(crate) changes: Vec<RecordChange>,
}

const VERSION: u32 = 1;
/// Most copies of a set: the active one and its replicas.
pub(crate) const COPIES_MAX: usize = REPLICAS_MAX as usize + 1;
/// Highest epoch of a record; each change of a record adds one.
const EPOCH_MAX: CopiesEpoch = CopiesEpoch(u64::MAX / 2);
/// Most vbuckets of a bucket, and so of a report.
const VBUCKETS_MAX: usize = 1024;

/// The JSON of a record of copies: nodes are numbers, as in the roster.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiesText {
    version: u32,
    epoch: u64,
    active: (u16, u64),
    members: Vec<(u16, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    joining: Vec<(u16, u64)>,
    configured: usize,
    /// The number of the joining set, where it replaces `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joining_configured: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handover: Option<u64>,
}

/// The stored form of a record, JSON.
pub(crate) fn encode(record: &CopiesRecord) -> Vec<u8> {
    let text = |set: &[CopyId]| set.iter().map(|copy| (copy.node, copy.copy)).collect();
    let record = CopiesText {
        version: VERSION,
        epoch: record.epoch.0,
        active: (record.active.node, record.active.copy),
        members: text(&record.members),
        joining: text(&record.joining),
        configured: record.configured,
        joining_configured: record.joining_configured,
        handover: record.handover.map(|seqno| seqno.0),
    };
    serde_json::to_vec(&record).expect("a plain struct")
}

/// Parses and checks the stored form.
pub(crate) fn decode(text: &[u8]) -> Result<CopiesRecord, String> {
    let text: CopiesText = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    check_version(text.version)?;
    let set = |set: Vec<(u16, u64)>| -> Vec<CopyId> {
        set.into_iter().map(|(node, copy)| CopyId { node, copy }).collect()
    };
    let record = CopiesRecord {
        epoch: CopiesEpoch(text.epoch),
        active: CopyId { node: text.active.0, copy: text.active.1 },
        members: set(text.members),
        joining: set(text.joining),
        configured: text.configured,
        joining_configured: text.joining_configured,
        handover: text.handover.map(Seqno),
    };
    check(&record)?;
    Ok(record)
}

/// True for a record whose members begin empty: a copy has the number of the epoch in which it
/// begins. Nothing is served in such an epoch, so a node that misses a member's copy later has lost
/// it.
pub(crate) fn is_founding(record: &CopiesRecord) -> bool {
    record.active.copy == record.epoch.0
}

/// True when a vbucket has members besides its active copy, or is to have some. Without any, it
/// waits for its node.
pub(crate) fn has_other_copies(record: &CopiesRecord) -> bool {
    record.configured > 1 || record.members.len() > 1
}

fn check(record: &CopiesRecord) -> Result<(), String> {
    if record.epoch == CopiesEpoch(0) {
        return Err("epoch 0 means that there is no record".to_owned());
    }
    if record.epoch > EPOCH_MAX {
        return Err(format!("epoch {} has no successors", record.epoch.0));
    }
    for configured in [Some(record.configured), record.joining_configured].into_iter().flatten() {
        if !(1..=COPIES_MAX).contains(&configured) {
            return Err(format!("{configured} copies are configured"));
        }
    }
    if record.joining_configured.is_some() && !record.is_joint() {
        return Err("no set joins with another number of copies".to_owned());
    }
    for set in [&record.members, &record.joining] {
        let nodes: BTreeSet<u16> = set.iter().map(|copy| copy.node).collect();
        // A copy that moves is there before another one leaves.
        if set.len() > COPIES_MAX + 1 || nodes.len() != set.len() {
            return Err(format!("{} copies are on {} nodes", set.len(), nodes.len()));
        }
    }
    if !record.members.contains(&record.active) {
        return Err("the active copy is no member".to_owned());
    }
    if record.is_joint() && !record.joining.contains(&record.active) {
        return Err("the active copy does not join".to_owned());
    }
    Ok(())
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        VERSION => Ok(()),
        other => Err(format!("version {other}, this program reads {VERSION}")),
    }
}

/// Content of `reports/UUID/NODE`: the copies of a node, for the leader. It changes with the state
/// of copies, not with each write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// Number of the node's disk.
    pub(crate) node: u16,
    pub(crate) copies: Vec<LocalCopy>,
    /// Of vbuckets that the node serves: numbers of the nodes whose copies do not follow it.
    pub(crate) unfollowed: BTreeMap<Vbid, Vec<u16>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportText {
    version: u32,
    node: u16,
    /// Vbucket, copy, promised and recorded epoch, end, intact, handing over.
    copies: Vec<(u16, u64, u64, u64, u64, bool, bool)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unfollowed: Vec<(u16, Vec<u16>)>,
    /// Vbuckets whose copies could not be loaded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unreadable: BTreeSet<u16>,
}

impl NodeReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let copies = self.copies.iter().map(|local| {
            let report = &local.report;
            // Until a copy has promised a later epoch, its end is not final, and says nothing.
            let is_final = local.hands_over || local.promised > report.recorded;
            let end = if is_final { report.complete_end.0 } else { 0 };
            let (promised, recorded) = (local.promised.0, report.recorded.0);
            (local.vbid.0, local.copy, promised, recorded, end, report.is_intact, local.hands_over)
        });
        let copies = copies.collect();
        let unfollowed = self.unfollowed.iter().map(|(vbid, nodes)| (vbid.0, nodes.clone()));
        let unfollowed = unfollowed.collect();
        let unreadable = self.copies.iter().filter(|local| local.is_unreadable);
        let unreadable = unreadable.map(|local| local.vbid.0).collect();
        let text = ReportText { version: VERSION, node: self.node, copies, unfollowed, unreadable };
        serde_json::to_vec(&text).expect("a plain struct")
    }

    pub(crate) fn decode(text: &[u8]) -> Result<NodeReport, String> {
        let text: ReportText = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        check_version(text.version)?;
        if text.copies.len() > VBUCKETS_MAX {
            return Err(format!("{} copies of one bucket", text.copies.len()));
        }
        let is_long = |nodes: &Vec<u16>| nodes.len() > 2 * COPIES_MAX;
        let unfollowed = text.unfollowed;
        if unfollowed.len() > VBUCKETS_MAX || unfollowed.iter().any(|(_, nodes)| is_long(nodes)) {
            return Err("more copies than there can be do not follow".to_owned());
        }
        let unfollowed = unfollowed.into_iter().map(|(vbid, nodes)| (Vbid(vbid), nodes)).collect();
        let copies = text.copies.into_iter().map(
            |(vbid, copy, promised, recorded, end, intact, hands_over)| {
                let (recorded, complete_end) = (CopiesEpoch(recorded), Seqno(end));
                let report = PromiseReport { recorded, complete_end, is_intact: intact };
                let promised = CopiesEpoch(promised);
                let is_unreadable = text.unreadable.contains(&vbid);
                let vbid = Vbid(vbid);
                LocalCopy { vbid, copy, promised, report, hands_over, is_unreadable }
            },
        );
        Ok(NodeReport { node: text.node, copies: copies.collect(), unfollowed })
    }

    /// The node's copy of a vbucket.
    pub(crate) fn of(&self, vbid: Vbid) -> Option<&LocalCopy> {
        self.copies.iter().find(|local| local.vbid == vbid)
    }
}

/// Content of `c/failover`: an operator's request to fail a node over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailoverRequest {
    version: u32,
    /// Name of the node.
    pub(crate) node: String,
    /// Promote copies, or begin empty ones, though acknowledged writes may be lost.
    pub(crate) allow_data_loss: bool,
    /// The leader asked, because the node is gone: vbuckets without another complete copy wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_automatic: bool,
    /// Why the leader refused; the request is over then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

impl FailoverRequest {
    pub(crate) fn new(node: &str, allow_data_loss: bool) -> FailoverRequest {
        let (node, is_automatic) = (node.to_owned(), false);
        FailoverRequest { version: VERSION, node, allow_data_loss, is_automatic, refused: None }
    }

    /// The request of the leader itself.
    pub(crate) fn automatic(node: &str) -> FailoverRequest {
        FailoverRequest { is_automatic: true, ..FailoverRequest::new(node, false) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain struct")
    }

    pub(crate) fn decode(text: &[u8]) -> Result<FailoverRequest, String> {
        let request: FailoverRequest =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        check_version(request.version)?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn copies(nodes: &[(u16, u64)]) -> Vec<CopyId> {
        nodes.iter().map(|(node, copy)| CopyId { node: *node, copy: *copy }).collect()
    }

    fn record() -> CopiesRecord {
        let members = copies(&[(1, 1), (2, 7)]);
        CopiesRecord {
            epoch: CopiesEpoch(9),
            active: members[0],
            joining: copies(&[(1, 1), (3, 9)]),
            members,
            configured: 2,
            joining_configured: None,
            handover: Some(Seqno(77)),
        }
    }

    #[test]
    fn the_text_of_a_record_is_fixed() {
        let text = r#"{"version":1,"epoch":9,"active":[1,1],"members":[[1,1],[2,7]],"joining":[[1,1],[3,9]],"configured":2,"handover":77}"#;
        assert_eq!(String::from_utf8(encode(&record())).unwrap(), text);
        assert_eq!(decode(text.as_bytes()).unwrap(), record());
        let resized = CopiesRecord { joining_configured: Some(3), ..record() };
        assert_eq!(decode(&encode(&resized)).unwrap(), resized);
    }

    #[test]
    fn inconsistent_records_are_refused() {
        let text = |change: fn(&mut CopiesRecord)| {
            let mut bad = record();
            change(&mut bad);
            encode(&bad)
        };
        for (bad, says) in [
            (text(|r| r.epoch = CopiesEpoch(0)), "epoch 0"),
            (text(|r| r.epoch = CopiesEpoch(u64::MAX)), "no successors"),
            (text(|r| r.configured = 5), "5 copies"),
            (text(|r| r.joining_configured = Some(0)), "0 copies"),
            (text(|r| (r.joining, r.joining_configured) = (Vec::new(), Some(3))), "no set joins"),
            (text(|r| r.active.copy = 2), "no member"),
            (text(|r| r.joining = copies(&[(3, 9)])), "does not join"),
            (text(|r| r.members.push(CopyId { node: 2, copy: 8 })), "on 2 nodes"),
            (b"{}".to_vec(), "missing field"),
            (
                br#"{"version":2,"epoch":9,"active":[1,1],"members":[[1,1]],"configured":1}"#
                    .to_vec(),
                "version 2",
            ),
        ] {
            let error = decode(&bad).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_request_is_read_as_written() {
        let request = FailoverRequest::new("a", true);
        assert_eq!(FailoverRequest::decode(&request.encode()), Ok(request));
        assert!(
            FailoverRequest::decode(br#"{"version":3,"node":"a","allow_data_loss":false}"#)
                .is_err()
        );
    }

    #[test]
    fn an_end_that_is_not_final_is_left_out() {
        let local = |promised| LocalCopy {
            vbid: Vbid(5),
            copy: 1,
            promised: CopiesEpoch(promised),
            report: PromiseReport {
                recorded: CopiesEpoch(2),
                complete_end: Seqno(80),
                is_intact: true,
            },
            hands_over: false,
            is_unreadable: promised == 3,
        };
        let ends = |promised| {
            let unfollowed = [(Vbid(5), vec![1, 2])].into();
            let report = NodeReport { node: 4, copies: vec![local(promised)], unfollowed };
            let decoded = NodeReport::decode(&report.encode()).unwrap();
            assert_eq!(decoded.unfollowed, report.unfollowed);
            assert_eq!(decoded.copies[0].is_unreadable, promised == 3);
            decoded.of(Vbid(5)).unwrap().report.complete_end
        };
        assert_eq!((ends(2), ends(3)), (Seqno(0), Seqno(80)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode(&text), NodeReport::decode(&text), FailoverRequest::decode(&text));
        }
    }
}
