//! The agent's part for copies: it leads, follows and publishes.
//!
//! Owns: carrying out what `copies`, `repair`, `failover` and `survivors` decide. Actions that wait
//! for a disk run in one background task for each bucket; the next tick sees what they did.
//! Invariant: a background task begins to serve only while the lease of the session in which it
//! began holds, and while no tick has released the vbucket's key since.
//! When the revisions of agreement go back, this node serves no copy until it is restarted.

mod failover;
mod repair;
mod reports;
#[cfg(test)]
mod simulation;
mod survivors;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::{Seqno, Vbid};
use tokio::task::JoinHandle;

use crate::agent::{Agent, ClusterView};
use crate::agreement::{AgreementError, AgreementRecord, RecordChange, RecordComparison};
use crate::buckets::SharedBucket;
use crate::copies::progress::patience_ns;
use crate::copies::record::{FailoverRequest, NodeReport, RecordStep, has_other_copies};
use crate::copies::role::{KeyHolder, RoleAction, RoleInput, actions};
use crate::copies::tasks::ServePermits;
use crate::copies::{CopyFailure, LocalCopy, VbucketCopies};
use crate::grants::ServingCondition;
use crate::lease::NodeLease;
use crate::member::failover_limit_s;
use crate::records::{CopiesEntry, VbucketPlace};
use crate::signals::LeaveStage;
use crate::topology::TopologyNode;
pub(crate) use failover::loses_writes;
use failover::{FailoverStep, hand_overs, next_step, recoveries};
pub(crate) use repair::CopyCounts;

/// Records of one transaction, which compares up to three keys for each: etcd allows 128.
const TRANSACTION_RECORDS: usize = 42;

const NS_PER_S: u64 = 1_000_000_000;

/// The leader withdraws a request after this many times the longest wait of an operator.
const LEFT_BEHIND_LIMITS: u64 = 2;

/// How long copies that promised may take to elect one, in the time after which a node is
/// suspected: the other copies may notice as much later.
const ELECTION_GRANTS: u64 = 2;

/// Time until the next look at copies that catch up.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// An action that waits for the disk.
struct CopyWork {
    vbid: Vbid,
    action: RoleAction,
    record: CopiesRecord,
    /// What the copy needs to serve.
    condition: ServingCondition,
    /// Of a replica: which copy it is, and the node to follow.
    source: Option<(CopyId, TopologyNode)>,
}

