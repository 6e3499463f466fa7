//! Several nodes over one store: vbuckets taken over, given up, lost, and what is left in flight
//! then.

mod overtaken;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_engine::collections::{BucketManifest, ManifestChange};
use oribi_engine::{
    Bucket, FetchOutcome, FetchSink, GetOutcome, MutationOutcome, OperationRejection,
    PersistOutcome, PersistenceSink, WarmupStep,
};
use oribi_storage::conformance::take_over;
use oribi_storage::{
    KvStore, Ownership, PartVisitor, Record, RecordVisitor, ReserveMemory, SharedMedium,
    SharedMemoryStore, SharedStore, StoreError, StoreMaintenance, VbBatch, VbucketState, forward,
};
use oribi_types::{Cas, CollectionId, DocKey, Seqno, Vbid};
use parking_lot::Mutex;

use super::{NOW, VB, config, done, entropy, key, set};
use crate::operations_by_vbid::OperationsByVbid;

pub(super) const ALL: [Vbid; 4] = [Vbid(0), Vbid(1), Vbid(2), Vbid(3)];

pub(super) fn node(store: Arc<dyn KvStore>) -> Arc<Bucket> {
    Bucket::open(config(), store, entropy(), false).expect("the bucket opens")
}

fn nodes(medium: &Arc<SharedMedium>) -> (Arc<Bucket>, Arc<Bucket>) {
    let open = || node(Arc::new(SharedMemoryStore::on(Arc::clone(medium))));
    (open(), open())
}

fn is_elsewhere(bucket: &Bucket, vbid: Vbid, name: &str) -> bool {
    let read = bucket.get(vbid, key(name), NOW);
    let written = bucket.store(vbid, key(name), &set("never"), NOW);
    matches!(read, GetOutcome::Refused(OperationRejection::NotMyVbucket))
        && written == MutationOutcome::Refused(OperationRejection::NotMyVbucket)
}

pub(super) fn load_all(bucket: &Bucket) {
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
}

fn value(bucket: &Bucket, vbid: Vbid, name: &str) -> Option<String> {
    match bucket.get(vbid, key(name), NOW) {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
            Some(String::from_utf8_lossy(item.value()).into_owned())
        }
        GetOutcome::Miss => None,
        GetOutcome::Refused(refused) => panic!("{refused:?}"),
    }
}

#[derive(Default)]
struct RecordingSink(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for RecordingSink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

#[derive(Default)]
struct FetchFlag(AtomicBool);

impl FetchSink for FetchFlag {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        assert_eq!(outcome, FetchOutcome::Ready);
        self.0.store(true, Ordering::Release);
    }
}

/// The vbuckets that a node believes to own.
#[derive(Default)]
struct OwnedVbuckets(Mutex<Vec<Vbid>>);

impl Ownership for OwnedVbuckets {
    fn owns(&self, vbid: Vbid) -> bool {
        self.0.lock().contains(&vbid)
    }
}

#[test]
fn vbuckets_are_served_only_after_the_takeover() {
    let (bucket, _) = nodes(&Arc::default());
    assert!(bucket.owned().is_empty());
    assert!(is_elsewhere(&bucket, VB, "k"));
    bucket.take_over(&[VB]).unwrap();
    assert_eq!(bucket.owned(), [VB]);
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    assert!(is_elsewhere(&bucket, Vbid(2), "k"));
    assert_eq!(bucket.flush_step().unwrap().vbuckets, 1);
}

#[test]
fn a_hand_over_is_lossless_and_adds_a_history() {
    let (old, new) = nodes(&Arc::default());
    old.take_over(&ALL).unwrap();
    let written = done(old.store(VB, key("k"), &set("1"), NOW));
    old.stop_serving(VB);
    assert!(is_elsewhere(&old, VB, "k"));
    assert!(!old.vbucket(VB).unwrap().is_flushed());
    old.flush_step().unwrap();
    assert!(old.vbucket(VB).unwrap().is_flushed());
    old.deactivate(VB);
    assert_eq!(old.owned().len(), ALL.len() - 1);

    new.take_over(&[VB]).unwrap();
    // It serves at once; that a key is absent is certain only after the load.
    assert!(matches!(
        new.get(VB, key("k"), NOW),
        GetOutcome::Refused(OperationRejection::NeedsFetch)
    ));
    load_all(&new);
    assert_eq!(value(&new, VB, "k").as_deref(), Some("1"));
    let next = done(new.store(VB, key("k"), &set("2"), NOW));
    assert!(next.seqno > written.seqno && next.cas > written.cas);
    assert_ne!(next.vb_uuid, written.vb_uuid);
    let histories = new.vbucket(VB).unwrap().failover_table();
    assert_eq!(histories[0].seqno, written.seqno);
    assert_eq!(histories[1].uuid, written.vb_uuid);
}

