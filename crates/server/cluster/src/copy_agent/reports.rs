//! What a node reports of its copies.
//!
//! Owns: the report of each bucket, which the others see in the agreement. Invariant: a report
//! shows a promise against an active copy only while this node grants that copy's node nothing.

use std::collections::BTreeMap;

use oribi_types::{Seqno, Vbid};

use crate::agent::{Agent, ClusterView};
use crate::agreement::AgreementError;
use crate::copies::progress::{NamedCopy, patience_ns};
use crate::copies::record::NodeReport;
use crate::copies::tasks::WrittenReport;
use crate::copies::{LocalCopy, VbucketCopies};
use crate::records::VbucketPlace;

impl Agent {
    /// The copies as others may see them: without promises that a grant may contradict.
    pub(super) fn shown(
        &mut self,
        view: &ClusterView,
        uuid: &str,
        local: &[LocalCopy],
    ) -> Vec<LocalCopy> {
        let (now_ns, mut is_early) = (self.lease.now_ns(), false);
        let show = |one: &LocalCopy| {
            let opposed = self.opposes(view, uuid, one);
            let grants = &self.lease.grants;
            match opposed.filter(|(name, _)| grants.may_be_held_by(name, now_ns)) {
                Some((_, epoch)) => {
                    is_early = true;
                    LocalCopy { promised: epoch, ..*one }
                }
                None => *one,
            }
        };
        let shown = local.iter().map(show).collect();
        if is_early {
            self.look_again_soon();
        }
        shown
    }

    /// The copies that have not followed the active copies of this node for the patience.
    pub(super) fn unfollowed(
        &mut self,
        view: &ClusterView,
        (uuid, copies): (&str, &dyn VbucketCopies),
        local: &[LocalCopy],
    ) -> BTreeMap<Vbid, Vec<u16>> {
        let following: BTreeMap<(Vbid, String), Seqno> = copies
            .following()
            .into_iter()
            .map(|one| ((one.vbid, one.node), one.complete_end))
            .collect();
        let mut named = Vec::new();
        for one in local {
            let place = VbucketPlace { uuid: uuid.to_owned(), vbid: one.vbid };
            let Some(entry) = view.copies.get(&place) else { continue };
            let (record, vbid) = (&entry.record, one.vbid);
            if copies.serves(vbid) != Some(record.epoch) {
                continue;
            }
            for copy in record.all().into_iter().filter(|copy| *copy != record.active) {
                let is_member = record.members.contains(&copy);
                let name = view.roster.name(copy.node).unwrap_or_default().to_owned();
                let end = following.get(&(vbid, name)).copied();
                let copy = NamedCopy { vbid, epoch: record.epoch, copy, is_member };
                named.push((copy, one.report.complete_end, end));
            }
        }
        let (now_ns, patience_ns) = (self.lease.now_ns(), patience_ns(self.settings.lease_s));
        let progress = self.copies.progress.entry(uuid.to_owned()).or_default();
        progress.look(named, now_ns, patience_ns)
    }

    /// Writes the report, unless it is there. An earlier one whose answer was lost may have come
    /// late, so the revision counts.
    pub(super) async fn report(
        &mut self,
        view: &ClusterView,
        (uuid, report): (&str, &NodeReport),
    ) -> Result<(), AgreementError> {
        let (value, known) = (report.encode(), self.copies.reported.get(uuid));
        let found = view.report_revisions.get(&(uuid.to_owned(), report.node));
        let is_there = known.is_some_and(|known| {
            let is_same = (known.session, &known.value) == (self.session, &value);
            is_same && found.is_some_and(|(_, revision)| *revision == known.revision)
        });
        if is_there {
            return Ok(());
        }
        let key = self.keys.report(uuid, &self.settings.node.name);
        let put = [self.put_in_session(key, value.clone())];
        let written = self.agreement.transact(&[], &put, self.limit()).await?;
        if let Some(revision) = written {
            let report = WrittenReport { session: self.session, value, revision };
            self.copies.reported.insert(uuid.to_owned(), report);
        }
        Ok(())
    }
}
