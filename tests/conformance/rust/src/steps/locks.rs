//! Locks on documents: who has the lock's CAS may write, everybody may read.

use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::options::kv_options::ReplaceOptions;
use tokio::time::timeout;

use super::Program;
use crate::checks::{Failure, Outcome, check, equal, fails, within};

const LOCK: Duration = Duration::from_secs(30);
/// The SDK waits for a lock to go, for as long as its caller does.
const SOON: Duration = Duration::from_millis(300);
const KEY: &str = "locked";

impl Program {
    pub(super) async fn locks(&self) -> Outcome {
        let collection = &self.collection;
        let stored = within(collection.upsert(KEY, 1, None)).await?;
        let locked = within(collection.get_and_lock(KEY, LOCK, None)).await?;
        equal(locked.content_as::<i64>()?, 1)?;
        check(locked.cas() != stored.cas(), "a CAS of the lock")?;
        let seen = within(collection.get(KEY, None)).await?;
        equal(seen.content_as::<i64>()?, 1)?;
        check(seen.cas() != locked.cas(), "a CAS that readers cannot use")?;
        is_locked(collection.upsert(KEY, 2, None)).await?;
        is_locked(collection.remove(KEY, None)).await?;
        is_locked(collection.get_and_lock(KEY, LOCK, None)).await?;
        let refused = collection.unlock(KEY, stored.cas(), None).await;
        fails(refused, ErrorKind::CasMismatch)?;
        // The holder's write takes the lock away.
        let with_cas = ReplaceOptions::new().cas(locked.cas());
        let written = within(collection.replace(KEY, 3, with_cas)).await?;
        equal(within(collection.get(KEY, None)).await?.cas(), written.cas())?;
        let refused = collection.unlock(KEY, written.cas(), None).await;
        fails(refused, ErrorKind::DocumentNotLocked)?;
        let locked = within(collection.get_and_lock(KEY, LOCK, None)).await?;
        within(collection.unlock(KEY, locked.cas(), None)).await?;
        within(collection.upsert(KEY, 4, None)).await?;
        // A lock that ends by itself is waited for by the SDK.
        within(collection.get_and_lock(KEY, Duration::from_secs(1), None)).await?;
        within(collection.upsert(KEY, 5, None)).await?;
        equal(within(collection.get(KEY, None)).await?.content_as::<i64>()?, 5)?;
        let missing = collection.get_and_lock("never-written", LOCK, None).await;
        fails(missing, ErrorKind::DocumentNotFound)?;
        let missing = collection.unlock("never-written", written.cas(), None).await;
        fails(missing, ErrorKind::DocumentNotFound)?;
        Ok(String::new())
    }
}

async fn is_locked<T>(
    call: impl Future<Output = couchbase::error::Result<T>>,
) -> Result<(), Failure> {
    match timeout(SOON, Box::pin(call)).await {
        Err(_) => Ok(()),
        Ok(answer) => fails(answer, ErrorKind::DocumentLocked),
    }
}