#[test]
fn losing_a_vbucket_answers_its_waiters_as_unknown() {
    let (bucket, _) = nodes(&Arc::default());
    bucket.take_over(&ALL).unwrap();
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn PersistenceSink> = told.clone();
    let first = done(bucket.store(VB, key("k"), &set("1"), NOW));
    assert!(!bucket.when_persisted(VB, (first.seqno, Some(first.vb_uuid)), &sink, 1));
    bucket.deactivate(VB);
    assert_eq!(*told.0.lock(), [(1, PersistOutcome::Failed)]);
    // One who comes too late, and one whose history has ended concurrently.
    assert!(!bucket.when_persisted(VB, (first.seqno, None), &sink, 2));
    bucket.take_over(&[VB]).unwrap();
    assert!(!bucket.when_persisted(VB, (first.seqno, Some(first.vb_uuid)), &sink, 3));
    let failed = |token| (token, PersistOutcome::Failed);
    assert_eq!(*told.0.lock(), [failed(1), failed(2), failed(3)]);
    assert_eq!(value(&bucket, VB, "k"), None, "it was never durable");
}

#[test]
fn the_old_owner_overwrites_nothing_and_gives_up() {
    let (old, new) = nodes(&Arc::default());
    old.take_over(&ALL).unwrap();
    done(old.store(VB, key("k"), &set("durable"), NOW));
    old.flush_step().unwrap();
    done(old.store(VB, key("k"), &set("late"), NOW));
    new.take_over(&ALL).unwrap();
    load_all(&new);
    done(new.store(VB, key("k"), &set("newer"), NOW));
    new.flush_step().unwrap();
    assert!(matches!(old.flush_step(), Err(StoreError::Fenced(_))));
    assert!(is_elsewhere(&old, VB, "k"));
    assert!(old.owned().is_empty(), "without anybody to ask, everything is the other's");
    assert_eq!(value(&new, VB, "k").as_deref(), Some("newer"));
    // What is left of the old owner's step is not tried again.
    assert_eq!(old.flush_step().unwrap().items, 0);
}

#[test]
fn a_takeover_leaves_other_owned_vbuckets_writable() {
    let medium = Arc::<SharedMedium>::default();
    let (old, new) = nodes(&medium);
    let owned = Arc::new(OwnedVbuckets::default());
    owned.0.lock().extend(ALL);
    old.set_ownership(owned.clone());
    old.take_over(&ALL).unwrap();
    // The lease of one is over, and the engine does not know yet.
    owned.0.lock().retain(|vbid| *vbid != VB);
    new.take_over(&[VB]).unwrap();
    done(old.store(VB, key("k"), &set("lost"), NOW));
    done(old.store(Vbid(2), key("k"), &set("1"), NOW));
    assert!(matches!(old.flush_step(), Err(StoreError::Fenced(_))));
    assert!(is_elsewhere(&old, VB, "k"));
    assert_eq!(old.flush_step().unwrap().items, 1);
    assert_eq!(old.owned().len(), ALL.len() - 1);
    assert_eq!(value(&old, Vbid(2), "k").as_deref(), Some("1"));
}

#[test]
fn a_late_takeover_is_not_served() {
    let (bucket, _) = nodes(&Arc::default());
    bucket.set_ownership(Arc::new(OwnedVbuckets::default()));
    assert!(matches!(bucket.take_over(&[VB]), Err(StoreError::Fenced(_))));
    assert!(bucket.owned().is_empty());
}

#[test]
fn a_returning_vbucket_has_no_state_of_its_past() {
    let (one, two) = nodes(&Arc::default());
    one.take_over(&ALL).unwrap();
    done(one.store(VB, key("stale"), &set("1"), NOW));
    done(one.store(VB, key("k"), &set("1"), NOW));
    one.deactivate(VB);
    two.take_over(&[VB]).unwrap();
    done(two.store(VB, key("k"), &set("2"), NOW));
    two.flush_step().unwrap();
    two.deactivate(VB);
    one.take_over(&[VB]).unwrap();
    load_all(&one);
    assert_eq!(value(&one, VB, "k").as_deref(), Some("2"));
    assert_eq!(value(&one, VB, "stale"), None);
    assert_eq!(one.vbucket(VB).unwrap().stats().high_seqno, Seqno(1));
}