impl Agent {
    /// Brings the records of copies up to date; this node leads.
    pub(crate) async fn lead_copies(
        &mut self,
        view: &ClusterView,
        leader: &AgreementRecord,
    ) -> Result<(), AgreementError> {
        if self.copies.is_stopped {
            return Ok(());
        }
        let leads = RecordComparison::CreatedAt(leader.key.clone(), leader.create_revision);
        let disks = view
            .nodes
            .iter()
            .filter_map(|(name, record)| Some((name.as_str(), record.disk.as_deref()?)));
        if let Some(roster) = view.roster.with(disks) {
            let key = self.keys.roster();
            let unchanged = match view.roster_revision {
                0 => RecordComparison::Absent(key.clone()),
                revision => RecordComparison::ModifiedAt(key.clone(), revision),
            };
            let put = [RecordChange::put(key, roster.encode())];
            self.agreement.transact(&[leads, unchanged], &put, self.limit()).await?;
            return Ok(());
        }
        let (now_ns, patience_ns) = (self.lease.now_ns(), patience_ns(self.settings.lease_s));
        self.copies.waits.election_ns = self.lease.grants.periods().given_ns * ELECTION_GRANTS;
        self.copies.waits.begin(&view.copies, now_ns, patience_ns);
        let steps = repair::steps(&self.keys, view, &mut self.copies.waits);
        let leading = std::slice::from_ref(&leads);
        self.commit(leading, &steps).await?;
        let steps = recoveries(&self.keys, view, &mut self.copies.waits);
        self.commit(leading, &steps).await?;
        self.commit(leading, &hand_overs(&self.keys, view)).await?;
        self.lead_rebalance(view, &leads).await?;
        let Some((request, revision)) = &view.failover else {
            return self.request_due_failover(view, leads).await;
        };
        let key = self.keys.failover();
        let is_left_behind = self.is_left_behind(*revision);
        let step = match &request.refused {
            Some(_) => FailoverStep::Wait,
            None => next_step(&self.keys, view, request, &mut self.copies.waits),
        };
        let is_done = step == FailoverStep::Done;
        let change = match step {
            FailoverStep::Wait if is_left_behind => {
                tracing::info!(node = request.node, "withdraws a failover that nobody waits for");
                if request.is_automatic {
                    self.copies.absences.give_up(&request.node, live_names(view), now_ns);
                }
                RecordChange::delete(key.clone())
            }
            FailoverStep::Wait => return Ok(()),
            FailoverStep::Promote(steps) => {
                tracing::info!(node = request.node, vbuckets = steps.len(), "promotes copies");
                return self.commit(leading, &steps).await.map(drop);
            }
            FailoverStep::Refuse(reason) if request.is_automatic => {
                tracing::error!(
                    node = request.node,
                    reason,
                    "a node is gone and its vbuckets wait"
                );
                self.copies.absences.give_up(&request.node, live_names(view), now_ns);
                RecordChange::delete(key.clone())
            }
            FailoverStep::Refuse(reason) => {
                tracing::warn!(node = request.node, reason, "a failover is refused");
                let mut refused = request.clone();
                refused.refused = Some(reason);
                RecordChange::put(key.clone(), refused.encode())
            }
            FailoverStep::Done => RecordChange::delete(key.clone()),
        };
        let unchanged = RecordComparison::ModifiedAt(key, *revision);
        let written = self.agreement.transact(&[leads, unchanged], &[change], self.limit()).await?;
        self.copies.failovers += u64::from(is_done && written.is_some());
        Ok(())
    }

    /// Asks for the failover of a node with active copies that is gone for long enough.
    async fn request_due_failover(
        &mut self,
        view: &ClusterView,
        leads: RecordComparison,
    ) -> Result<(), AgreementError> {
        let gone = |has_others: bool| -> BTreeSet<&str> {
            let copies = view.copies.values().map(|entry| &entry.record);
            copies
                .filter(|record| has_other_copies(record) == has_others)
                .filter_map(|record| view.roster.name(record.active.node))
                .filter(|name| !view.nodes.contains_key(*name))
                .collect()
        };
        self.copies.absences.note_only_copies(&gone(false));
        let active = gone(true);
        let (now_ns, live) = (self.lease.now_ns(), live_names(view));
        let absences = &mut self.copies.absences;
        absences.note(&active, now_ns);
        let after_ns = self.settings.failover_after_ms.saturating_mul(1_000_000);
        let Some(node) = absences.due(now_ns, after_ns, &live) else { return Ok(()) };
        tracing::warn!(node, "a node with active copies is gone; other copies are promoted");
        let key = self.keys.failover();
        let put = [RecordChange::put(key.clone(), FailoverRequest::automatic(&node).encode())];
        self.agreement
            .transact(&[leads, RecordComparison::Absent(key)], &put, self.limit())
            .await
            .map(drop)
    }

    /// True when the request of this revision is here for longer than its operator waits.
    fn is_left_behind(&mut self, revision: i64) -> bool {
        let now_ns = self.lease.now_ns();
        match self.copies.failover_seen {
            Some((seen, since_ns)) if seen == revision => {
                let limit_s = failover_limit_s(self.settings.lease_s) * LEFT_BEHIND_LIMITS;
                now_ns.saturating_sub(since_ns) >= limit_s * NS_PER_S
            }
            _ => {
                self.copies.failover_seen = Some((revision, now_ns));
                false
            }
        }
    }

