//! Operations of a bucket by the number of the vbucket.
//!
//! Owns: the look-up of the vbucket and the context, which a server makes once for each request. A
//! vbucket outside the map is answered like one that another node has.

use oribi_engine::{
    Bucket, ConcatRequest, CounterOutcome, CounterRequest, CurrentVersion, FillingItem, GetOutcome,
    LockOutcome, MetaOutcome, MutationOutcome, NextVersion, ReadTarget, RewriteOutcome,
    StoreRequest, VersionOutcome, WithMetaRequest,
};
use oribi_types::{Cas, DocKey, Timestamp, Vbid};

macro_rules! operations {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $outcome:ident;)*) => {
        pub(crate) trait OperationsByVbid {
            $(fn $name(&self, vbid: Vbid, $($argument: $kind,)* now: Timestamp) -> $outcome;)*

            fn rewrite<E>(
                &self,
                vbid: Vbid,
                key: DocKey<'_>,
                target: ReadTarget,
                terms: (u32, Cas),
                now: Timestamp,
                build: impl FnMut(CurrentVersion<'_>) -> Result<NextVersion, E>,
            ) -> RewriteOutcome<E>;
        }

        impl OperationsByVbid for Bucket {
            $(fn $name(&self, vbid: Vbid, $($argument: $kind,)* now: Timestamp) -> $outcome {
                match self.vbucket_or_rejection(vbid) {
                    Ok(vbucket) => vbucket.$name(&self.context(now), $($argument),*),
                    Err(rejection) => $outcome::Refused(rejection),
                }
            })*

            fn rewrite<E>(
                &self,
                vbid: Vbid,
                key: DocKey<'_>,
                target: ReadTarget,
                terms: (u32, Cas),
                now: Timestamp,
                build: impl FnMut(CurrentVersion<'_>) -> Result<NextVersion, E>,
            ) -> RewriteOutcome<E> {
                match self.vbucket_or_rejection(vbid) {
                    Ok(vbucket) => vbucket.rewrite(&self.context(now), key, target, terms, build),
                    Err(rejection) => RewriteOutcome::Refused(rejection),
                }
            }
        }
    };
}

operations! {
    get(key: DocKey<'_>) -> GetOutcome;
    get_meta(key: DocKey<'_>) -> MetaOutcome;
    read_version(key: DocKey<'_>, target: ReadTarget) -> VersionOutcome;
    get_and_touch(key: DocKey<'_>, expiry: u32) -> GetOutcome;
    get_and_lock(key: DocKey<'_>, timeout_s: u32) -> LockOutcome;
    store(key: DocKey<'_>, request: &StoreRequest<'_>) -> MutationOutcome;
    store_received(received: &mut Option<FillingItem>, request: &StoreRequest<'_>)
        -> MutationOutcome;
    store_with_meta(key: DocKey<'_>, request: &WithMetaRequest<'_>) -> MutationOutcome;
    concat(key: DocKey<'_>, request: &ConcatRequest<'_>) -> MutationOutcome;
    delete(key: DocKey<'_>, cas: Cas) -> MutationOutcome;
    touch(key: DocKey<'_>, expiry: u32) -> MutationOutcome;
    counter(key: DocKey<'_>, request: &CounterRequest) -> CounterOutcome;
}
