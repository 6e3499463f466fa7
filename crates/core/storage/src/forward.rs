//! Forwarding for stores around another store: they write what they change and list the rest.
//!
//! `forward!(inner: get_local, put_local);` in an `impl` of one of the store traits calls the same
//! methods of the field `inner`. The field's type has the trait or is a smart pointer to it.

/// The listed methods of a store trait call those of the field before the colon.
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident),+ $(,)?) => { $($crate::forward_method!($method, $inner);)+ };
}

/// One method of [`forward!`].
#[doc(hidden)]
#[macro_export]
macro_rules! forward_method {
    (properties, $inner:tt) => {
        fn properties(&self) -> $crate::StoreProperties {
            self.$inner.properties()
        }
    };
    (get, $inner:tt) => {
        fn get(
            &self,
            vbid: $crate::forward::Vbid,
            key: $crate::forward::DocKey<'_>,
            reserve: &mut $crate::ReserveMemory<'_>,
            visit: &mut dyn FnMut($crate::Record<'_>),
        ) -> Result<bool, $crate::StoreError> {
            self.$inner.get(vbid, key, reserve, visit)
        }
    };
    (may_contain, $inner:tt) => {
        fn may_contain(
            &self,
            vbid: $crate::forward::Vbid,
            key: $crate::forward::DocKey<'_>,
        ) -> bool {
            self.$inner.may_contain(vbid, key)
        }
    };
    (scan_keys, $inner:tt) => {
        fn scan_keys(
            &self,
            vbid: $crate::forward::Vbid,
            visit: &mut $crate::RecordVisitor<'_>,
        ) -> Result<(), $crate::StoreError> {
            self.$inner.scan_keys(vbid, visit)
        }
    };
    (scan_collection, $inner:tt) => {
        fn scan_collection(
            &self,
            vbid: $crate::forward::Vbid,
            from: $crate::forward::DocKey<'_>,
            reserve: &mut $crate::ReserveMemory<'_>,
            visit: &mut $crate::RecordVisitor<'_>,
        ) -> Result<(), $crate::StoreError> {
            self.$inner.scan_collection(vbid, from, reserve, visit)
        }
    };
    (begin_scan, $inner:tt) => {
        fn begin_scan(
            &self,
            vbid: $crate::forward::Vbid,
            range: $crate::SeqnoRange,
        ) -> Result<Box<dyn $crate::SeqnoScan>, $crate::StoreError> {
            self.$inner.begin_scan(vbid, range)
        }
    };
    (plan_load, $inner:tt) => {
        fn plan_load(&self) -> Result<$crate::LoadPlan, $crate::StoreError> {
            self.$inner.plan_load()
        }
    };
    (load_part, $inner:tt) => {
        fn load_part(
            &self,
            part: $crate::LoadPart,
            values: $crate::LoadValues,
            visit: &mut $crate::LoadVisitor<'_>,
        ) -> Result<(), $crate::StoreError> {
            self.$inner.load_part(part, values, visit)
        }
    };
    (vbucket_states, $inner:tt) => {
        fn vbucket_states(
            &self,
        ) -> Result<Vec<($crate::forward::Vbid, $crate::VbucketState)>, $crate::StoreError> {
            self.$inner.vbucket_states()
        }
    };
    (get_local, $inner:tt) => {
        fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, $crate::StoreError> {
            self.$inner.get_local(name)
        }
    };
    (put_local, $inner:tt) => {
        fn put_local(&self, name: &str, value: &[u8]) -> Result<(), $crate::StoreError> {
            self.$inner.put_local(name, value)
        }
    };
    (purge_collection, $inner:tt) => {
        fn purge_collection(
            &self,
            vbid: $crate::forward::Vbid,
            collection: $crate::forward::CollectionId,
        ) -> Result<(), $crate::StoreError> {
            self.$inner.purge_collection(vbid, collection)
        }
    };
    (drop_vbucket, $inner:tt) => {
        fn drop_vbucket(
            &self,
            vbid: $crate::forward::Vbid,
            next: Option<&$crate::VbucketState>,
        ) -> Result<(), $crate::StoreError> {
            self.$inner.drop_vbucket(vbid, next)
        }
    };
    (compact, $inner:tt) => {
        fn compact(
            &self,
            vbid: $crate::forward::Vbid,
            purge_before: u32,
        ) -> Result<Option<$crate::forward::Seqno>, $crate::StoreError> {
            self.$inner.compact(vbid, purge_before)
        }
    };
    (forget_prepares, $inner:tt) => {
        fn forget_prepares(&self, vbid: $crate::forward::Vbid) -> Result<u64, $crate::StoreError> {
            self.$inner.forget_prepares(vbid)
        }
    };
    (request_compaction, $inner:tt) => {
        fn request_compaction(&self) {
            self.$inner.request_compaction();
        }
    };
    (finish, $inner:tt) => {
        fn finish(&self) -> Result<(), $crate::StoreError> {
            self.$inner.finish()
        }
    };
    (stats, $inner:tt) => {
        fn stats(&self) -> $crate::StoreStats {
            self.$inner.stats()
        }
    };
}

// For the expansion of the macros in other crates.
#[doc(hidden)]
pub use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
