//! Copies whose documents left memory.

use std::sync::Arc;

use oribi_engine::{
    ApplyError, Bucket, BucketConfig, EvictionPolicy, FetchOutcome, FetchSink, GetOutcome,
    WriteQuorum, WriteVisibility,
};
use oribi_storage::MemoryStore;
use oribi_types::{CopiesEpoch, CopyId, DocKey, DurabilityLevel, Seqno};

use super::world::{Link, get_replica};
use crate::operations_by_vbid::OperationsByVbid as _;
use crate::{NOW, VB, config, done, entropy, key, set};

const EPOCH: CopiesEpoch = CopiesEpoch(1);

fn id(node: u16) -> CopyId {
    CopyId { node, copy: 1 }
}

fn copy() -> Arc<Bucket> {
    let config = BucketConfig { eviction: EvictionPolicy::Full, ..config() };
    let store = Arc::new(MemoryStore::new());
    let bucket = Bucket::open_copies(config, store, entropy(), true).expect("it opens");
    while !bucket.stats().warmup.done {
        bucket.warmup_step();
    }
    bucket.become_replica(VB).expect("an empty copy");
    bucket
}

#[derive(Debug)]
struct NoOutcome;

impl FetchSink for NoOutcome {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        assert_eq!(outcome, FetchOutcome::Ready);
    }
}

// Once a later document had left memory, each fetch of the key looked overtaken, and the copy could
// never apply the commit: it followed nothing any more.
#[test]
fn a_commit_is_applied_after_an_eviction() {
    let (active, replica) = (copy(), copy());
    active.promote(VB, EPOCH).expect("a replica");
    let vbucket = active.vbucket(VB).expect("it exists");
    let members = vec![id(1), id(2)];
    let joining = Vec::new();
    vbucket.set_quorum(WriteQuorum {
        epoch: EPOCH,
        active: id(1),
        members,
        joining,
        majority: 2,
        joining_majority: 2,
    });
    let level = DurabilityLevel::Majority;
    let context = active.context(NOW).visible(WriteVisibility::WhenCommitted(level));
    let mut link = Link::open(&active, &replica).expect("a stream");
    let follow_and_evict = |link: &mut Link, name| {
        link.run(&active, &replica);
        while replica.flush_step().expect("the store is sound").more {}
        assert!(replica.evict(VB, key(name)));
    };
    done(active.store(VB, key("a"), &set("0"), NOW));
    follow_and_evict(&mut link, "a");
    done(vbucket.store(&context, key("a"), &set("1")));
    done(active.store(VB, key("z"), &set("2"), NOW));
    follow_and_evict(&mut link, "z");
    vbucket.copy_acknowledged(&active.context(NOW), (id(2), EPOCH), Seqno(3));
    assert!(link.receive(usize::MAX), "the commit comes");
    let Err(ApplyError::NeedsFetch(keys)) = link.apply(&replica) else { panic!("it is unknown") };
    let sink: Arc<dyn FetchSink> = Arc::new(NoOutcome);
    for (collection, key) in &keys {
        replica.fetch(VB, DocKey { collection: *collection, key }, &sink, 0);
    }
    assert_eq!(replica.fetch_step(), 1);
    link.apply(&replica).expect("it is applied");
    let found = get_replica(&replica, key("a"), NOW);
    assert!(matches!(found, GetOutcome::Hit(_)), "{found:?}");
}