    /// Commits steps together while `common` holds; one by one where another node was faster.
    /// Returns how many were committed.
    async fn commit(
        &self,
        common: &[RecordComparison],
        steps: &[RecordStep],
    ) -> Result<usize, AgreementError> {
        let mut committed = 0;
        for part in steps.chunks(TRANSACTION_RECORDS) {
            let all = |part: &[RecordStep]| {
                let own = part.iter().flat_map(|step| step.comparisons.clone());
                let comparisons: Vec<_> = common.iter().cloned().chain(own).collect();
                let changes: Vec<_> = part.iter().flat_map(|step| step.changes.clone()).collect();
                (comparisons, changes)
            };
            let (comparisons, changes) = all(part);
            if self.agreement.transact(&comparisons, &changes, self.limit()).await?.is_some() {
                committed += part.len();
                continue;
            }
            for step in part {
                let (comparisons, changes) = all(std::slice::from_ref(step));
                let written = self.agreement.transact(&comparisons, &changes, self.limit()).await?;
                committed += usize::from(written.is_some());
            }
        }
        debug_assert!(committed <= steps.len(), "each step is committed once");
        Ok(committed)
    }

    /// Makes the copies of this node what the records say.
    pub(crate) async fn keep_copies(
        &mut self,
        view: &ClusterView,
        is_member: bool,
    ) -> Result<(), AgreementError> {
        self.copies.running.retain(|_, task| !task.is_finished());
        self.copies.absences.see(view.nodes.keys());
        self.copies.heirs.begin(self.lease.now_ns(), patience_ns(self.settings.lease_s));
        let may_serve = is_member && self.stage() == LeaveStage::Serving && !self.copies.is_stopped;
        let disk = &self.settings.disk;
        let node = view.roster.number(&self.settings.node.name, disk);
        let handles = self.buckets.shared();
        self.copies.keep_only(&handles.iter().map(|handle| handle.uuid()).collect());
        self.copies.suspicions.keep_only(&view.copies);
        let found = handles.iter().filter_map(|handle| Some((handle, handle.copies()?)));
        let found: Vec<_> =
            found.map(|(handle, copies)| (handle, copies, copies.local())).collect();
        let locals = found.iter().map(|(handle, _, local)| (handle.uuid(), &local[..]));
        let opposed = self.opposed(view, node, locals);
        for node in self.lease.grants.withhold(&opposed) {
            tracing::info!(
                node,
                "the node gets no grants: copies here have promised to replace active ones of it"
            );
        }
        for (handle, copies, mut local) in found {
            if !self.followed.contains(handle.uuid()) || self.changing.contains_key(handle.name()) {
                continue;
            }
            let mut is_awaited = false;
            for one in &mut local {
                let place = VbucketPlace { uuid: handle.uuid().to_owned(), vbid: one.vbid };
                // The leader waits until this copy has everything.
                if node.is_some_and(|node| view.awaits(&place, node)) {
                    (one.hands_over, is_awaited) = (true, true);
                }
                // Or until the active copy appends nothing any more.
                is_awaited |= node.is_some_and(|node| view.gives(&place, node)) && !one.hands_over;
            }
            if is_awaited {
                self.look_again_soon();
            }
            if let Some(node) = node.filter(|_| is_member) {
                let unfollowed = self.unfollowed(view, (handle.uuid(), copies), &local);
                let shown = self.shown(view, handle.uuid(), &local);
                let report = NodeReport { node, copies: shown, unfollowed };
                self.report(view, (handle.uuid(), &report)).await?;
            }
            if let Some(node) = node.filter(|_| may_serve) {
                self.promote_own(view, node, (handle.uuid(), &local)).await?;
                self.leave_silent_out(view, node, (handle.uuid(), copies, &local)).await?;
            }
            let work = self.follow_records(view, (&**handle, &local), (node, may_serve)).await?;
            let lags = |one: &CopyWork| {
                let mut copies = local.iter().filter(|local| local.vbid == one.vbid);
                one.action == RoleAction::Replicate
                    && copies.any(|local| local.report.recorded < one.record.epoch)
            };
            if work.iter().any(lags) {
                self.look_again_soon();
            }
            if !work.is_empty() && !self.copies.running.contains_key(handle.uuid()) {
                let permits = self.copies.permits(handle.uuid());
                for one in work.iter().filter(|one| one.action == RoleAction::Serve) {
                    permits.grant(one.vbid, one.record.epoch);
                }
                let task = self.work_off((Arc::clone(handle), permits), work);
                let running = self.copies.running.insert(handle.uuid().to_owned(), task);
                assert!(running.is_none(), "one task works on the copies of a bucket");
            }
        }
        // The reports show no other promise.
        for node in self.lease.grants.withhold_only(&opposed) {
            tracing::info!(node, "the node gets grants again: the records are past the promises");
        }
        Ok(())
    }

