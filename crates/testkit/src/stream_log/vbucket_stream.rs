//! What a consumer has heard of one vbucket, and the rules of a single stream.

use std::collections::{BTreeMap, BTreeSet};

use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_types::{Cas, Seqno, VbUuid};

use crate::ack_log::{ValueHash, VbucketReport};

/// One version of a document as it was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) seqno: Seqno,
    pub(super) cas: Cas,
    pub(super) value: ValueHash,
}

#[derive(Debug, Default)]
pub(super) struct VbucketStream {
    /// History and seqno up to which the consumer has heard everything, and its snapshot.
    uuid: VbUuid,
    seqno: Seqno,
    snapshot: (Seqno, Seqno),
    /// The announced snapshot and its documents so far.
    marker: Option<(Seqno, Seqno)>,
    in_snapshot: BTreeSet<Vec<u8>>,
    /// True from the server's acceptance to its restart.
    is_current: bool,
    is_first_marker: bool,
    /// The server's state when it started.
    recovered: VbucketReport,
    /// Every version, oldest first, because a rollback brings older ones back.
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    unjudged: Vec<(Vec<u8>, Version)>,
}

impl VbucketStream {
    /// The stream of a consumer that knows nothing.
    pub(super) fn of_another(&self) -> VbucketStream {
        VbucketStream { recovered: self.recovered.clone(), ..VbucketStream::default() }
    }

    pub(super) fn request(&self) -> StreamRequestExtras {
        StreamRequestExtras {
            flags: StreamFlags::ACTIVE_ONLY,
            start: self.seqno,
            end: Seqno(u64::MAX),
            vb_uuid: self.uuid,
            snapshot_start: self.snapshot.0,
            snapshot_end: self.snapshot.1,
        }
    }

    pub(super) fn seqno(&self) -> Seqno {
        self.seqno
    }

    pub(super) fn describe(&self) -> String {
        let (start, end) = self.snapshot;
        format!(
            "at seqno {} of {}..{} in history {:x}, server {:?}",
            self.seqno.0, start.0, end.0, self.uuid.0, self.recovered
        )
    }

    pub(super) fn restarted(&mut self, recovered: VbucketReport) {
        self.closed();
        self.is_current = false;
        self.recovered = recovered;
    }

    /// The last seqno that the consumer's history and the server's have in common; `None` when the
    /// server does not know the history.
    fn common(&self) -> Option<Seqno> {
        let histories = &self.recovered.histories;
        let place = histories.iter().position(|(uuid, _)| *uuid == self.uuid)?;
        Some(match place {
            0 => self.recovered.high_seqno,
            newer => histories[newer - 1].1,
        })
    }

    /// The seqno up to which the consumer's state depends on the server's history. In the middle
    /// of a snapshot older versions may be missing that the rest of it replaces.
    fn needed(&self) -> Seqno {
        if self.seqno == self.snapshot.0 { self.seqno } else { self.snapshot.1 }
    }

    pub(super) fn opened(&mut self, histories: &[(VbUuid, Seqno)]) -> Result<(), String> {
        let common = self.common();
        let (known, needed) = (self.seqno, self.needed());
        self.uuid = histories.first().map(|(uuid, _)| *uuid).ok_or("opened without a history")?;
        (self.is_current, self.is_first_marker) = (true, true);
        match common {
            _ if known == Seqno(0) => Ok(()),
            None => Err("accepted a history that it does not have".to_owned()),
            Some(common) if needed > common => {
                Err(format!("accepted what ends at seqno {} in its own history", common.0))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn rolled_back(&mut self, to: Seqno) -> Result<(), String> {
        let was = self.seqno;
        let is_partial = self.seqno != self.snapshot.0 && self.seqno != self.snapshot.1;
        let common = self.common().unwrap_or(Seqno(0));
        let lowest = if is_partial { common.min(self.snapshot.0) } else { common };
        self.versions.values_mut().for_each(|versions| versions.retain(|it| it.seqno <= to));
        (self.seqno, self.snapshot, self.marker) = (to, (to, to), None);
        if to >= was {
            return Err(format!("sent back from seqno {} to {}", was.0, to.0));
        }
        if to < lowest {
            return Err(format!("sent back to seqno {}, but {} was promised", to.0, lowest.0));
        }
        if to > common {
            return Err(format!("sent back to seqno {}, but only {} is common", to.0, common.0));
        }
        Ok(())
    }

    pub(super) fn marker(&mut self, start: Seqno, end: Seqno) -> Result<(), String> {
        let is_first = std::mem::take(&mut self.is_first_marker);
        let before = self.marker.replace((start, end));
        self.in_snapshot.clear();
        let says = format!("snapshot {}..{}", start.0, end.0);
        if !self.is_current {
            return Err(format!("{says} before the answer"));
        }
        if start > end || end <= self.seqno {
            return Err(format!("{says} has nothing new"));
        }
        match before.filter(|(_, end)| *end != self.seqno) {
            // One that was cut short is told again from its beginning.
            Some((begin, _)) if begin == start => Ok(()),
            Some(_) => Err(format!("{says} in the middle of another")),
            None if !is_first && start < self.seqno => Err(format!("{says} begins too early")),
            None => Ok(()),
        }
    }

    pub(super) fn change(&mut self, name: &[u8], version: Version) -> Result<(), String> {
        let advanced = self.advance(version.seqno);
        let is_new = self.in_snapshot.insert(name.to_vec());
        self.versions.entry(name.to_vec()).or_default().push(version);
        self.unjudged.push((name.to_vec(), version));
        advanced?;
        match is_new {
            true => Ok(()),
            false => Err(format!("{} twice in a snapshot", String::from_utf8_lossy(name))),
        }
    }

    pub(super) fn advance(&mut self, seqno: Seqno) -> Result<(), String> {
        let was = std::mem::replace(&mut self.seqno, seqno);
        let Some((start, end)) = self.marker else {
            return Err(format!("seqno {} outside of a snapshot", seqno.0));
        };
        self.snapshot = (start, end);
        if seqno <= was {
            return Err(format!("seqno {} after {}", seqno.0, was.0));
        }
        match start <= seqno && seqno <= end {
            true => Ok(()),
            false => Err(format!("seqno {} outside of its snapshot", seqno.0)),
        }
    }

    pub(super) fn closed(&mut self) {
        self.marker = None;
        if self.is_at_snapshot_end() {
            self.snapshot = (self.seqno, self.seqno);
        }
    }

    pub(super) fn is_at_snapshot_end(&self) -> bool {
        self.seqno == self.snapshot.1 && self.marker.is_none_or(|(_, end)| end == self.seqno)
    }

    /// The seqno up to which nothing may be missing.
    pub(super) fn certain_up_to(&self) -> Option<Seqno> {
        (self.is_current && self.seqno == self.snapshot.1).then_some(self.seqno)
    }

    pub(super) fn newest(&self, name: &[u8]) -> Option<Version> {
        self.versions.get(name)?.last().copied()
    }

    pub(super) fn take_unjudged(&mut self) -> Vec<(Vec<u8>, Version)> {
        std::mem::take(&mut self.unjudged)
    }

    /// The documents that exist as far as the consumer knows.
    pub(super) fn table(&self) -> impl Iterator<Item = (&[u8], Version)> {
        self.versions.iter().filter_map(|(name, versions)| {
            let newest = versions.last().filter(|newest| newest.value.is_some())?;
            Some((name.as_slice(), *newest))
        })
    }
}
