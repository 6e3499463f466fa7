//! A node with one copy of a bucket, and three that write durably.

use std::sync::Arc;

use oribi_engine::{
    AppliedMutation, Bucket, BucketConfig, GetOutcome, MutationOutcome, WriteQuorum,
    WriteVisibility,
};
use oribi_storage::{FaultPlan, FaultStore, KvStore, MemoryMedium, MemoryStore};
use oribi_types::{Cas, CopiesEpoch, CopyId, DurabilityLevel};

use super::world::{Link, get_replica};
use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, set};
pub(super) const MAJORITY: DurabilityLevel = DurabilityLevel::Majority;
pub(super) const PERSIST: DurabilityLevel = DurabilityLevel::PersistToMajority;
pub(super) const EPOCH: CopiesEpoch = CopiesEpoch(1);

fn id(node: u16) -> CopyId {
    CopyId { node, copy: 1 }
}

/// A node with one copy, on a disk that outlives it.
pub(super) struct Node {
    id: CopyId,
    pub(super) disk: Arc<MemoryMedium>,
    pub(super) bucket: Arc<Bucket>,
}

impl Node {
    fn new(node: u16) -> Node {
        let disk = Arc::new(MemoryMedium::default());
        let bucket = opened(&disk, true);
        bucket.become_replica(VB).expect("an empty copy");
        Node { id: id(node), disk, bucket }
    }

    /// A node with another bucket than usual, and the plan by which its disk fails.
    pub(super) fn with(node: u16, config: BucketConfig) -> (Node, Arc<FaultPlan>) {
        let (disk, plan) = (Arc::new(MemoryMedium::default()), FaultPlan::none());
        let store = FaultStore::new(MemoryStore::on(Arc::clone(&disk)), Arc::clone(&plan));
        let bucket = opened_over(config, Arc::new(store), true);
        bucket.become_replica(VB).expect("an empty copy");
        (Node { id: id(node), disk, bucket }, plan)
    }

    pub(super) fn restart(&mut self) {
        self.bucket = opened(&self.disk, false);
    }

    pub(super) fn promote(&self, epoch: u64, nodes: &[u16]) {
        self.bucket.promote(VB, CopiesEpoch(epoch)).expect("a replica");
        self.begin(epoch, nodes);
    }

    pub(super) fn begin(&self, epoch: u64, nodes: &[u16]) {
        let quorum = WriteQuorum {
            epoch: CopiesEpoch(epoch),
            active: self.id,
            members: nodes.iter().map(|node| id(*node)).collect(),
            joining: Vec::new(),
            majority: 2,
            joining_majority: 2,
        };
        self.vbucket().set_quorum(quorum);
        self.vbucket().complete_prepares(&self.bucket.context(NOW));
    }

    pub(super) fn vbucket(&self) -> &oribi_engine::VBucket {
        self.bucket.vbucket(VB).expect("it exists")
    }

    pub(super) fn flush(&self) {
        while self.bucket.flush_step().expect("the store is sound").more {}
    }

    pub(super) fn write(&self, name: &str, value: &str, level: DurabilityLevel) -> AppliedMutation {
        done(self.try_write(name, value, level))
    }

    pub(super) fn try_write(
        &self,
        name: &str,
        value: &str,
        level: DurabilityLevel,
    ) -> MutationOutcome {
        let context = self.bucket.context(NOW).visible(WriteVisibility::WhenCommitted(level));
        self.vbucket().store(&context, key(name), &set(value))
    }

    pub(super) fn delete(&self, name: &str) -> AppliedMutation {
        let context = self.bucket.context(NOW).visible(WriteVisibility::WhenCommitted(MAJORITY));
        done(self.vbucket().delete(&context, key(name), Cas(0)))
    }

    /// This replica's acknowledgement reaches the active.
    pub(super) fn acknowledge(&self, active: &Node, epoch: CopiesEpoch) {
        let (seqno, _) = self.vbucket().acknowledgeable_seqno();
        let context = active.bucket.context(NOW);
        active.vbucket().copy_acknowledged(&context, (self.id, epoch), seqno);
    }

    pub(super) fn value(&self, name: &str) -> Option<String> {
        let found = match self.vbucket().is_replica() {
            true => get_replica(&self.bucket, key(name), NOW),
            false => self.bucket.get(VB, key(name), NOW),
        };
        match found {
            GetOutcome::Hit(item) => Some(String::from_utf8_lossy(item.value()).into_owned()),
            GetOutcome::Miss => None,
            other => panic!("{other:?}"),
        }
    }
}

fn opened(disk: &Arc<MemoryMedium>, is_clean: bool) -> Arc<Bucket> {
    opened_over(config(), Arc::new(MemoryStore::on(Arc::clone(disk))), is_clean)
}

fn opened_over(config: BucketConfig, store: Arc<dyn KvStore>, is_clean: bool) -> Arc<Bucket> {
    let bucket = Bucket::open_copies(config, store, entropy(), is_clean).expect("it opens");
    while !bucket.stats().warmup.done {
        bucket.warmup_step();
    }
    bucket
}

pub(super) fn trio() -> (Node, Node, Node) {
    let (active, second, third) = (Node::new(1), Node::new(2), Node::new(3));
    active.promote(1, &[1, 2, 3]);
    (active, second, third)
}

pub(super) fn feed(active: &Node, replica: &Node) -> Link {
    let mut link = Link::open(&active.bucket, &replica.bucket).expect("a stream");
    link.run(&active.bucket, &replica.bucket);
    link
}
