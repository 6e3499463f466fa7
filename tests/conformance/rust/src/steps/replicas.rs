//! Replicas of a document. This SDK reads from no other copy than the one that is asked for.

use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::get_replica_strategy::{GetReplicaStrategy, ReplicaIndex};
use tokio::time::{Instant, sleep};

use super::Program;
use crate::checks::{Failure, Outcome, check, equal, fails, within};

const INDEXES: [ReplicaIndex; 3] = [ReplicaIndex::First, ReplicaIndex::Second, ReplicaIndex::Third];
const FOLLOW_SECONDS_MAX: u64 = 30;

/// Replicas of the bucket.
pub(super) fn replicas() -> usize {
    std::env::var("ORIBI_REPLICAS").unwrap_or_default().parse().unwrap_or(0)
}

impl Program {
    /// What was written is read from each replica of the bucket once it has followed, and from no
    /// other.
    pub(super) async fn replicas(&self) -> Outcome {
        let count = replicas();
        let cas = within(self.collection.upsert("replicas", 1, None)).await?.cas();
        for index in &INDEXES[..count] {
            self.read_replica(*index, cas).await?;
        }
        let beyond = GetReplicaStrategy::from_index(INDEXES[count], None);
        let refused = self.collection.get_replica("replicas", beyond, None).await;
        fails(refused, ErrorKind::ReplicaIndexOutOfBounds)?;
        Ok(String::new())
    }

    async fn read_replica(&self, index: ReplicaIndex, cas: u64) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(FOLLOW_SECONDS_MAX);
        loop {
            let strategy = GetReplicaStrategy::from_index(index, None);
            match within(self.collection.get_replica("replicas", strategy, None)).await {
                Ok(found) if found.cas() == cas => {
                    equal(found.content_as::<i64>()?, 1)?;
                    return check(found.is_replica(), "a replica");
                }
                _ => check(Instant::now() < deadline, "the replica follows")?,
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