    /// Looks again before the next regular tick: a copy is about to hold what the leader waits for.
    fn look_again_soon(&mut self) {
        if self.copies.next_look.as_ref().is_none_or(JoinHandle::is_finished) {
            let wake = Arc::clone(&self.wake);
            self.copies.next_look = Some(tokio::spawn(async move {
                tokio::time::sleep(LOOK_AGAIN).await;
                wake.notify_one();
            }));
        }
    }

    /// Waits until the background work is done.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) async fn finish_tasks(&mut self) {
        let copies = self.copies.running.drain().map(|(_, task)| task);
        for task in copies.chain(self.changing.drain().map(|(_, task)| task)) {
            task.await.expect("background work does not panic");
        }
    }

    /// Stops for good when agreement shows an earlier state than before.
    pub(crate) fn note_revision(&mut self, revision: i64) {
        let seen = self.copies.revision_seen;
        if revision < seen && !self.copies.is_stopped {
            self.copies.is_stopped = true;
            tracing::error!(
                revision,
                seen,
                "etcd has gone back, as after a restore from a backup: this node serves no copies \
                 until it is restarted, because records of promotions may be lost"
            );
        }
        self.copies.revision_seen = seen.max(revision);
    }

    /// Does what needs no disk, and returns the rest.
    async fn follow_records(
        &mut self,
        view: &ClusterView,
        (handle, local): (&dyn SharedBucket, &[LocalCopy]),
        (node, may_serve): (Option<u16>, bool),
    ) -> Result<Vec<CopyWork>, AgreementError> {
        let Some(copies) = handle.copies() else { return Ok(Vec::new()) };
        let local: BTreeMap<Vbid, &LocalCopy> = local.iter().map(|one| (one.vbid, one)).collect();
        let (mut work, mut released, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lost, permits) = (0, self.copies.permits(handle.uuid()));
        for vbid in (0..handle.bucket().config().vbuckets).map(Vbid) {
            let place = VbucketPlace { uuid: handle.uuid().to_owned(), vbid };
            let entry = view.copies.get(&place);
            let record = entry.map(|entry| &entry.record);
            let active = record.and_then(|record| view.roster.name(record.active.node));
            let heir = entry.and_then(|entry| view.moves_role_to(&place, entry));
            let heir = heir.filter(|_| copies.can_hand_over(vbid));
            let fails_over = is_failing_over(view, active)
                || entry.is_some_and(|entry| self.suspects(view, (&place, entry), node));
            let input = RoleInput {
                record,
                node,
                local: local.get(&vbid).copied(),
                serves: copies.serves(vbid),
                hands_over: self.stage() == LeaveStage::Leaving
                    || heir.is_some_and(|heir| {
                        self.is_heir_near(copies, (&place, entry), (heir, local.get(&vbid)))
                    }),
                holder: self.holder(view, &place, active),
                fails_over,
                recovers: entry.is_some_and(|entry| view.recovers(&place, entry)),
                may_serve,
            };
            if let (KeyHolder::This, Some(epoch)) = (input.holder, input.serves) {
                let is_current = record.is_some_and(|record| record.epoch == epoch);
                let confirmed = is_current.then_some(epoch);
                confirmed.inspect(|it| self.lease.grants.confirm(&place, *it, self.read_ns));
            }
            for action in actions(&input) {
                if action == RoleAction::HandOver {
                    permits.withdraw(vbid);
                    let wake = Arc::clone(&self.wake);
                    copies.hand_over(vbid, Arc::new(move || wake.notify_one()));
                }
                if matches!(action, RoleAction::StopServing | RoleAction::ReleaseKey) {
                    // Work under way may have begun to serve since, or be about to.
                    permits.withdraw(vbid);
                    copies.stop_serving(vbid);
                }
                match (action, entry) {
                    (RoleAction::StopServing | RoleAction::HandOver, _) => {}
                    (RoleAction::ReleaseKey, _) => {
                        released.push(self.keys.held(handle.name(), handle.uuid(), vbid));
                    }
                    (RoleAction::ReportLoss, _) => lost += 1,
                    (RoleAction::TakeKey, Some(entry)) => taken.push((vbid, entry)),
                    (action, Some(entry)) => {
                        let record = entry.record.clone();
                        let condition = self.serving_condition(view, &record);
                        let grants = &self.lease.grants;
                        if action == RoleAction::Serve
                            && !grants.would_admit(&condition, self.lease.now_ns())
                        {
                            // The thread of beacons wakes the agent when grants come.
                            continue;
                        }
                        let own = record.all().into_iter().find(|copy| Some(copy.node) == node);
                        let source =
                            active.and_then(|name| Some((own?, view.nodes.get(name)?.named(name))));
                        work.push(CopyWork { vbid, action, record, condition, source });
                    }
                    (_, None) => {}
                }
            }
        }
        if lost > 0 {
            tracing::error!(
                bucket = handle.name(),
                vbuckets = lost,
                "copies here know later epochs than etcd: etcd has lost records, so these copies \
                 are neither served nor changed; restore a newer backup of etcd"
            );
        }
        assert!(may_serve || taken.is_empty(), "a node that may not serve takes no key");
        self.let_go(&released).await?;
        for part in taken.chunks(TRANSACTION_RECORDS) {
            let key = |vbid: Vbid| self.keys.held(handle.name(), handle.uuid(), vbid);
            let free = part.iter().flat_map(|(vbid, entry)| {
                let unchanged = RecordComparison::ModifiedAt(entry.key.clone(), entry.revision);
                [RecordComparison::Absent(key(*vbid)), unchanged]
            });
            let free: Vec<RecordComparison> = free.collect();
            let puts = part.iter().map(|(vbid, _)| self.put_in_session(key(*vbid), self.token()));
            let puts: Vec<RecordChange> = puts.collect();
            self.agreement.transact(&free, &puts, self.limit()).await?;
        }
        Ok(work)
    }

    /// True when the active role of a vbucket may move to the heir's copy now; once the hand-over
    /// has begun, it is not asked again.
    fn is_heir_near(
        &mut self,
        copies: &dyn VbucketCopies,
        (place, entry): (&VbucketPlace, Option<&CopiesEntry>),
        (heir, local): (u16, Option<&&LocalCopy>),
    ) -> bool {
        if copies.serves(place.vbid).is_none() {
            return true;
        }
        let members = entry.map(|entry| &entry.record.members[..]).unwrap_or_default();
        let heir = members.iter().find(|copy| copy.node == heir);
        let acknowledged = heir.and_then(|copy| copies.acknowledged(place.vbid, *copy));
        let high = local.map_or(Seqno(0), |local| local.report.complete_end);
        let is_near = self.copies.heirs.is_near(place, high, acknowledged);
        if !is_near {
            self.look_again_soon();
        }
        is_near
    }

    fn holder(&self, view: &ClusterView, place: &VbucketPlace, active: Option<&str>) -> KeyHolder {
        match view.held.get(place) {
            None => KeyHolder::Nobody,
            Some(holder) if holder.token == self.token() => KeyHolder::This,
            Some(holder) if active.is_some_and(|active| holder.is_of(active)) => KeyHolder::Active,
            Some(_) => KeyHolder::Other,
        }
    }

    fn work_off(
        &self,
        (handle, permits): (Arc<dyn SharedBucket>, Arc<ServePermits>),
        work: Vec<CopyWork>,
    ) -> JoinHandle<()> {
        let (wake, lease, session) =
            (Arc::clone(&self.wake), Arc::clone(&self.lease), self.session);
        tokio::task::spawn_blocking(move || {
            let Some(copies) = handle.copies() else { return };
            let before = known_epochs(copies);
            let creates = work.iter().filter_map(|one| match one.action {
                RoleAction::Create(copy) => Some((one.vbid, copy)),
                _ => None,
            });
            let creates: Vec<(Vbid, u64)> = creates.collect();
            // A bucket that is being closed refuses even an empty list.
            if !creates.is_empty()
                && let Err(error) = copies.create(&creates)
            {
                tracing::warn!(bucket = handle.name(), %error, "copies could not be created yet");
            }
            let mut has_served = false;
            for one in work {
                if !lease.is_in(session) {
                    return;
                }
                let place = VbucketPlace { uuid: handle.uuid().to_owned(), vbid: one.vbid };
                match do_work((copies, &place), &one, (&lease, session, &permits)) {
                    Ok(()) => has_served |= one.action == RoleAction::Serve,
                    Err(error) => {
                        let (bucket, vbucket, action) = (handle.name(), one.vbid.0, one.action);
                        tracing::info!(bucket, vbucket, ?action, %error, "a copy is not ready yet");
                    }
                }
            }
            // A repeated step that changed nothing is no reason to look again.
            if has_served || known_epochs(copies) != before {
                wake.notify_one();
            }
        })
    }
}