/// A fetch that was queued before a vbucket was given up runs after it.
#[test]
fn a_late_fetch_leaves_nothing_in_a_lost_vbucket() {
    let (one, two) = nodes(&Arc::default());
    one.take_over(&[VB]).unwrap();
    done(one.store(VB, key("other"), &set("1"), NOW));
    done(one.delete(VB, key("other"), Cas(0), NOW));
    one.flush_step().unwrap();
    let sink: Arc<dyn FetchSink> = Arc::new(FetchFlag::default());
    one.fetch(VB, key("k"), &sink, 1);
    one.deactivate(VB);
    assert_eq!(one.fetch_step(), 1);

    two.take_over(&[VB]).unwrap();
    load_all(&two);
    done(two.store(VB, key("k"), &set("2"), NOW));
    two.flush_step().unwrap();
    two.deactivate(VB);
    one.take_over(&[VB]).unwrap();
    load_all(&one);
    assert_eq!(value(&one, VB, "k").as_deref(), Some("2"));
}

type Action = Box<dyn FnOnce() + Send>;

/// Does something between a call's arrival and the store.
pub(super) struct InterruptedStore {
    inner: SharedMemoryStore,
    now: Mutex<Option<Action>>,
    before_scan: Mutex<Option<Action>>,
    before_drop: Mutex<Option<(Vbid, Action)>>,
    in_take_over: Mutex<Option<Action>>,
    /// A write by an earlier owner that the next takeover finds.
    overtaken: Mutex<Vec<Vbid>>,
}

impl InterruptedStore {
    pub(super) fn on(medium: &Arc<SharedMedium>) -> Arc<InterruptedStore> {
        let inner = SharedMemoryStore::on(Arc::clone(medium));
        Arc::new(InterruptedStore {
            inner,
            now: Mutex::default(),
            before_scan: Mutex::default(),
            before_drop: Mutex::default(),
            in_take_over: Mutex::default(),
            overtaken: Mutex::default(),
        })
    }

    pub(super) fn next(&self, action: impl FnOnce() + Send + 'static) {
        *self.now.lock() = Some(Box::new(action));
    }

    pub(super) fn before_drop(&self, vbid: Vbid, action: impl FnOnce() + Send + 'static) {
        *self.before_drop.lock() = Some((vbid, Box::new(action)));
    }

    fn interrupt(&self) {
        act(&self.now);
    }
}

fn act(planned: &Mutex<Option<Action>>) {
    let action = planned.lock().take();
    action.into_iter().for_each(|action| action());
}

impl KvStore for InterruptedStore {
    forward!(inner: properties, begin_scan, vbucket_states, get_local);

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        self.interrupt();
        self.inner.commit(batches)
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let found = self.inner.get(vbid, key, reserve, visit);
        self.interrupt();
        found
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        act(&self.before_scan);
        self.inner.scan_keys(vbid, &mut |record| {
            self.interrupt();
            visit(record)
        })
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.interrupt();
        self.inner.put_local(name, value)
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }
}

impl StoreMaintenance for InterruptedStore {
    forward!(inner: purge_collection, compact, stats);

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        let planned = self.before_drop.lock().take_if(|(dropped, _)| *dropped == vbid);
        planned.into_iter().for_each(|(_, action)| action());
        self.inner.drop_vbucket(vbid, next)
    }
}

impl SharedStore for InterruptedStore {
    fn take_over(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        let states = take_over(&self.inner, vbuckets);
        act(&self.in_take_over);
        ready(vbuckets, states?);
        let overtaken = std::mem::take(&mut *self.overtaken.lock());
        if !overtaken.is_empty() {
            self.interrupt();
        }
        Ok(overtaken)
    }

    fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        self.inner.set_ownership(ownership);
    }
}