/// The copies and what they know of epochs.
fn known_epochs(copies: &dyn VbucketCopies) -> Vec<(Vbid, u64, CopiesEpoch, CopiesEpoch)> {
    let all = copies.local();
    let known = |one: LocalCopy| (one.vbid, one.copy, one.promised, one.report.recorded);
    all.into_iter().map(known).collect()
}

fn do_work(
    (copies, place): (&dyn VbucketCopies, &VbucketPlace),
    work: &CopyWork,
    (lease, session, permits): (&NodeLease, u64, &ServePermits),
) -> Result<(), CopyFailure> {
    let (vbid, record) = (work.vbid, &work.record);
    match work.action {
        RoleAction::Promise(epoch) => copies.promise(vbid, epoch),
        RoleAction::Found => copies.found(vbid, record.epoch),
        RoleAction::Serve => {
            // Before the epoch begins: the record may change once it has.
            if !lease.admit(session, place, &work.condition) {
                return Err("too few nodes grant".into());
            }
            copies.begin(vbid, record)?;
            let start = || copies.start_serving(vbid, record.epoch);
            let admission = (place, &work.condition);
            lease.start_in(session, admission, || permits.start(vbid, record.epoch, start));
            Ok(())
        }
        RoleAction::Replicate => match &work.source {
            Some((own, source)) => copies.replicate(vbid, record, (*own, source)),
            None => Ok(()),
        },
        RoleAction::Remove => copies.remove(vbid),
        // Done before, all at once.
        RoleAction::Create(_) => Ok(()),
        RoleAction::StopServing
        | RoleAction::HandOver
        | RoleAction::ReleaseKey
        | RoleAction::TakeKey
        | RoleAction::ReportLoss => unreachable!("done by the tick"),
    }
}

fn live_names(view: &ClusterView) -> BTreeSet<String> {
    view.nodes.keys().cloned().collect()
}

fn is_failing_over(view: &ClusterView, active: Option<&str>) -> bool {
    view.running_failover().is_some_and(|request| active == Some(request.node.as_str()))
}