#[test]
fn a_cancelled_takeover_serves_no_request() {
    let store = InterruptedStore::on(&Arc::default());
    let bucket = node(store.clone());
    // Before it began: another owner was in the way.
    bucket.call_off(&ALL);
    let taken = bucket.take_over_unless(&ALL, &|| true);
    assert!(matches!(taken, Err(StoreError::Fenced(_))));
    assert!(bucket.owned().is_empty());
    // While the store is busy with it.
    let other = Arc::clone(&bucket);
    *store.in_take_over.lock() = Some(Box::new(move || other.call_off(&ALL)));
    assert!(matches!(bucket.take_over(&ALL), Err(StoreError::Fenced(_))));
    assert!(bucket.owned().is_empty());
    // What is served already is not given up.
    let other = Arc::clone(&bucket);
    store.next(move || other.call_off(&ALL));
    bucket.take_over(&ALL).unwrap();
    bucket.call_off(&ALL);
    assert_eq!(bucket.owned(), ALL);
    done(bucket.store(VB, key("k"), &set("1"), NOW));
}

/// After a bulk load Kudu takes no Write for seconds, although the earlier owner is fenced.
#[test]
fn a_vbucket_serves_reads_before_the_store_is_ready() {
    let medium = Arc::<SharedMedium>::default();
    let (before, _) = nodes(&medium);
    before.take_over(&ALL).unwrap();
    done(before.store(VB, key("k"), &set("1"), NOW));
    before.flush_step().unwrap();
    let last = before.vbucket(VB).unwrap().failover_table()[0].uuid;

    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    let served = Arc::clone(&bucket);
    let history = Arc::<Mutex<Option<_>>>::default();
    let seen = Arc::clone(&history);
    store.next(move || {
        load_all(&served);
        assert_eq!(value(&served, VB, "k").as_deref(), Some("1"));
        let written = done(served.store(VB, key("k"), &set("2"), NOW));
        assert!(!served.vbucket(VB).unwrap().is_flushed());
        *seen.lock() = Some(written.vb_uuid);
    });
    bucket.take_over(&ALL).unwrap();
    let history = history.lock().expect("the store was written to");
    let states = store.vbucket_states().unwrap();
    let (_, state) = states.into_iter().find(|(vbid, _)| *vbid == VB).unwrap();
    assert_eq!([state.failover_table[0].uuid, state.failover_table[1].uuid], [history, last]);
    assert_eq!(state.high_seqno, Seqno(1), "the write waits for the flush");
    assert_eq!(bucket.flush_step().unwrap().items, 1);
}

// Invariant: A vbucket served before the fence is given up if its state row has changed at the
// fence.
/// An earlier owner has written after the state was read with which the vbucket was served.
#[test]
fn a_vbucket_served_too_early_is_dropped_entirely() {
    let medium = Arc::<SharedMedium>::default();
    let (before, _) = nodes(&medium);
    before.take_over(&ALL).unwrap();
    done(before.store(VB, key("k"), &set("1"), NOW));
    before.flush_step().unwrap();
    let history = before.vbucket(VB).unwrap().failover_table()[0].uuid;

    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    store.overtaken.lock().push(VB);
    let served = Arc::clone(&bucket);
    store.next(move || {
        load_all(&served);
        for vbid in [VB, Vbid(2)] {
            done(served.store(vbid, key("k"), &set("2"), NOW));
        }
    });
    assert!(matches!(bucket.take_over(&ALL), Err(StoreError::Fenced(_))));
    assert_eq!(bucket.owned().len(), ALL.len() - 1);
    assert!(is_elsewhere(&bucket, VB, "k"));
    assert_eq!(value(&bucket, Vbid(2), "k").as_deref(), Some("2"));
    assert_eq!(bucket.flush_step().unwrap().items, 1);
    let states = store.vbucket_states().unwrap();
    let (_, state) = states.into_iter().find(|(vbid, _)| *vbid == VB).unwrap();
    assert_eq!((state.failover_table[0].uuid, state.high_seqno), (history, Seqno(1)));
    bucket.take_over(&ALL).unwrap();
    load_all(&bucket);
    assert_eq!(value(&bucket, VB, "k").as_deref(), Some("1"));
}

/// A hand-over, or the end of a lease, while the store does not accept the beginning of a history.
#[test]
fn a_loss_during_a_busy_store_affects_nothing_else() {
    let store = InterruptedStore::on(&Arc::default());
    let bucket = node(store.clone());
    let other = Arc::clone(&bucket);
    store.next(move || {
        done(other.store(Vbid(2), key("k"), &set("1"), NOW));
        other.deactivate(VB);
    });
    assert!(matches!(bucket.take_over(&ALL), Err(StoreError::Fenced(_))));
    assert_eq!(bucket.owned().len(), ALL.len() - 1);
    assert_eq!(value(&bucket, Vbid(2), "k").as_deref(), Some("1"));
    assert_eq!(bucket.flush_step().unwrap().items, 1);
}

#[test]
fn a_manifest_is_accepted_while_another_is_stored() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    let (first, second) = (manifest_with(&["a"]), manifest_with(&["a", "b"]));
    bucket.install_manifest(&first).unwrap();
    let meanwhile = (Arc::clone(&bucket), second.clone());
    let (sender, receiver) = std::sync::mpsc::channel();
    store.next(move || {
        // On its own thread, because it would wait for ever, not fail, if it waited for the store.
        let (bucket, text) = meanwhile;
        std::thread::spawn(move || sender.send(bucket.install_manifest(&text).is_ok()));
        let installed = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(installed, Ok(true), "it waits for the store");
    });
    bucket.store_manifest().unwrap();
    assert_eq!(bucket.manifest().uid().0, 2);
    bucket.store_manifest().unwrap();
    assert_eq!(bucket.install_manifest(&first).unwrap().uid().0, 2, "it never goes back");
    let reopened = node(Arc::new(SharedMemoryStore::on(medium)));
    assert_eq!(reopened.manifest().to_stored_json(), second);
}

/// A stored manifest after these collections were created, one after the other.
fn manifest_with(names: &[&str]) -> String {
    let changed = names.iter().fold(BucketManifest::initial(), |manifest, name| {
        let change = ManifestChange::CreateCollection {
            scope: "_default".to_owned(),
            name: (*name).to_owned(),
            max_ttl_s: None,
        };
        manifest.apply(&change).expect("the name is valid and new")
    });
    changed.to_stored_json()
}

#[test]
fn a_vbucket_may_go_away_in_the_middle_of_a_flush() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    bucket.take_over(&ALL).unwrap();
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    done(bucket.store(Vbid(2), key("k"), &set("1"), NOW));
    let interrupted = Arc::clone(&bucket);
    store.next(move || interrupted.deactivate(VB));
    assert_eq!(bucket.flush_step().unwrap().vbuckets, 2);
    assert!(is_elsewhere(&bucket, VB, "k"));
    assert!(bucket.vbucket(Vbid(2)).unwrap().is_flushed());
    // A commit before another owner came counts, although no waiter was told.
    bucket.take_over(&[VB]).unwrap();
    load_all(&bucket);
    assert_eq!(value(&bucket, VB, "k").as_deref(), Some("1"));
}

// Invariant: Work begun in one ownership of a vbucket counts in no other.
/// A waiter checked that its history was the current one, was held up, and registered when
/// the next owner had begun to take the vbucket over: he was then told of the durability of another
/// history's seqno.
#[test]
fn a_waiter_of_one_history_hears_nothing_of_the_next() {
    let medium = Arc::<SharedMedium>::default();
    let store = InterruptedStore::on(&medium);
    let bucket = node(store.clone());
    bucket.take_over(&ALL).unwrap();
    let told = Arc::new(RecordingSink::default());
    let sink: Arc<dyn PersistenceSink> = told.clone();
    let written = done(bucket.store(VB, key("k"), &set("lost"), NOW));
    bucket.deactivate(VB);
    let (waiting, late) = (Arc::clone(&bucket), Arc::clone(&sink));
    let wait = move |token| {
        let position = (written.seqno, Some(written.vb_uuid));
        assert!(!waiting.when_persisted(VB, position, &late, token));
    };
    let again = wait.clone();
    *store.in_take_over.lock() = Some(Box::new(move || wait(1)));
    store.next(move || again(2));
    bucket.take_over(&[VB]).unwrap();
    let next = done(bucket.store(VB, key("k"), &set("2"), NOW));
    assert_eq!(next.seqno, written.seqno, "both histories have this seqno");
    bucket.flush_step().unwrap();
    assert_eq!(*told.0.lock(), [(1, PersistOutcome::Failed), (2, PersistOutcome::Failed)]);
}

#[test]
fn no_random_document_comes_from_a_leaving_vbucket() {
    let (bucket, _) = nodes(&Arc::default());
    bucket.take_over(&ALL).unwrap();
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    let drawn = || bucket.random_document(CollectionId::DEFAULT, NOW).unwrap();
    assert!(drawn().is_some() && bucket.vbucket(VB).unwrap().is_serving());
    bucket.stop_serving(VB);
    assert!(bucket.vbucket(VB).unwrap().is_owned() && !bucket.vbucket(VB).unwrap().is_serving());
    assert!(drawn().is_none());
}
